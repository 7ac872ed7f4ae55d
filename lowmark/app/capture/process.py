"""`lowmark capture`: reduces packets to partials in Kafka. One thread for each source, one emitter for all."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace

from confluent_kafka import KafkaException

from ingest.files.source import Source
from ingest.metrics import IngestMetrics
from lowlevel.config import QueueConfig
from lowlevel.emitter import Emitter
from lowlevel.metrics import LowLevelMetrics, Watched
from lowlevel.source_registration import EpochWatch, SourcesLog
from lowlevel.table_pressure import Crowded
from lowmark.app.capture.drain import PATIENCE_S, check_all_sent, wait_until_sent
from lowmark.app.capture.frame_filter import OUTSIDE
from lowmark.app.capture.privileges import last_as_root
from lowmark.app.capture.reload import CaptureReload, ensure_topics_of
from lowmark.app.capture.source_thread import Rounds, SourceThread
from lowmark.app.capture.sources import CaptureOptions, readers_of, threads_of
from lowmark.app.capture.table_warnings import Crowding
from lowmark.app.config.file import Config
from lowmark.app.config.queries import plan_queries
from lowmark.app.errors import EnvironmentNotReady
from lowmark.app.health import REFUSED, Health, HealthServer, living
from lowmark.app.kafka.epochs import refuse_former_epochs
from lowmark.app.kafka.reachability import KafkaReach
from lowmark.app.kafka.source_registry import present_senders
from lowmark.app.process_metrics import ConfigMetrics, ThreadMetrics, process_registry
from lowmark.app.service_manager import ServiceManager
from lowmark.helpers import Helper
from lowmark.wire.kafka.clients import KafkaProblem, KafkaSettingsError, admin
from lowmark.wire.kafka.topics import Topic, TopicKind
from lowmark.wire.records.registration import Registration, SourceKind

__all__ = ["run_capture"]

_LOG = logging.getLogger("lowmark.capture")

_DAMAGED = 3
_LOOK_EVERY_S = 0.2
_ANSWER_WITHIN_S = 10.0
_END_S = 15.0  # from the last record to the end of the process, on a busy machine


def run_capture(config: Config, options: CaptureOptions, progress: Callable[[str], None]) -> int:
    """Runs until all sources have ended, or SIGTERM or SIGINT; then flushes everything. Returns the exit code."""
    with ExitStack() as stack:
        return _Capture(config).run(stack, options, progress)


class _Capture:
    def __init__(self, config: Config) -> None:
        self._config = config
        self._plans = plan_queries(config)
        self._registry = process_registry()
        self._topic = Topic(TopicKind.SOURCES, None, config.prefix).name
        self._process = f"{os.uname().nodename}:{os.getpid()}"
        self._emitter = Emitter(config.kafka, _queue(config))
        self._reach = KafkaReach(config.kafka, self._topic, self._registry)
        self._health = HealthServer(
            config.capture.metrics, "capture.metrics", self._registry, self._ready, lambda: living(self._helpers()),
            config.metrics,
        )  # fmt: skip
        self._threads: list[SourceThread] = []
        self._service = ServiceManager()
        self._rounds = Rounds()
        self._watch: EpochWatch | None = None
        self._reloading: CaptureReload | None = None
        ThreadMetrics(self._registry, self._helpers)
        ConfigMetrics(self._registry, lambda: self._refused)

    def run(self, stack: ExitStack, options: CaptureOptions, progress: Callable[[str], None]) -> int:
        """Checks everything before it registers the sources, because a registration stops the process that sends them
        now."""
        config = self._config
        progress = self._service.shown_too(progress)
        self._threads = threads_of(config, options, self._plans, self._emitter, IngestMetrics(self._registry))
        progress("opening captures and loading kernels")
        for thread in self._threads:
            stack.callback(thread.source.close)
        with nullcontext() if options.user is None else last_as_root(options.user, config.priority):
            for thread in self._threads:
                thread.open_ring()
        for thread in self._threads:
            thread.open()
            if thread.source.filtering:
                _LOG.warning("source %s: %s", thread.source.name, OUTSIDE)
        self._emitter.serve(
            readers_of(self._plans, (item for thread in self._threads for item in thread.work.values()))
        )
        self._open_page(stack, options)
        state = f"{self._health.url}/readyz"
        progress(f"connecting to Kafka at {config.kafka.bootstrap}; the state of this process: {state}")
        self._reach.await_answer(progress)
        ensure_topics_of(config, self._plans)
        if not options.take_over:
            self._refuse_those_sent()
        stack.enter_context(self._reach)
        LowLevelMetrics(self._registry, self._emitter.states, self._watched, time.time_ns)
        self._emitter.start()
        stack.callback(self._emitter.stop)
        epochs = self._register()
        refuse_former_epochs(config.kafka, config.prefix, self._partials(), epochs)
        # Signals are handled only from here: before, there is nothing to flush, and a signal may end the process.
        stop = threading.Event()
        _until_signal(stack, stop)
        self._watch = watch = self._begin(epochs)
        watch.start()
        stack.callback(watch.stop)
        names = ", ".join(thread.source.name for thread in self._threads)
        progress(f"capturing {names}; metrics at {self._health.url}/metrics")
        self._service.ready()
        self._reloading = CaptureReload(config, self._plans, self._threads, self._emitter, changes=options.changes)
        _until_hung_up(stack, self._reloading)
        return self._capture(stop, self._reloading)

    def _open_page(self, stack: ExitStack, options: CaptureOptions) -> None:
        """A capture of the same sources that runs on this host has the page's address, too: then that is the reason."""
        try:
            stack.enter_context(self._health)
        except EnvironmentNotReady:
            if not options.take_over:
                with suppress(KafkaProblem, KafkaSettingsError, KafkaException):
                    if self._topic in admin(self._config.kafka).list_topics(timeout=_ANSWER_WITHIN_S).topics:
                        self._refuse_those_sent()
            raise

    def _refuse_those_sent(self) -> None:
        names = [thread.source.name for thread in self._threads]
        present = present_senders(self._config.kafka, self._config.prefix, names, self._process)
        if present:
            raise EnvironmentNotReady(
                "another process is sending sources that this one is to capture",
                "end that process first, or take its sources over with --take-over: it then stops capturing them",
                tuple(f"source {source}: {process} (host and process id)" for source, process in present.items()),
            )

    def _register(self) -> dict[str, int]:
        """Registers the sources and returns their epochs."""
        log = SourcesLog(self._config.kafka, self._topic)
        return {thread.source.name: log.append(self._registration(thread.source)) for thread in self._threads}

    def _partials(self) -> list[str]:
        """The topics that these sources send to."""
        return sorted({work.topic for thread in self._threads for work in thread.work.values()})

    def _begin(self, epochs: dict[str, int]) -> EpochWatch:
        """Starts the threads, once all sources are registered: from now on each ring is emptied without waiting."""
        by_name = {thread.source.name: thread for thread in self._threads}
        for name, thread in by_name.items():
            thread.begin(epochs[name])
            thread.start()
            _LOG.info("source %s of stream %s has epoch %d", name, thread.source.stream, epochs[name])

        def superseded(source: str, epoch: int) -> None:
            _LOG.error("source %s was registered again elsewhere (epoch %d): this capture of it stops", source, epoch)
            by_name[source].supersede()

        def sending(source: str) -> bool:
            return by_name[source].is_alive()

        return EpochWatch(self._config.kafka, self._topic, self._process, epochs, superseded, sending)

    def _registration(self, source: Source) -> Registration:
        return Registration(
            source=source.name, stream=source.stream, kind=SourceKind.LIVE if source.live else SourceKind.FINITE,
            run=None if source.live else uuid.uuid4().hex, start_ns=time.time_ns() if source.live else None,
            disorder=str(source.disorder), process=self._process,
        )  # fmt: skip

    def _watched(self) -> Iterator[Watched]:
        for thread in self._threads:
            topics = {node: work.topic for node, work in thread.work.items()}
            yield Watched(thread.source.name, thread.source.stream, thread.nodes, thread.outboxes, topics)

    def _tables(self) -> Iterator[tuple[str, Crowded | None]]:
        for thread in self._threads:
            for node, pressure in thread.nodes.pressures().items():
                yield f"source {thread.source.name}, node {node}", pressure.crowded()

    def _helpers(self) -> tuple[Helper, ...]:
        """The helper threads, besides those of the sources."""
        watch = () if self._watch is None else (self._watch.helper,)
        return (*self._emitter.helpers(), *watch, self._reach.helper, self._health.helper)

    @property
    def _refused(self) -> str | None:
        return None if self._reloading is None else self._reloading.refused

    def _ready(self) -> Health:
        states = {thread.source.name: _state(thread) for thread in self._threads}
        sent = bool(self._threads) and not {"starting", "failed"} & set(states.values())
        failing = {
            f"topic {state.topic}": f"Kafka has taken no records of it for {state.failing_s:.0f} s; "
            f"{', '.join(state.readers)} read{'s' if len(state.readers) == 1 else ''} it: {state.failing}"
            for state in self._emitter.states()
            if state.failing is not None and state.readers
        }
        refused = {} if self._refused is None else {REFUSED: self._refused}
        return Health(sent and not failing and self._reach.ok, states | failing | refused | self._reach.detail)

    def _capture(self, stop: threading.Event, reloading: CaptureReload) -> int:
        threads = self._threads
        crowding = Crowding(self._tables, _LOG.warning)
        while any(thread.is_alive() for thread in threads) and not any(thread.error for thread in threads):
            if any(helper.failure for helper in self._helpers()) or stop.wait(_LOOK_EVERY_S):
                break
            reloading.step()
            crowding.step()
            if self._rounds.moved(threads):
                self._service.worked()
        self._service.stopping()
        for thread in threads:
            thread.source.stop()
        for thread in threads:
            thread.join()
        crowding.step(at_end=True)
        self._drain()
        for thread in threads:
            if thread.error is not None:
                raise thread.error
        status = 0
        for thread in threads:
            if thread.source.damages:  # each was reported when it was found
                status = _DAMAGED
            elif thread.superseded:
                status = 1
        return status

    def _drain(self) -> None:
        """Sends the remaining records to Kafka, whatever has ended the capture."""
        # A service manager would end it in the midst of a backlog that Kafka takes.
        wait_until_sent(
            self._emitter, self._config.kafka.bootstrap, moved=lambda: self._service.stop_lasts(PATIENCE_S + _END_S)
        )
        for helper in self._helpers():
            helper.check()
        check_all_sent(self._emitter)


def _queue(config: Config) -> QueueConfig:
    queue = config.capture.queue
    return queue if queue.spill is None else replace(queue, spill=config.path.parent / queue.spill)


def _state(thread: SourceThread) -> str:
    if thread.error is not None:
        return "failed"
    if thread.source.ended:
        return "ended"
    if thread.superseded:
        return "captured by another process"
    return "starting" if thread.ident is None else "capturing"


def _until_signal(stack: ExitStack, stop: threading.Event) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        before = signal.signal(number, lambda *_: stop.set())
        stack.callback(signal.signal, number, before)


def _until_hung_up(stack: ExitStack, reloading: CaptureReload) -> None:
    before = signal.signal(signal.SIGHUP, lambda *_: reloading.ask())
    stack.callback(signal.signal, signal.SIGHUP, before)
