"""`lowmark.toml`: one file for capture hosts and the job. This module opens no source and contacts nothing."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from highlevel.config import JobConfig, JobLimits
from highlevel.rosters.ruling import is_pattern
from ingest.config import LIVE_DISORDER, RingConfig
from ingest.disorder.declarations import Disorder, DisorderError, Scan, parse_disorder
from ingest.files.inputs import STANDARD_INPUT
from ingest.live.interfaces import ANY, ANY_PROMISCUOUS
from lowlevel.config import LowLevelConfig, QueueConfig
from lowmark.app.capture.scheduling import ThreadScheduling
from lowmark.app.config.toml_tables import ConfigError, Toml, dotted, expand, read_table
from lowmark.app.health import parse_listen
from lowmark.app.page_access import PageAccess
from lowmark.query.optimize.stream_statistics import Expected
from lowmark.query.options import Joins, Late, Limits, Strategy, Vocabulary, parse_span
from lowmark.wire.kafka.settings import KafkaSettings, Secret
from lowmark.wire.kafka.topics import Provision, Topic, TopicKind
from lowmark.wire.records.registration import SourceKind
from lowmark.wire.records.result_rows import RowFormat

__all__ = ["Capture", "CaptureSource", "Config", "ConfigError", "Query", "QueryLimits", "Stream", "load_config"]

_TABLES = ("kafka", "topics", "metrics", "capture", "job", "streams", "sources", "queries")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSource:
    """One capture point. `host`: only the capture process on this host runs it; None: any capture process may."""

    stream: str
    file: Path | None = None
    interface: str | None = None
    host: str | None = None
    disorder: str | None = None  # overrides the stream's
    follow: bool = False  # file: wait for more at its end
    fanout: int = 1  # threads that share an interface's packets, each as its own source
    promiscuous: bool = False  # interface: also packets for other hosts
    kernel_filter: bool = False  # interface: the kernel discards what no query would keep
    cpus: tuple[int, ...] = ()  # the first thread runs on the first CPU, and so on; empty: on any CPU
    priority: int = 0  # SCHED_FIFO priority of its threads; 0: none

    def scheduling(self, member: int) -> ThreadScheduling:
        """Scheduling of the source's thread of this number."""
        return ThreadScheduling(self.cpus[member % len(self.cpus)] if self.cpus else None, self.priority)

    def __post_init__(self) -> None:
        if (self.file is None) == (self.interface is None):
            raise ValueError("a source reads either a `file` or an `interface`: give one of the two")
        if not 1 <= self.fanout <= 64:
            raise ValueError(f"fanout is {self.fanout}; it is 1 to 64")
        if self.interface is None and (self.fanout > 1 or self.promiscuous or self.kernel_filter):
            raise ValueError(
                "`fanout`, `promiscuous` and `kernel_filter` apply to interfaces; this source reads a file"
            )
        if self.promiscuous and self.interface == ANY:
            raise ValueError(ANY_PROMISCUOUS)
        if not 0 <= self.priority <= 99:
            raise ValueError(f"priority is {self.priority}; it is 1 to 99, or 0 for none")
        if self.follow and self.file is None:
            raise ValueError("`follow` applies to files, and this source reads an interface, which never ends anyway")


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """Settings of capture processes: `[capture.table]` for the nodes of each source, `[capture.queue]` for the way to
    Kafka, `[capture.ring]` for the memory of each interface."""

    metrics: str = "127.0.0.1:9464"
    table: LowLevelConfig = field(default_factory=LowLevelConfig)
    queue: QueueConfig = field(default_factory=QueueConfig)
    ring: RingConfig = field(default_factory=RingConfig)

    def __post_init__(self) -> None:
        parse_listen(self.metrics)


_STALL = re.compile(r"exclude\s+after\s+(.+)")


def parse_stall(text: str) -> int | None:
    """The ns after which a silent source is excluded; None: windows wait. ValueError for any other text."""
    if text == "wait":
        return None
    match = _STALL.fullmatch(text)
    try:
        after_ns = parse_span(match[1]) if match else 0
    except ValueError:
        after_ns = 0
    if after_ns < 10**9:
        raise ValueError(f'stall is {text!r}: it is "wait", or "exclude after 60 s" with a time of at least 1 s')
    return after_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """`roster`: the sources that windows wait for, by name or pattern (`capture-*`); empty: those that the file lists
    for the stream. `stall`: what happens when one is silent."""

    disorder: str | None = None  # default: scan for files, ordered for standard input, within 50 ms for interfaces
    roster: tuple[str, ...] = ()
    stall: str = "wait"  # or `exclude after 60 s`

    def __post_init__(self) -> None:
        parse_stall(self.stall)

    @property
    def stall_ns(self) -> int | None:
        """How long windows wait for a silent source; None: as long as it takes."""
        return parse_stall(self.stall)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryLimits:
    """Limits of one query; a value that is not given is the job's."""

    groups: int | None = None  # overrides the job's
    expire_idle: str | None = None  # a length of time: a value of PA without a tuple for longer is forgotten

    def __post_init__(self) -> None:
        self.of(JobLimits())

    def of(self, job: JobLimits) -> Limits:
        try:
            idle_ns = None if self.expire_idle is None else parse_span(self.expire_idle)
        except ValueError as error:
            raise ValueError(f"expire_idle: {error}") from None
        return Limits(groups=job.groups if self.groups is None else self.groups, expire_idle_ns=idle_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    sql: str | None = None
    file: Path | None = None  # relative to the configuration file
    buckets: int | None = None  # partitions of its partials; default: the job's
    late: Late = Late.COUNT
    rates: Mapping[str, float] = field(default_factory=dict)  # rows per second, by join input or stream
    selectivities: Mapping[str, float] = field(default_factory=dict)  # by pair of inputs, "A,B"
    groups: int | None = None  # expected groups of a pane, at most
    strategy: Strategy = Strategy.AUTO
    limits: QueryLimits = field(default_factory=QueryLimits)
    join: Joins = field(default_factory=Joins)  # memory of joins without windows
    format: RowFormat = RowFormat.JSONL  # format of its rows on the result topic
    names: Vocabulary = Vocabulary.LOWMARK  # names of their columns
    share: str | None = None  # queries with the same name share one stage, even if aggregate states differ

    @property
    def expected(self) -> Expected:
        return Expected.of(self.rates, self.selectivities, self.groups)

    def __post_init__(self) -> None:
        Expected.of(self.rates, self.selectivities, self.groups)
        if (self.sql is None) == (self.file is None):
            raise ValueError("a query is given as `sql` or as the `file` that holds it: give one of the two")
        if self.buckets is not None and self.buckets < 1:
            raise ValueError(f"buckets is {self.buckets}; it is a number above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    path: Path
    kafka: KafkaSettings
    topics: Provision = field(default_factory=Provision)
    prefix: str = ""  # of topic names, on shared clusters
    metrics: PageAccess = field(default_factory=PageAccess)
    capture: Capture
    job: JobConfig
    streams: Mapping[str, Stream]
    sources: Mapping[str, CaptureSource]
    queries: Mapping[str, Query]

    @property
    def kinds(self) -> Mapping[str, SourceKind]:
        """The kinds of sources that are known not to be live."""
        return {name: SourceKind.FINITE for name, source in self.sources.items() if source.file is not None}

    def roster(self, stream: str) -> tuple[str, ...]:
        """The sources that the stream's windows wait for, names and patterns, sorted."""
        declared = self.streams[stream].roster
        fed = [member for name, at in self.sources.items() if at.stream == stream for member in self.members(name)]
        return tuple(sorted(declared or fed))

    def named_sources(self, stream: str) -> tuple[str, ...]:
        """The sources that the roster names one by one, without those of its patterns."""
        return tuple(entry for entry in self.roster(stream) if not is_pattern(entry))

    def source_count(self, stream: str) -> int:
        """How many sources the stream has; a pattern stands for several."""
        roster = self.roster(stream)
        return max(2, len(roster)) if any(map(is_pattern, roster)) else len(roster)

    def members(self, source: str) -> tuple[str, ...]:
        """The names under which a source registers: its own, or with fanout one for each thread."""
        fanout = self.sources[source].fanout
        return (source,) if fanout == 1 else tuple(f"{source}-{member}" for member in range(fanout))

    def disorder(self, source: str) -> Disorder | None:
        """The declared disorder of a source: its own, or else its stream's. None: the kind of source decides."""
        at = self.sources[source]
        text = at.disorder or self.streams[at.stream].disorder
        if text is None:
            return None if at.interface is None else LIVE_DISORDER
        disorder = parse_disorder(text)
        if at.interface is not None and isinstance(disorder, Scan):
            raise DisorderError(
                "scan reads its input twice, and packets of an interface come only once; declare within …"
            )
        return disorder

    def capture_path(self, source: str) -> str:
        """Path of a source that reads a file; `-` is standard input."""
        file = str(self.sources[source].file)
        return STANDARD_INPUT if file == STANDARD_INPUT else str(self.path.parent / file)

    @property
    def priority(self) -> int:
        """The highest priority of any source."""
        return max((source.priority for source in self.sources.values()), default=0)

    def sql(self, query: str) -> str:
        """The query's text."""
        given = self.queries[query]
        if given.sql is not None:
            return given.sql
        assert given.file is not None
        path = self.path.parent / given.file
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise ConfigError(f"queries.{query}.file: cannot read {path}: {reason}") from None

    def here(self) -> tuple[str, ...]:
        """The sources that a capture process on this host runs."""
        host = os.uname().nodename
        return tuple(name for name, source in self.sources.items() if source.host in (None, host))


def load_config(path: Path) -> Config:
    """Read and check the file; paths in it are relative to it. ConfigError says what is wrong and where."""
    try:
        with path.open("rb") as file:
            tables = tomllib.load(file)
    except OSError as error:
        raise ConfigError(
            f"cannot read the configuration {path}: {error.strerror}. Give its path with --config"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    try:
        config = _config(path, tables)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return config


def _config(path: Path, tables: Toml) -> Config:
    for key in tables:
        if key not in _TABLES:
            raise ConfigError(f"unknown table [{key}]. Valid here: {', '.join(_TABLES)}")
    topics = dict(_table(tables, "topics"))
    prefix = topics.pop("prefix", "")
    if not isinstance(prefix, str):
        raise ConfigError(f"topics.prefix: {prefix!r} is not text")
    config = Config(
        path=path,
        kafka=_beside(path, read_table(KafkaSettings, _table(tables, "kafka"), "kafka")),
        topics=read_table(Provision, topics, "topics"),
        prefix=expand(prefix, "topics.prefix"),
        metrics=_pages_beside(path, read_table(PageAccess, _table(tables, "metrics"), "metrics")),
        capture=read_table(Capture, _table(tables, "capture"), "capture"),
        job=read_table(JobConfig, _job(tables), "job"),
        streams={name: read_table(Stream, table, f"streams.{name}") for name, table in _named(tables, "streams")},
        sources={
            name: read_table(CaptureSource, table, f"sources.{name}") for name, table in _named(tables, "sources")
        },
        queries={name: read_table(Query, table, f"queries.{name}") for name, table in _named(tables, "queries")},
    )
    _check(config)
    return config


def _beside(path: Path, kafka: KafkaSettings) -> KafkaSettings:
    """Resolves the files that the table names, relative to the configuration file."""
    return replace(
        kafka,
        ssl_ca=kafka.ssl_ca and path.parent / kafka.ssl_ca,
        ssl_client=kafka.ssl_client and path.parent / kafka.ssl_client,
        password=_secret_beside(path, kafka.password),
        ssl_key_password=_secret_beside(path, kafka.ssl_key_password),
    )


def _pages_beside(path: Path, pages: PageAccess) -> PageAccess:
    certificate = pages.certificate and path.parent / pages.certificate
    return PageAccess(certificate=certificate, token=_secret_beside(path, pages.token))


def _secret_beside(path: Path, given: Secret | None) -> Secret | None:
    return given if given is None or given.file is None else Secret(file=path.parent / given.file)


def _table(tables: Toml, name: str) -> Toml:
    table = tables.get(name, {})
    if not isinstance(table, Mapping):
        raise ConfigError(f"{name} is not a table: write [{name}]")
    return table


def _job(tables: Toml) -> Toml:
    job = _table(tables, "job")
    return {**job, "spark": dotted(job["spark"], "job.spark")} if "spark" in job else job


def _named(tables: Toml, name: str) -> list[tuple[str, object]]:
    """The tables below `name`; environment variables in their names are expanded."""
    return [(expand(key, f"{name}.{key}"), value) for key, value in _table(tables, name).items()]


def _check(config: Config) -> None:
    for where, kind, subject in (
        ("topics.prefix", TopicKind.DEAD, None),
        *((f"queries.{name}", TopicKind.RESULTS, name) for name in config.queries),
    ):
        try:
            Topic(kind, subject, config.prefix)
        except ValueError as error:
            raise ConfigError(f"{where}: {error}") from None
    folded: dict[str, str] = {}
    for stream in config.streams:
        if (other := folded.setdefault(stream.lower(), stream)) != stream:
            raise ConfigError(f"streams.{stream} and streams.{other} differ only in case, and stream names ignore case")
    members = [member for name in config.sources for member in config.members(name)]
    for member in members:
        if members.count(member) > 1:
            raise ConfigError(f"sources: two are called {member}; with fanout N, a source is called NAME-0, NAME-1 …")
    for name, source in config.sources.items():
        if is_pattern(name):
            raise ConfigError(
                f"sources.{name}: a source's name has no *, ? or [, which make a pattern of it in a roster"
            )
        if source.stream not in config.streams:
            valid = f"Valid here: {', '.join(config.streams)}" if config.streams else "The file declares no stream"
            raise ConfigError(f"sources.{name}.stream: there is no stream {source.stream!r}. {valid}")
        try:
            config.disorder(name)
        except DisorderError as error:
            raise ConfigError(f"sources.{name}.disorder: {error}") from None
        roster = config.roster(source.stream)
        missing = [m for m in config.members(name) if not any(fnmatchcase(m, entry) for entry in roster)]
        if source.fanout > 1 and missing:
            raise ConfigError(
                f"streams.{source.stream}.roster: with fanout, source {name} is called {', '.join(missing)}: list these"
            )
    for stream in config.streams:
        if not config.roster(stream):
            raise ConfigError(f"streams.{stream}: no source feeds it; give its `roster` or a [sources.NAME]")
