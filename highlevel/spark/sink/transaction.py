"""Exactly once: a micro-batch's results are one Kafka transaction, which also records how far the job has come.

The token names checkpoint and batch. It is the metadata of an offset that a consumer group of the job's own commits in
the same transaction; the offset is the batch's number + 1. Beside it stand positions: how far the partials had been
read for the results written so far. Kafka forgets a group's offsets when they have not been committed for a while
(`offsets.retention.minutes`, a week): a silent job commits its token again every few hours. A job that has been down
for longer finds no token and is refused; a person must decide.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from highlevel.spark.errors import CheckpointRefused, JobFailed, TakenOver, TopicsDeleted
from highlevel.spark.sink.messages import Bundle, Position
from lowmark.watchdog import Watchdog
from lowmark.wire.kafka.clients import (
    FENCED,
    KafkaProblem,
    KafkaSettings,
    KafkaUnavailable,
    consumer,
    is_passing,
    log_problem,
    transactional_producer,
    translate,
)
from lowmark.wire.records.codec import decode, encode
from lowmark.wire.records.record import BadRecord, RecordKind, headers_of
from lowmark.wire.records.sink_token import Token

__all__ = ["TransactionalSink", "places", "token_and_positions"]

_ANSWER_WITHIN_S = 45.0

_RETURN_WITHIN_S = 60.0
"""The client's calls may outlast their time limit: while a broker is away, `send_offsets_to_transaction` may never
return (librdkafka's issue 5456). By this time Kafka has undone the transaction."""

_ROOM_WITHIN_S = 90.0
"""The client gives up undelivered rows after a minute: then its queue has room again."""

_RENEW_AFTER_S = 6 * 3600.0
_ATTEMPTS = 5
_PAUSE_S = 0.1

_LINGER_MS = 5
"""Single rows go to the broker in fewer requests. A commit does not wait for this."""

R = TypeVar("R")


class TransactionalSink:
    """Inactive until `open`. `job` names the transactions and the group: a second process of the same job takes them
    over. The token is stored with partition 0 of `token_topic`, which must exist; positions with the partitions
    `inputs` of partials. For one thread at a time, except that `close` never waits for another one."""

    def __init__(
        self, settings: KafkaSettings, job: str, token_topic: str, inputs: Sequence[tuple[str, int]],
        watchdog: Watchdog,
    ) -> None:  # fmt: skip
        self._settings = settings
        self._job = job
        self._place = TopicPartition(token_topic, 0)
        self._inputs = inputs
        self._positions: dict[tuple[str, int], Position] = {}
        self._watchdog = watchdog
        self._producer: Producer | None = None
        self._group: object = None  # the group's metadata in the form of Kafka's client
        self._disconnected = False  # whether the producer has lost a broker since it was opened
        self._token: Token | None = None
        self._written_at = time.monotonic()

    def __enter__(self) -> TransactionalSink:
        self.open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def token(self) -> Token | None:
        """The token of the last batch written, by a job of any checkpoint."""
        return self._token

    @property
    def positions(self) -> Mapping[tuple[str, int], Position]:
        """By topic and partition: the last positions written, by any job of this name."""
        return self._positions

    @property
    def renewal_due(self) -> bool:
        """Whether the token is old enough to call `renew`."""
        return self._token is not None and time.monotonic() - self._written_at > _RENEW_AFTER_S

    def open(self) -> None:
        """Fence the job's former process, undo its unfinished transaction, and read token and positions."""
        self._disconnected = False
        self._producer = transactional_producer(self._settings, self._job, _LINGER_MS, self._note_problem)
        reader = consumer(self._settings, self._job)
        try:
            self._ask(self._producer.init_transactions)
            found = self._ask(reader.committed, places(self._place.topic, self._inputs))
            self._group = reader.consumer_group_metadata()
        finally:
            with self._watchdog.within(_RETURN_WITHIN_S, _name(reader.close)):
                reader.close()
        self._token, self._positions = token_and_positions(found, self._job, self._settings)

    def _note_problem(self, problem: KafkaProblem) -> None:
        self._disconnected |= isinstance(problem, KafkaUnavailable)
        log_problem(problem)

    def _open_again(self) -> None:
        """Replace the producer. After losing a broker it may wait for it for ever, even if the broker is back:
        `send_offsets_to_transaction` holds on to a connection that librdkafka has given up (its issue 5511)."""
        expected = self._token
        self.open()
        if self._token != expected:
            raise self._taken_over()

    def close(self) -> None:
        """Drop the producer. The next process of the job, or Kafka after a minute, undoes an unfinished transaction."""
        self._producer = None

    def write(self, bundles: Iterable[Bundle | Position], token: Token) -> None:
        """Make all of it visible at once, with the token, or nothing. Raises TakenOver when another process runs the
        job. Bundles are iterated again when a transaction was undone and is retried."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._attempt(bundles, token)
            except _Undone as undone:
                if gone := self._gone({bundle.topic for bundle in bundles}):
                    raise TopicsDeleted(gone) from None
                if attempt == _ATTEMPTS:
                    raise JobFailed(f"batch {token.batch} could not be written: {undone}") from None
            else:
                self._token = token
                self._written_at = time.monotonic()
                return

    def _gone(self, topics: set[str]) -> set[str]:
        """The topics that do not exist."""
        assert self._producer is not None, "not open"
        if not topics:
            return set()
        return topics.difference(self._ask(self._producer.list_topics, None).topics)

    def renew(self) -> None:
        """Commit token and positions again, before Kafka forgets them."""
        if self._token is not None:
            self.write(tuple(self._positions.values()), self._token)

    def _attempt(self, bundles: Iterable[Bundle | Position], token: Token) -> None:
        assert self._producer is not None, "not open"
        self._producer.poll(0)
        if self._disconnected:
            self._open_again()
        producer = self._producer
        try:
            producer.begin_transaction()  # contacts no broker
        except KafkaException as error:
            raise self._judged(error.args[0]) from None
        moved: dict[tuple[str, int], Position] = {}
        for bundle in bundles:
            if isinstance(bundle, Position):
                moved[bundle.topic, bundle.partition] = bundle
            else:
                self._produce(producer, bundle)
        self._ask(producer.flush)
        if self._disconnected:
            raise self._undone(producer, "a broker has gone while it took the rows")
        offsets = [
            TopicPartition(self._place.topic, self._place.partition, token.batch + 1, encode(token).value.decode()),
            *(TopicPartition(at.topic, at.partition, at.offset, at.metadata) for at in moved.values()),
        ]
        self._ask(producer.send_offsets_to_transaction, offsets, self._group)
        self._ask(producer.commit_transaction)
        self._positions |= moved

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
        """Send when librdkafka's queue is full: wait until there is room."""
        with self._watchdog.within(_ROOM_WITHIN_S, f"the sending of rows to {bundle.topic}"):
            while True:
                producer.poll(0.1)
                try:
                    producer.produce(bundle.topic, value, partition=bundle.partition, headers=list(bundle.headers))
                    return
                except BufferError:
                    continue
                except KafkaException as error:
                    problem: KafkaError = error.args[0]
                    break
        raise self._judged(problem)

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
        """The exception to raise; the transaction has been undone if it can be retried."""
        if problem.txn_requires_abort() and self._producer is not None:
            return self._undone(self._producer, str(translate(problem, self._settings)))
        return self._refused(problem)

    def _undone(self, producer: Producer, reason: str) -> Exception:
        """Undo the transaction; returns the exception to raise, also if that fails."""
        try:
            with self._watchdog.within(_RETURN_WITHIN_S, _name(producer.abort_transaction)):
                producer.abort_transaction(_ANSWER_WITHIN_S)
        except KafkaException as error:
            return self._refused(error.args[0])
        return _Undone(reason)

    def _refused(self, problem: KafkaError) -> Exception:
        """The exception for a problem that no retry helps."""
        return self._taken_over() if problem.code() in FENCED else translate(problem, self._settings)

    def _taken_over(self) -> TakenOver:
        return TakenOver(
            f"another process runs job {self._job}: this one has been taken over and ends. It has written nothing "
            "since; end one of the two"
        )


class _Undone(Exception):
    """The transaction has been aborted; another may succeed."""


def _name(call: Callable[..., object]) -> str:
    return f"the call {call.__name__} of Kafka's client"


def places(token_topic: str, inputs: Iterable[tuple[str, int]]) -> list[TopicPartition]:
    """Where token and positions are stored: what to ask Kafka for."""
    return [TopicPartition(token_topic, 0), *(TopicPartition(topic, partition) for topic, partition in inputs)]


def token_and_positions(
    committed: Sequence[TopicPartition], job: str, settings: KafkaSettings
) -> tuple[Token | None, dict[tuple[str, int], Position]]:  # fmt: skip
    """Token and positions in Kafka's answer for these places. None: there is no token."""
    for at in committed:
        if at.error is not None:
            raise translate(at.error, settings)
    first, *others = committed
    token = _read(first.metadata or "", job) if first.offset >= 0 else None
    return token, {
        (at.topic, at.partition): Position(at.topic, at.partition, at.offset, at.metadata or "")
        for at in others
        if at.offset >= 0
    }


def _read(metadata: str, job: str) -> Token:
    token = decode(headers_of(RecordKind.TOKEN), metadata.encode(), lambda origin: None)
    if isinstance(token, BadRecord):
        raise CheckpointRefused(
            f"the consumer group {job} holds {metadata[:80]!r}, which is not how a job says how far it has come: "
            "another program uses this group's name, or another version of lowmark has run"
        )
    assert isinstance(token, Token)
    return token
