"""`lowmark capture`: packets to partials in Kafka. One thread a source; one emitter for all of them."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace

from prometheus_client import CollectorRegistry

from ingest.metrics import IngestMetrics
from lowlevel.emitter import Emitter
from lowlevel.metrics import LowLevelMetrics, Watched
from lowlevel.pressure import Crowded
from lowlevel.register import EpochWatch, register
from lowmark.app.capturesources import CaptureOptions, threads_of
from lowmark.app.config import Config
from lowmark.app.crowding import Crowding
from lowmark.app.errors import EnvironmentNotReady
from lowmark.app.health import Health, HealthServer
from lowmark.app.keeping import OUTSIDE
from lowmark.app.planning import plan_queries
from lowmark.app.reloading import Reloading, ensure_topics_of
from lowmark.app.sourcethread import SourceThread
from lowmark.wire.registration import Registration, SourceKind
from lowmark.wire.topics import Topic, TopicKind

__all__ = ["run_capture"]

_LOG = logging.getLogger("lowmark.capture")

_DAMAGED = 3
_DRAIN_S = 60.0
_LOOK_EVERY_S = 0.2


def run_capture(config: Config, options: CaptureOptions, progress: Callable[[str], None]) -> int:
    """Until all sources have ended or SIGTERM or SIGINT; then everything is flushed. The exit code."""
    plans = plan_queries(config)
    registry = CollectorRegistry()
    stop = threading.Event()
    with ExitStack() as stack:
        queue = config.capture.queue
        if queue.spill is not None:
            queue = replace(queue, spill=config.path.parent / queue.spill)
        emitter = Emitter(config.kafka, queue)
        threads = threads_of(config, options, plans, emitter, IngestMetrics(registry))
        progress("opening captures and loading kernels")
        for thread in threads:
            thread.open()
            stack.callback(thread.source.close)
            if thread.source.filtering:
                _LOG.warning("source %s: %s", thread.source.name, OUTSIDE)
        progress(f"connecting to Kafka at {config.kafka.bootstrap}")
        ensure_topics_of(config, plans)

        def watched() -> Iterator[Watched]:
            for thread in threads:
                yield Watched(thread.source.name, thread.source.stream, thread.nodes, thread.outboxes)

        LowLevelMetrics(registry, emitter.stats, watched, time.time_ns)
        emitter.start()
        stack.callback(emitter.stop)
        # Before this nothing is to be flushed, and waiting for the first bytes of a pipe ends with the process.
        _until_signal(stack, stop)
        watch = _register(config, threads)
        watch.start()
        stack.callback(watch.stop)
        health = stack.enter_context(
            HealthServer(config.capture.metrics, registry, lambda: _ready(threads), lambda: Health(True, {}))
        )
        progress(f"capturing {', '.join(t.source.name for t in threads)}; metrics at {health.url}/metrics")
        reloading = Reloading(config, plans, threads)
        _until_hung_up(stack, reloading)
        return _run(threads, emitter, stop, reloading)


def _until_signal(stack: ExitStack, stop: threading.Event) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        before = signal.signal(number, lambda *_: stop.set())
        stack.callback(signal.signal, number, before)


def _until_hung_up(stack: ExitStack, reloading: Reloading) -> None:
    before = signal.signal(signal.SIGHUP, lambda *_: reloading.ask())
    stack.callback(signal.signal, signal.SIGHUP, before)


def _register(config: Config, threads: Sequence[SourceThread]) -> EpochWatch:
    topic = Topic(TopicKind.SOURCES, None, config.prefix).name
    by_name = {thread.source.name: thread for thread in threads}
    epochs = {}
    for thread in threads:
        thread.source.begin()
    for name, thread in by_name.items():
        start_ns = thread.source.start_ns
        live = start_ns is not None
        registration = Registration(
            source=name, stream=thread.source.stream, kind=SourceKind.LIVE if live else SourceKind.FINITE,
            run=None if live else uuid.uuid4().hex, start_ns=start_ns, disorder=str(thread.source.disorder),
            roster_version=0, process=f"{os.uname().nodename}:{os.getpid()}",
        )  # fmt: skip
        epochs[name] = register(config.kafka, topic, registration)
        thread.begin(epochs[name])
        _LOG.info("source %s of stream %s has epoch %d", name, thread.source.stream, epochs[name])

    def superseded(source: str, epoch: int) -> None:
        _LOG.error("source %s was registered again elsewhere (epoch %d): this capture of it stops", source, epoch)
        by_name[source].supersede()

    return EpochWatch(config.kafka, topic, epochs, superseded)


def _tables(threads: Sequence[SourceThread]) -> Iterator[tuple[str, Crowded | None]]:
    for thread in threads:
        for node, pressure in thread.nodes.pressures().items():
            yield f"source {thread.source.name}, node {node}", pressure.crowded()


def _ready(threads: Sequence[SourceThread]) -> Health:
    states = {t.source.name: "failed" if t.error else "ended" if t.source.ended else "capturing" for t in threads}
    return Health(not any(thread.error for thread in threads), states)


def _run(threads: Sequence[SourceThread], emitter: Emitter, stop: threading.Event, reloading: Reloading) -> int:
    crowding = Crowding(lambda: _tables(threads), _LOG.warning)
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads) and not any(thread.error for thread in threads):
        if stop.wait(_LOOK_EVERY_S):
            break
        reloading.step()
        crowding.step()
    for thread in threads:
        thread.source.stop()
    for thread in threads:
        thread.join()
    crowding.step(at_end=True)
    sent = -1
    while not emitter.drained(_DRAIN_S):
        stats = emitter.stats()
        if stats.records > sent:  # what waits on disk may take longer, as long as something arrives
            sent = stats.records
            continue
        left = stats.queued_records
        raise EnvironmentNotReady(
            f"Kafka did not take the last {left} records within {_DRAIN_S:.0f} s",
            "they are lost: the windows they belong to will say so. See to the broker before the next start",
        )
    for thread in threads:
        if thread.error is not None:
            raise thread.error
    status = 0
    for thread in threads:
        if thread.source.damage is not None:
            _LOG.error("%s: %s", thread.source.damage.kind, thread.source.damage)
            status = _DAMAGED
        elif thread.superseded:
            status = 1
    return status
