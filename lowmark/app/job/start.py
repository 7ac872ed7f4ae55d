"""The facts that decide a job's start: what should run, and what former runs have left. Reading changes nothing."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException

from highlevel.spark.checkpoint import BucketKey, CheckpointFolder, plan_digests
from highlevel.spark.opening import StartState
from highlevel.spark.replay import Replay, replays
from highlevel.spark.sink.messages import Position
from highlevel.spark.sink.results_history import History, read_history
from highlevel.spark.sink.transaction import places, token_and_positions
from lowmark.app.config.file import Config
from lowmark.app.config.queries import result_topics
from lowmark.app.kafka.rights import job_group
from lowmark.query.plan.nodes import QueryPlan, Stage
from lowmark.wire.kafka.clients import consumer, is_passing, translate
from lowmark.wire.kafka.topics import Topic, TopicKind
from lowmark.wire.records.sink_token import Token, Told, decode_told

__all__ = ["JobStart"]

_ANSWER_WITHIN_S = 30.0
_PAUSE_S = 0.1


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
    def folder(self) -> Path:
        """The folder of the checkpoint."""
        return self.config.path.parent / self.config.job.checkpoint / self.name

    @cached_property
    def stages(self) -> Mapping[str, Stage]:
        return {plan.stage.fingerprint: plan.stage for plan in self.plans}

    @cached_property
    def roster(self) -> Mapping[str, tuple[str, ...]]:
        """The sources of each stream that the queries read."""
        nodes = (node for stage in self.stages.values() for node in stage.nodes)
        return {stream: self.config.roster(stream) for stream in sorted({name for of in nodes for name in of.streams})}

    @property
    def token_topic(self) -> str:
        return Topic(TopicKind.DEAD, None, self._prefix).name

    @property
    def inputs(self) -> tuple[tuple[str, int], ...]:
        """All partitions of partials."""
        return tuple((topic, bucket) for topic, buckets in self._inputs.values() for bucket in range(buckets))

    @cached_property
    def laws(self) -> Mapping[str, str]:
        """By query: the law of its replay. A query without one is left out."""
        return {query: of.law for query, of in self._replays.items() if of.law is not None}

    def committed(self) -> tuple[Token | None, dict[tuple[str, int], Position]]:
        """Token and positions in Kafka. Fences nobody, and does not wait for a transaction that has not ended: the job
        that began it may have died."""
        reader = consumer(self.config.kafka, self.group, stable=False)
        asked, deadline = places(self.token_topic, self.inputs), time.monotonic() + _ANSWER_WITHIN_S
        try:
            while True:
                try:
                    found = reader.committed(asked, timeout=max(1.0, deadline - time.monotonic()))
                    return token_and_positions(found, self.group, self.config.kafka)
                except KafkaException as error:
                    problem: KafkaError = error.args[0]
                if not is_passing(problem) or time.monotonic() > deadline:
                    raise translate(problem, self.config.kafka)
                time.sleep(_PAUSE_S)
        finally:
            reader.close()

    def standing(
        self, folder: CheckpointFolder, token: Token | None, positions: Mapping[tuple[str, int], Position]
    ) -> StartState:
        """The state that former runs have left. CheckpointRefused if the checkpoint cannot be read."""
        stored = folder.read()
        return StartState(
            queries=plan_digests(self.plans),
            stages=tuple(self.stages.values()),
            shuffle_partitions=self.config.job.shuffle_partitions,
            stored=stored,
            batches=0 if stored is None else folder.batches(stored),
            planned=-1 if stored is None else folder.planned(stored),
            token=token,
            where=str(folder.path),
            replays=self._replays,
            told=self.told(positions),
        )

    def told(self, positions: Mapping[tuple[str, int], Position]) -> Mapping[BucketKey, Mapping[str, Told]]:
        """By stage and bucket: what positions say of each query."""
        return {
            (stage, bucket): decode_told(positions[topic, bucket].metadata)
            for stage, (topic, buckets) in self._inputs.items()
            for bucket in range(buckets)
            if (topic, bucket) in positions
        }

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
            self.group,
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
