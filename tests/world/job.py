"""The lives of the job: the start's judgement, the query and the sink of lowmark on the simulated Spark and broker.

This is the only module that knows how the job's parts are put together, as `lowmark.app.job.process` does it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from random import Random
from types import SimpleNamespace, TracebackType
from typing import Any
from unittest import mock

from confluent_kafka import KafkaException

from highlevel.spark import errors
from highlevel.spark import processor as processor_module
from highlevel.spark import query as query_module
from highlevel.spark.checkpoint import files as checkpoint_files
from highlevel.spark.checkpoint.checkpoint import BucketKey, Checkpoint, CheckpointFolder
from highlevel.spark.checkpoint.start_conditions import StartState, begins, begun_anew, carried_on
from highlevel.spark.end_reasons import failed_queries
from highlevel.spark.errors import CheckpointRefused, JobFailed, SinkStopped
from highlevel.spark.job_spec import JobSpec
from highlevel.spark.query import JobQuery
from highlevel.spark.sink import bucket_sink, commits, outgoing, transaction
from highlevel.spark.sink.bucket_sink import BucketSink
from highlevel.spark.sink.claims import Claims
from highlevel.spark.sink.token_notes import note_of, note_of_owner
from highlevel.spark.sink.tokens import restated
from highlevel.spark.sink.transaction import Place, read_notes
from highlevel.spark.source import SourceSettings, of_exchanges, of_partials
from lowmark.app.config.file import Config
from lowmark.app.job import start as start_module
from lowmark.app.job.retirements import retire
from lowmark.app.job.ruler import Ruler
from lowmark.app.job.start import JobStart, Written
from lowmark.app.job.starting_offsets import starting_offsets
from lowmark.query.plan.nodes import QueryPlan
from lowmark.watchdog import Watchdog
from lowmark.wire.kafka.clients import KafkaProblem, KafkaSettings
from tests.world.clients import Broker
from tests.world.network import Killed, Process
from tests.world.spark import Session, Worker

__all__ = ["JobLife", "wired"]

_INERT = Watchdog(lambda reason: None)


class JobLife:
    """One process of the job. After `start` each `turn` runs a batch; `refused` says why it was refused, `ended` why it
    ended by itself otherwise."""

    def __init__(
        self, number: int, config: Config, plans: tuple[QueryPlan, ...], broker: Broker, random: Random, most: int
    ) -> None:  # fmt: skip
        self.process = Process(f"job, life {number}")
        self.refused: CheckpointRefused | None = None
        self.ended: Exception | None = None
        self.running = False
        self.begins_in_the_middle = False
        self.wrote = False  # whether anything of the job could be read when it began
        self._broker = broker
        self._start = JobStart(config, plans, "job")
        self._config = config
        self._plans = plans
        self.session = Session(broker, self.process, random, most)
        self._wake = threading.Event()
        self._query: JobQuery | None = None
        self._folder: CheckpointFolder | None = None
        self._ruler: Ruler | None = None
        self._left: Mapping[BucketKey, Place] = {}

    @property
    def alive(self) -> bool:
        return self.process.alive

    def start(self, anew: bool, locked: bool) -> None:
        """`locked`: another process on this host holds the lock of the checkpoint."""
        self._do(lambda: self._begin(anew, locked))

    def turn(self) -> bool:
        """Run a batch; whether there was one."""
        done: list[bool] = []
        self._do(lambda: done.append(self._turn()))
        return bool(done and done[0])

    def rule(self) -> None:
        """Decide about sources, as a thread of the job does. What fails there is done again later."""

        def decide() -> None:
            assert self._ruler is not None
            with suppress(KafkaProblem, KafkaException):
                self._ruler._run(_Rounds(1))

        if self.running:
            self._do(decide)

    def kill(self) -> None:
        """Its workers go on with what they are doing."""
        self.process.alive = False
        self.running = False
        if self._folder is not None:
            self._folder.__exit__(None, None, None)
            self._folder = None

    def _do(self, work: Callable[[], None]) -> None:
        try:
            with self._broker.network.running(self.process):
                work()
        except Killed:
            self.kill()
        except Exception as error:
            told = self._quarantined(error) or _told(error)
            if isinstance(told, CheckpointRefused):
                self.refused = told
            else:
                self.ended = told
            self.kill()

    def _quarantined(self, error: BaseException) -> JobFailed | None:
        """How it ends to begin again without the queries whose operator has failed; None: something else has."""
        failed, why = failed_queries(Exception(f"{type(error).__name__}: {error}"))
        if not failed or self._query is None:
            return None
        self._query.quarantine(dict.fromkeys(failed, why))
        return JobFailed(f"{', '.join(failed)}: quarantined")

    def _begin(self, anew: bool, locked: bool) -> None:
        start, kafka, timeout_s = self._start, self._config.kafka, self._config.job.transaction_timeout_s
        assert start.folder is not None
        folder = CheckpointFolder(start.folder)
        with mock.patch.object(checkpoint_files.fcntl, "flock", _locked if locked else lambda *how: None):
            self._folder = folder.__enter__()
        start.judged(folder, start.written(partial(read_notes, kafka), folder.read()), partial(self._judged, anew))
        self._ruler = ruler = Ruler(
            self._config, start.name, start.group, tuple(start.stages.values()), _INERT, self._broker.clock.time
        )
        ruler.helper = _Rounds(0)  # type: ignore[assignment]  # it has no thread
        with Claims(kafka, timeout_s, _INERT) as claims:
            checkpoint, written = self._claim(folder, claims, anew)
        spec = JobSpec(
            job=start.name, group=start.group, checkpoint=checkpoint.id, run=checkpoint.run, kafka=kafka,
            transaction_timeout_s=timeout_s, tasks=checkpoint.shuffle_partitions, plans=self._plans,
            roster=checkpoint.roster, kinds=self._config.kinds, placements=checkpoint.placements,
            generation=checkpoint.generation, lives=checkpoint.lives,
            leaving=Counter(stage for stage, _ in self._left), suppressed=checkpoint.suppressed,
            told=checkpoint.told, needed=checkpoint.needed, laws=start.laws, prefix=self._config.prefix,
            quarantined=tuple(checkpoint.quarantined),
            unfinished={key: token for key, token in written.tokens.items() if not token.last},
        )  # fmt: skip
        ruler.start(checkpoint.roster, frozenset(start.roster) if checkpoint.run == 1 else frozenset())
        starts = starting_offsets(kafka, spec, lambda said: None) if folder.planned(checkpoint) < 0 else {}
        self.begins_in_the_middle = any(any(starts[spec.partials_topic(stage)]) for stage in spec.needed if starts)
        self._query = JobQuery(
            spec, SourceSettings(kafka, self.session.most, starts), folder, checkpoint, start.name,
            lambda reports, seconds: ruler.reported(reports), lambda: None, lambda phases: None, self._wake,
        )  # fmt: skip
        self._query.start(self.session)  # type: ignore[arg-type]  # it has what is asked of a session
        self.running = True

    def _claim(self, folder: CheckpointFolder, claims: Claims, anew: bool) -> tuple[Checkpoint, Written]:
        start = self._start
        written = start.written(claims.fence, folder.read())
        stored = folder.read()
        self.wrote = bool(written.tokens)
        checkpoint = start.judged(folder, written, partial(self._judged, anew))
        folder.check(checkpoint)
        if checkpoint.run > 1:
            checkpoint = start.judged(folder, written, partial(self._judged, anew))
        if checkpoint.run == 1 or begins(stored, checkpoint):
            assert self._ruler is not None
            anew = checkpoint.run > 1 or checkpoint.generation > 1
            checkpoint = replace(checkpoint, roster=self._ruler.base(anew=anew))
        self._left = start.left(checkpoint)
        places, fresh = {**start.buckets, **self._left}, begins(stored, checkpoint)
        notes = {
            place.name: note_of(
                restated(written.tokens.get(key), start.name, checkpoint.id, checkpoint.run, key in fresh)
            )
            for key, place in places.items()
        }
        if checkpoint.run > 1:
            claims.write({places[key].name: notes[places[key].name] for key in fresh})
        folder.write(checkpoint)
        notes |= {place.name: note_of_owner(start.owners[query]) for query, place in start.queries.items()}
        claims.write(notes)
        folder.forget_others(checkpoint)
        retire(self._config.kafka, start.name, checkpoint, self._left)
        return checkpoint, written

    def _judged(self, anew: bool, standing: StartState) -> Checkpoint:
        if anew:
            return begun_anew(standing, self._start.history(), True)
        return carried_on(standing, self._start.history)

    def _turn(self) -> bool:
        assert self._query is not None
        assert self.session.started is not None
        worked = self.session.started.turn()
        self._query.check()
        return worked


def _told(error: Exception) -> Exception:
    """What Spark passes on as text is an error of the driver again."""
    while isinstance(error.__cause__, Exception) and not isinstance(error, SinkStopped):
        error = error.__cause__
    if not isinstance(error, SinkStopped):
        return error
    kind, _, text = str(error).partition(": ")
    stopped: Exception = getattr(errors, kind)(text)
    return stopped


def _locked(*how: object) -> None:
    raise BlockingIOError


class _Rounds:
    """The event by which a thread is told to stop: set after so many looks. Or a thread that does nothing."""

    def __init__(self, left: int) -> None:
        self._left = left

    def is_set(self) -> bool:
        self._left -= 1
        return self._left < 0

    def start(self) -> None:
        pass


class _Inline:
    """A thread whose work is done when it starts; or an executor of such threads."""

    def __init__(self, *size: object, target: Callable[[], None] | None = None, **named: object) -> None:
        self._target = target

    def start(self) -> None:
        assert self._target is not None
        self._target()

    def join(self, timeout: float | None = None) -> None:
        pass

    def __enter__(self) -> _Inline:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        pass

    def map(self, work: Callable[[Any], Any], subjects: Iterable[Any]) -> Iterable[Any]:
        return map(work, subjects)


class _Later:
    """Work for a thread, which is done when somebody waits for it."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work

    def exception(self) -> Exception | None:
        try:
            self._work()
        except Exception as error:
            return error
        return None


@contextmanager
def wired(broker: Broker, part_bytes: int) -> Iterator[None]:
    """In this block, the job's parts use the simulated Spark. A part of a batch ends where it has so many bytes."""

    def partials(session: Session, spec: JobSpec, settings: SourceSettings) -> Any:
        return session.read(of_partials(spec) | of_exchanges(spec), settings.starts)

    def sink_of(settings: KafkaSettings, place: Place, timeout_s: float) -> BucketSink:
        worker = broker.network.current
        assert isinstance(worker, Worker)
        if place.name not in worker.sinks:
            worker.sinks[place.name] = BucketSink(settings, place, timeout_s, _INERT)
        sink: BucketSink = worker.sinks[place.name]
        return sink

    def task() -> Any:
        worker = broker.network.current
        assert isinstance(worker, Worker)
        return SimpleNamespace(getLocalProperty=worker.session.properties.get, partitionId=lambda: worker.task)

    reader = SimpleNamespace(list_topics=lambda timeout: SimpleNamespace(topics=dict(broker.log.topics)))
    with ExitStack() as stack:
        for module, name, instead in (
            (query_module, "partials", partials),
            (processor_module, "sink_of", sink_of),
            (processor_module, "TaskContext", SimpleNamespace(get=task)),
            (bucket_sink, "_reader", lambda settings: reader),
            (start_module, "admin", lambda settings: None),
            (
                start_module,
                "topic_ids",
                lambda client, names: {of: "" for of in names if of in broker.log.topics},
            ),
            (transaction, "threading", SimpleNamespace(Thread=_Inline)),
            (transaction, "ThreadPoolExecutor", _Inline),
            (commits, "_threads", lambda: SimpleNamespace(submit=_Later)),
            (outgoing, "_PART_BYTES", part_bytes),
            (outgoing, "_MOST_BYTES", 2 * part_bytes),
        ):
            stack.enter_context(mock.patch.object(module, name, instead))
        yield
