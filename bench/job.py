"""The Spark job against Spark's own windowed aggregation: partial rows a second, from the same rows in the same run.

Both read what has been prepared before, batch by batch, each batch being about a pane of a minute; both write their
results to Kafka as JSON rows. The job reads batches of partials from Kafka; Spark's aggregation is spared that: it
reads decoded columns from parquet files, with an address as one number. The time counts from one batch's commit to
another's, so start-up and warming up do not; answers are compared.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
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
from bench.processes import Sampler, child
from bench.settings import PAIRS, QUERY, Installation
from bench.speeds import OURS, SPARKS, Load, Speed, print_speeds, report_speeds
from lowlevel.outbox import Rows
from lowmark.app.broker import Broker
from lowmark.wire.kafka import KafkaSettings, admin
from lowmark.wire.kafkasettings import consumer_options
from lowmark.wire.topics import Topic, TopicKind

__all__ = ["measure_job"]

_SOURCES = ("left", "right")
_FIRST_PANE = 28_576_080  # a minute of 2024
_TIMEOUT_S = 600.0

Totals = dict[str, tuple[int, int, int]]
"""By window: result rows, and the sums of their packets and bytes."""


def measure_job(results: Path, name: str, loads: Sequence[Load], *, having: int = 0) -> None:
    """Result rows are those of more than `having` packets."""
    speeds: list[Speed] = []
    with tempfile.TemporaryDirectory(prefix="lowmark-bench-") as scratch, Broker(Path(scratch) / "broker") as broker:
        for number, load in enumerate(loads):
            panes = _panes(load)
            ours, our_totals = _our_job(Path(scratch) / f"job{number}", broker.bootstrap, load, panes, having)
            theirs, their_totals = _sparks(Path(scratch) / f"spark{number}", broker.bootstrap, load, panes, having)
            if our_totals != their_totals:
                raise RuntimeError(f"the answers differ: {our_totals} and {their_totals}")
            result_rows = sum(rows for rows, _, _ in our_totals.values())
            print(f"{load}: the same answer, {result_rows} rows in {len(our_totals)} windows")
            speeds += [ours, theirs]
            print_speeds(ours, theirs)
    report_speeds(results, name, speeds, having)


def _panes(load: Load) -> list[list[Partials]]:
    """By pane and source."""
    random = np.random.default_rng(load.groups)
    rows = load.rows // len(_SOURCES)
    return [[random_partials(random, rows, load.groups) for _ in _SOURCES] for _ in range(load.panes)]


def _our_job(
    folder: Path, bootstrap: str, load: Load, panes: Sequence[Sequence[Partials]], having: int
) -> tuple[Speed, Totals]:
    sql = PAIRS.format(window=load.window) + (f" HAVING count(*) > {having}" if having else "")
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
    return _speed(OURS, load, log, batches, sampler), _totals(installation.config.kafka, topic, load)


def _produce(installation: Installation, panes: Sequence[Sequence[Partials]]) -> list[list[int]]:
    """For each partition and offset the rows before it."""
    feed = Feed(installation, _SOURCES)
    rows_at = [[0] for _ in range(installation.plan.stage.buckets)]
    for pane, sources in enumerate(panes):
        for source, partials in zip(_SOURCES, sources, strict=True):
            last = pane == len(panes) - 1
            for partition, record in feed.records(source, _FIRST_PANE + pane, partials, last=last):
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
    folder: Path, bootstrap: str, load: Load, panes: Sequence[Sequence[Partials]], having: int
) -> tuple[Speed, Totals]:
    (folder / "rows").mkdir(parents=True)
    _write_rows(folder / "rows", panes)
    kafka = KafkaSettings(bootstrap)
    topic = f"{folder.name}-results"
    client = admin(kafka)  # named: the answer is lost when it is collected
    client.create_topics([NewTopic(topic, sparkpeer.FILES, 1)])[topic].result()
    with (
        child(
            folder / "out.log", "-m", "bench.sparkpeer", folder, bootstrap, topic, str(having), str(load.held)
        ) as peer,
        Sampler(peer.process.pid) as sampler,
    ):
        peer.wait(_TIMEOUT_S)
    # The batches of the two rows that push the last windows out are left out.
    batches = [rows for _, rows in sorted(json.loads((folder / "batches.json").read_text()))][: len(panes)]
    return _speed(SPARKS, load, folder / "checkpoint", batches, sampler), _totals(kafka, topic, load)


def _write_rows(folder: Path, panes: Sequence[Sequence[Partials]]) -> None:
    """Files in the order of their times, which is the order in which Spark reads them."""
    number = 0
    for pane, sources in enumerate(panes):
        rows = Partials.joined(sources)
        for part in range(sparkpeer.FILES):
            _write_file(folder, number, pane, rows.part(slice(part, None, sparkpeer.FILES)))
            number += 1
    for pane in (len(panes), len(panes) + 1):
        for _ in range(sparkpeer.FILES):
            _write_file(folder, number, pane, Partials.joined(panes[0]).part(slice(0, 1)))
            number += 1


def _write_file(folder: Path, number: int, pane: int, rows: Partials) -> None:
    start = pa.scalar((_FIRST_PANE + pane) * 60, pa.timestamp("s")).cast(pa.timestamp("us", "UTC"))
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


def _state_written(log: Path) -> list[int]:
    """Bytes, by batch: version 1 of the state is what batch 0 has left."""
    by_version: dict[int, int] = {}
    for file in (log / "state").glob("*/*/**/*.changelog"):
        version = int(file.name.split(".")[0].split("_")[0])
        by_version[version] = by_version.get(version, 0) + file.stat().st_size
    return [size for _, size in sorted(by_version.items())]


def _speed(contender: str, load: Load, log: Path, batches: Sequence[int], sampler: Sampler) -> Speed:
    """From Spark's log: a batch has ended when its entry was written."""
    ends = [(log / "commits" / str(number)).stat().st_mtime for number in range(len(batches))]
    warm = len(batches) // 2
    first, last = ends[warm - 1], ends[-1]
    return Speed(
        contender,
        load,
        sum(batches[warm:]),
        last - first,
        sampler.cpu_between(first, last),
        int(np.mean(_state_written(log)[warm : len(batches)] or [0])),
        tuple((rows, after - before) for rows, (before, after) in zip(batches[1:], pairwise(ends), strict=True)),
    )


def _totals(kafka: KafkaSettings, topic: str, load: Load) -> Totals:
    """Windows that end behind the last pane are left out: Spark's are not pushed out, or hold the rows that push."""
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
    last = f"{datetime.fromtimestamp((_FIRST_PANE + load.panes - load.held) * 60, UTC):%Y-%m-%dT%H:%M}"
    found = {}
    for start, count, packets, size in zip(*(column.to_pylist() for column in sums.columns), strict=True):
        minute = str(start)[:16].replace(" ", "T")
        if minute <= last:
            found[minute] = count, packets, size
    return found
