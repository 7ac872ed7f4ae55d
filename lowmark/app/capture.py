"""`lowmark capture`: packets to partials in Kafka. One thread a source; one emitter for all of them."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from prometheus_client import CollectorRegistry

from ingest.config import FileConfig, Replay
from ingest.metrics import IngestMetrics
from ingest.source import FileSource
from lowlevel.emitter import Emitter
from lowlevel.metrics import LowLevelMetrics, Watched
from lowlevel.node import NodeOutput, SourceNodes
from lowlevel.outbox import Outbox, Rows
from lowlevel.register import EpochWatch, register
from lowmark.app.config import Config, ConfigError
from lowmark.app.errors import EnvironmentNotReady
from lowmark.app.health import Health, HealthServer
from lowmark.app.planning import plan_queries, topics_of
from lowmark.query.plan import Node, Stage
from lowmark.wire.codec import encode
from lowmark.wire.frames import FOREVER
from lowmark.wire.kafka import admin, ensure_topics
from lowmark.wire.partials import Origin, PartialBatch
from lowmark.wire.promises import Ending
from lowmark.wire.registration import Registration, SourceKind
from lowmark.wire.rows import to_batch
from lowmark.wire.topics import Topic, TopicKind

__all__ = ["CaptureOptions", "run_capture"]

_LOG = logging.getLogger("lowmark.capture")

_DAMAGED = 3
_DRAIN_S = 60.0
_LOOK_EVERY_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureOptions:
    sources: tuple[str, ...]  # empty: those of this host
    pace: float | None  # None: as fast as files are read
    rebase: bool  # the first packet of all is captured now


@dataclass(frozen=True, slots=True)
class _Work:
    """A node of a stage, as a source's kernel knows it: there its name is unique among all stages."""

    stage: Stage
    node: Node
    topic: str

    @property
    def alias(self) -> str:
        return f"{self.stage.fingerprint}/{self.node.name}"


class _SourceThread(threading.Thread):
    """Reads one source to its end, or until it is stopped; what went wrong is kept for the main thread."""

    def __init__(self, source: FileSource, work: Sequence[_Work], config: Config, emitter: Emitter) -> None:
        super().__init__(name=f"source {source.name}", daemon=True)
        self.source = source
        self.work = {item.alias: item for item in work}
        nodes = [replace(item.node, name=alias) for alias, item in self.work.items()]
        self.nodes = SourceNodes(nodes, stream=source.stream, rank=source.rank, config=config.capture.table)
        self.error: Exception | None = None
        self.superseded = False
        self._emitter = emitter
        self.outboxes: dict[str, Outbox] = {}

    def open(self) -> None:
        """Opens the capture and loads the kernel. CaptureError when it cannot be read at all."""
        self.source.start()
        self.nodes.start()

    def begin(self, epoch: int) -> None:
        """The source has its epoch: its records can be numbered."""
        for alias, item in self.work.items():
            origin = Origin(item.stage.fingerprint, self.source.name, epoch, item.node.name)
            self.outboxes[alias] = Outbox(item.node, origin, item.stage.buckets, room=self._emitter.room)

    def supersede(self) -> None:
        """A later life of the source has begun elsewhere: this one has nothing more to say."""
        self.superseded = True
        self.source.stop()

    def run(self) -> None:
        try:
            for block in self.source.blocks():
                self._send(self.nodes.take(block), Ending.END if block.low_after == FOREVER else Ending.NONE)
            if not self.source.ended and not self.superseded:
                # Stopped in the middle of a finite source: what is in the tables is sent and nothing more promised.
                self._send(self.nodes.finish(self.nodes.low_ns), Ending.NONE)
                for alias, item in self.work.items():
                    for partition, record in self.outboxes[alias].stop():
                        self._emitter.put(item.topic, partition, encode(record))
        except Exception as error:
            # Told by the main thread, which ends the process: the other sources must not go on as if all were well.
            self.error = error

    def _send(self, outputs: Iterable[NodeOutput], ending: Ending) -> None:
        for output in outputs:
            item = self.work[output.node]
            schema = item.node.reduction.schema
            for partition, record in self.outboxes[output.node].take(output, ending):
                if isinstance(record, Rows):
                    batch = PartialBatch(record.origin, record.sequence, to_batch(schema, record.rows), record.tuples)
                    self._emitter.put(item.topic, partition, encode(batch))
                else:
                    self._emitter.put(item.topic, partition, encode(record))


def run_capture(config: Config, options: CaptureOptions, progress: Callable[[str], None]) -> int:
    """Until all sources have ended or SIGTERM or SIGINT; then everything is flushed. The exit code."""
    names = options.sources or config.here()
    plans = plan_queries(config)
    stages = {plan.stage.fingerprint: plan.stage for plan in plans}
    registry = CollectorRegistry()
    stop = threading.Event()
    with ExitStack() as stack:
        emitter = Emitter(config.kafka, config.capture.queue)
        threads = _threads(config, names, stages.values(), options, emitter, IngestMetrics(registry))
        progress("opening captures and loading kernels")
        for thread in threads:
            thread.open()
            stack.callback(thread.source.close)
        progress(f"connecting to Kafka at {config.kafka.bootstrap}")
        problems = ensure_topics(admin(config.kafka), topics_of(config, plans))
        if problems:
            raise EnvironmentNotReady(
                "the topics are not as they should be",
                "remove the topic, or give its settings in the configuration; `lowmark topics` lists them",
                tuple(str(problem) for problem in problems),
            )
        watched = [
            Watched(thread.source.name, thread.source.stream, thread.nodes, thread.outboxes) for thread in threads
        ]
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
        return _run(threads, emitter, stop)


def _until_signal(stack: ExitStack, stop: threading.Event) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        before = signal.signal(number, lambda *_: stop.set())
        stack.callback(signal.signal, number, before)


def _threads(
    config: Config, names: Sequence[str], stages: Iterable[Stage], options: CaptureOptions, emitter: Emitter,
    metrics: IngestMetrics,
) -> list[_SourceThread]:  # fmt: skip
    stages = tuple(stages)
    rebase_to_ns = time.time_ns() if options.rebase else None
    rebase_from_ns = _earliest_ns(config, names) if options.rebase else None
    threads = []
    ranks = {name: rank for rank, name in enumerate(sorted(config.sources, key=_order(config)))}
    for name in names:
        if name not in config.sources:
            raise ConfigError(f"{config.path}: there is no source {name!r}; there are: {', '.join(config.sources)}")
        at = config.sources[name]
        if at.file is None:
            raise ConfigError(f"{config.path}: sources.{name}.interface: live capture is not built yet; give a `file`")
        work = [
            _Work(stage, node, Topic(TopicKind.PARTIALS, stage.fingerprint, config.prefix).name)
            for stage in stages
            for node in stage.nodes
            if at.stream in node.streams
        ]
        if not work:
            _LOG.warning("source %s: no query reads stream %s", name, at.stream)
            continue
        replay = Replay(pace=options.pace, rebase_to_ns=rebase_to_ns, rebase_from_ns=rebase_from_ns)
        file = FileConfig(
            name=name, stream=at.stream, path=str(config.path.parent / at.file) if str(at.file) != "-" else "-",
            disorder=config.disorder(name), replay=replay if options.pace or options.rebase else None,
        )  # fmt: skip
        source = FileSource(file, rank=ranks[name], metrics=metrics.of(name, at.stream))
        threads.append(_SourceThread(source, work, config, emitter))
    if not threads:
        raise ConfigError(
            f"{config.path}: nothing to capture on host {os.uname().nodename}: name sources with --source, or give "
            "their `host`"
        )
    return threads


def _order(config: Config) -> Callable[[str], tuple[str, str]]:
    return lambda name: (config.sources[name].stream, name)


def _earliest_ns(config: Config, names: Sequence[str]) -> int | None:
    """The time of the first frame of all: the sources keep their places in time among each other."""
    first = []
    for name in names:
        at = config.sources.get(name)
        if at is None or at.file is None or str(at.file) == "-":
            continue
        source = FileSource(FileConfig(name=name, stream=at.stream, path=str(config.path.parent / at.file)))
        source.start()
        block = next(iter(source.blocks()))
        first += [int(block.ts.min())] if len(block) else []
        source.close()
    return min(first, default=None)


def _register(config: Config, threads: Sequence[_SourceThread]) -> EpochWatch:
    topic = Topic(TopicKind.SOURCES, None, config.prefix).name
    by_name = {thread.source.name: thread for thread in threads}
    epochs = {}
    for name, thread in by_name.items():
        registration = Registration(
            source=name, stream=thread.source.stream, kind=SourceKind.FINITE, run=uuid.uuid4().hex, start_ns=None,
            disorder=str(thread.source.disorder), roster_version=0, process=f"{os.uname().nodename}:{os.getpid()}",
        )  # fmt: skip
        epochs[name] = register(config.kafka, topic, registration)
        thread.begin(epochs[name])
        _LOG.info("source %s of stream %s has epoch %d", name, thread.source.stream, epochs[name])

    def superseded(source: str, epoch: int) -> None:
        _LOG.error("source %s was registered again elsewhere (epoch %d): this capture of it stops", source, epoch)
        by_name[source].supersede()

    return EpochWatch(config.kafka, topic, epochs, superseded)


def _ready(threads: Sequence[_SourceThread]) -> Health:
    states = {t.source.name: "failed" if t.error else "ended" if t.source.ended else "capturing" for t in threads}
    return Health(not any(thread.error for thread in threads), states)


def _run(threads: Sequence[_SourceThread], emitter: Emitter, stop: threading.Event) -> int:
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads) and not any(thread.error for thread in threads):
        if stop.wait(_LOOK_EVERY_S):
            break
    for thread in threads:
        thread.source.stop()
    for thread in threads:
        thread.join()
    if not emitter.drained(_DRAIN_S):
        left = emitter.stats().queued_records
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
            _LOG.error("damaged: %s", thread.source.damage)
            status = _DAMAGED
        elif thread.superseded:
            status = 1
    return status
