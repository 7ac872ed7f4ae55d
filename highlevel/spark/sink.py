"""Exactly once: a micro-batch's results are one Kafka transaction, in which stands how far the job has come.

The token, which names checkpoint and batch, is the metadata of an offset that a consumer group of the job's own commits
in the same transaction; the offset is the batch's number + 1. Kafka forgets a group's offsets when they have not been
committed for a while (`offsets.retention.minutes`, a week): a silent job commits its token again every few hours. A job
that has been down for longer finds no token and is refused, which is for a person to decide.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from highlevel.spark.bundles import Bundle
from highlevel.spark.errors import JobFailed, TakenOver
from lowmark.wire.codec import decode, encode
from lowmark.wire.kafka import KafkaSettings, consumer, transactional_producer, translate
from lowmark.wire.record import BadRecord, RecordKind, headers_of
from lowmark.wire.sinktoken import Token

__all__ = ["TransactionalSink"]

_ANSWER_WITHIN_S = 60.0
_RENEW_AFTER_S = 6 * 3600.0
_ATTEMPTS = 5
_FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
_PASSING = {
    KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.UNSTABLE_OFFSET_COMMIT, KafkaError._WAIT_COORD,
}  # fmt: skip
_PAUSE_S = 0.1

_LINGER_MS = 5
"""Rows that come one by one go to the broker in fewer requests. A commit does not wait for it."""

R = TypeVar("R")


class TransactionalSink:
    """Inert until `open`. `job` names the transactions and the group: a second process of the
    same job takes them over. The token is
    kept with partition 0 of `token_topic`, which exists."""

    def __init__(self, settings: KafkaSettings, job: str, token_topic: str) -> None:
        self._settings = settings
        self._job = job
        self._place = TopicPartition(token_topic, 0)
        self._lock = threading.Lock()
        self._producer: Producer | None = None
        self._consumer: Consumer | None = None
        self._token: Token | None = None
        self._written_at = time.monotonic()

    def __enter__(self) -> TransactionalSink:
        self.open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def token(self) -> Token | None:
        """Of the last batch that has been written, by whatever checkpoint's job."""
        return self._token

    def open(self) -> None:
        """Fence the job's former process, whose unfinished transaction is undone, and read the token that stands."""
        self._producer = transactional_producer(self._settings, self._job, _LINGER_MS)
        self._consumer = consumer(self._settings, self._job)
        self._ask(self._producer.init_transactions, _ANSWER_WITHIN_S)
        committed = self._ask(self._consumer.committed, [self._place], _ANSWER_WITHIN_S)[0]
        if committed.error is not None:
            raise translate(committed.error, self._settings)
        if committed.offset >= 0:
            self._token = _read(committed.metadata or "", self._job)

    def close(self) -> None:
        """An unfinished transaction is undone by the next process of the job, or by Kafka after a minute."""
        with self._lock:
            if self._consumer is not None:
                self._consumer.close()
            self._producer = self._consumer = None

    def write(self, bundles: Iterable[Bundle], token: Token) -> None:
        """All of it becomes visible at once, with the token, or nothing does. TakenOver when it is another's turn.
        Bundles are gone through once more when a transaction was undone and is tried again."""
        with self._lock:
            self._transact(bundles, token)

    def renew(self) -> None:
        """To be called now and then: commits the token again before Kafka forgets it."""
        with self._lock:
            if self._token is not None and time.monotonic() - self._written_at > _RENEW_AFTER_S:
                self._transact((), self._token)

    def _transact(self, bundles: Iterable[Bundle], token: Token) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._attempt(bundles, token)
            except _Undone as undone:
                if attempt == _ATTEMPTS:
                    raise JobFailed(f"batch {token.batch} could not be written: {undone}") from None
            else:
                self._token = token
                self._written_at = time.monotonic()
                return

    def _attempt(self, bundles: Iterable[Bundle], token: Token) -> None:
        producer, reader = self._producer, self._consumer
        assert producer is not None, "not open"
        assert reader is not None
        self._ask(producer.begin_transaction)
        for bundle in bundles:
            self._produce(producer, bundle)
        place = TopicPartition(
            self._place.topic, self._place.partition, token.batch + 1, encode(token).value.decode()
        )  # fmt: skip
        group = reader.consumer_group_metadata()
        self._ask(producer.send_offsets_to_transaction, [place], group, _ANSWER_WITHIN_S)
        self._ask(producer.commit_transaction, _ANSWER_WITHIN_S)

    def _produce(self, producer: Producer, bundle: Bundle) -> None:
        """Once for each row of the job's answers: nothing is called here but what sends it."""
        produce, topic, partition, headers = producer.produce, bundle.topic, bundle.partition, list(bundle.headers)
        for value in bundle.values():
            while True:
                try:
                    produce(topic, value, partition=partition, headers=headers)
                    break
                except BufferError:  # librdkafka's queue is full: let it send
                    producer.poll(0.1)
                except KafkaException as error:
                    raise self._judged(error.args[0]) from None

    def _ask(self, call: Callable[..., R], *arguments: object) -> R:
        """A call to the broker, repeated while that may help."""
        deadline = time.monotonic() + 2 * _ANSWER_WITHIN_S
        while True:
            try:
                return call(*arguments)
            except KafkaException as error:
                problem: KafkaError = error.args[0]
                passing = problem.retriable() or problem.code() in _PASSING
                if problem.txn_requires_abort() or not passing or time.monotonic() > deadline:
                    raise self._judged(problem) from None
                time.sleep(_PAUSE_S)

    def _judged(self, problem: KafkaError) -> Exception:
        """What to raise; the transaction has been undone where it can be tried again."""
        if problem.code() in _FENCED:
            return TakenOver(
                f"another process runs job {self._job}: this one has been taken over and ends. It has written nothing "
                "since; end one of the two"
            )
        if problem.txn_requires_abort() and self._producer is not None:
            try:
                self._producer.abort_transaction(_ANSWER_WITHIN_S)
            except KafkaException as error:
                return self._judged_fatal(error.args[0])
            return _Undone(str(translate(problem, self._settings)))
        return self._judged_fatal(problem)

    def _judged_fatal(self, problem: KafkaError) -> Exception:
        if problem.code() in _FENCED:
            return self._judged(problem)
        return translate(problem, self._settings)


class _Undone(Exception):
    """The transaction has been aborted; another may succeed."""


def _read(metadata: str, job: str) -> Token:
    token = decode(headers_of(RecordKind.TOKEN), metadata.encode(), lambda origin: None)
    if isinstance(token, BadRecord):
        raise JobFailed(
            f"the consumer group {job} holds {metadata[:80]!r}, which is not how a job says how far it has come: "
            "another program uses this group's name, or another version of lowmark has run"
        )
    assert isinstance(token, Token)
    return token
