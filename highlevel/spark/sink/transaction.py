"""Transactions that keep a note: rows become visible together with the metadata of an offset, or not at all.

The offset is that of a consumer group of the transactions' own name. Kafka forgets a group's offsets when they have not
been committed for a while (`offsets.retention.minutes`, a week): somebody has to write the note again before.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from highlevel.spark.sink.messages import Bundle
from lowmark.watchdog import Watchdog
from lowmark.wire.kafka.clients import (
    FENCED,
    KafkaProblem,
    KafkaRefused,
    KafkaSettings,
    KafkaSettingsError,
    KafkaUnavailable,
    consumer,
    is_passing,
    log_problem,
    transactional_producer,
    translate,
)

__all__ = ["Fenced", "Note", "Place", "Transactions", "Undone", "at_once", "read_notes"]

_ANSWER_WITHIN_S = 45.0

_RETURN_WITHIN_S = 60.0
"""The client's calls may outlast their time limit: while a broker is away, `send_offsets_to_transaction` may never
return (librdkafka's issue 5456)."""

_PAUSE_S = 0.05

_LINGER_MS = 5
"""Single rows go to the broker in fewer requests. A commit does not wait for this."""

_AT_ONCE = 16

R = TypeVar("R")
S = TypeVar("S")


class Undone(Exception):
    """The transaction did not become visible, or nobody knows whether it did: open again, read the note."""


class Fenced(Exception):
    """Another producer uses the id now."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a note stands: `name` is the group's and the transactions' id."""

    name: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Note:
    offset: int
    text: str


class Transactions:
    """Inactive until `open`, and again after `drop`. For one thread at a time.

    After any trouble inside a transaction the caller drops the producer and opens again. The commit of an earlier
    transaction, late on its way, can otherwise end the next one (librdkafka's issue 5423); and a producer that has lost
    a broker may wait for it for ever (its issue 5511).
    """

    def __init__(self, settings: KafkaSettings, place: Place, timeout_s: float, watchdog: Watchdog) -> None:
        self._settings = settings
        self.place = place
        self._timeout_s = timeout_s
        self._watchdog = watchdog
        self._producer: Producer | None = None
        self._warming: _Warming | None = None
        self._reader: Consumer | None = None
        self._disconnected = False  # whether the producer has lost a broker since it was opened

    @property
    def usable(self) -> bool:
        if self._producer is not None:
            self._producer.poll(0)
        return self._producer is not None and not self._disconnected

    def open(self) -> Note | None:
        """Fence any other producer of this id, undo its unfinished transaction, and return the note."""
        self.drop()
        warmed, self._warming = self._warming, None
        if warmed is not None:
            warmed.thread.join(_ANSWER_WITHIN_S)
        producer = (warmed and warmed.producer) or self._made()
        self._reader = self._reader or (warmed and warmed.reader) or consumer(self._settings, self.place.name)
        self._disconnected = False
        self._ask(producer.init_transactions)
        note = self._read()
        self._producer = producer
        return note

    def _read(self) -> Note | None:
        assert self._reader is not None
        places = [TopicPartition(self.place.topic, self.place.partition)]
        try:
            (at,) = self._ask(self._reader.committed, places)
        except Undone as silent:
            try:
                read_notes(self._settings, [self.place])  # this does not wait for transactions
            except KafkaProblem:
                raise silent from None
            try:
                (at,) = self._ask(self._reader.committed, places)
            except Undone:
                raise KafkaProblem(
                    f"a transaction that moves the offsets of group {self.place.name} has not ended, though no process "
                    "is in one: the brokers have lost its end, as those of Kafka 4.3 do when they are killed "
                    "(KAFKA-20734). `kafka-transactions.sh find-hanging` finds it, and `abort` ends it"
                ) from None
        return _note(at, self._settings)

    def drop(self) -> None:
        """Give up the producer: it is fenced, or another one is."""
        self._producer = None

    def replace(self) -> None:
        """Give up all clients, after trouble; also those that are being prepared."""
        self._producer = self._warming = self._reader = None

    def warm(self) -> None:
        """Prepare the next producer in the background: one that is connected opens in milliseconds, a new one in some
        tenths of a second."""
        if self._warming is None:
            self._warming = _Warming(self._made, self._settings, self.place, self._reader is None)

    def _made(self) -> Producer:
        return transactional_producer(
            self._settings, self.place.name, _LINGER_MS, self._note_problem, timeout_ms=int(1000 * self._timeout_s)
        )

    def write(self, bundles: Iterable[Bundle], note: Note) -> None:
        """Make all of it visible at once. Raises Undone, Fenced, or KafkaRefused."""
        producer = self._producer
        assert producer is not None, "not open"
        try:
            producer.begin_transaction()  # contacts no broker
        except KafkaException as error:
            raise self._judged(error.args[0]) from None
        for bundle in bundles:
            self._produce(producer, bundle)
        self._ask(producer.flush)
        if self._disconnected:
            raise Undone("a broker has gone while it took the rows")
        place = self.place
        offsets = [TopicPartition(place.topic, place.partition, note.offset, note.text)]
        assert self._reader is not None, "not open"
        self._ask(producer.send_offsets_to_transaction, offsets, self._reader.consumer_group_metadata())
        self._ask(producer.commit_transaction)

    def _note_problem(self, problem: KafkaProblem) -> None:
        self._disconnected |= isinstance(problem, KafkaUnavailable)
        log_problem(problem)

    def _produce(self, producer: Producer, bundle: Bundle) -> None:
        """Runs once for each row of the job's answers, so it calls nothing but the sending itself."""
        produce, topic, partition, headers = producer.produce, bundle.topic, bundle.partition, list(bundle.headers)
        for value in bundle.values():
            try:
                produce(topic, value, partition=partition, headers=headers)
            except BufferError:
                self._produce_when_there_is_room(producer, bundle, value)
            except KafkaException as error:
                raise self._judged(error.args[0]) from None

    def _produce_when_there_is_room(self, producer: Producer, bundle: Bundle, value: bytes) -> None:
        """Send when librdkafka's queue is full: wait until there is room. The client gives up undelivered rows when the
        transaction's time is over; then its queue has room."""
        with self._watchdog.within(self._timeout_s + _RETURN_WITHIN_S, f"the sending of rows to {bundle.topic}"):
            while True:
                producer.poll(0.1)
                try:
                    producer.produce(bundle.topic, value, partition=bundle.partition, headers=list(bundle.headers))
                    return
                except BufferError:
                    continue
                except KafkaException as error:
                    raise self._judged(error.args[0]) from None

    def _ask(self, call: Callable[..., R], *arguments: object) -> R:
        """Call the broker, with the time limit as the last argument; repeat while that may help."""
        deadline = time.monotonic() + _ANSWER_WITHIN_S
        with self._watchdog.within(_RETURN_WITHIN_S, _name(call)):
            while True:
                try:
                    return call(*arguments, max(1.0, deadline - time.monotonic()))
                except KafkaException as error:
                    problem: KafkaError = error.args[0]
                if problem.txn_requires_abort() or not is_passing(problem) or time.monotonic() > deadline:
                    break
                time.sleep(_PAUSE_S)
        raise self._judged(problem)

    def _judged(self, problem: KafkaError) -> Exception:
        """The exception to raise."""
        if problem.code() in FENCED:
            return Fenced(self.place.name)
        told = translate(problem, self._settings)
        return told if isinstance(told, KafkaRefused) else Undone(str(told))


class _Warming:
    """Clients that connect in the background. Until `thread` ends they are None."""

    def __init__(self, made: Callable[[], Producer], settings: KafkaSettings, place: Place, reads: bool) -> None:
        self._made = made
        self._settings = settings
        self._place = place
        self._reads = reads
        self.producer: Producer | None = None
        self.reader: Consumer | None = None
        self.thread = threading.Thread(target=self._run, name="spare producer", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            producer, reader = self._made(), consumer(self._settings, self._place.name) if self._reads else None
        except (KafkaProblem, KafkaSettingsError):
            return  # `open` meets the same problem, and tells it
        try:
            producer.list_topics(self._place.topic, timeout=_ANSWER_WITHIN_S)
            if reader is not None:
                place = TopicPartition(self._place.topic, self._place.partition)
                reader.committed([place], timeout=_ANSWER_WITHIN_S)
        except KafkaException:
            pass  # the same
        self.producer, self.reader = producer, reader


def read_notes(settings: KafkaSettings, places: Collection[Place]) -> Mapping[str, Note | None]:
    """By name: the note that stands there, before transactions that have not ended. Fences nobody, and does not wait
    for transactions whose process may have died."""

    def read(place: Place) -> tuple[str, Note | None]:
        reader = consumer(settings, place.name, stable=False)
        deadline = time.monotonic() + _ANSWER_WITHIN_S
        try:
            while True:
                try:
                    (at,) = reader.committed(
                        [TopicPartition(place.topic, place.partition)], timeout=max(1.0, deadline - time.monotonic())
                    )
                    return place.name, _note(at, settings)
                except KafkaException as error:
                    if not is_passing(error.args[0]) or time.monotonic() > deadline:
                        raise translate(error.args[0], settings) from None
                time.sleep(_PAUSE_S)
        finally:
            reader.close()

    return dict(at_once(read, places))


def at_once(work: Callable[[S], R], subjects: Collection[S]) -> list[R]:
    """Do it for all, several at a time: most of it is waiting for the broker."""
    if not subjects:
        return []
    with ThreadPoolExecutor(min(_AT_ONCE, len(subjects)), "kafka") as pool:
        return list(pool.map(work, subjects))


def _note(at: TopicPartition, settings: KafkaSettings) -> Note | None:
    if at.error is not None:
        raise translate(at.error, settings)
    return Note(at.offset, at.metadata or "") if at.offset >= 0 else None


def _name(call: Callable[..., object]) -> str:
    return f"the call {call.__name__} of Kafka's client"
