"""The sources of a capture process: turns tables of the configuration into threads that are ready to be opened."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from ingest.config import LIVE_DISORDER, FileConfig, LiveConfig, Playback
from ingest.files.inputs import is_stream
from ingest.files.series import open_captures
from ingest.files.source import FileSource, Source
from ingest.live.ring import Fanout
from ingest.live.source import LiveSource
from ingest.metrics import IngestMetrics
from lowlevel.emitter import Emitter
from lowmark.app.capture.frame_filter import frame_filter
from lowmark.app.capture.privileges import User
from lowmark.app.capture.source_thread import SourceThread, Work
from lowmark.app.capture.table_memory import asked_table, check_tables
from lowmark.app.config.changes import ConfigChanges
from lowmark.app.config.file import Config, ConfigError
from lowmark.query.expr.expressions import Expr
from lowmark.query.options import Late
from lowmark.query.plan.nodes import QueryPlan
from lowmark.wire.kafka.topics import Topic, TopicKind

__all__ = ["CaptureOptions", "readers_of", "threads_of", "work_of", "work_on"]

_LOG = logging.getLogger("lowmark.capture")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureOptions:
    sources: tuple[str, ...]  # empty: all of this host
    pace: float | None  # None: as fast as files are read
    rebase: bool  # shift times so that the first packet is captured now
    take_over: bool = False  # also capture sources that another process sends; it stops
    user: User | None = None  # acts as this user; only opening the rings needs root
    changes: ConfigChanges | None = None  # of the configuration; each is taken


def threads_of(
    config: Config, options: CaptureOptions, plans: Sequence[QueryPlan], emitter: Emitter, metrics: IngestMetrics
) -> list[SourceThread]:
    """One thread for each source that some query reads. ConfigError if there is none."""
    names = options.sources or config.here()
    for name in names:
        if name not in config.sources:
            raise ConfigError(f"{config.path}: there is no source {name!r}; there are: {', '.join(config.sources)}")
    threads = []
    replay = _replay(config, names, options)
    for name in names:
        work = work_of(config, plans, name)
        if not work:
            _LOG.warning("source %s: no query reads stream %s", name, config.sources[name].stream)
            continue
        keep = _kept(name, work) if config.sources[name].kernel_filter else None
        sources = _sources(config, name, replay, keep, metrics)
        threads += [
            SourceThread(source, work, config, emitter, config.sources[name].scheduling(member))
            for member, source in enumerate(sources)
        ]
    if not threads:
        raise ConfigError(
            f"{config.path}: nothing to capture on host {os.uname().nodename}: name sources with --source, or set "
            "their `host`"
        )
    check_tables((item.node for thread in threads for item in thread.work.values()), config.capture.table,
                 asked_table(config.capture.table))  # fmt: skip
    return threads


def work_of(config: Config, plans: Sequence[QueryPlan], source: str) -> list[Work]:
    """The work of a source for these queries."""
    return work_on(config, plans, config.sources[source].stream)


def work_on(config: Config, plans: Sequence[QueryPlan], stream: str) -> list[Work]:
    """The work of each source of a stream for these queries."""
    stages = {plan.stage.fingerprint: plan.stage for plan in plans}
    send_late = {plan.stage.fingerprint for plan in plans if plan.late is not Late.COUNT}
    return [
        Work(stage, node, Topic(TopicKind.PARTIALS, fingerprint, config.prefix).name, fingerprint in send_late)
        for fingerprint, stage in stages.items()
        for node in stage.nodes
        if stream in node.streams
    ]


def readers_of(plans: Sequence[QueryPlan], work: Iterable[Work]) -> dict[str, tuple[str, ...]]:
    """The topics of this work, each with the names of the queries that read it."""
    return {
        item.topic: tuple(plan.name for plan in plans if plan.stage.fingerprint == item.stage.fingerprint)
        for item in work
    }


def _kept(name: str, work: Sequence[Work]) -> Expr | None:
    keep, note = frame_filter([item.node for item in work])
    if keep is None:
        _LOG.warning("source %s: %s", name, note)
    return keep


def _sources(
    config: Config, name: str, replay: Playback | None, keep: Expr | None, metrics: IngestMetrics
) -> Iterator[Source]:
    at, disorder = config.sources[name], config.disorder(name)
    ranks = _ranks(config)
    if at.file is not None:
        file = FileConfig(
            name=name, stream=at.stream, path=config.capture_path(name), disorder=disorder, replay=replay,
            follow=at.follow,
        )  # fmt: skip
        tell = partial(_LOG.error, "source %s: %s", name)
        metrics.name(name, at.stream, name, "file")
        yield FileSource(file, rank=ranks[name], metrics=metrics.of(name, at.stream), tell=tell)
        return
    assert at.interface is not None, "a source has a file or an interface"
    fanout = Fanout() if at.fanout > 1 else None
    for member in config.members(name):
        live = LiveConfig(
            name=member, stream=at.stream, interface=at.interface, disorder=disorder or LIVE_DISORDER,
            promiscuous=at.promiscuous, keep=keep, ring=config.capture.ring,
        )  # fmt: skip
        metrics.name(member, at.stream, name, "interface")
        yield LiveSource(
            live, rank=ranks[member], fanout=fanout, metrics=metrics.of(member, at.stream),
            tell=partial(_LOG.warning, "%s"),
        )  # fmt: skip


def _ranks(config: Config) -> dict[str, int]:
    """Order of sources whose packets have equal times: by stream, then by name."""
    members = [(at.stream, member) for name, at in config.sources.items() for member in config.members(name)]
    return {member: rank for rank, (_, member) in enumerate(sorted(members))}


def _replay(config: Config, names: Sequence[str], options: CaptureOptions) -> Playback | None:
    if not options.rebase:
        return Playback(pace=options.pace) if options.pace else None
    return Playback(pace=options.pace, rebase_to_ns=time.time_ns(), rebase_from_ns=_earliest_ns(config, names))


def _earliest_ns(config: Config, names: Sequence[str]) -> int | None:
    """Earliest first-frame time of all sources: one shift for all keeps their relative times."""
    first = []
    for name in names:
        at = config.sources[name]
        if at.file is None or at.follow or is_stream(path := config.capture_path(name)):
            continue
        capture = open_captures(path)
        times = (frames.columns.ts[frames.columns.link >= 0] for frames in capture.blocks())
        first += [int(timed.min()) for timed in islice(filter(len, times), 1)]
        capture.close()
    return min(first, default=None)
