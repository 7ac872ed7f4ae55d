"""The thread of the job's process that decides about sources, and writes what it decides before it takes effect.

It follows the topic `sources` and the buckets' reports. A decision is one Kafka transaction: control records to every
partition of the partials that the job reads, and the roster after it to `sources`. What stands there is in force: after
a restart, or when it is not known whether a transaction was committed, it is read again. The transactional id is the
job's: a process that begins to rule fences the one before.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from highlevel.rosters.observed_sources import BucketSources, Observed, Observing
from highlevel.rosters.roster import Roster
from highlevel.rosters.ruling import Decided, StreamRules, StreamRuling
from highlevel.spark.errors import JobFailed, TakenOver
from lowmark.app.config.file import Config
from lowmark.app.job.promised_times import promised_time
from lowmark.helpers import Helper
from lowmark.query.plan.nodes import Stage
from lowmark.watchdog import Watchdog
from lowmark.wire.kafka.clients import (
    FENCED,
    KafkaProblem,
    KafkaSettings,
    KafkaSettingsError,
    consumer,
    transactional_producer,
    translate,
    until_end,
    watermarks,
)
from lowmark.wire.kafka.topics import Topic, TopicKind
from lowmark.wire.records.codec import decode, encode
from lowmark.wire.records.record import WireRecord
from lowmark.wire.records.rosters import RosterInForce
from lowmark.wire.rows.values import NEVER

__all__ = ["Ruler", "read_rulings", "rules_of"]

_LOG = logging.getLogger("lowmark.sources")

_LOOK_EVERY_S = 0.5
_LOOK_AT_TOPIC_EVERY_S = 5.0
_END_WITHIN_S = 2.0
_ANSWER_WITHIN_S = 30.0
_RETURN_WITHIN_S = 60.0


def rules_of(config: Config, stages: Sequence[Stage]) -> list[StreamRules]:
    """The rules of the streams that these stages read."""
    streams = sorted({stream for stage in stages for node in stage.nodes for stream in node.streams})
    return [StreamRules(name, config.roster(name), config.streams[name].stall_ns) for name in streams]


def read_rulings(
    kafka: KafkaSettings, topic: str, job: str, rules: Sequence[StreamRules]
) -> list[StreamRuling]:  # fmt: skip
    """What the topic `sources` says now about the rosters of a job. They are to be read, not to decide."""
    rulings = [StreamRuling(job, each, False) for each in rules]
    reader = consumer(kafka, f"lowmark-rosters-{uuid.uuid4()}", tell_ends=True)
    try:
        reader.assign([TopicPartition(topic, 0, 0)])
        for message in until_end(reader, kafka):
            record = decode(message.headers(), message.value())
            for ruling in rulings:
                ruling.take(message.offset(), record)
    finally:
        reader.close()
    return rulings


class Ruler:
    """Inactive until `start`. `helper` is its thread; `reported` may be called from any other."""

    def __init__(
        self, config: Config, job: str, group: str, stages: Sequence[Stage], watchdog: Watchdog,
        now_s: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self.helper = Helper("sources", self._run, (KafkaProblem, KafkaSettingsError, KafkaException))
        self._kafka = config.kafka
        self._job = job
        self._id = f"{group}.sources"
        self._topic = Topic(TopicKind.SOURCES, None, config.prefix).name
        self._partials = {
            stage.fingerprint: Topic(TopicKind.PARTIALS, stage.fingerprint, config.prefix).name for stage in stages
        }
        self._stages = stages
        self._rules = rules_of(config, stages)
        self._kinds = config.kinds
        self._watchdog = watchdog
        self._now_s = now_s
        self._lock = threading.Lock()  # guards _observing and _rulings
        self._observing = Observing(stages, config.job.limits.open_panes)
        self._rulings: list[StreamRuling] = []
        self._begins: Collection[str] = ()
        self._read_to = 0  # the offset after the last record of `sources`
        self._base = Roster({}, {})

    def base(self, anew: bool) -> Roster:
        """The rosters with which the buckets of a new checkpoint begin: those in force if the job has run before
        (`anew`), else the configured ones. Anything that is left of a former job of this name has smaller versions."""
        rulings = read_rulings(self._kafka, self._topic, self._job, self._rules)
        found: dict[str, RosterInForce] = {}
        for rules, ruling in zip(self._rules, rulings, strict=True):
            first = ruling.begin(int(self._now_s()))
            if not anew and ruling.in_force is not None:
                first = ruling.configured(max(int(self._now_s()), ruling.in_force.version + 1))
            found[rules.stream] = first
        return Roster.listing(
            {stream: each.members for stream, each in found.items()},
            {stream: each.version for stream, each in found.items()},
        )

    def start(self, base: Roster, begins: Collection[str]) -> None:
        """Rule from now on. `base`: what `base` returned when the checkpoint was made; `begins`: the streams that the
        job reads since just now."""
        self._begins, self._base = begins, base
        self.helper.start()

    def stop(self) -> None:
        """Does not wait for a broker that is away: what is under way then is undone."""
        self.helper.stop(_END_WITHIN_S)

    def reported(self, reports: Sequence[BucketSources]) -> None:
        with self._lock:
            for report in reports:
                self._observing.take(report)

    def rosters(self) -> list[RosterInForce]:
        """Those in force, as far as they are known."""
        with self._lock:
            return [ruling.in_force for ruling in self._rulings if ruling.in_force is not None]

    def open_panes(self) -> dict[str, int]:
        """By stage: the most panes that are open in a bucket."""
        with self._lock:
            return self._observing.open_panes()

    def _run(self, stopping: threading.Event) -> None:
        producer = transactional_producer(self._kafka, self._id)
        self._ask(producer.init_transactions)
        rulings = [
            StreamRuling(
                self._job, each, each.stream in self._begins, self._base.versions.get(each.stream, 0),
                self._base.members((each.stream,)),
            )
            for each in self._rules
        ]  # fmt: skip
        reader = consumer(self._kafka, f"lowmark-sources-{uuid.uuid4()}", tell_ends=True)
        try:
            reader.assign([TopicPartition(self._topic, 0, 0)])
            self._follow(reader, producer, rulings, stopping)
        finally:
            reader.close()

    def _follow(
        self, reader: Consumer, producer: Producer, rulings: list[StreamRuling], stopping: threading.Event
    ) -> None:  # fmt: skip
        there = False
        looked_s = known_s = -_LOOK_AT_TOPIC_EVERY_S
        while not stopping.is_set():
            for message in reader.consume(500, _LOOK_EVERY_S):
                if message.error() is not None:
                    if message.error().code() != KafkaError._PARTITION_EOF:
                        raise translate(message.error(), self._kafka)
                    there = True
                    continue
                self._read_to = max(self._read_to, message.offset() + 1)
                record = decode(message.headers(), message.value())
                for ruling in rulings:
                    ruling.take(message.offset(), record)
            if not there or time.monotonic() - looked_s < _LOOK_EVERY_S:
                continue
            looked_s = time.monotonic()
            if looked_s - known_s >= _LOOK_AT_TOPIC_EVERY_S:
                self._refuse_another_topic(reader)
                known_s = looked_s
            decisions = self._decide(reader, rulings)
            if decisions:
                self._write(producer, decisions)
            with self._lock:
                self._rulings = rulings

    def _refuse_another_topic(self, reader: Consumer) -> None:
        _, high = watermarks(reader, TopicPartition(self._topic, 0), self._kafka)
        if high < self._read_to:
            raise JobFailed(
                f"topic {self._topic} was deleted and made anew while the job ran: it ends at {high}, and "
                f"{self._read_to} records had been read. Sources that register now get epochs that their former lives "
                "had, and all they send would be ignored. Run `lowmark sources renumber`, and start captures and job "
                "again"
            )

    def _decide(self, reader: Consumer, rulings: Sequence[StreamRuling]) -> list[Decided]:
        with self._lock:
            seen = {rules.stream: self._observing.of(rules.stream) for rules in self._rules}
            caught_up = self._observing.caught_up
            sampled = self._observing.is_sampled
        waits = any(each.waiting for each in seen.values())
        if not waits or caught_up or not sampled:
            ends = self._ends(reader) if waits else {}  # for a later look, when the buckets have read up to here
            with self._lock:
                self._observing.sampled(ends)

        def reached(stream: str) -> int | None:
            return self._reached(stream, seen[stream])

        version = int(self._now_s())
        return [
            decided
            for rules, ruling in zip(self._rules, rulings, strict=True)
            for decided in ruling.decide(seen[rules.stream], reached, version)
        ]

    def _reached(self, stream: str, seen: Observed) -> int | None:
        nodes = {
            (stage.fingerprint, node.name): node
            for stage in self._stages
            for node in stage.nodes
            if stream in node.streams
        }
        topics = {self._partials[stage] for stage, _ in nodes}
        found = promised_time(self._kafka, topics, nodes, self._kinds)
        known = [bound for bound in (found, seen.furthest_ns) if bound is not None and bound != NEVER]
        return max(known, default=None)

    def _ends(self, reader: Consumer) -> dict[tuple[str, int], int]:
        return {
            (stage.fingerprint, bucket): watermarks(
                reader, TopicPartition(self._partials[stage.fingerprint], bucket), self._kafka
            )[1]
            for stage in self._stages
            for bucket in range(stage.buckets)
        }

    def _write(self, producer: Producer, decisions: Sequence[Decided]) -> None:
        """All of it becomes visible at once, or nothing."""
        last: dict[str, RosterInForce] = {}
        try:
            producer.begin_transaction()
            for decided in decisions:
                last[decided.roster.stream] = decided.roster
                if decided.control is not None:
                    record = encode(decided.control)
                    for topic, partition in self._places(decided.roster.stream):
                        _produce(producer, topic, partition, record)
            for roster in last.values():
                _produce(producer, self._topic, 0, encode(roster))
        except KafkaException as error:  # of an earlier call, whose answer has come since
            raise self._judged(error.args[0]) from None
        self._ask(producer.commit_transaction)
        for decided in decisions:
            if decided.why:
                _LOG.warning("stream %s: %s", decided.roster.stream, decided.why)

    def _places(self, stream: str) -> Iterator[tuple[str, int]]:
        for stage in self._stages:
            if any(stream in node.streams for node in stage.nodes):
                yield from ((self._partials[stage.fingerprint], bucket) for bucket in range(stage.buckets))

    def _ask(self, call: Callable[[float], object]) -> None:
        try:
            with self._watchdog.within(_RETURN_WITHIN_S, f"the call {getattr(call, '__name__', '')} of Kafka's client"):
                call(_ANSWER_WITHIN_S)
        except KafkaException as error:
            raise self._judged(error.args[0]) from None

    def _judged(self, problem: KafkaError) -> Exception:
        """The exception to raise. A process that was fenced must not begin again: it would fence the one after it."""
        if problem.code() in FENCED:
            return TakenOver(f"another process rules the sources of job {self._job}: this one ends")
        return translate(problem, self._kafka)


def _produce(producer: Producer, topic: str, partition: int, record: WireRecord) -> None:
    producer.produce(topic, record.value, record.key, partition, headers=list(record.headers))
