"""The facts that decide a job's start: what should run, and what former runs have left. Reading changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from urllib.parse import urlsplit

from highlevel.spark.checkpoint.checkpoint import BucketKey, Checkpoint, CheckpointFolder, plan_digests
from highlevel.spark.checkpoint.replay import Replay, replays
from highlevel.spark.checkpoint.resumption import lookbacks
from highlevel.spark.checkpoint.start_conditions import StartState
from highlevel.spark.errors import CheckpointRefused, TakenOver
from highlevel.spark.job_spec import bucket_place
from highlevel.spark.sink.results_history import History, read_history
from highlevel.spark.sink.token_notes import owner_of, token_of
from highlevel.spark.sink.transaction import Note, Place, read_notes
from highlevel.spark.spark_options import scheme_of
from lowmark.app.config.file import Config
from lowmark.app.config.queries import result_topics
from lowmark.app.kafka.rights import job_group, query_group
from lowmark.query.plan.nodes import QueryPlan, Stage
from lowmark.wire.kafka.clients import admin, topic_ids
from lowmark.wire.kafka.topics import Topic, TopicKind
from lowmark.wire.records.sink_token import Owner, Token

__all__ = ["JobStart", "Written"]

Read = Callable[[Collection[Place]], Mapping[str, Note | None]]


@dataclass(frozen=True, slots=True)
class Written:
    """What stands in Kafka of former runs."""

    tokens: Mapping[BucketKey, Token]  # by stage and bucket, also of stages that no query reads any more
    owners: Mapping[str, Owner]  # by query


@dataclass(frozen=True)
class JobStart:
    """The start of the job `name`. `there`: the topics that exist; None: all of them."""

    config: Config
    plans: tuple[QueryPlan, ...]
    name: str
    there: Collection[str] | None = None

    @property
    def group(self) -> str:
        return job_group(self.config, self.name)

    @property
    def folder(self) -> Path | None:
        """The folder of the checkpoint, absolute, as Spark asks for; None: only Spark reaches it."""
        given = urlsplit(self.config.job.checkpoint)
        if scheme_of(self.config.job.checkpoint) != "file":
            return None
        return self.config.path.parent.absolute() / given.path / self.name

    @property
    def place(self) -> str:
        """The folder of the checkpoint, or its URL."""
        return f"{self.config.job.checkpoint.rstrip('/')}/{self.name}" if self.folder is None else str(self.folder)

    @cached_property
    def stages(self) -> Mapping[str, Stage]:
        return {plan.stage.fingerprint: plan.stage for plan in self.plans}

    @cached_property
    def roster(self) -> Mapping[str, tuple[str, ...]]:
        """The sources of each stream that the queries read."""
        nodes = (node for stage in self.stages.values() for node in stage.nodes)
        return {stream: self.config.roster(stream) for stream in sorted({name for of in nodes for name in of.streams})}

    @property
    def buckets(self) -> Mapping[BucketKey, Place]:
        """By stage and bucket: where its token stands."""
        return {
            (name, bucket): bucket_place(self.group, name, bucket, self._prefix)
            for name, (_, buckets) in self._inputs.items()
            for bucket in range(buckets)
        }

    @property
    def queries(self) -> Mapping[str, Place]:
        """By query: where its owner stands."""
        topics = result_topics(self.config, self.plans)
        return {
            plan.name: Place(query_group(self.config, plan.name), topics[plan.name], 0)
            for plan in self.plans
            if self._is(topics[plan.name])
        }

    @property
    def owners(self) -> Mapping[str, Owner]:
        """By query: what this job says of itself as its owner."""
        return {plan.name: Owner(self.name, plan.stage.fingerprint, plan.stage.buckets) for plan in self.plans}

    @cached_property
    def laws(self) -> Mapping[str, str]:
        """By query: the law of its replay. A query without one is left out."""
        return {query: of.law for query, of in self._replays.items() if of.law is not None}

    def left(self, stored: Checkpoint | None) -> Mapping[BucketKey, Place]:
        """By stage and bucket: where the token stands of a stage in the checkpoint that no query reads any more, if its
        topic exists."""
        keys = sorted(key for key in (() if stored is None else stored.placements) if key[0] not in self.stages)
        if not keys:
            return {}
        places = {key: bucket_place(self.group, *key, self._prefix) for key in keys}
        there = topic_ids(admin(self.config.kafka), sorted({place.topic for place in places.values()}))
        return {key: place for key, place in places.items() if place.topic in there}

    def written(self, read: Read, stored: Checkpoint | None) -> Written:
        """What `read` finds in Kafka."""
        buckets = {**self.buckets, **self.left(stored)}
        found = read([*buckets.values(), *self.queries.values()])
        return Written(
            {
                key: token_of(note, place.name)
                for key, place in buckets.items()
                if (note := found[place.name]) is not None
            },
            {
                query: owner_of(note, place.name)
                for query, place in self.queries.items()
                if (note := found[place.name]) is not None
            },
        )

    def buckets_of(self, owners: Iterable[Owner]) -> tuple[Place, ...]:
        """The buckets of other jobs that write results of these queries."""
        return tuple(
            bucket_place(job_group(self.config, owner.job), owner.stage, bucket, self._prefix)
            for owner in sorted(set(owners), key=lambda owner: (owner.job, owner.stage))
            for bucket in range(owner.buckets)
        )

    def standing(self, folder: CheckpointFolder, written: Written) -> StartState:
        """The state that former runs have left. CheckpointRefused if the checkpoint cannot be read."""
        stored = folder.read()
        return StartState(
            queries=plan_digests(self.plans),
            stages=tuple(self.stages.values()),
            shuffle_partitions=self.config.job.shuffle_partitions,
            stored=stored,
            batches=0 if stored is None else folder.batches(stored),
            planned=-1 if stored is None else folder.planned(stored),
            tokens=written.tokens,
            others={query: owner.job for query, owner in written.owners.items() if owner.job != self.name},
            where=folder.place,
            replays=self._replays,
            lookbacks=lookbacks(self.plans, self.roster, self.config.kinds),
        )

    def judged(
        self, folder: CheckpointFolder, written: Written, judge: Callable[[StartState], Checkpoint]
    ) -> Checkpoint:
        """What `judge` says of the state that former runs have left. TakenOver when it refuses what another process has
        changed meanwhile: Kafka and the checkpoint cannot be read at one moment."""
        try:
            return judge(self.standing(folder, written))
        except CheckpointRefused as refused:
            with suppress(CheckpointRefused):
                judge(self.standing(folder, self.written(partial(read_notes, self.config.kafka), folder.read())))
                raise TakenOver(
                    f"another process has started job {self.name} at the same moment: this one ends. It has written "
                    "nothing; end one of the two"
                ) from None
            raise refused from None

    def history(self) -> History:
        results = result_topics(self.config, self.plans)
        exchanges = {
            Topic(TopicKind.EXCHANGE, plan.exchanges.fingerprint, self._prefix).name: plan.stage.buckets
            for plan in self.plans
            if plan.exchanges is not None
        }
        return read_history(
            self.config.kafka,
            {
                plan.name: (results[plan.name], plan.stage.buckets)
                for plan in self.plans
                if self._is(results[plan.name])
            },
            {topic: buckets for topic, buckets in exchanges.items() if self._is(topic)},
            self._inputs,
            f"{self.group}.history",
        )

    @property
    def _prefix(self) -> str:
        return self.config.prefix

    def _is(self, topic: str) -> bool:
        return self.there is None or topic in self.there

    @property
    def _inputs(self) -> Mapping[str, tuple[str, int]]:
        """By stage: the topic of its partials and its number of partitions."""
        topics = {name: Topic(TopicKind.PARTIALS, name, self._prefix).name for name in self.stages}
        return {name: (topic, self.stages[name].buckets) for name, topic in topics.items() if self._is(topic)}

    @cached_property
    def _replays(self) -> Mapping[str, Replay]:
        return replays(self.plans, plan_digests(self.plans), self.roster, self.config.kinds)
