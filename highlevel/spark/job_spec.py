"""What the executors need to know about a job: plain frozen data, sent to them with the processor."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from highlevel.rosters.roster import Roster
from highlevel.spark.checkpoint.checkpoint import BucketKey, Completed
from highlevel.spark.sink.messages import Position
from highlevel.spark.sink.transaction import Place
from lowmark.query.plan.nodes import QueryPlan, Stage
from lowmark.wire.kafka.settings import KafkaSettings
from lowmark.wire.kafka.topics import Topic, TopicKind
from lowmark.wire.records.partials import Origin
from lowmark.wire.records.registration import SourceKind
from lowmark.wire.records.result_rows import RowFormat
from lowmark.wire.records.sink_token import Token, Told
from lowmark.wire.rows.schema import Schema

__all__ = ["JobSpec", "bucket_place"]


def bucket_place(group: str, fingerprint: str, bucket: int, prefix: str) -> Place:
    """Where a bucket's token stands, beside its partials."""
    return Place(f"{group}.{fingerprint}.{bucket}", Topic(TopicKind.PARTIALS, fingerprint, prefix).name, bucket)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """`placements` gives the grouping key of each (stage, bucket), chosen once for a checkpoint."""

    job: str  # its name: control records of other jobs do not concern it
    group: str  # begins the ids of its transactions
    checkpoint: str  # its id
    run: int
    kafka: KafkaSettings
    transaction_timeout_s: float
    plans: tuple[QueryPlan, ...]
    roster: Roster  # with which buckets without state begin
    kinds: Mapping[str, SourceKind]  # of sources that are known not to be live
    placements: Mapping[tuple[str, int], int]
    tasks: int  # of a micro-batch: the shuffle partitions
    generation: int
    lives: Mapping[str, int] = field(default_factory=dict)  # by query that began later: its generation
    leaving: Mapping[str, int] = field(default_factory=dict)  # by stage that no query reads: its number of buckets
    suppressed: Mapping[BucketKey, Completed]  # by query and bucket: what former generations have announced
    told: Mapping[BucketKey, int] = field(default_factory=dict)  # the same for queries without windows over time
    needed: Mapping[str, int] = field(default_factory=dict)
    """By stage that is not read from its beginning: the least time of tuples that are needed."""
    laws: Mapping[str, str] = field(default_factory=dict)  # of the queries whose results are identified by positions
    prefix: str  # of topic names
    formats: Mapping[str, RowFormat] = field(default_factory=dict)  # by query: the format of rows; JSON if missing
    names: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # by query: shown names of renamed columns
    quarantined: tuple[str, ...] = ()  # queries that get no records, in the order in which they failed
    unfinished: Mapping[BucketKey, Token] = field(default_factory=dict)
    """By stage and bucket: the token of a batch of which former runs have written some parts, and not the last."""

    def life(self, query: str) -> int:
        """The generation of a query's results."""
        return self.lives.get(query, self.generation)

    def stages(self) -> dict[str, Stage]:
        """By fingerprint, in the order of the queries."""
        return {plan.stage.fingerprint: plan.stage for plan in self.plans}

    def readers(self, fingerprint: str) -> tuple[QueryPlan, ...]:
        """The queries that get the stage's records."""
        return tuple(
            plan for plan in self.plans if plan.stage.fingerprint == fingerprint and plan.name not in self.quarantined
        )

    def of_batch(self, fingerprint: str, bucket: int, batch: int) -> JobSpec:
        """How a bucket runs this batch. If a part of its results is written, the rest must follow from the same
        queries: those that have been quarantined since get the batch once more. They do not fail in it: a bucket has
        taken all its records before it writes."""
        begun = self.unfinished.get((fingerprint, bucket))
        if begun is None or begun.batch != batch:
            return self
        former = (replace(self, quarantined=self.quarantined[:count]) for count in range(len(self.quarantined) + 1))
        return next((spec for spec in former if spec._served(fingerprint) == begun.queries), self)

    def _served(self, fingerprint: str) -> str:
        names = "\n".join(sorted(plan.name for plan in self.readers(fingerprint)))
        return hashlib.blake2b(names.encode(), digest_size=8).hexdigest()

    def ignores(self, origin: Origin) -> bool:
        """Whether a record comes through an exchange of a quarantined query."""
        query = self.exchanges().get(origin.stage)
        return query is not None and query.name in self.quarantined

    def roster_of(self, stage: Stage) -> Roster:
        streams = sorted({stream for node in stage.nodes for stream in node.streams})
        members = {stream: self.roster.streams[stream] for stream in streams}
        found = Roster(members, {stream: self.roster.versions[stream] for stream in streams})
        needed = self.needed.get(stage.fingerprint)
        return found if needed is None else found.since(needed)

    def position(self, stage: Stage, bucket: int, read: int) -> Position:
        """The position of a bucket that has read its partials up to this offset."""
        told = {
            plan.name: Told(self.laws[plan.name], max(read, self.told.get((plan.name, bucket), 0)))
            for plan in self.readers(stage.fingerprint)
            if plan.name in self.laws
        }
        return Position(read, told)

    def place(self, fingerprint: str, bucket: int) -> Place:
        return bucket_place(self.group, fingerprint, bucket, self.prefix)

    def token(self, fingerprint: str, batch: int, digest: str) -> Token:
        """That of a batch, without its part."""
        return Token(
            job=self.job, checkpoint=self.checkpoint, run=self.run, batch=batch, part=0, last=False, digest=digest,
            queries=self._served(fingerprint),
        )  # fmt: skip

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
