"""Registration of sources: how a life of a source gets its epoch, and learns that a later life has begun."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable

from confluent_kafka import KafkaError, Message, Producer, TopicPartition

from lowmark.wire.codec import decode, encode
from lowmark.wire.kafka import KafkaProblem, KafkaSettings, KafkaUnavailable, consumer, producer, translate
from lowmark.wire.registration import Registration

__all__ = ["EpochWatch", "register"]


def register(kafka: KafkaSettings, topic: str, registration: Registration, timeout_s: float = 30.0) -> int:
    """Writes the registration and waits for the offset that it got: the epoch. KafkaUnavailable when none comes; the
    registration may yet arrive then, as an epoch that nobody uses."""
    client = producer(kafka, 0)
    until = time.monotonic() + timeout_s
    while True:
        epoch = _append(client, kafka, topic, registration, until - time.monotonic())
        if epoch is None:
            raise KafkaUnavailable(f"Kafka at {kafka.bootstrap} did not take a registration within {timeout_s:.0f} s")
        if epoch >= 0:
            return epoch
        # A request that had to be repeated is acknowledged without an offset: the next registration has one.


def _append(
    client: Producer, kafka: KafkaSettings, topic: str, registration: Registration, timeout_s: float
) -> int | None:
    outcome: list[int | KafkaProblem] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        outcome.append(message.offset() if error is None else translate(error, kafka))

    record = encode(registration)
    client.produce(topic, record.value, record.key, 0, on_delivery=delivered, headers=list(record.headers))
    client.flush(max(0.0, timeout_s))
    if not outcome:
        return None
    if isinstance(outcome[0], KafkaProblem):
        raise outcome[0]
    return outcome[0]


class EpochWatch:
    """Looks out for later registrations of these sources, from a thread of its own. Inert until `start`."""

    def __init__(
        self, kafka: KafkaSettings, topic: str, epochs: dict[str, int], superseded: Callable[[str, int], None]
    ) -> None:
        """`superseded` is told source and epoch, from the thread of the watch."""
        self._kafka = kafka
        self._topic = topic
        self._epochs = epochs
        self._superseded = superseded
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="epochs", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        reader = consumer(self._kafka, f"lowmark-epochs-{uuid.uuid4()}")
        reader.assign([TopicPartition(self._topic, 0, min(self._epochs.values()) + 1)])
        while not self._stopping.is_set():
            for message in reader.consume(100, timeout=0.5):
                if message.error() is not None:
                    continue  # the client keeps trying; the records will come when the broker is back
                record = decode(message.headers(), message.value(), lambda origin: None)
                epoch = message.offset()
                if isinstance(record, Registration) and self._epochs.get(record.source, epoch) < epoch:
                    self._superseded(record.source, epoch)
        reader.close()
