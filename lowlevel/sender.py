"""Sends one topic's records to Kafka in order: a queue per partition, which a record leaves only when it is
acknowledged. Records that do not fit into memory wait on disk, if there is a folder for them.

The producer is idempotent and its messages never expire, so a queue drains in order after outages of any length. A
message that it cannot deliver is fatal to it, so no later message arrives without it. A new producer then sends again
from the first record not acknowledged: what arrives twice has the same sequence number, and readers drop it. Each
further producer is created after a longer wait.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from lowlevel.config import QueueConfig
from lowlevel.spill import Backlog, SpillError, SpillFolder
from lowmark.helpers import Backoff, Helper
from lowmark.wire.kafka.clients import (
    KafkaProblem,
    KafkaSettings,
    KafkaSettingsError,
    gapless_producer,
    log_problem,
    translate,
)
from lowmark.wire.records.record import WireRecord

__all__ = ["Sender", "TopicState"]

_LOG = logging.getLogger("lowmark.emitter")

_POLL_S = 0.1

_AHEAD_BYTES = 1 << 20
"""Bytes of a partition handed to the producer beyond what it has delivered: it copies records that the queue keeps."""

_REFILL_BYTES = 256 << 10
"""Bytes of a partition read back from disk at a time."""

_ENTRY_BYTES = 512
"""Approximate bytes that a waiting record takes beside its value and headers."""

_PATIENCE_S = 10.0
"""A topic counts as failing once a partition's records have waited this long without any acknowledgement."""

_TOLD_AGAIN_S = 600.0


@dataclass(slots=True, eq=False)
class _Queue:
    """One partition's records that are not acknowledged, oldest first. The first `sent` of them, `ahead` bytes, were
    handed to the current producer. The backlog's records come after the others."""

    partition: int
    records: deque[WireRecord] = field(default_factory=deque)
    backlog: Backlog | None = None
    spilled: int = 0  # bytes of the backlog's records
    sent: int = 0
    ahead: int = 0
    since_s: float = 0.0  # time since which the first record has waited without any acknowledgement
    put_s: deque[float] = field(default_factory=deque)  # time at which each of `records` was put

    @property
    def waits(self) -> bool:
        return bool(self.records or self.backlog)

    @property
    def oldest_s(self) -> float | None:
        """When the oldest record was put; None: no record waits."""
        if self.put_s:
            return self.put_s[0]
        return self.backlog.since_s if self.backlog else None


@dataclass(frozen=True, slots=True)
class TopicState:
    """`records` and `size` (bytes of values) have been acknowledged since the start; `queued_records` and
    `queued_bytes` have not."""

    topic: str
    readers: tuple[str, ...]  # queries that read it; empty: nothing new is sent to it
    records: int = 0
    size: int = 0
    queued_records: int = 0
    queued_bytes: int = 0
    spilled_bytes: int = 0  # the part of the queued bytes that waits on disk
    restarts: int = 0  # restarts of the producer after a failure
    failing: str | None = None  # why Kafka takes no records of the topic, or of one of its partitions; None: it does
    failing_s: float = 0.0  # for how long
    age_s: float = 0.0  # how long the oldest record has waited; 0: no record waits


class Sender:
    """Inactive until `start`. `put` may be called from any thread; `helper` is the thread that receives the broker's
    answers. `readers` are the queries that read the topic."""

    def __init__(
        self, topic: str, kafka: KafkaSettings, config: QueueConfig, folder: SpillFolder | None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.topic = topic
        self.readers: tuple[str, ...] = ()
        self.helper = Helper(f"emitter {topic}", self._run)
        self._kafka = kafka
        self._linger_ms = config.linger_ms
        self._max_bytes, self._spill_bytes = config.max_bytes, config.spill_bytes
        self._folder = folder
        self._now_s = now_s
        self._lock = threading.Lock()
        self._empty = threading.Condition(self._lock)
        self._queues: dict[int, _Queue] = {}
        self._queued_records = self._queued_bytes = self._spilled_bytes = 0
        self._held = False  # the producer had no room for all records
        self._records = self._size = self._restarts = 0
        self._producer: Producer | None = None
        self._files: tuple[tuple[int, ...], ...] = ()  # certificates and secrets of the producer
        self._generation = 0  # number of the producer: reports of an earlier one are ignored
        self._backoff = Backoff(config.retry_s)
        self._failure: str | None = None  # why the current producer cannot be used any more
        self._failing: tuple[str, float] | None = None  # why the topic fails, and since when; until `_owed` is empty
        self._owed: set[int] = set()  # partitions that waited at a failure and had no acknowledgement since
        self._heard: str | None = None  # the last non-fatal problem since an acknowledgement
        self._told_s: float | None = None  # when the failing topic was last logged; None: it does not fail

    def share(self, max_bytes: int, spill_bytes: int) -> None:
        """Set how much may wait, from now on."""
        self._max_bytes, self._spill_bytes = max_bytes, spill_bytes

    def start(self) -> None:
        """Connect in the background, and wait for a broker that is not there yet."""
        self.helper.start()

    def room(self, size: int) -> bool:
        """Whether this many more bytes of data fit. If not, the caller gives the data up before it gets a number."""
        if not self._spilled_bytes and self._queued_bytes + size <= self._max_bytes:
            return True
        if self._folder is None or self._folder.full:
            return False
        return self._spilled_bytes + size <= self._spill_bytes

    def put(self, partition: int, record: WireRecord) -> None:
        """Take a numbered record, even without room: it will arrive after all records put before it."""
        with self._lock:
            queue = self._queues.get(partition)
            if queue is None:
                queue = self._queues[partition] = _Queue(partition)
            now_s = self._now_s()
            if not queue.waits:
                queue.since_s = now_s
            size = _size(record)
            self._queued_records += 1
            self._queued_bytes += size
            in_memory = self._queued_bytes - self._spilled_bytes
            if self._folder is not None and (queue.backlog or in_memory > self._max_bytes):
                if queue.backlog is None:
                    queue.backlog = Backlog(self._folder)
                queue.backlog.put(record, now_s)
                queue.spilled += size
                self._spilled_bytes += size
            else:
                queue.records.append(record)
                queue.put_s.append(now_s)
            self._feed(queue)

    def drained(self, timeout_s: float) -> bool:
        """Wait until everything has been acknowledged; returns whether it was."""
        with self._lock:
            return self._empty.wait_for(lambda: self._queued_records == 0, timeout_s)

    def stop(self) -> None:
        """Stop; records not acknowledged by now are lost. Call `drained` first."""
        self.helper.stop()
        self._disconnect()
        with self._lock:
            for queue in self._queues.values():
                if queue.backlog is not None:
                    queue.backlog.close()

    def state(self) -> TopicState:
        with self._lock:
            now_s = self._now_s()
            reason, failing_since_s = self._judged(now_s)
            each_s = (queue.oldest_s for queue in self._queues.values())
            oldest_s = min((since_s for since_s in each_s if since_s is not None), default=now_s)
            return TopicState(
                self.topic, self.readers, self._records, self._size, self._queued_records, self._queued_bytes,
                self._spilled_bytes, self._restarts, reason, now_s - failing_since_s, now_s - oldest_s,
            )  # fmt: skip

    def turn(self) -> float:
        """One turn of the helper's work: serve the broker's answers, or replace a failed producer. Returns the seconds
        until there is more to do."""
        if self._producer is None and self._failure is None:
            self._connect()
        elif self._failure is not None:
            self._disconnect()
            self._restarts += 1
            self._tell()
            return self._backoff.next_s()
        elif self._producer is not None:
            self._hear(self._producer)
        self._tell()
        return 0.0

    def _run(self, stopping: threading.Event) -> None:
        while not stopping.wait(self.turn()):
            pass

    def _hear(self, producer: Producer) -> None:
        try:
            producer.poll(_POLL_S)
        except KafkaException as error:  # no retry can help: the producer is replaced
            self._on_failure(self._generation, str(translate(error.args[0], self._kafka)))
        if self._held:
            self._feed_all()

    def _connect(self) -> None:
        """Create a producer. If a setting cannot be read now (a file with a secret), a later attempt may succeed."""
        with self._lock:
            generation = self._generation
        self._files = self._kafka.state_of_files()
        try:
            producer = gapless_producer(
                self._kafka, self._linger_ms, lambda problem: self._on_problem(generation, problem)
            )
        except KafkaSettingsError as error:
            self._on_failure(generation, str(error))
            return
        with self._lock:
            self._producer = producer
        self._feed_all()

    def _disconnect(self) -> None:
        with self._lock:
            producer, self._producer, self._failure = self._producer, None, None
            self._generation += 1
            for queue in self._queues.values():
                queue.sent = queue.ahead = 0
        if producer is not None:
            producer.purge(blocking=False)

    def _tell(self) -> None:
        """Log when the topic begins to fail, now and then while it does, and when it works again."""
        state = self.state()
        now_s = self._now_s()
        where = f"topic {self.topic}, read by {', '.join(self.readers) or 'no query any more'}"
        if state.failing is None:
            if self._told_s is not None:
                self._told_s = None
                _LOG.info("%s: Kafka takes records again", where)
        elif self._told_s is None or now_s - self._told_s >= _TOLD_AGAIN_S:
            self._told_s = now_s
            _LOG.warning("%s: Kafka takes no records, %d wait: %s", where, state.queued_records, state.failing)

    def _feed_all(self) -> None:
        with self._lock:
            self._held = False
            for queue in self._queues.values():
                self._feed(queue)

    # The methods below hold the lock; the producer's callbacks take it themselves.

    def _judged(self, now_s: float) -> tuple[str | None, float]:
        """Why the topic is failing, and since when."""
        if self._failing is not None:
            return self._failing
        since_s = min((queue.since_s for queue in self._queues.values() if queue.waits), default=now_s)
        if now_s - since_s < _PATIENCE_S:
            return None, now_s
        return self._heard or "it acknowledges nothing, and gives no reason", since_s

    def _feed(self, queue: _Queue) -> None:
        """Hand the producer as many records as it has room for."""
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
                    self.topic, record.value, record.key, queue.partition, delivered, headers=list(record.headers)
                )
            except BufferError:
                self._held = True
                return
            except KafkaException as error:  # the producer has failed, and will report it
                self._fail(str(translate(error.args[0], self._kafka)))
                return
            queue.sent += 1
            queue.ahead += _size(record)

    def _refill(self, queue: _Queue, backlog: Backlog) -> None:
        """Read the oldest records back from disk, even if the memory is full: they are few, and sent at once."""
        before = queue.spilled
        try:
            for record, put_s in backlog.drain():
                size = _size(record)
                queue.records.append(record)
                queue.put_s.append(put_s)
                queue.spilled -= size
                self._spilled_bytes -= size
                if before - queue.spilled >= _REFILL_BYTES:
                    break
        except SpillError as error:
            # Readers detect the missing sequence numbers, and the windows report the loss.
            _LOG.error(
                "%d records of %s/%d on disk cannot be read, and are lost: %s",
                backlog.records, self.topic, queue.partition, error,
            )  # fmt: skip
            self._queued_records -= backlog.records
            self._queued_bytes -= queue.spilled
            self._spilled_bytes -= queue.spilled
            queue.spilled = 0
            backlog.close()
            self._owed.discard(queue.partition)
            if self._queued_records == 0:
                self._empty.notify_all()

    def _fail(self, reason: str) -> None:
        """Mark the current producer as unusable."""
        if self._failure is not None:
            return
        self._failure = reason
        self._owed |= {queue.partition for queue in self._queues.values() if queue.waits}
        now_s = self._now_s()
        already, since_s = self._judged(now_s)
        self._failing = reason, since_s if already else now_s

    def _reporter(self, queue: _Queue) -> Callable[[KafkaError | None, Message], None]:
        generation = self._generation

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self._on_acknowledged(generation, queue)
            else:
                self._on_failure(generation, str(translate(error, self._kafka)))

        return delivered

    def _on_acknowledged(self, generation: int, queue: _Queue) -> None:
        with self._lock:
            if generation != self._generation or self._failure is not None:
                return
            record = queue.records.popleft()
            queue.put_s.popleft()
            size = _size(record)
            queue.sent -= 1
            queue.ahead -= size
            queue.since_s = self._now_s()
            self._queued_records -= 1
            self._queued_bytes -= size
            self._records += 1
            self._size += len(record.value)
            self._heard = None
            self._owed.discard(queue.partition)
            if not self._owed:
                self._failing = None
                self._backoff.reset()
            if self._queued_records == 0:
                self._empty.notify_all()
            self._feed(queue)

    def _on_failure(self, generation: int, reason: str) -> None:
        with self._lock:
            if generation == self._generation:
                self._fail(reason)

    def _on_problem(self, generation: int, problem: KafkaProblem) -> None:
        if problem.fatal or self._files != self._kafka.state_of_files():  # another producer reads new files
            self._on_failure(generation, str(problem))
            return
        self._heard = str(problem)
        log_problem(problem)


def _size(record: WireRecord) -> int:
    """Approximate bytes that a waiting record takes."""
    return len(record.value) + sum(len(value) for _, value in record.headers) + _ENTRY_BYTES
