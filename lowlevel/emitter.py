"""The ordered way of records to Kafka: a queue per partition, from which a record leaves only when it is acknowledged.

The producer is idempotent and its messages never expire, so a queue drains in its order through outages of any length.
After a fatal error a new producer sends again from the first record that was not acknowledged: what arrives twice has
the same sequence number, and readers drop it.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, Message, Producer

from lowlevel.config import QueueConfig
from lowmark.wire.kafka import KafkaSettings, producer, translate
from lowmark.wire.record import WireRecord

__all__ = ["Emitter", "EmitterStats"]

_LOG = logging.getLogger("lowmark.emitter")

_POLL_S = 0.05
_POLL_EVERY = 256  # records handed over between two looks at what was acknowledged


@dataclass(slots=True)
class _Queue:
    """Of one partition: the records that are not acknowledged, the first `sent` of them handed to the producer."""

    records: deque[WireRecord] = field(default_factory=deque)
    sent: int = 0


@dataclass(frozen=True, slots=True)
class EmitterStats:
    """`records` and `size` (bytes of values) were acknowledged, since the start; `queued` were not yet."""

    records: int
    size: int
    queued_records: int
    queued_bytes: int
    restarts: int  # of the producer, after fatal errors


class Emitter:
    """Inert until `start`. `put` may be called from any thread; one thread of the emitter's own does the sending."""

    def __init__(
        self, kafka: KafkaSettings, config: QueueConfig, make_producer: Callable[..., Producer] = producer
    ) -> None:
        self._kafka = kafka
        self._config = config
        self._make_producer = make_producer
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._queues: dict[tuple[str, int], _Queue] = {}
        self._queued_bytes = 0
        self._records = 0
        self._size = 0
        self._restarts = 0
        self._failed = False  # the present producer is of no more use
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="emitter", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def room(self, size: int) -> bool:
        """Whether so many bytes of data still fit: when not, they are to be given up before they get a number."""
        return self._queued_bytes + size <= self._config.max_bytes

    def put(self, topic: str, partition: int, record: WireRecord) -> None:
        """Takes a numbered record: it will be sent, after all that were put before it."""
        with self._lock:
            self._queues.setdefault((topic, partition), _Queue()).records.append(record)
            self._queued_bytes += len(record.value)
            self._changed.notify_all()

    def drained(self, timeout_s: float) -> bool:
        """Waits until everything has been acknowledged, and says whether it was."""
        with self._lock:
            return self._changed.wait_for(lambda: not self._queued_records(), timeout_s)

    def stop(self) -> None:
        """What is not acknowledged by now is lost: `drained` comes before."""
        with self._lock:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join()

    def stats(self) -> EmitterStats:
        with self._lock:
            return EmitterStats(
                self._records, self._size, self._queued_records(), self._queued_bytes, self._restarts
            )  # fmt: skip

    def _queued_records(self) -> int:
        return sum(len(queue.records) for queue in self._queues.values())

    def _run(self) -> None:
        client = self._make_producer(self._kafka, self._config.linger_ms)
        while not self._stopping:
            if self._failed:
                client = self._replace(client)
            sent = self._send(client)
            client.poll(0 if sent else _POLL_S)
        client.flush(0)

    def _send(self, client: Producer) -> bool:
        """Hands over what the producer has room for; whether that was anything."""
        with self._lock:
            waiting = [
                (place, queue, list(queue.records)[queue.sent :])
                for place, queue in self._queues.items()
                if queue.sent < len(queue.records)
            ]
        handed = 0
        for (topic, partition), queue, records in waiting:
            for record in records:
                if not self._hand_over(client, topic, partition, record):
                    return handed > 0
                with self._lock:
                    queue.sent += 1
                handed += 1
                if handed % _POLL_EVERY == 0:
                    client.poll(0)
                    if self._failed:
                        return True
        return handed > 0

    def _hand_over(self, client: Producer, topic: str, partition: int, record: WireRecord) -> bool:
        def delivered(error: KafkaError | None, message: Message) -> None:
            self._delivered(client, topic, partition, record, error)

        try:
            client.produce(
                topic, record.value, record.key, partition, on_delivery=delivered, headers=list(record.headers)
            )
        except BufferError:
            client.poll(_POLL_S)
            return False
        return True

    def _delivered(
        self, client: Producer, topic: str, partition: int, record: WireRecord, error: KafkaError | None
    ) -> None:
        if error is not None:
            if not self._failed and not self._stopping:
                _LOG.warning("%s; the producer is replaced, and sends again what was not acknowledged",
                             translate(error, self._kafka))  # fmt: skip
            self._failed = True
            return
        if self._failed:
            return  # of a producer that is being replaced: what comes after the first failure is sent again
        with self._lock:
            queue = self._queues[topic, partition]
            queue.records.popleft()
            queue.sent -= 1
            self._queued_bytes -= len(record.value)
            self._records += 1
            self._size += len(record.value)
            self._changed.notify_all()

    def _replace(self, client: Producer) -> Producer:
        client.purge()
        client.poll(0)  # its last reports, of records that stay queued
        with self._lock:
            for queue in self._queues.values():
                queue.sent = 0
            self._restarts += 1
            self._changed.wait_for(lambda: self._stopping, self._config.retry_s)
            self._failed = False
        return self._make_producer(self._kafka, self._config.linger_ms)
