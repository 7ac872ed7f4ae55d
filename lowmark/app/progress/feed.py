"""Reads into a board what topics say of how far queries are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import TracebackType

from confluent_kafka import Message, TopicPartition

from lowmark.app.config.file import Config
from lowmark.app.kafka.consumer import PatientReader
from lowmark.app.progress.board import ProgressBoard
from lowmark.app.progress.query_progress import QueryProgress
from lowmark.query.plan.nodes import QueryPlan
from lowmark.wire.kafka.clients import admin
from lowmark.wire.kafka.topics import Topic, TopicKind
from lowmark.wire.records.codec import decode
from lowmark.wire.records.punctuations import Punctuation
from lowmark.wire.records.registration import Registration
from lowmark.wire.records.verdicts import Amendment, Complete

__all__ = ["ProgressFeed"]

_Place = tuple[str, int]
"""A topic and a partition of it."""

_TAIL = 2_000
"""Records at the end of each partition that are read: what they do not tell, later ones will."""


class ProgressFeed:
    """Has caught up when it has read what stood in the topics when it was entered: on a busy system there is always
    more."""

    def __init__(self, config: Config, plans: Sequence[QueryPlan], say: Callable[[str], None]) -> None:
        self._config = config
        self._plans = plans
        self._board = ProgressBoard(plans, {stream: config.roster(stream) for stream in config.streams})
        self._reader = PatientReader(config.kafka, "progress", say)
        self._at: dict[_Place, int] = {}  # behind what has been read
        self._ahead: dict[_Place, int] = {}  # what is to be read until it has caught up: up to here

    def __enter__(self) -> ProgressFeed:
        try:
            starts, ends = self._parts()
        except BaseException:
            self._reader.__exit__(None, None, None)
            raise
        self._at = starts
        self._ahead = {place: end for place, end in ends.items() if starts[place] < end}
        self._reader.assign([TopicPartition(*place, start) for place, start in starts.items()])
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._reader.__exit__(kind, error, at)

    @property
    def caught_up(self) -> bool:
        return not self._ahead

    @property
    def left(self) -> int:
        """Records until it has caught up, about."""
        return sum(max(0, end - self._at[place]) for place, end in self._ahead.items())

    def taking(self, stop: Callable[[], bool], wait_s: float = 1.0) -> Iterator[int]:
        """After each batch of records, how many there were; none after about `wait_s` without any. Until `stop`."""
        for messages in self._reader.batches(stop, wait_s):
            for message in messages:
                self._take(message)
            self._advance(messages)
            yield len(messages)

    def progress(self, now_ns: int) -> list[QueryProgress]:
        return self._board.progress(now_ns)

    def _parts(self) -> tuple[dict[_Place, int], dict[_Place, int]]:
        """Of those that are there, where reading begins and what is behind their last records: all registrations, and
        the ends of what a board is fed with."""
        config, plans = self._config, self._plans
        there = admin(config.kafka).list_topics(timeout=10).topics
        sources = Topic(TopicKind.SOURCES, None, config.prefix).name
        wanted = {(Topic(TopicKind.PARTIALS, plan.stage.fingerprint, config.prefix).name, 0) for plan in plans}
        for plan in plans:
            if plan.exchanges is not None:
                wanted.add((Topic(TopicKind.EXCHANGE, plan.exchanges.fingerprint, config.prefix).name, 0))
            results = Topic(TopicKind.RESULTS, plan.name, config.prefix).name
            wanted |= {(results, bucket) for bucket in range(plan.stage.buckets)}
        starts, ends = {}, {}
        for place in sorted({(sources, 0), *wanted}):
            if place[0] in there:
                low, high = self._reader.watermarks(*place)
                starts[place] = low if place[0] == sources else max(low, high - _TAIL)
                ends[place] = high
        return starts, ends

    def _take(self, message: Message) -> None:
        match decode(message.headers(), message.value(), lambda origin: None):
            case Registration(source=source, stream=stream):
                self._board.registered(source, message.offset(), stream)
            case Punctuation() as punctuation:
                self._board.promised(punctuation, message.timestamp()[1] * 1_000_000)
            case Amendment() as amendment:
                self._board.amended(amendment)
            case Complete() as complete:
                self._board.complete(complete)

    def _advance(self, messages: Sequence[Message]) -> None:
        """Where a partition ends in the mark of a transaction, or its last records were compacted away, no record
        comes from its end: the position alone tells that it has been reached."""
        if not self._ahead:
            return
        for message in messages:
            self._at[message.topic(), message.partition()] = message.offset() + 1
        self._at.update(self._reader.positions(list(self._ahead)))
        self._ahead = {place: end for place, end in self._ahead.items() if self._at[place] < end}
