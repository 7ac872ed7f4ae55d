"""One run of the whole: many queries in one job over a real broker, fed by two capture processes."""

from __future__ import annotations

import random
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import IO
from uuid import uuid4

from lowmark.app.config.file import Config, load_config
from lowmark.app.config.queries import plan_queries
from lowmark.query.compile import compile_query
from lowmark.query.plan.nodes import QueryPlan
from lowmark.wire.kafka.topics import Topic, TopicKind
from lowmark.wire.records.codec import decode
from lowmark.wire.records.result_rows import ResultRow, ResultRowsRecord, RowFormat
from lowmark.wire.records.verdicts import Complete
from tests.acceptance.test_golden import at
from tests.integration import metered
from tests.integration.committed import committed_messages
from tests.integration.jobprocess import await_true
from tests.integration.pipelinecases import PipelineCase, every_case
from tests.integration.processes import Command, Page, get, samples
from tests.naive.frames import frame, write_pcap

HELD = "Held"
HELD_SQL = f"SELECT count(*) [RANGE 10 s] FROM {HELD}"
HELD_PACKETS = (at(1), at(15), at(31))
"""What arrives on standard input, of which no end comes before the metrics have been looked at."""


@dataclass(frozen=True)
class Results:
    """Of one query: by bucket the rows, and the completions, each with the number of rows since the one before."""

    rows: Mapping[int, list[bytes]]
    completions: Mapping[int, list[tuple[Complete, int]]]

    @property
    def lines(self) -> list[bytes]:
        return [row for bucket in sorted(self.rows) for row in self.rows[bucket]]


@dataclass
class Pipeline:
    """What a run has left: read it, change nothing."""

    config: Config
    path: Path
    plans: Mapping[str, QueryPlan]
    cases: Mapping[str, PipelineCase]
    seed: int
    pages: dict[str, Page] = field(default_factory=dict)
    """Of the endpoints while everything was being held: `capture/metrics`, `job/readyz` …"""
    exit_codes: dict[str, int] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    results: dict[str, Results] = field(default_factory=dict)


def run_pipeline(folder: Path, broker: str, seed: int) -> Pipeline:
    """Start a job and two captures together; look at the metrics when all but one source have ended; end that one."""
    captures = folder / "captures"
    captures.mkdir()
    cases = every_case(captures)
    path = _write_config(folder, broker, cases, random.Random(seed))
    config = load_config(path)
    pipeline = Pipeline(
        config, path, {plan.name: plan for plan in plan_queries(config)}, {case.name: case for case in cases}, seed
    )
    first, second = _shares(cases)
    with (
        _timed(pipeline, "run"),
        Command("run", "-c", str(path), "--until-last") as job,
        Command("capture", "-c", str(path), *_named(first), stdin=subprocess.PIPE) as holding,
        Command("capture", "-c", str(path), *_named(second)) as other,
    ):
        stdin = holding.process.stdin
        assert stdin is not None
        _feed(stdin, folder)
        with _timed(pipeline, "second capture"):
            assert other.wait() == 0, other.error
        with _timed(pipeline, "job to the held source"):
            _await_all_but_held(job, holding, len(config.queries))
        for name, process in (("job", job), ("capture", holding)):
            url = process.url()
            for page in ("metrics", "healthz", "readyz", "nowhere"):
                pipeline.pages[f"{name}/{page}"] = get(f"{url}/{page}")
        stdin.close()
        with _timed(pipeline, "to the end"):
            pipeline.exit_codes["first capture"] = holding.wait()
            pipeline.exit_codes["job"] = job.wait()
    pipeline.said = {"job": job.error, "first capture": holding.error, "second capture": other.error}
    with _timed(pipeline, "results"):
        pipeline.results.update(_results(pipeline))
    return pipeline


@contextmanager
def _timed(pipeline: Pipeline, what: str) -> Iterator[None]:
    began = time.monotonic()
    try:
        yield
    finally:
        pipeline.seconds[what] = round(time.monotonic() - began, 1)


def _write_config(folder: Path, broker: str, cases: Sequence[PipelineCase], chance: random.Random) -> Path:
    """Tables are so small that groups collide all the time; micro-batches are cut at random places."""
    sources = {name: place for case in cases for name, place in case.sources.items()}
    streams = dict.fromkeys(stream for stream, _ in sources.values())
    lines = [
        f'[kafka]\nbootstrap = "{broker}"',
        f'[topics]\nprefix = "{uuid4().hex[:8]}-"',
        '[capture]\nmetrics = "127.0.0.1:0"',
        "[capture.table]\nslots = 16",
        '[job]\nmetrics = "127.0.0.1:0"\nbuckets = 2\nheap = "512m"',
        f"max_offsets_per_trigger = {chance.randrange(800, 2400)}",  # exchanges read and write in each of them
        *(f"[streams.{stream}]" for stream in streams),
        *(f'[sources."{name}"]\nstream = "{stream}"\nfile = "{file}"' for name, (stream, file) in sources.items()),
        *(
            f"[queries.{case.name}]\nsql = '''{case.sql}'''\nbuckets = {_buckets(case, chance)}"
            + (f'\nshare = "{case.share}"' if case.share else "")
            + f'\nformat = "{row_format}"'
            for case, row_format in zip(cases, cycle(RowFormat), strict=False)
        ),
        f'[streams.{metered.STREAM}]\ndisorder = "{metered.DISORDER}"',
        f'[sources.{metered.SOURCE}]\nstream = "{metered.STREAM}"',
        f'file = "{metered.write(folder / "metered.pcap")}"',
        f"[queries.{metered.QUERY}]\nsql = '''{metered.SQL}'''\nbuckets = 1\nformat = 'arrow'\nnames = 'ipfix'",
        f'[streams.{HELD}]\n[sources.held]\nstream = "{HELD}"\nfile = "-"',
        f"[queries.held]\nsql = '''{HELD_SQL}'''",
    ]
    path = folder / "lowmark.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def _buckets(case: PipelineCase, chance: random.Random) -> int:
    """Several where rows change their bucket then; of those that share a stage it is one number."""
    if case.share:
        return 3
    counts = Counter(stream for stream, _ in case.sources.values())
    exchanges = compile_query(case.sql, streams=counts, buckets=2).exchanges is not None
    return chance.choice((2, 3) if exchanges else (1, 2, 2, 3))


def _shares(cases: Sequence[PipelineCase]) -> tuple[list[str], list[str]]:
    """The sources of either capture process: those of a stream are divided, and what is damaged is all in the first,
    whose exit code says so."""
    first = ["held", metered.SOURCE]
    second: list[str] = []
    for case in cases:
        for number, name in enumerate(case.sources):
            if name not in (*first, *second):
                (first if case.damaged or number % 2 else second).append(name)
    return first, second


def _named(sources: Sequence[str]) -> list[str]:
    return [word for name in sources for word in ("--source", name)]


def _feed(stdin: IO[bytes], folder: Path) -> None:
    stdin.write(write_pcap(folder / "held.pcap", map(frame, HELD_PACKETS)).read_bytes())
    stdin.flush()


def _await_all_but_held(job: Command, holding: Command, queries: int) -> None:
    """Until the sources of every query but the held one's have ended, in all buckets that have had records."""
    urls: list[str] = []

    def done() -> bool:
        assert job.process.poll() is None, job.error
        assert holding.process.poll() is None, holding.error
        if not urls:
            urls.extend((job.url(), holding.url()))
        found = samples(get(f"{urls[0]}/metrics").text)
        lags = {dict(labels)["query"]: lag for (name, labels), lag in found.items() if name == _LAG}
        ended = {query for query, lag in lags.items() if lag == 0}
        capture = samples(get(f"{urls[1]}/metrics").text)
        queued = sum(count for (name, _), count in capture.items() if name == "lowmark_queue_records")
        return queued == 0 and len(lags) == queries and ended == lags.keys() - {"held"}

    await_true(done)


_LAG = "lowmark_frontier_lag_seconds"


def _results(pipeline: Pipeline) -> dict[str, Results]:
    """What a read_committed consumer sees on the result topics, up to their ends."""
    topics = {Topic(TopicKind.RESULTS, name, pipeline.config.prefix).name: name for name in pipeline.plans}
    partitions = [
        (topic, bucket) for topic, name in topics.items() for bucket in range(pipeline.plans[name].stage.buckets)
    ]
    rows: dict[str, dict[int, list[bytes]]] = {name: {} for name in topics.values()}
    completions: dict[str, dict[int, list[tuple[Complete, int]]]] = {name: {} for name in topics.values()}
    for topic, bucket in partitions:
        rows[topics[topic]][bucket] = []
        completions[topics[topic]][bucket] = []
    since = dict.fromkeys(partitions, 0)
    for message in committed_messages(pipeline.config.kafka, partitions):
        name, place = topics[message.topic()], (message.topic(), message.partition())
        record = decode(message.headers(), message.value())
        if isinstance(record, ResultRow | ResultRowsRecord):
            written = [record] if isinstance(record, ResultRow) else record.one_by_one()
            rows[name][message.partition()] += [row.row for row in written]
            since[place] += len(written)
        else:
            assert isinstance(record, Complete), record
            completions[name][message.partition()].append((record, since[place]))
            since[place] = 0
    bare = {topics[topic]: count for (topic, _), count in since.items() if count}
    assert not bare, f"rows without a completion behind them: {bare}"
    return {name: Results(rows[name], completions[name]) for name in rows}
