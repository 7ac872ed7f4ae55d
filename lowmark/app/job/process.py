"""`lowmark run`: runs the queries of a configuration, or some of them, as one Spark job."""

from __future__ import annotations

import logging
import math
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import FrameType

from rich.markup import escape

from highlevel.metrics import HighLevelMetrics
from highlevel.spark.checkpoint.checkpoint import BucketKey, Checkpoint, CheckpointFolder, plan_digests
from highlevel.spark.checkpoint.start_conditions import StartState, begins, begun_anew, carried_on, same_topics
from highlevel.spark.end_reasons import explained, failed_queries
from highlevel.spark.errors import RELEASE, CheckpointRefused
from highlevel.spark.job_spec import JobSpec
from highlevel.spark.query import JobQuery
from highlevel.spark.session import Spark
from highlevel.spark.sink.claims import Claims
from highlevel.spark.sink.messages import Report
from highlevel.spark.sink.token_notes import note_of, note_of_owner, token_of
from highlevel.spark.sink.tokens import restated
from highlevel.spark.sink.transaction import Place, read_notes
from highlevel.spark.source import SourceSettings
from lowlevel.source_registration import SourcesLog
from lowmark.app.config.changes import ConfigChanges
from lowmark.app.config.file import Config
from lowmark.app.config.queries import plan_queries, result_topics, topics_of
from lowmark.app.console import error_console
from lowmark.app.errors import EnvironmentNotReady
from lowmark.app.exit_codes import failure_of
from lowmark.app.health import REFUSED, Health, HealthServer, living
from lowmark.app.job.change_timing import ChangeTiming, ToldTimes, changed
from lowmark.app.job.checkpoint_reach import CheckpointReach
from lowmark.app.job.names import job_name
from lowmark.app.job.reload import Reload, ReloadRequests, unchanged
from lowmark.app.job.retirements import retire
from lowmark.app.job.roster import awaited
from lowmark.app.job.roster_metrics import RosterMetrics
from lowmark.app.job.ruler import Ruler
from lowmark.app.job.spark_side import JobSpark, KeptSpark
from lowmark.app.job.start import JobStart, Written
from lowmark.app.job.starting_offsets import starting_offsets
from lowmark.app.kafka.reachability import KafkaReach
from lowmark.app.kafka.rights import Role
from lowmark.app.process_metrics import ConfigMetrics, ThreadMetrics, process_registry
from lowmark.app.service_manager import ServiceManager
from lowmark.helpers import Backoff, Helper
from lowmark.query.result_names import result_names
from lowmark.watchdog import Watchdog
from lowmark.wire.kafka.clients import KafkaUnavailable, admin, ensure_topics, topic_ids
from lowmark.wire.kafka.topics import Topic, TopicKind
from lowmark.wire.records.quarantine import Quarantine

__all__ = ["Beginning", "run_job"]

_LOG = logging.getLogger("lowmark.job")

_LOOK_EVERY_S = 0.25

_SLOW_S = 10.0
"""A step that takes longer makes the job not ready."""

_START_WITHIN_S = 300.0  # limit for each step of the start, and for its repetition; some seconds are usual
_ANSWER_WITHIN_S = 60.0  # limit for Spark to answer how it is

_END_WITHIN_S = 25.0
"""Limit for the end of a job that was told to end, or has failed. Kubernetes kills after 30 s, systemd after 45 s."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a start is asked to begin."""

    new_generation: bool = False  # a new checkpoint, whatever there was before
    repeat_rows: bool = False  # also write rows again of queries of which it is not known what was written
    release: frozenset[str] = frozenset()  # queries whose quarantine ends


def run_job(
    config: Config, *, queries: Sequence[str] | None, master: str | None, until_last: bool, beginning: Beginning,
    progress: Callable[[str], None], changes: ConfigChanges | None = None,
) -> int:  # fmt: skip
    """Runs until SIGTERM or SIGINT, or with `until_last` until all sources have ended and their windows are written;
    then returns 0, or 2 if a query is quarantined. `changes`: it takes each, as it does on SIGHUP.

    JobStopped, EnvironmentNotReady, ConfigError or QueryError say why it could not start or why it stopped. Call it
    from the main thread, which gets signals.
    """
    taken, asked = Reload(config, plan_queries(config, queries)), beginning
    former: Reload | None = None  # what has run before a reload
    reloading, kept, backoff = ReloadRequests(queries, changes), KeptSpark(), Backoff()
    until_s = -math.inf  # a start is repeated while brokers are away
    with reloading.listening():
        try:
            while True:
                start = JobStart(taken.config, taken.plans, job_name(config.job.name, queries))
                job = _Job(start, master, reloading, kept)
                try:
                    with ExitStack() as stack:
                        return job.run(stack, until_last, asked, progress)
                except _Quarantined:
                    former, asked = None, Beginning()  # it has begun
                    until_s = time.monotonic() + _START_WITHIN_S
                except _Reloaded as reloaded:
                    former, taken, asked = taken, reloaded.reload, Beginning()
                    until_s = time.monotonic() + _START_WITHIN_S
                except KafkaUnavailable as error:
                    if job.works or time.monotonic() > until_s:
                        raise
                    _LOG.warning("the job starts again in a moment: %s", error)
                    time.sleep(backoff.next_s())
                except (CheckpointRefused, EnvironmentNotReady) as error:
                    if former is None or job.works:
                        raise
                    reloading.refuse(error)
                    taken, former = former, None
                if job.told_to_end:
                    return 0
        finally:
            kept.stop()


class _Reloaded(Exception):
    """The job begins again with another configuration."""

    def __init__(self, reload: Reload) -> None:
        super().__init__("the configuration was read again")
        self.reload = reload


class _Quarantined(Exception):
    """Queries get no records from now on: the job starts again with the others."""


@contextmanager
def _signals(request: Callable[[], None]) -> Iterator[None]:
    """In this block, the main thread must not call Kafka's client: its calls keep Python from handling signals."""

    def heard(number: int, frame: FrameType | None) -> None:
        request()

    before = {number: signal.signal(number, heard) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Job:
    def __init__(self, start: JobStart, master: str | None, reloading: ReloadRequests, kept: KeptSpark) -> None:
        self._reloading = reloading
        self._kept = kept
        self._start = start
        self._config = start.config
        self._plans = start.plans
        self._name = start.name
        self._master = master
        self._wake = threading.Event()
        self._registry = process_registry()
        self._watchdog = Watchdog(self._end)
        self._ruler = Ruler(self._config, start.name, start.group, tuple(start.stages.values()), self._watchdog)
        self._service = ServiceManager()
        sources = Topic(TopicKind.SOURCES, None, self._config.prefix).name
        self._reach = KafkaReach(self._config.kafka, sources, self._registry)
        self._store = CheckpointReach(start.place, self._registry)
        self._health = HealthServer(
            self._config.job.metrics, "job.metrics", self._registry, self._ready,
            lambda: living(self._helpers()), self._config.metrics,
        )  # fmt: skip
        ThreadMetrics(self._registry, self._helpers)
        ConfigMetrics(self._registry, lambda: reloading.refused)
        self._step = ""  # of the start, until the query runs
        self._query: JobQuery | None = None
        self._spark: Spark | None = None
        self._stopping = False
        self.told_to_end = False  # by a signal, which may come while it ends for another reason
        self._failed: Exception | None = None
        self._quarantined: Mapping[str, str] = {}  # by query: why
        self._left: Mapping[BucketKey, Place] = {}  # the buckets of stages that no query reads any more
        self._begins: frozenset[str] = frozenset()  # the streams that no former run has read
        self._told = ToldTimes()
        self._change: tuple[Reload, ChangeTiming] | None = None  # what is to be taken, and when

    def run(
        self, stack: ExitStack, until_last: bool, asked: Beginning, progress: Callable[[str], None]
    ) -> int:  # fmt: skip
        stack.enter_context(self._watchdog)
        progress = self._service.shown_too(progress)
        try:
            self._run(stack, until_last, asked, progress)
        except (_Quarantined, _Reloaded) as stopped:
            self._failed = stopped  # a process that hangs in its end has failed
            self._begin_end()
            raise
        except Exception as error:
            self._failed = told = explained(error, self._spark, self._start.folder)
            if told is error:
                raise
            raise told from None
        finally:
            self._stop()  # a failed job gets no more time to end than one that was told to
        progress("ending")
        if until_last and self._quarantined and not self.told_to_end:
            _LOG.error(
                "not written, since they are quarantined: the windows of %s", ", ".join(sorted(self._quarantined))
            )
            return 2
        return 0

    def _run(
        self, stack: ExitStack, until_last: bool, asked: Beginning, progress: Callable[[str], None]
    ) -> None:  # fmt: skip
        config, settings = self._config, self._config.job
        watchdog = self._watchdog
        spark = JobSpark(self._start, self._master, watchdog, self._note_spark, progress, self._kept)
        folder = stack.enter_context(CheckpointFolder(spark.files(stack)))
        health, reach = stack.enter_context(self._health), self._reach
        self._step = f"connecting to Kafka at {config.kafka.bootstrap}"
        progress(f"{self._step}; the state of this process: {health.url}/readyz")
        reach.await_answer(progress)
        stack.enter_context(reach)
        self._begin_step("checking topics", progress)
        with watchdog.within(_START_WITHIN_S, "the check of the topics"):
            topics = self._ensure_topics(None if asked.new_generation else folder.read())
        start = self._start
        with watchdog.within(_START_WITHIN_S, "the comparison of checkpoint and results"):
            found = start.written(partial(read_notes, config.kafka), folder.read())
            start.judged(folder, found, partial(self._judged, asked))  # before it fences a job that may be healthy
        host_facts = spark.admitted(stack, folder)
        if not asked.new_generation:
            for moved in start.standing(folder, found).changes(asked.release).sentences():
                _LOG.warning("%s: it takes effect now", moved)
        with (
            watchdog.within(_START_WITHIN_S, "the claim on buckets and queries"),
            Claims(config.kafka, settings.transaction_timeout_s, watchdog) as claims,
        ):
            checkpoint, written = self._claim(folder, claims, asked, topics)
        ruler = self._ruler
        self._quarantined = checkpoint.quarantined
        for name, reason in sorted(self._quarantined.items()):
            _LOG.warning("query %s is still quarantined: %s. %s", name, reason, RELEASE)
        if self._quarantined or asked.release or (checkpoint.run == 1 and checkpoint.generation > 1):
            with watchdog.within(_START_WITHIN_S, "the word of quarantined queries"):
                said = Quarantine(self._name, tuple(self._quarantined.items()))
                SourcesLog(config.kafka, Topic(TopicKind.SOURCES, None, config.prefix).name).append(said)
        spec = self._spec(checkpoint, written)
        metrics = HighLevelMetrics(
            self._registry, spec.plans, spec.roster.names(),
            frozenset(key for key in checkpoint.ended if key[0] in start.stages), self._quarantined
        )  # fmt: skip
        RosterMetrics(self._registry, ruler.rosters, ruler.open_panes)
        ruler.start(checkpoint.roster, self._begins)
        stack.callback(ruler.stop)

        def done(reports: Sequence[Report], seconds: float) -> None:
            ruler.reported(reports)
            self._told.reported(reports)
            metrics.micro_batch(reports, seconds)

        with watchdog.within(_START_WITHIN_S, "the search for the first records that are needed"):
            starts = starting_offsets(config.kafka, spec, progress) if folder.planned(checkpoint) < 0 else {}
        query = JobQuery(
            spec, SourceSettings(config.kafka, settings.max_offsets_per_trigger, starts), folder, checkpoint,
            self._name, done, self._renewed, metrics.phases, self._wake,
        )  # fmt: skip
        stack.enter_context(_signals(self._be_told_to_end))
        session = spark.start(stack).session
        with watchdog.within(_START_WITHIN_S, "the query's start"):
            query.start(session, host_facts)
        self._query = query
        stack.callback(query.stop)
        self._store.start(query)
        stack.callback(self._store.helper.stop, _LOOK_EVERY_S)  # it may be waiting for an answer
        names = ", ".join(plan.name for plan in self._plans if plan.name not in self._quarantined)
        progress(f"running {names}: generation {checkpoint.generation}, run {checkpoint.run}; {health.url}/metrics")
        ready, halting = not self._service.there, False
        while not self._stopping and not (until_last and query.ended):
            with watchdog.within(_ANSWER_WITHIN_S, "Spark's answer to how it is"):
                try:
                    query.check()
                except Exception as error:  # also of Spark and of the bridge to it
                    self._quarantine(error, query)
                    raise
                turned = (self._service.due() or not ready) and query.turned()
            if turned and not ready:
                ready = True
                self._service.ready()
            elif turned:
                self._service.worked()
            for helper in self._helpers():
                helper.check()
            self._store.look()
            query.renew()
            if not halting and (reload := self._reloading.take(self._config)) is not None:
                self._await_change(reload, stack)
            if not halting and self._change is not None and self._change[1].due:
                query.halt()
                halting = True
            if halting and query.halted:  # a batch that has begun must end with the queries of now
                assert self._change is not None
                self._kept.keep = True
                raise _Reloaded(self._change[0])
            self._wake.wait(_LOOK_EVERY_S)
            self._wake.clear()

    def _await_change(self, reload: Reload, stack: ExitStack) -> None:
        """Take another configuration as soon as that leaves no gap. A different one that waited is forgotten."""
        config = self._config
        if self._change is not None:
            if self._change[0] == reload:
                return
            self._change[1].stop()
            self._change = None
        if reload.runs_as(Reload(config, self._plans)):
            unchanged()
            return
        queries = [each for each in changed(self._plans, reload.plans) if each.name not in self._quarantined]

        def sources(streams: Collection[str]) -> set[str] | None:
            return awaited(streams, self._ruler.rosters(), self._start.roster, reload.config)

        timing = ChangeTiming(config.kafka, config.prefix, queries, sources, self._told, reload.config.job.overlap_s)
        self._change = reload, timing
        stack.callback(timing.stop)
        timing.start()

    @property
    def works(self) -> bool:
        """Whether its query has begun."""
        return self._query is not None

    def _helpers(self) -> tuple[Helper, ...]:
        change = () if self._change is None else self._change[1].helpers
        return (
            self._health.helper, self._reach.helper, self._watchdog.helper, self._ruler.helper, self._store.helper,
            *change,
        )  # fmt: skip

    def _begin_step(self, step: str, progress: Callable[[str], None]) -> None:
        self._step = step
        progress(step)

    def _quarantine(self, error: Exception, query: JobQuery) -> None:
        """Raises _Quarantined if an operator has failed that not all queries depend on."""
        failed, why = failed_queries(error)
        before = set(self._quarantined)
        stopped = before | set(failed)
        if not failed or stopped == {plan.name for plan in self._plans}:
            return
        found = dict.fromkeys(sorted(stopped - before), why)
        query.quarantine(found)
        if self._change is not None:
            self._reloading.ask()  # the job without these queries takes the change
        for name, reason in found.items():
            _LOG.error("query %s is quarantined: %s. The other queries go on. %s", name, reason, RELEASE)
        raise _Quarantined(f"{', '.join(found)}: quarantined")

    def _be_told_to_end(self) -> None:
        self.told_to_end = True
        self._stop()

    def _stop(self) -> None:
        if not self._stopping:
            self._service.stopping()
            self._begin_end()

    def _begin_end(self) -> None:
        self._stopping = True
        self._watchdog.begin(_END_WITHIN_S, "the job's end")

    def _end(self, reason: str) -> None:
        """Ends a process in which something hangs: the next one resumes from what has been written."""
        orderly = self._stopping and self._failed is None
        console = error_console()
        console.show_cursor()
        if self._failed is not None:
            console.print(f"[bold red]error:[/] {escape(str(self._failed))}")
        told = "[bold yellow]note:[/]" if orderly else "[bold red]error:[/]"
        console.print(
            f"{told} {escape(reason)}. This process ends itself by force; nothing is lost, and the job resumes when it "
            "is started again"
        )
        if self._spark is not None:
            self._spark.kill()
        failure = None if self._failed is None else failure_of(self._failed)
        os._exit(0 if orderly else 1 if failure is None else failure.exit_code)

    def _ensure_topics(self, stored: Checkpoint | None) -> dict[str, str]:
        """Creates missing topics. Returns Kafka's ids of the result topics, by name."""
        client = admin(self._config.kafka)
        names = result_topics(self._config, self._plans)
        if stored is not None:
            digests = plan_digests(self._plans)
            written = [topic for query, topic in names.items() if stored.queries.get(query) == digests[query]]
            same_topics(stored, topic_ids(client, written), written)
        problems = ensure_topics(client, topics_of(self._config, self._plans, (Role.RUN,)))
        if problems:
            raise EnvironmentNotReady(
                "topics differ from what this job needs",
                "change the topic's settings, or delete the topic if its data may be lost: the job creates it again",
                tuple(str(problem) for problem in problems),
            )
        return topic_ids(client, list(names.values()))

    def _claim(
        self, folder: CheckpointFolder, claims: Claims, asked: Beginning, topics: dict[str, str]
    ) -> tuple[Checkpoint, Written]:
        """Writes and returns the checkpoint to run on: from here on this is the job's only process, and its queries'
        only job."""
        start = self._start
        written = start.written(claims.fence, folder.read())
        stored = folder.read()  # nobody else changes it from here on
        others = start.buckets_of(owner for owner in written.owners.values() if owner.job != start.name)
        theirs = claims.fence(others) if asked.new_generation else {}
        checkpoint = start.judged(folder, written, partial(self._judged, asked))
        folder.check(checkpoint)
        if checkpoint.run > 1:  # the check may have withdrawn a commit: then queries change later
            checkpoint = start.judged(folder, written, partial(self._judged, asked))
        checkpoint = replace(checkpoint, topics=topics)
        first, read = checkpoint.run == 1, checkpoint.roster.streams
        self._begins = frozenset(stream for stream in start.roster if first or stream not in read)
        if (fresh := begins(stored, checkpoint)) or self._begins:
            roster = self._ruler.base(anew=not first or checkpoint.generation > 1)
            checkpoint = replace(checkpoint, roster=roster)
        self._left = start.left(checkpoint)
        taken = {name: None if note is None else token_of(note, name) for name, note in theirs.items()}
        places = {**start.buckets, **self._left}
        taken |= {place.name: written.tokens.get(key) for key, place in places.items()}
        anew = {places[key].name for key in fresh}
        notes = {
            name: note_of(restated(token, start.name, checkpoint.id, checkpoint.run, name in anew))
            for name, token in taken.items()
        }
        if checkpoint.run > 1:  # first, because a bucket that has begun must have a token
            claims.write({name: notes[name] for name in anew})
        folder.write(checkpoint)
        notes |= {place.name: note_of_owner(start.owners[query]) for query, place in start.queries.items()}
        claims.write(notes)
        folder.forget_others(checkpoint)
        retire(self._config.kafka, self._name, checkpoint, self._left)
        return checkpoint, written

    def _renewed(self) -> None:
        """Write all tokens again, before Kafka forgets them. No batch runs meanwhile."""
        start = self._start
        places = [*start.buckets.values(), *self._left.values(), *start.queries.values()]
        with Claims(self._config.kafka, self._config.job.transaction_timeout_s, self._watchdog) as claims:
            claims.write({name: note for name, note in claims.fence(places).items() if note is not None})

    def _judged(self, asked: Beginning, standing: StartState) -> Checkpoint:
        """The checkpoint to run on; CheckpointRefused when the job may not start."""
        if asked.new_generation:
            return begun_anew(standing, self._start.history(), asked.repeat_rows)
        quarantined = {} if standing.stored is None else standing.stored.quarantined
        if unknown := sorted(asked.release - quarantined.keys()):
            there = ", ".join(sorted(quarantined)) or "none"
            raise CheckpointRefused(f"--release {unknown[0]}: no quarantined query has this name; quarantined: {there}")
        return carried_on(standing, self._start.history, asked.release, asked.repeat_rows)

    def _spec(self, checkpoint: Checkpoint, written: Written) -> JobSpec:
        config = self._config
        return JobSpec(
            job=self._name,
            group=self._start.group,
            checkpoint=checkpoint.id,
            run=checkpoint.run,
            kafka=config.kafka,
            transaction_timeout_s=config.job.transaction_timeout_s,
            tasks=checkpoint.shuffle_partitions,
            plans=self._plans,
            roster=checkpoint.roster,
            kinds=config.kinds,
            placements=checkpoint.placements,
            generation=checkpoint.generation,
            lives=checkpoint.lives,
            leaving=Counter(stage for stage, _ in self._left),
            suppressed=checkpoint.suppressed,
            told=checkpoint.told,
            needed=checkpoint.needed,
            laws=self._start.laws,
            prefix=config.prefix,
            formats={plan.name: config.queries[plan.name].format for plan in self._plans},
            names={plan.name: result_names(plan, config.queries[plan.name].names) for plan in self._plans},
            quarantined=tuple(checkpoint.quarantined),
            unfinished={key: token for key, token in written.tokens.items() if not token.last},
        )

    def _note_spark(self, spark: Spark) -> None:
        self._spark = spark
        self._step = "starting Spark"

    def _ready(self) -> Health:
        slow, reach, store = self._watchdog.slow(_SLOW_S), self._reach, self._store
        if slow is not None:  # do not ask Spark now: it may be Spark that does not answer
            return Health(False, {"job": self._name, "waits for": slow, **reach.detail})
        if self._query is None:
            return Health(False, {"job": self._name, "query": f"not running yet: {self._step}", **reach.detail})
        active = self._query.active
        detail = {"job": self._name, "query": "running" if active else "not running", **reach.detail, **store.detail}
        if self._change is not None and (waits := self._change[1].waits):
            detail |= {f"changes when sources cover the new text: {name}": why for name, why in waits.items()}
        if self._reloading.refused is not None:
            detail |= {REFUSED: self._reloading.refused}
        detail |= {f"quarantined {query}": why for query, why in sorted(self._quarantined.items())}
        return Health(active and reach.ok and store.ok, detail)
