"""The ordered way of records to Kafka: a queue per partition, from which a record leaves only when it is acknowledged.
What has no room in memory waits on disk, if there is a folder for it.

The producer is idempotent and its messages never expire, so a queue drains in its order through outages of any length.
A message that it cannot deliver is fatal to it, so that nothing behind the message arrives without it. A new producer
then sends again from the first record that was not acknowledged: what arrives twice has the same sequence number, and
readers drop it.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from lowlevel.config import QueueConfig
from lowlevel.spill import Backlog, SpillError, SpillFolder
from lowmark.wire.kafka import KafkaProblem, KafkaSettings, gapless_producer, translate
from lowmark.wire.record import WireRecord

__all__ = ["Emitter", "EmitterStats"]

_LOG = logging.getLogger("lowmark.emitter")

_POLL_S = 0.1

_AHEAD_BYTES = 1 << 20
"""Of a partition, what the producer is handed beyond what it has delivered: it copies records that the queue keeps."""

_REFILL_BYTES = 256 << 10
"""Of a partition, what comes back from disk at a time."""

_ENTRY_BYTES = 512
"""What a waiting record takes beside its value and headers, about."""


@dataclass(slots=True, eq=False)
class _Queue:
    """Of one partition: the records that are not acknowledged, oldest first. The first `sent` of them, `ahead` bytes,
    were handed to the present producer. Those of the backlog come behind the others."""

    topic: str
    partition: int
    records: deque[WireRecord] = field(default_factory=deque)
    backlog: Backlog | None = None
    spilled: int = 0  # bytes of the backlog's records
    sent: int = 0
    ahead: int = 0


@dataclass(frozen=True, slots=True)
class EmitterStats:
    """`records` and `size` (bytes) were acknowledged, since the start; `queued` were not yet."""

    records: int
    size: int
    queued_records: int
    queued_bytes: int
    restarts: int  # of the producer, after fatal errors
    spilled_bytes: int = 0  # of those that are queued, what waits on disk


class Emitter:
    """Inert until `start`. `put` may be called from any thread; a thread of the emitter's own hears the broker.
    LowLevelConfigError where the folder for what has no room in memory cannot be used."""

    def __init__(self, kafka: KafkaSettings, config: QueueConfig) -> None:
        self._kafka = kafka
        self._config = config
        self._lock = threading.Lock()
        self._empty = threading.Condition(self._lock)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="emitter", daemon=True)
        self._queues: dict[tuple[str, int], _Queue] = {}
        self._queued_records = self._queued_bytes = self._spilled_bytes = 0
        self._folder = None if config.spill is None else SpillFolder(config.spill)
        self._disk_full = False
        self._held = False  # the producer had no room for a queue
        self._records = self._size = self._restarts = 0
        self._producer: Producer | None = None
        self._generation = 0  # of the producer: an earlier one's reports are not heard
        self._failure: KafkaProblem | None = None  # of the present producer, which is of no more use

    def start(self) -> None:
        """Connects in the background, and waits for a broker that is not there yet. KafkaSettingsError where the
        settings cannot work."""
        with self._lock:
            self._connect()
        self._thread.start()

    def room(self, size: int) -> bool:
        """Whether so many bytes of data still fit: when not, they are to be given up before they get a number."""
        if not self._spilled_bytes and self._queued_bytes + size <= self._config.max_bytes:
            return True
        if self._folder is None or self._disk_full:
            return False
        return self._spilled_bytes + size <= self._config.spill_bytes

    def put(self, topic: str, partition: int, record: WireRecord) -> None:
        """Takes a numbered record, whether there is room or not: it will arrive behind all that were put before it."""
        with self._lock:
            queue = self._queues.get((topic, partition))
            if queue is None:
                queue = self._queues[topic, partition] = _Queue(topic, partition)
            size = _size(record)
            self._queued_records += 1
            self._queued_bytes += size
            in_memory = self._queued_bytes - self._spilled_bytes
            if self._folder is not None and (queue.backlog or in_memory > self._config.max_bytes):
                if queue.backlog is None:
                    queue.backlog = Backlog(self._folder)
                self._disk_full = not queue.backlog.put(record)
                queue.spilled += size
                self._spilled_bytes += size
            else:
                queue.records.append(record)
            self._feed(queue)

    def drained(self, timeout_s: float) -> bool:
        """Waits until everything has been acknowledged, and says whether it was."""
        with self._lock:
            return self._empty.wait_for(lambda: self._queued_records == 0, timeout_s)

    def stop(self) -> None:
        """What is not acknowledged by now is lost: `drained` comes before."""
        self._stopping.set()
        self._thread.join()
        with self._lock:
            self._disconnect()
            for queue in self._queues.values():
                if queue.backlog is not None:
                    queue.backlog.close()

    def stats(self) -> EmitterStats:
        with self._lock:
            return EmitterStats(
                self._records, self._size, self._queued_records, self._queued_bytes, self._restarts, self._spilled_bytes
            )  # fmt: skip

    def _run(self) -> None:
        while not self._stopping.is_set():
            if self._failure is not None:
                self._replace(self._failure)
            elif self._producer is not None:
                self._hear(self._producer)

    def _hear(self, producer: Producer) -> None:
        try:
            producer.poll(_POLL_S)
        except KafkaException as error:  # it has failed for good
            self._on_failure(self._generation, translate(error.args[0], self._kafka))
        if self._held:
            self._feed_all()

    def _replace(self, failure: KafkaProblem) -> None:
        _LOG.warning("%s; the producer is replaced, and sends again what was not acknowledged", failure)
        with self._lock:
            self._disconnect()
        if self._stopping.wait(self._config.retry_s):
            return
        with self._lock:
            self._failure = None
            self._restarts += 1
            self._connect()
            for queue in self._queues.values():
                queue.sent = queue.ahead = 0
        self._feed_all()

    def _feed_all(self) -> None:
        with self._lock:
            self._held = False
            for queue in self._queues.values():
                self._feed(queue)

    # The lock is held in what follows, but in the producer's calls back.

    def _connect(self) -> None:
        generation = self._generation
        self._producer = gapless_producer(
            self._kafka, self._config.linger_ms, lambda problem: self._on_problem(generation, problem)
        )

    def _disconnect(self) -> None:
        producer, self._producer = self._producer, None
        self._generation += 1
        if producer is not None:
            producer.purge(blocking=False)

    def _feed(self, queue: _Queue) -> None:
        """Hands the producer what it has room for."""
        producer = self._producer
        if producer is None or self._failure is not None:
            return
        delivered = self._reporter(queue)
        while queue.ahead < _AHEAD_BYTES:
            if queue.sent == len(queue.records):
                if not queue.backlog:
                    return
                self._refill(queue, queue.backlog)
                continue
            record = queue.records[queue.sent]
            try:
                producer.produce(
                    queue.topic, record.value, record.key, queue.partition, delivered, headers=list(record.headers)
                )
            except BufferError:
                self._held = True
                return
            except KafkaException as error:  # the producer has failed, and will say so
                self._failure = translate(error.args[0], self._kafka)
                return
            queue.sent += 1
            queue.ahead += _size(record)

    def _refill(self, queue: _Queue, backlog: Backlog) -> None:
        """The oldest records come back from disk, however full the memory is: a few, since they are sent at once."""
        before = queue.spilled
        try:
            for record in backlog.drain():
                size = _size(record)
                queue.records.append(record)
                queue.spilled -= size
                self._spilled_bytes -= size
                if before - queue.spilled >= _REFILL_BYTES:
                    break
        except SpillError as error:
            # Their numbers will be missing where they should arrive, and the windows say so.
            _LOG.error(
                "%d records of %s/%d on disk cannot be read, and are lost: %s",
                backlog.records, queue.topic, queue.partition, error,
            )  # fmt: skip
            self._queued_records -= backlog.records
            self._queued_bytes -= queue.spilled
            self._spilled_bytes -= queue.spilled
            queue.spilled = 0
            backlog.close()
            if self._queued_records == 0:
                self._empty.notify_all()
        if not self._spilled_bytes:
            self._disk_full = False

    def _reporter(self, queue: _Queue) -> Callable[[KafkaError | None, Message], None]:
        generation = self._generation

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self._on_acknowledged(generation, queue)
            else:
                self._on_failure(generation, translate(error, self._kafka))

        return delivered

    def _on_acknowledged(self, generation: int, queue: _Queue) -> None:
        with self._lock:
            if generation != self._generation or self._failure is not None:
                return
            size = _size(queue.records.popleft())
            queue.sent -= 1
            self._queued_records -= 1
            self._queued_bytes -= size
            queue.ahead -= size
            self._records += 1
            self._size += size
            if self._queued_records == 0:
                self._empty.notify_all()
            self._feed(queue)

    def _on_failure(self, generation: int, problem: KafkaProblem) -> None:
        with self._lock:
            if generation == self._generation and self._failure is None:
                self._failure = problem

    def _on_problem(self, generation: int, problem: KafkaProblem) -> None:
        if problem.fatal:
            self._on_failure(generation, problem)
        else:
            _LOG.warning("%s", problem)


def _size(record: WireRecord) -> int:
    """Bytes that a waiting record takes."""
    return len(record.value) + sum(len(value) for _, value in record.headers) + _ENTRY_BYTES
