"""The Spark job against Spark's own windowed aggregation: partial rows a second, from the same rows in the same run.

Both read what has been prepared before, batch by batch, each batch being about a window; both write their results to
Kafka as JSON rows. The job reads batches of partials from Kafka; Spark's aggregation is spared that: it reads decoded
columns from parquet files, with an address as one number. The time counts from one batch's commit to another's, so
start-up and warming up do not; answers are compared.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.json
import pyarrow.parquet as pq
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import NewTopic

from bench import sparkpeer
from bench.feeding import Feed, Partials, random_partials
from bench.processes import PARTS, Sampler, child
from bench.reports import Figure, write_csv
from bench.settings import PAIRS, QUERY, Installation
from lowlevel.outbox import Rows
from lowmark.app.broker import Broker
from lowmark.wire.kafka import KafkaSettings, admin
from lowmark.wire.kafkasettings import consumer_options
from lowmark.wire.topics import Topic, TopicKind

__all__ = ["measure_job"]

_SOURCES = ("left", "right")
_FIRST_PANE = 28_576_080  # a minute of 2024
_TIMEOUT_S = 600.0
_GOALS = {66_000: 2.0, 260_000: 3.0}

OURS = "lowmark run"
SPARKS = "Spark's own"

Totals = dict[str, tuple[int, int, int]]
"""By window: result rows, and the sums of their packets and bytes."""


@dataclass(frozen=True, slots=True)
class _Speed:
    """Over the batches after the warm-up."""

    contender: str
    groups: int
    rows: int
    wall_s: float
    cpu_parts: dict[str, float]  # seconds
    batches: tuple[tuple[int, float], ...]  # rows and seconds of each, warm-up included but for the first

    @property
    def cpu_s(self) -> float:
        return sum(self.cpu_parts.values())

    @property
    def per_s(self) -> float:
        return self.rows / self.wall_s

    @property
    def per_cpu_s(self) -> float:
        return self.rows / self.cpu_s


def measure_job(results: Path, *, groups: Sequence[int], windows: int, rows: int, having: int) -> None:
    """`rows` partial rows in each window, half of each source; result rows are those of more than `having` packets."""
    if windows < 2:
        raise ValueError("half of the windows are for warming up: measure at least 2")
    speeds: list[_Speed] = []
    with tempfile.TemporaryDirectory(prefix="lowmark-bench-") as name, Broker(Path(name) / "broker") as broker:
        for count in groups:
            panes = _panes(count, windows, rows)
            ours, our_totals = _our_job(Path(name) / f"job{count}", broker.bootstrap, count, panes, having)
            theirs, their_totals = _sparks(Path(name) / f"spark{count}", broker.bootstrap, count, panes, having)
            if our_totals != their_totals:
                raise RuntimeError(f"the answers differ: {our_totals} and {their_totals}")
            result_rows = sum(number for number, _, _ in our_totals.values())
            print(f"{count} groups: the same answer, {result_rows} rows in {len(our_totals)} windows")
            speeds += [ours, theirs]
            _print(ours, theirs)
    _report(results, speeds, having)


def _panes(groups: int, windows: int, rows: int) -> list[list[Partials]]:
    """By window and source."""
    random = np.random.default_rng(groups)
    return [[random_partials(random, rows // len(_SOURCES), groups) for _ in _SOURCES] for _ in range(windows)]


def _our_job(
    folder: Path, bootstrap: str, groups: int, panes: Sequence[Sequence[Partials]], having: int
) -> tuple[_Speed, Totals]:
    sql = PAIRS.format(window="1 minute") + (f" HAVING count(*) > {having}" if having else "")
    # Finite sources, which can end; the files are never read.
    installation = Installation(folder, bootstrap, sql, dict.fromkeys(_SOURCES, "not-read.pcap"))
    installation.create_topics()
    rows_at = _produce(installation, panes)
    records = sum(len(starts) - 1 for starts in rows_at)
    installation.set_job(f"max_offsets_per_trigger = {records // len(panes)}")
    with (
        child(folder / "job.log", "-m", "lowmark", "run", "-c", installation.path, "--until-last") as job,
        Sampler(job.process.pid) as sampler,
    ):
        job.wait(_TIMEOUT_S)
    log = installation.checkpoint
    ends = [_rows_until(log / "offsets" / str(number), rows_at) for number in range(_batches(log))]
    batches = [after - before for before, after in pairwise([0, *ends])]
    topic = Topic(TopicKind.RESULTS, QUERY, installation.config.prefix).name
    return _speed(OURS, groups, log, batches, sampler), _totals(installation.config.kafka, topic)


def _produce(installation: Installation, panes: Sequence[Sequence[Partials]]) -> list[list[int]]:
    """For each partition and offset the rows before it."""
    feed = Feed(installation, _SOURCES)
    rows_at = [[0] for _ in range(installation.plan.stage.buckets)]
    for window, sources in enumerate(panes):
        for source, partials in zip(_SOURCES, sources, strict=True):
            last = window == len(panes) - 1
            for partition, record in feed.records(source, _FIRST_PANE + window, partials, last=last):
                feed.send(partition, feed.wire(record))
                rows = len(record.rows) if isinstance(record, Rows) else 0
                rows_at[partition].append(rows_at[partition][-1] + rows)
    feed.flush()
    return rows_at


def _rows_until(offsets: Path, rows_at: Sequence[Sequence[int]]) -> int:
    """The rows of all batches up to the one whose entry in Spark's log of offsets this is."""
    (partitions,) = json.loads(offsets.read_text().splitlines()[-1]).values()
    return sum(rows_at[int(partition)][offset] for partition, offset in partitions.items())


def _sparks(
    folder: Path, bootstrap: str, groups: int, panes: Sequence[Sequence[Partials]], having: int
) -> tuple[_Speed, Totals]:
    (folder / "rows").mkdir(parents=True)
    _write_rows(folder / "rows", panes)
    kafka = KafkaSettings(bootstrap)
    topic = f"{folder.name}-results"
    client = admin(kafka)  # named: the answer is lost when it is collected
    client.create_topics([NewTopic(topic, sparkpeer.FILES, 1)])[topic].result()
    with (
        child(folder / "out.log", "-m", "bench.sparkpeer", folder, bootstrap, topic, str(having)) as peer,
        Sampler(peer.process.pid) as sampler,
    ):
        peer.wait(_TIMEOUT_S)
    # The batches of the two rows that push the last windows out are left out.
    batches = [rows for _, rows in sorted(json.loads((folder / "batches.json").read_text()))][: len(panes)]
    return _speed(SPARKS, groups, folder / "checkpoint", batches, sampler), _totals(kafka, topic)


def _write_rows(folder: Path, panes: Sequence[Sequence[Partials]]) -> None:
    """Files in the order of their times, which is the order in which Spark reads them."""
    number = 0
    for window, sources in enumerate(panes):
        rows = Partials.joined(sources)
        for part in range(sparkpeer.FILES):
            _write_file(folder, number, window, rows.part(slice(part, None, sparkpeer.FILES)))
            number += 1
    for window in (len(panes), len(panes) + 1):
        for _ in range(sparkpeer.FILES):
            _write_file(folder, number, window, Partials.joined(panes[0]).part(slice(0, 1)))
            number += 1


def _write_file(folder: Path, number: int, window: int, rows: Partials) -> None:
    start = pa.scalar((_FIRST_PANE + window) * 60, pa.timestamp("s")).cast(pa.timestamp("us", "UTC"))
    table = pa.table(
        {
            "ts": pa.repeat(start, len(rows)),
            "src": rows.source,
            "dst": rows.destination,
            "packets": rows.packets,
            "bytes": rows.size,
        }
    )
    path = folder / f"{number:04}.parquet"
    pq.write_table(table, path)
    os.utime(path, (number, 1_000_000_000 + number))


def _batches(log: Path) -> int:
    return sum(file.name.isdecimal() for file in (log / "commits").iterdir())


def _speed(contender: str, groups: int, log: Path, batches: Sequence[int], sampler: Sampler) -> _Speed:
    """From Spark's log: a batch has ended when its entry was written."""
    ends = [(log / "commits" / str(number)).stat().st_mtime for number in range(len(batches))]
    warm = len(batches) // 2
    first, last = ends[warm - 1], ends[-1]
    return _Speed(
        contender,
        groups,
        sum(batches[warm:]),
        last - first,
        sampler.cpu_between(first, last),
        tuple((rows, after - before) for rows, (before, after) in zip(batches[1:], pairwise(ends), strict=True)),
    )


def _totals(kafka: KafkaSettings, topic: str) -> Totals:
    """Windows of a single row only push others out, and are left out."""
    reader = Consumer(consumer_options(kafka, uuid4().hex) | {"enable.partition.eof": True})
    rows: list[bytes] = []
    try:
        waiting = set(reader.list_topics(topic, timeout=30).topics[topic].partitions)
        reader.assign([TopicPartition(topic, partition, 0) for partition in waiting])
        while waiting:
            for message in reader.consume(10_000, timeout=1.0):
                if message.error() is not None:
                    waiting.discard(message.partition())
                elif dict(message.headers() or ()).get("lm-kind", b"row") == b"row":
                    rows.append(message.value())
    finally:
        reader.close()
    if not rows:
        return {}
    table = pyarrow.json.read_json(io.BytesIO(b"\n".join(rows)))
    sums = table.group_by("window_start").aggregate([("packets", "count"), ("packets", "sum"), ("bytes", "sum")])
    return {
        str(window)[:19].replace(" ", "T"): (count, packets, size)
        for window, count, packets, size in sorted(zip(*(column.to_pylist() for column in sums.columns), strict=True))
        if count > 1
    }


def _print(ours: _Speed, theirs: _Speed) -> None:
    ratio, cpu_ratio = ours.per_s / theirs.per_s, ours.per_cpu_s / theirs.per_cpu_s
    for speed in (ours, theirs):
        parts = ", ".join(f"{part} {seconds:.1f}" for part, seconds in speed.cpu_parts.items())
        print(
            f"  {speed.contender:12} {speed.per_s / 1e6:6.3f} M rows/s, {speed.per_cpu_s / 1e6:6.3f} M rows/CPU-s, "
            f"CPU seconds: {parts}"
        )
    goal = _GOALS.get(ours.groups)
    verdict = "" if goal is None else f"; goal {goal:.0f} times: {'reached' if ratio >= goal else 'missed'}"
    print(f"  lowmark is {ratio:.2f} times as fast, {cpu_ratio:.2f} times by CPU time{verdict}")


def _report(results: Path, speeds: Sequence[_Speed], having: int) -> None:
    name = "job" if not having else "job-having"
    header = (
        "contender", "groups", "having_over", "rows", "wall_s", *(f"cpu_s_{part}" for part in PARTS), "rows_per_s",
        "rows_per_cpu_s", "batches",
    )  # fmt: skip
    rows = [
        (
            speed.contender, speed.groups, having, speed.rows, speed.wall_s,
            *(speed.cpu_parts[part] for part in PARTS), speed.per_s, speed.per_cpu_s,
            " ".join(f"{batch}/{seconds:.2f}s" for batch, seconds in speed.batches),
        )
        for speed in speeds
    ]  # fmt: skip
    write_csv(results, name, header, rows)
    output = f"rows of more than {having} packets out" if having else "all rows out"
    with Figure(results, name, f"Partial rows merged a second, {output}") as axes:
        for offset, contender in ((-0.2, OURS), (0.2, SPARKS)):
            of = [speed for speed in speeds if speed.contender == contender]
            places = [place + offset for place in range(len(of))]
            bars = axes.bar(places, [speed.per_s / 1e6 for speed in of], 0.4, label=contender)
            axes.bar_label(bars, fmt="%.2f")
        groups = list(dict.fromkeys(speed.groups for speed in speeds))
        axes.set_xticks(range(len(groups)), [f"{count} groups" for count in groups])
        axes.set_ylabel("million rows per second")
        axes.legend()
