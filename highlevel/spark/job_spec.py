"""What the executors need to know about a job: plain frozen data, sent to them with the processor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from highlevel.rosters.roster import Roster
from highlevel.spark.checkpoint import BucketKey, Completed
from highlevel.spark.sink.messages import Position
from lowmark.query.plan.nodes import QueryPlan, Stage
from lowmark.wire.kafka.topics import Topic, TopicKind
from lowmark.wire.records.partials import Origin
from lowmark.wire.records.registration import SourceKind
from lowmark.wire.records.result_rows import RowFormat
from lowmark.wire.records.sink_token import Told, encode_told
from lowmark.wire.rows.schema import Schema

__all__ = ["JobSpec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """`placements` gives the grouping key of each (stage, bucket), chosen once for a checkpoint."""

    job: str  # its name: control records of other jobs do not concern it
    plans: tuple[QueryPlan, ...]
    roster: Roster  # with which buckets without state begin
    kinds: Mapping[str, SourceKind]  # of sources that are known not to be live
    placements: Mapping[tuple[str, int], int]
    generation: int
    suppressed: Mapping[BucketKey, Completed]  # by query and bucket: what former generations have announced
    told: Mapping[BucketKey, int] = field(default_factory=dict)  # the same for queries without windows over time
    laws: Mapping[str, str] = field(default_factory=dict)  # of the queries whose results are identified by positions
    prefix: str  # of topic names
    parcels: str  # the folder into which executors put their results
    formats: Mapping[str, RowFormat] = field(default_factory=dict)  # by query: the format of rows; JSON if missing
    names: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # by query: shown names of renamed columns
    quarantined: frozenset[str] = frozenset()  # queries that get no records
    paused: Mapping[BucketKey, Told] = field(default_factory=dict)  # by such a query and bucket: how far it had come

    def stages(self) -> dict[str, Stage]:
        """By fingerprint, in the order of the queries."""
        return {plan.stage.fingerprint: plan.stage for plan in self.plans}

    def readers(self, fingerprint: str) -> tuple[QueryPlan, ...]:
        """The queries that get the stage's records."""
        return tuple(plan for plan in self._all(fingerprint) if plan.name not in self.quarantined)

    def ignores(self, origin: Origin) -> bool:
        """Whether a record comes through an exchange of a quarantined query."""
        query = self.exchanges().get(origin.stage)
        return query is not None and query.name in self.quarantined

    def _all(self, fingerprint: str) -> tuple[QueryPlan, ...]:
        return tuple(plan for plan in self.plans if plan.stage.fingerprint == fingerprint)

    def roster_of(self, stage: Stage) -> Roster:
        streams = sorted({stream for node in stage.nodes for stream in node.streams})
        members = {stream: self.roster.streams[stream] for stream in streams}
        return Roster(members, {stream: self.roster.versions[stream] for stream in streams})

    def position(self, stage: Stage, bucket: int, read: int) -> Position | None:
        """The position of a bucket that has read its partials up to this offset; None: no query of it uses one."""
        told = {
            plan.name: Told(self.laws[plan.name], max(read, self.told.get((plan.name, bucket), 0)))
            for plan in self.readers(stage.fingerprint)
            if plan.name in self.laws
        }
        told |= {
            plan.name: self.paused[plan.name, bucket]
            for plan in self._all(stage.fingerprint)
            if plan.name in self.quarantined and (plan.name, bucket) in self.paused
        }
        return Position(self.partials_topic(stage.fingerprint), bucket, read, encode_told(told)) if told else None

    def exchanges(self) -> dict[str, QueryPlan]:
        """The queries with exchanges, by the fingerprint that names their topic."""
        return {plan.exchanges.fingerprint: plan for plan in self.plans if plan.exchanges is not None}

    def schema_of(self, origin: Origin) -> Schema | None:
        stage, query = self.stages().get(origin.stage), self.exchanges().get(origin.stage)
        if query is not None:
            exchange = query.exchange(origin.node)
            return None if exchange is None else exchange.node.reduction.schema
        for node in stage.nodes if stage else ():
            if node.name == origin.node:
                return node.reduction.schema
        return None

    def kind(self, origin: Origin) -> SourceKind:
        """The kind of the source. A bucket is finite: through an exchange it promises what its sources promise."""
        if origin.stage in self.exchanges():
            return SourceKind.FINITE
        return self.kinds.get(origin.source, SourceKind.LIVE)

    def partials_topic(self, fingerprint: str) -> str:
        return Topic(TopicKind.PARTIALS, fingerprint, self.prefix).name

    def exchange_topic(self, fingerprint: str) -> str:
        return Topic(TopicKind.EXCHANGE, fingerprint, self.prefix).name

    def results_topic(self, query: str) -> str:
        return Topic(TopicKind.RESULTS, query, self.prefix).name

    def late_topic(self, query: str) -> str:
        return Topic(TopicKind.LATE, query, self.prefix).name

    def format_of(self, query: str) -> RowFormat:
        return self.formats.get(query, RowFormat.JSONL)

    def names_of(self, query: str) -> Mapping[str, str]:
        return self.names.get(query, {})

    def dead_topic(self) -> str:
        return Topic(TopicKind.DEAD, None, self.prefix).name
