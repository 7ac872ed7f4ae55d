"""Writes a bucket's results from the worker process that has computed them.

Spark gives a bucket's batches to any worker process of an executor, and may run a task twice, or while a former attempt
still runs. Each process has a producer of the bucket's one transactional id, and opening it fences those of all others.
The bucket's state names the producer that wrote last: so a process knows without asking whether to open its own again.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, partial

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from highlevel.spark.errors import JobFailed, TopicsDeleted
from highlevel.spark.session import LAST_WORDS
from highlevel.spark.sink.messages import Bundle
from highlevel.spark.sink.outgoing import Part
from highlevel.spark.sink.token_notes import note_of, token_of
from highlevel.spark.sink.tokens import Past, is_written
from highlevel.spark.sink.transaction import Fenced, Place, Transactions, Undone
from lowmark.watchdog import Watchdog
from lowmark.wire.kafka.clients import KafkaSettings, log_problem, unasked_admin
from lowmark.wire.records.sink_token import Token

__all__ = ["BucketSink", "sink_of"]

_ATTEMPTS = 5
_ANSWER_WITHIN_S = 10.0


class BucketSink:
    """One for each bucket and process."""

    def __init__(self, settings: KafkaSettings, place: Place, timeout_s: float, watchdog: Watchdog) -> None:
        self._settings = settings
        self._timeout_s = timeout_s
        self._transactions = Transactions(settings, place, timeout_s, watchdog)
        self._stored: Token | None = None
        self._first: Token | None = None  # the first batch of the run that this process has seen
        self.holder = ""  # names this producer, which may still have to be opened

    def warm(self) -> None:
        """Prepare to open, in the background."""
        self._transactions.warm()

    def begin(self, past: Past, batch: Token, parts: Sequence[Part] | None) -> Past | None:
        """The state that `write` will leave, if that is certain: then `write` may run while other buckets work. It is
        uncertain in the first batch of a run, since the run before may have written it with other queries. Without
        parts there is nothing to write and nobody to ask: the next batch with results is judged by the same past.
        `batch` is the token without its part; `parts` None: they are too large to be known before."""
        self._take(past)
        if self._first is None or (self._first.checkpoint, self._first.run) != (batch.checkpoint, batch.run):
            self._first = batch
        if parts is None or batch.batch <= self._first.batch:
            return None
        if not parts:
            return replace(past, digest=batch.digest)
        written = replace(batch, part=len(parts) - 1, last=True)
        return past.after(batch.digest, written, self.holder)

    def write(self, past: Past, batch: Token, parts: Iterable[Part]) -> Past:
        """Write what Kafka does not have yet of a batch that has begun; returns the state that this leaves. Raises
        JobStopped: then nothing more may be written."""
        # Without parts, too: the three must belong together.
        self._persist(batch, [], lambda: is_written(self._stored, past, batch))
        for number, part in enumerate(parts):
            token = replace(batch, part=number, last=part.last)
            self._persist(batch, part.bundles, partial(self._write, past, token, part))
        assert self._stored is not None, "judged"
        return past.after(batch.digest, self._stored, self.holder)

    def _take(self, past: Past) -> None:
        """Keep the producer that is open if it has written last."""
        if past.holder != self.holder or not self._transactions.usable:
            self._transactions.drop()
            self.holder = _new_name()

    def _persist(self, batch: Token, bundles: Iterable[Bundle], work: Callable[[], object]) -> None:
        """Do the work with an open producer. After trouble it is not known what became visible: the producer is
        replaced, and the token read, before the work is done again."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                if not self._transactions.usable:
                    self._open()
                work()
                return
            except (Undone, Fenced) as error:
                self._transactions.replace()
                self.holder = _new_name()
                if attempt > 1 and (missing := self._missing({bundle.topic for bundle in bundles})):
                    raise TopicsDeleted(missing) from None
                if attempt == _ATTEMPTS:
                    why = self._too_slow(bundles) if isinstance(error, Fenced) else error
                    raise JobFailed(f"batch {batch.batch} could not be written: {why}") from None

    def _too_slow(self, bundles: Iterable[Bundle]) -> str:
        """Why Kafka has undone each attempt. Another run of the job has a token by which it is recognized."""
        size = sum(len(bundle.data) for bundle in bundles)
        return (
            f"Kafka has undone a part of {size:,} bytes {_ATTEMPTS} times. Each time it took longer than "
            f"job.transaction_timeout ({self._timeout_s:g} s), or another process began to write as "
            f"{self._transactions.place.name}. Raise job.transaction_timeout, or find out why the brokers are slow, or "
            "end the other process"
        )

    def _write(self, past: Past, token: Token, part: Part) -> None:
        if is_written(self._stored, past, token):
            return
        assert self._stored is not None, "judged"
        at = part.position or self._stored
        # A quarantined query has no position any more: how far it had come stays.
        token = replace(token, read=at.read, told={**self._stored.told, **at.told})
        self._transactions.write(part.bundles, note_of(token))
        self._stored = token
        self._transactions.warm()

    def _open(self) -> None:
        note = self._transactions.open()
        self._stored = None if note is None else token_of(note, self._transactions.place.name)

    def _missing(self, topics: set[str]) -> set[str]:
        try:
            there = _reader(self._settings).list_topics(timeout=_ANSWER_WITHIN_S).topics
        except KafkaException:
            return set()  # the next attempt meets it
        return topics.difference(there)


def _new_name() -> str:
    return uuid.uuid4().hex[:16]


@cache
def _reader(settings: KafkaSettings) -> AdminClient:
    return unasked_admin(settings, log_problem)


@cache
def _watchdog() -> Watchdog:
    watchdog = Watchdog(_end)
    watchdog.__enter__()  # until the process ends
    return watchdog


def _end(reason: str) -> None:
    """End a worker process in which Kafka's client hangs. Spark tells that it has gone; its output says why."""
    print(f"{LAST_WORDS}{reason}", file=sys.stderr, flush=True)
    os._exit(1)


@cache
def sink_of(settings: KafkaSettings, place: Place, timeout_s: float) -> BucketSink:
    """This process's sink of a bucket."""
    return BucketSink(settings, place, timeout_s, _watchdog())
