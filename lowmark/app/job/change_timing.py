"""When a running job takes changed queries, so that none of their windows is missing.

Captures that have the new text serve the former stage beside the new one for `job.overlap`. A source covers the new
stage from the moment at which it took the text. The job changes once the former queries have told all windows that
begin before all sources cover the new stage. It changes at the end of the overlap in any case: windows that not all
sources cover then say `lossy: not-covered`.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from lowmark.helpers import Helper
from lowmark.query.plan.nodes import QueryPlan
from lowmark.query.windows.window import Window, WindowKind
from lowmark.wire.kafka.clients import KafkaProblem, KafkaSettings, consumer, translate
from lowmark.wire.kafka.topics import Topic, TopicKind
from lowmark.wire.records.codec import decode
from lowmark.wire.records.punctuations import Ending, Punctuation
from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.values import FOREVER, time

__all__ = ["ChangeTiming", "ChangedQuery", "ToldTimes", "changed"]

_LOG = logging.getLogger("lowmark.job")

_LOOK_EVERY_S = 0.2

_NOTHING = -1, None
"""The epoch of a source that is not known to cover a stage, and the time from which it does."""

Covered = Mapping[str, int | None]
"""By source: the time from which it covers a stage; None: it does not."""

Sources = Callable[[Collection[str]], Collection[str] | None]
"""The live sources that windows of these streams wait for now; None: not known yet."""


class _Told(Protocol):
    """The part of a bucket's report that says what has been told."""

    @property
    def stage(self) -> str: ...
    @property
    def bucket(self) -> int: ...
    @property
    def complete_to(self) -> Mapping[str, int | None]: ...


class ToldTimes:
    """Up to which time each query has told its windows, as the buckets' reports say. For several threads."""

    def __init__(self) -> None:
        self._told: dict[str, dict[tuple[str, int], int | None]] = {}

    def reported(self, reports: Sequence[_Told]) -> None:
        for report in reports:
            for query, bound in report.complete_to.items():
                self._told.setdefault(query, {})[report.stage, report.bucket] = bound

    def of(self, query: str, buckets: int) -> int | None:
        """None: not all buckets have told anything."""
        told = [bound for bound in list(self._told.get(query, {}).values()) if bound is not None]
        return min(told) if len(told) == buckets else None


@dataclass(frozen=True, slots=True)
class ChangedQuery:
    """A query that reads another stage after the change, and has windows over time before and after."""

    name: str
    stage: str  # the new one
    buckets: int  # of the former one
    window: Window  # the new one
    streams: frozenset[str]  # whose sources have to cover the new stage

    def lacks(self, told: int | None, covered: Covered | None) -> str | None:
        """What keeps the new query from telling its next window whole; None: nothing. `covered`: of all sources."""
        if told is None:
            return "the former text has told no window since the job began"
        if covered is None:
            return "it is not known yet what its sources cover"
        if absent := sorted(source for source, since in covered.items() if since is None):
            return f"not yet: {', '.join(absent)}"
        first = self.window.start(self.window.first_after(told)) if told < FOREVER else FOREVER
        assert first is not None, "no landmark window"
        since, last = max(((since, source) for source, since in covered.items() if since is not None), default=(0, ""))
        if not last or since <= first:
            return None
        return f"{last} covers it from {time(since)} on, and the window begins at {time(first)}"


def changed(were: Sequence[QueryPlan], are: Sequence[QueryPlan]) -> list[ChangedQuery]:
    before = {plan.name: plan for plan in were}
    found = []
    for plan in are:
        was = before.get(plan.name)
        if was is None or was.stage.fingerprint == plan.stage.fingerprint or not _slides(was.window):
            continue
        if _slides(plan.window):
            streams = frozenset(stream for node in plan.stage.nodes for stream in node.streams)
            assert plan.window is not None
            found.append(ChangedQuery(plan.name, plan.stage.fingerprint, was.stage.buckets, plan.window, streams))
    return found


def _slides(window: Window | None) -> bool:
    return window is not None and window.kind is WindowKind.SLIDING and window.axis.kind is Kind.TIME


class ChangeTiming:
    """Inactive until `start`. `helpers`: its thread, which looks at the new stages; none if no query waits for one."""

    def __init__(
        self, kafka: KafkaSettings, prefix: str, queries: Sequence[ChangedQuery], sources: Sources, told: ToldTimes,
        limit_s: float, now_s: Callable[[], float] = monotonic,
    ) -> None:  # fmt: skip
        helper = Helper("changed queries", self._run, (KafkaProblem, KafkaException))
        self.helpers = (helper,) if queries else ()
        self._kafka = kafka
        self._topics = {Topic(TopicKind.PARTIALS, each.stage, prefix).name: each.stage for each in queries}
        self._queries = queries
        self._sources = sources  # they may end, leave, join and be excluded while the job waits
        self._told = told
        self._now_s = now_s
        self._until_s = now_s() + limit_s
        self._covered: dict[str, dict[str, tuple[int, int | None]]] = {stage: {} for stage in self._topics.values()}
        self._read_up: set[str] = set()  # the stages of which all has been read that was there

    def start(self) -> None:
        if names := ", ".join(each.name for each in self._queries):
            _LOG.warning("%s: the former text goes on until its sources cover the new one", names)
        for helper in self.helpers:
            helper.start()

    def stop(self) -> None:
        for helper in self.helpers:
            helper.stop(2 * _LOOK_EVERY_S)

    @property
    def waits(self) -> dict[str, str]:
        """The queries whose change would leave a gap now, and why."""
        lacks = (
            (each, each.lacks(self._told.of(each.name, each.buckets), self._covers(each))) for each in self._queries
        )
        return {each.name: why for each, why in lacks if why is not None}

    @property
    def due(self) -> bool:
        if not (waits := self.waits):
            return True
        if self._now_s() < self._until_s:
            return False
        for name, why in waits.items():
            _LOG.warning(
                "query %s changes although not all sources cover its next window (%s): windows say "
                "lossy: not-covered until they do", name, why,
            )  # fmt: skip
        return True

    def _covers(self, query: ChangedQuery) -> Covered | None:
        sources, known = self._sources(query.streams), self._covered[query.stage]
        if sources is None or query.stage not in self._read_up:
            return None
        return {source: known.get(source, _NOTHING)[1] for source in sources}

    def _run(self, stopping: threading.Event) -> None:
        """Punctuations go to each partition of a topic: one is read, from its beginning. A text that comes back has a
        past there."""
        reader = consumer(self._kafka, f"lowmark-changes-{uuid.uuid4()}", tell_ends=True)
        try:
            reader.assign([TopicPartition(topic, 0, 0) for topic in self._topics])
            while not stopping.is_set():
                self._read(reader)
        finally:
            self._read_up.clear()
            reader.close()

    def _read(self, reader: Consumer) -> None:
        for message in reader.consume(500, _LOOK_EVERY_S):
            if message.error() is not None:
                if message.error().code() == KafkaError._PARTITION_EOF:
                    self._read_up.add(self._topics[message.topic()])
                    continue
                if message.error().code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue  # the first capture that takes the new text makes it
                raise translate(message.error(), self._kafka)
            record = decode(message.headers(), message.value())
            if isinstance(record, Punctuation):
                self._note(record)

    def _note(self, record: Punctuation) -> None:
        origin = record.origin
        of = self._covered.get(origin.stage)
        if of is not None and origin.epoch >= of.get(origin.source, _NOTHING)[0]:
            of[origin.source] = origin.epoch, record.start_ns if record.ending is Ending.NONE else None
