"""Runs on Spark, ours and its own: the files that it reads in order, what its log of batches says, what stands in
Kafka afterwards."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import NewTopic

from bench.common.processes import Sampler, child
from bench.common.settings import Installation
from bench.common.speeds import Load, Speed
from lowmark.wire.kafka.clients import KafkaSettings, admin
from lowmark.wire.kafka.settings import consumer_options

__all__ = ["FILES", "batches", "json_rows", "make_topic", "run_job", "run_peer", "speed", "write_file"]

FILES = 4
"""That Spark's own reads in a micro-batch, of each stream: as many as a stage has buckets."""

_TIMEOUT_S = 600.0


def run_job(installation: Installation) -> Sampler:
    """`lowmark run` until the last result is out."""
    log = installation.folder / "job.log"
    with (
        child(log, "-m", "lowmark", "run", "-c", installation.path, "--until-last") as job,
        Sampler(job.process.pid) as sampler,
    ):
        job.wait(_TIMEOUT_S)
    return sampler


def run_peer(folder: Path, module: str, *arguments: str | Path) -> tuple[Sampler, list[int]]:
    """`python -m module FOLDER arguments…`, which leaves `batches.json`: the rows that each micro-batch has read."""
    with (
        child(folder / "out.log", "-m", module, folder, *arguments) as peer,
        Sampler(peer.process.pid) as sampler,
    ):
        peer.wait(_TIMEOUT_S)
    return sampler, [rows for _, rows in sorted(json.loads((folder / "batches.json").read_text()))]


def write_file(folder: Path, number: int, table: pa.Table) -> None:
    """Files have the times of their numbers, by which Spark reads them in order."""
    path = folder / f"{number:04}.parquet"
    pq.write_table(table, path)
    os.utime(path, (number, 1_000_000_000 + number))


def make_topic(kafka: KafkaSettings, topic: str) -> None:
    client = admin(kafka)  # named: the answer is lost when it is collected
    client.create_topics([NewTopic(topic, FILES, 1)])[topic].result()


def batches(log: Path, rows_at: Sequence[Sequence[int]]) -> list[int]:
    """The rows of each micro-batch. `rows_at`: for each partition of the one topic that is read, and offset, the rows
    before it."""
    count = sum(file.name.isdecimal() for file in (log / "commits").iterdir())
    ends = [_rows_until(log / "offsets" / str(number), rows_at) for number in range(count)]
    return [after - before for before, after in pairwise([0, *ends])]


def _rows_until(offsets: Path, rows_at: Sequence[Sequence[int]]) -> int:
    partials = offsets.read_text().splitlines()[2]  # behind the version and Spark's own; what follows is of exchanges
    (partitions,) = json.loads(partials).values()
    return sum(rows_at[int(partition)][offset] for partition, offset in partitions.items())


def speed(contender: str, load: Load, log: Path, counts: Sequence[int], sampler: Sampler) -> Speed:
    """From Spark's log: a batch has ended when its entry was written. `counts`: what counts of each batch; half of them
    are for warming up."""
    ends = [(log / "commits" / str(number)).stat().st_mtime for number in range(len(counts))]
    warm = len(counts) // 2
    first, last = ends[warm - 1], ends[-1]
    return Speed(
        contender,
        load,
        sum(counts[warm:]),
        last - first,
        sampler.cpu_between(first, last),
        int(np.median(_state_written(log)[warm : len(counts)] or [0])),  # the last batch of all may leave nothing
        tuple((count, after - before) for count, (before, after) in zip(counts[1:], pairwise(ends), strict=True)),
    )


def _state_written(log: Path) -> list[int]:
    """Bytes, by batch: version 1 of the state is what batch 0 has left."""
    by_version: dict[int, int] = {}
    for file in (log / "state").glob("*/*/**/*.changelog"):
        version = int(file.name.split(".")[0].split("_")[0])
        by_version[version] = by_version.get(version, 0) + file.stat().st_size
    return [size for _, size in sorted(by_version.items())]


def json_rows(kafka: KafkaSettings, topic: str) -> Iterator[list[bytes]]:
    """All rows of a topic of results, some thousands at a time."""
    reader = Consumer(consumer_options(kafka, uuid4().hex) | {"enable.partition.eof": True})
    try:
        waiting = set(reader.list_topics(topic, timeout=30).topics[topic].partitions)
        reader.assign([TopicPartition(topic, partition, 0) for partition in waiting])
        while waiting:
            rows: list[bytes] = []
            for message in reader.consume(10_000, timeout=1.0):
                if message.error() is not None:
                    waiting.discard(message.partition())
                elif dict(message.headers() or ()).get("lm-kind", b"row") == b"row":
                    rows.append(message.value())
            if rows:
                yield rows
    finally:
        reader.close()
