"""Registers sources. A life of a source gets an epoch, notices a later life, and answers whether it is alive."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from lowmark.helpers import Helper
from lowmark.wire.kafka.clients import (
    KafkaProblem,
    KafkaSettings,
    KafkaSettingsError,
    KafkaUnavailable,
    consumer,
    log_problem,
    producer,
    translate,
)
from lowmark.wire.records.codec import decode, encode
from lowmark.wire.records.quarantine import Quarantine
from lowmark.wire.records.registration import Presence, PresenceState, Registration
from lowmark.wire.records.rosters import Request

__all__ = ["EpochWatch", "SourcesLog"]

_SAID_WITHIN_S = 2.0
_WHAT = {
    Registration: "registration",
    Presence: "word of who sends",
    Request: "request",
    Quarantine: "word of quarantined queries",
}


SourcesRecord = Registration | Presence | Request | Quarantine


class SourcesLog:
    """Appends to the topic of sources. Inactive until the first record."""

    def __init__(self, kafka: KafkaSettings, topic: str) -> None:
        self._kafka = kafka
        self._topic = topic
        self._client: Producer | None = None

    def append(self, record: SourcesRecord, timeout_s: float = 30.0) -> int:
        """Append a record and wait for its offset: a registration's epoch. Raises KafkaUnavailable if no offset comes;
        the registration may still arrive later, as an unused epoch."""
        until = time.monotonic() + timeout_s
        while True:
            offset = self._offset(record, until - time.monotonic())
            if offset is None:
                what = _WHAT[type(record)]
                raise KafkaUnavailable(
                    f"Kafka at {self._kafka.bootstrap} did not take a {what} within {timeout_s:.0f} s"
                )
            if offset >= 0:
                return offset
            # A request that had to be repeated is acknowledged without an offset; the next record gets one.

    def _offset(self, record: SourcesRecord, timeout_s: float) -> int | None:
        outcome: list[int | KafkaError] = []
        client = self._client or producer(self._kafka, 0)
        self._client = None  # a client that fails is not used again

        def delivered(error: KafkaError | None, message: Message) -> None:
            outcome.append(message.offset() if error is None else error)

        sent = encode(record)
        client.produce(self._topic, sent.value, sent.key, 0, on_delivery=delivered, headers=list(sent.headers))
        client.flush(max(0.0, timeout_s))
        if not outcome:
            return None
        if isinstance(outcome[0], KafkaError):
            raise translate(outcome[0], self._kafka)
        self._client = client
        return outcome[0]


class EpochWatch:
    """Watches for later registrations of these sources, and answers whether they are being sent. Inactive until
    `start`; `helper` is its thread."""

    def __init__(
        self, kafka: KafkaSettings, topic: str, process: str, epochs: Mapping[str, int],
        superseded: Callable[[str, int], None], sending: Callable[[str], bool],
    ) -> None:  # fmt: skip
        """The watch's thread calls `superseded` with source and epoch, and `sending` to ask whether a source is still
        sent."""
        self.helper = Helper("epochs", self._run, (KafkaProblem, KafkaSettingsError, KafkaException))
        self._kafka = kafka
        self._topic = topic
        self._log = SourcesLog(kafka, topic)
        self._process = process
        self._epochs = epochs
        self._superseded = superseded
        self._sending = sending
        self._lost: set[str] = set()  # sources that have a later life
        self._next = min(epochs.values()) + 1  # offset

    def start(self) -> None:
        self.helper.start()

    def stop(self) -> None:
        """Announce that the sources send nothing more, if Kafka takes the record at once."""
        self.helper.stop()
        for source in self._epochs.keys() - self._lost:
            try:
                self._say(source, PresenceState.GONE)
            except (KafkaProblem, KafkaSettingsError, KafkaException):
                return  # a missing answer leads to the same conclusion, only later

    def _run(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            self._read(stopping)

    def _read(self, stopping: threading.Event) -> None:
        """Read until stopped, or until an error after the files with certificates and secrets have changed."""
        troubles: list[KafkaProblem] = []
        files = self._kafka.state_of_files()
        reader = consumer(self._kafka, f"lowmark-epochs-{uuid.uuid4()}", on_problem=troubles.append)
        try:
            reader.assign([TopicPartition(self._topic, 0, self._next)])
            while not stopping.is_set():
                self._hear(reader)
                for problem in troubles:
                    log_problem(problem)
                if troubles and files != self._kafka.state_of_files():
                    return
                troubles.clear()
        finally:
            reader.close()

    def _hear(self, reader: Consumer) -> None:
        for message in reader.consume(100, timeout=0.5):
            if message.error() is not None:
                raise translate(message.error(), self._kafka)
            record = decode(message.headers(), message.value())
            offset = message.offset()
            match record:
                case Registration(source=source) if self._epochs.get(source, offset) < offset:
                    self._lost.add(source)
                    self._superseded(source, offset)
                case Presence(source=source, epoch=epoch, state=PresenceState.ASKED) if (
                    self._epochs.get(source) == epoch
                ):
                    self._say(source, PresenceState.HERE if self._sending(source) else PresenceState.GONE)
            self._next = offset + 1

    def _say(self, source: str, state: PresenceState) -> None:
        self._log.append(Presence(source, self._epochs[source], self._process, state), _SAID_WITHIN_S)
