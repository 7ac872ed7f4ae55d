"""Feeds a progress board from the topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import TracebackType

from confluent_kafka import Message, TopicPartition

from lowmark.app.config.file import Config
from lowmark.app.kafka.consumer import PatientReader
from lowmark.app.progress.board import ProgressBoard
from lowmark.app.progress.query_progress import QueryProgress
from lowmark.query.plan.nodes import Aggregate, QueryPlan
from lowmark.wire.kafka.clients import admin
from lowmark.wire.kafka.topics import Topic, TopicKind
from lowmark.wire.records.codec import decode
from lowmark.wire.records.punctuations import Punctuation
from lowmark.wire.records.quarantine import Quarantine
from lowmark.wire.records.registration import Registration
from lowmark.wire.records.result_rows import ResultRow, ResultRowsRecord
from lowmark.wire.records.rosters import RosterInForce
from lowmark.wire.records.verdicts import Amendment, Complete

__all__ = ["ProgressFeed"]

_Place = tuple[str, int]
"""A topic and one of its partitions."""

_TAIL = 2_000
"""Number of records that are read at the end of each partition. Later records complete the picture."""

_TAIL_EARLY = 50_000
"""The same for results whose rows leave before the completion of their window."""


class ProgressFeed:
    """Has caught up when it has read what the topics held at its start: on a busy system there is always more."""

    def __init__(self, config: Config, plans: Sequence[QueryPlan], say: Callable[[str], None]) -> None:
        self._config = config
        self._plans = plans
        rosters = {stream: config.named_sources(stream) for stream in config.streams}
        self._board = ProgressBoard(plans, rosters, config.job.name)
        self._reader = PatientReader(config.kafka, "progress", say)
        self._early = {
            Topic(TopicKind.RESULTS, plan.name, config.prefix).name: plan.name
            for plan in plans
            if any(isinstance(step.plan, Aggregate) and step.plan.closes for step in plan.steps)
        }
        self._at: dict[_Place, int] = {}  # next offset to read
        self._ahead: dict[_Place, int] = {}  # where reading has caught up

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
        """Approximate number of records until it has caught up."""
        return sum(max(0, end - self._at[place]) for place, end in self._ahead.items())

    def taking(self, stop: Callable[[], bool], wait_s: float = 1.0) -> Iterator[int]:
        """Yields the size of each batch of records, and 0 after about `wait_s` without records. Ends at `stop`."""
        for messages in self._reader.batches(stop, wait_s):
            for message in messages:
                self._take(message)
            self._advance(messages)
            yield len(messages)

    def progress(self, now_ns: int) -> list[QueryProgress]:
        return self._board.progress(now_ns)

    def _parts(self) -> tuple[dict[_Place, int], dict[_Place, int]]:
        """For each existing partition, where reading begins and where its records end. Registrations are read from
        their beginning, other partitions from their last records."""
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
                tail = _TAIL_EARLY if place[0] in self._early else _TAIL
                starts[place] = low if place[0] == sources else max(low, high - tail)
                ends[place] = high
        return starts, ends

    def _take(self, message: Message) -> None:
        match decode(message.headers(), message.value()):
            case Registration(source=source):
                self._board.registered(source, message.offset())
            case RosterInForce() as roster:
                self._board.listed(roster)
            case Quarantine() as quarantine:
                self._board.quarantined(quarantine)
            case Punctuation() as punctuation:
                self._board.promised(punctuation, message.timestamp()[1] * 1_000_000)
            case Amendment() as amendment:
                self._board.amended(amendment)
            case Complete() as complete:
                self._board.complete(complete)
            case ResultRow(generation=generation, early=int(window)):
                query = self._early.get(message.topic(), "")
                self._board.left_early(query, message.partition(), generation, window, 1)
            case ResultRowsRecord(generation=generation, early=int(window), rows=rows):
                query = self._early.get(message.topic(), "")
                self._board.left_early(query, message.partition(), generation, window, rows.num_rows)

    def _advance(self, messages: Sequence[Message]) -> None:
        """Notes which partitions are read to their end. A partition may end in a transaction mark, or its last records
        may have been compacted away: then no record comes from its end, and only the position shows that the end is
        reached."""
        if not self._ahead:
            return
        for message in messages:
            self._at[message.topic(), message.partition()] = message.offset() + 1
        self._at.update(self._reader.positions(list(self._ahead)))
        self._ahead = {place: end for place, end in self._ahead.items() if self._at[place] < end}
