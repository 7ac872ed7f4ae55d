"""`lowmark run`: runs the queries of a configuration, or some of them, as one Spark job."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from rich.markup import escape

from highlevel.metrics import HighLevelMetrics
from highlevel.spark.checkpoint import BucketKey, Checkpoint, CheckpointFolder
from highlevel.spark.end_reasons import explained, failed_queries
from highlevel.spark.job_spec import JobSpec
from highlevel.spark.opening import StartState, begun_anew, carried_on, same_topics
from highlevel.spark.quarantine import RELEASE, together
from highlevel.spark.query import JobQuery
from highlevel.spark.session import MOVES_BYTES, Spark, SparkSettings
from highlevel.spark.sink.messages import Report
from highlevel.spark.sink.transaction import TransactionalSink
from highlevel.spark.source import SourceSettings
from lowlevel.source_epochs import SourcesLog
from lowmark.app.config.file import Config
from lowmark.app.config.queries import plan_queries, result_topics, topics_of
from lowmark.app.console import error_console
from lowmark.app.errors import EnvironmentNotReady
from lowmark.app.failures import failure_of
from lowmark.app.health import Health, HealthServer, living
from lowmark.app.job.names import job_name
from lowmark.app.job.roster_metrics import RosterMetrics
from lowmark.app.job.ruler import Ruler
from lowmark.app.job.start import JobStart
from lowmark.app.kafka.jars import SPARK_KAFKA, obtain
from lowmark.app.kafka.java import Java, find_java, spark_java_home
from lowmark.app.kafka.reachability import KafkaReach
from lowmark.app.kafka.rights import Role
from lowmark.app.process_metrics import ThreadMetrics, process_registry
from lowmark.app.service_manager import ServiceManager
from lowmark.helpers import Helper
from lowmark.query.result_names import result_names
from lowmark.watchdog import Watchdog
from lowmark.wire.kafka.clients import admin, ensure_topics, topic_ids
from lowmark.wire.kafka.topics import Topic, TopicKind
from lowmark.wire.records.quarantine import Quarantine
from lowmark.wire.records.sink_token import Told

__all__ = ["NewGeneration", "run_job"]

_LOG = logging.getLogger("lowmark.job")

_LOOK_EVERY_S = 0.25

_SLOW_S = 10.0
"""A step that takes longer makes the job not ready."""

_START_WITHIN_S = 300.0  # limit for each step of the start; some seconds are usual
_ANSWER_WITHIN_S = 60.0  # limit for Spark to answer how it is

_END_WITHIN_S = 25.0
"""Limit for the end of a job that was told to end, or has failed. Kubernetes kills after 30 s, systemd after 45 s."""


@dataclass(frozen=True, slots=True)
class NewGeneration:
    """Asks for a new checkpoint, whatever there was before."""

    repeat_rows: bool = False  # also for queries whose written rows are not known


def run_job(
    config: Config, *, queries: Sequence[str] | None, master: str | None, until_last: bool,
    new_generation: NewGeneration | None, progress: Callable[[str], None],
) -> int:  # fmt: skip
    """Runs until SIGTERM or SIGINT, or with `until_last` until all sources have ended and their windows are written;
    then returns 0, or 2 if a query is quarantined.

    JobStopped, EnvironmentNotReady, ConfigError or QueryError say why it could not start or why it stopped. Call it
    from the main thread, which gets signals.
    """
    plans, anew = plan_queries(config, queries), new_generation
    while True:
        job = _Job(JobStart(config, plans, job_name(config.job.name, queries)), master or config.job.master)
        try:
            with ExitStack() as stack:
                return job.run(stack, until_last, anew, progress)
        except _Quarantined:
            if job.told_to_end:
                return 0
            anew = None  # it has begun


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
    def __init__(self, start: JobStart, master: str) -> None:
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
        self._health = HealthServer(
            self._config.job.metrics, "job.metrics", self._registry, self._ready,
            lambda: living(self._helpers()), self._config.metrics,
        )  # fmt: skip
        ThreadMetrics(self._registry, self._helpers)
        self._step = ""  # of the start, until the query runs
        self._query: JobQuery | None = None
        self._spark: Spark | None = None
        self._stopping = False
        self.told_to_end = False  # by a signal, which may come while it ends for another reason
        self._failed: Exception | None = None
        self._quarantined: Mapping[str, str] = {}  # by query: why

    def run(
        self, stack: ExitStack, until_last: bool, anew: NewGeneration | None, progress: Callable[[str], None]
    ) -> int:  # fmt: skip
        stack.enter_context(self._watchdog)
        progress = self._service.told(progress)
        try:
            self._run(stack, until_last, anew, progress)
        except _Quarantined as stopped:
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
        self, stack: ExitStack, until_last: bool, anew: NewGeneration | None, progress: Callable[[str], None]
    ) -> None:  # fmt: skip
        config, settings = self._config, self._config.job
        watchdog = self._watchdog
        folder = stack.enter_context(CheckpointFolder(self._start.folder))
        health, reach = stack.enter_context(self._health), self._reach
        self._step = f"connecting to Kafka at {config.kafka.bootstrap}"
        progress(f"{self._step}; the state of this process: {health.url}/readyz")
        reach.await_answer(progress)
        stack.enter_context(reach)
        self._begin_step("checking topics", progress)
        with watchdog.within(_START_WITHIN_S, "the check of the topics"):
            topics = self._ensure_topics(None if anew else folder.read())
        start = self._start
        with watchdog.within(_START_WITHIN_S, "the comparison of checkpoint and results"):
            self._judged(start.standing(folder, *start.committed()), anew)  # before it fences a job that may be healthy
        sink = stack.enter_context(
            TransactionalSink(config.kafka, start.group, start.token_topic, start.inputs, watchdog)
        )
        ruler = self._ruler
        checkpoint = self._open(folder, sink, anew, topics)
        self._quarantined = checkpoint.quarantined
        for name, reason in sorted(self._quarantined.items()):
            _LOG.warning("query %s is still quarantined: %s. %s", name, reason, RELEASE)
        if self._quarantined or (checkpoint.run == 1 and checkpoint.generation > 1):
            with watchdog.within(_START_WITHIN_S, "the word of quarantined queries"):
                said = Quarantine(self._name, tuple(self._quarantined.items()))
                SourcesLog(config.kafka, Topic(TopicKind.SOURCES, None, config.prefix).name).append(said)
        spec = self._spec(folder, checkpoint, start.told(sink.positions))
        metrics = HighLevelMetrics(
            self._registry, spec.plans, spec.roster.names(), checkpoint.ended, self._quarantined
        )  # fmt: skip
        RosterMetrics(self._registry, ruler.rosters, ruler.open_panes)
        ruler.start(checkpoint.roster, checkpoint.run == 1)
        stack.callback(ruler.stop)

        def written(reports: Sequence[Report], seconds: float) -> None:
            ruler.reported(reports)
            metrics.micro_batch(reports, seconds)

        query = JobQuery(
            spec, SourceSettings(config.kafka, settings.max_offsets_per_trigger), folder, checkpoint, sink, self._name,
            written, metrics.phases, self._wake,
        )  # fmt: skip
        java = find_java()
        jars = obtain(SPARK_KAFKA, java=java, progress=progress)
        stack.enter_context(_signals(self._be_told_to_end))
        self._begin_step("starting Spark", progress)
        self._spark = Spark(self._spark_settings(folder, java, jars))
        with watchdog.within(_START_WITHIN_S, "Spark's start"):
            stack.enter_context(self._spark)
            query.start(self._spark.session)
        self._query = query
        stack.callback(query.stop)
        names = ", ".join(plan.name for plan in self._plans if plan.name not in self._quarantined)
        progress(f"running {names}: generation {checkpoint.generation}, run {checkpoint.run}; {health.url}/metrics")
        ready = not self._service.there
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
            query.renew()
            self._wake.wait(_LOOK_EVERY_S)
            self._wake.clear()

    def _helpers(self) -> tuple[Helper, ...]:
        return self._health.helper, self._reach.helper, self._watchdog.helper, self._ruler.helper

    def _begin_step(self, step: str, progress: Callable[[str], None]) -> None:
        self._step = step
        progress(step)

    def _quarantine(self, error: Exception, query: JobQuery) -> None:
        """Raises _Quarantined if an operator has failed that not all queries depend on."""
        failed, why = failed_queries(error)
        before = set(self._quarantined)
        stopped = together(self._plans, before | set(failed))
        if not failed or stopped == {plan.name for plan in self._plans}:
            return
        beside = f"its joins run as one with those of {', '.join(failed)}"
        found = {name: why if name in failed else beside for name in sorted(stopped - before)}
        query.quarantine(found)
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
            written = [topic for query, topic in names.items() if query in stored.queries]
            same_topics(stored, topic_ids(client, written), written)
        problems = ensure_topics(client, topics_of(self._config, self._plans, (Role.RUN,)))
        if problems:
            raise EnvironmentNotReady(
                "topics differ from what this job needs",
                "change the topic's settings, or delete the topic if its data may be lost: the job creates it again",
                tuple(str(problem) for problem in problems),
            )
        return topic_ids(client, list(names.values()))

    def _open(
        self, folder: CheckpointFolder, sink: TransactionalSink, anew: NewGeneration | None, topics: dict[str, str]
    ) -> Checkpoint:  # fmt: skip
        """Writes and returns the checkpoint to run on: from here on this is the job's only process."""
        start = self._start
        checkpoint = self._judged(start.standing(folder, sink.token, sink.positions), anew)
        checkpoint = replace(checkpoint, topics=topics)
        if checkpoint.run == 1:
            checkpoint = replace(checkpoint, roster=self._ruler.base(anew=checkpoint.generation > 1))
        folder.check(checkpoint)
        folder.write(checkpoint)
        folder.forget_others(checkpoint)
        return checkpoint

    def _judged(self, standing: StartState, anew: NewGeneration | None) -> Checkpoint:
        """The checkpoint to run on; CheckpointRefused when the job may not start."""
        if anew is None:
            return carried_on(standing, self._start.history)
        return begun_anew(standing, self._start.history(), anew.repeat_rows)

    def _spec(
        self, folder: CheckpointFolder, checkpoint: Checkpoint, told: Mapping[BucketKey, Mapping[str, Told]]
    ) -> JobSpec:  # fmt: skip
        config = self._config
        return JobSpec(
            job=self._name,
            plans=self._plans,
            roster=checkpoint.roster,
            kinds=config.kinds,
            placements=checkpoint.placements,
            generation=checkpoint.generation,
            suppressed=checkpoint.suppressed,
            told=checkpoint.told,
            laws=self._start.laws,
            prefix=config.prefix,
            parcels=str(folder.path / "parcels"),
            formats={plan.name: config.queries[plan.name].format for plan in self._plans},
            names={plan.name: result_names(plan, config.queries[plan.name].names) for plan in self._plans},
            quarantined=frozenset(checkpoint.quarantined),
            paused={
                (query, bucket): of[query]
                for (_, bucket), of in told.items()
                for query in checkpoint.quarantined
                if query in of
            },
        )

    def _spark_settings(self, folder: CheckpointFolder, java: Java, jars: Sequence[Path]) -> SparkSettings:
        work = folder.path / "work"
        shutil.rmtree(work, ignore_errors=True)  # left by a killed job; the lock proves that it is gone
        return SparkSettings(
            master=self._master,
            java_home=spark_java_home(java),
            jars=jars,
            shuffle_partitions=self._config.job.shuffle_partitions,
            heap=self._config.job.heap,
            work_dir=work,
            log=folder.path / "spark.log",
            java_options=MOVES_BYTES,
        )

    def _ready(self) -> Health:
        slow, reach = self._watchdog.slow(_SLOW_S), self._reach
        if slow is not None:  # do not ask Spark now: it may be Spark that does not answer
            return Health(False, {"job": self._name, "waits for": slow, **reach.detail})
        if self._query is None:
            return Health(False, {"job": self._name, "query": f"not running yet: {self._step}", **reach.detail})
        active = self._query.active
        detail = {"job": self._name, "query": "running" if active else "not running", **reach.detail}
        detail |= {f"quarantined {query}": why for query, why in sorted(self._quarantined.items())}
        return Health(active and reach.ok, detail)
