"""The Spark job against Spark's own windowed aggregation: partial rows a second, from the same rows in the same run.

Both read what has been prepared before, batch by batch, each batch being about a pane of a minute; both write their
results to Kafka as JSON rows. The job reads batches of partials from Kafka; Spark's aggregation is spared that: it
reads decoded columns from parquet files, with an address as one number. The time counts from one batch's commit to
another's, so start-up and warming up do not; answers are compared.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.json

from bench.common.feeding import Feed, Partials, random_partials
from bench.common.settings import PAIRS, QUERY, Installation
from bench.common.speeds import OURS, SPARKS, Grouping, Speed, print_speeds, report_speeds
from bench.spark.runs import FILES, batches, json_rows, make_topic, run_job, run_peer, speed, write_file
from lowlevel.outbox import Outgoing
from lowmark.app.kafka.broker import Broker
from lowmark.wire.kafka.clients import KafkaSettings
from lowmark.wire.kafka.topics import Topic, TopicKind

__all__ = ["measure_job"]

_SOURCES = ("left", "right")
_FIRST_PANE = 28_576_080  # a minute of 2024

Totals = dict[str, tuple[int, int, int]]
"""By window: result rows, and the sums of their packets and bytes."""


def measure_job(results: Path, name: str, loads: Sequence[Grouping]) -> None:
    speeds: list[Speed] = []
    having = loads[0].having
    output = f"rows of more than {having} packets out" if having else "all rows out"
    with tempfile.TemporaryDirectory(prefix="lowmark-bench-") as scratch, Broker(Path(scratch) / "broker") as broker:
        for number, load in enumerate(loads):
            panes = _panes(load)
            ours, our_totals = _our_job(Path(scratch) / f"job{number}", broker.bootstrap, load, panes)
            theirs, their_totals = _sparks(Path(scratch) / f"spark{number}", broker.bootstrap, load, panes)
            if our_totals != their_totals:
                raise RuntimeError(f"the answers differ: {our_totals} and {their_totals}")
            result_rows = sum(rows for rows, _, _ in our_totals.values())
            print(f"{load}: the same answer, {result_rows} rows in {len(our_totals)} windows")
            speeds += [ours, theirs]
            print_speeds(ours, theirs)
            # After each, so that whoever ends a long run has what there is.
            report_speeds(results, name, speeds, f"Partial rows merged a second, {output}")


def _panes(load: Grouping) -> list[list[Partials]]:
    """By pane and source."""
    random = np.random.default_rng(load.groups)
    rows = load.rows // len(_SOURCES)
    return [[random_partials(random, rows, load.groups) for _ in _SOURCES] for _ in range(load.panes)]


def _our_job(
    folder: Path, bootstrap: str, load: Grouping, panes: Sequence[Sequence[Partials]]
) -> tuple[Speed, Totals]:  # fmt: skip
    sql = PAIRS.format(window=load.window) + (f" HAVING count(*) > {load.having}" if load.having else "")
    # Finite sources, which can end; the files are never read.
    installation = Installation(folder, bootstrap, sql, {"Main": dict.fromkeys(_SOURCES, "not-read.pcap")})
    installation.create_topics()
    feed = Feed(installation, _SOURCES)
    rows_at = feed.produce(_records(feed, panes))
    records = sum(len(starts) - 1 for starts in rows_at)
    installation.set_job(f"max_offsets_per_trigger = {records // len(panes) // load.cuts}")
    sampler = run_job(installation)
    log = installation.checkpoint
    topic = Topic(TopicKind.RESULTS, QUERY, installation.config.prefix).name
    totals = _totals(installation.config.kafka, topic, load)
    return speed(OURS, load, log, batches(log, rows_at), sampler), totals


def _records(feed: Feed, panes: Sequence[Sequence[Partials]]) -> Iterator[Outgoing]:
    for number, sources in enumerate(panes):
        pane, last = _FIRST_PANE + number, number == len(panes) - 1
        for source, partials in zip(_SOURCES, sources, strict=True):
            yield from feed.records(source, pane, partials.words(feed.schema(source), pane), last=last)


def _sparks(
    folder: Path, bootstrap: str, load: Grouping, panes: Sequence[Sequence[Partials]]
) -> tuple[Speed, Totals]:  # fmt: skip
    (folder / "rows").mkdir(parents=True)
    _write_rows(folder / "rows", panes, FILES * load.cuts)
    kafka, topic = KafkaSettings(bootstrap), f"{folder.name}-results"
    make_topic(kafka, topic)
    sampler, rows = run_peer(folder, "bench.spark.windows_peer", bootstrap, topic, str(load.having), str(load.held))
    # The batches of the two rows that push the last windows out are left out.
    counts = rows[: len(panes) * load.cuts]
    return speed(SPARKS, load, folder / "checkpoint", counts, sampler), _totals(kafka, topic, load)


def _write_rows(folder: Path, panes: Sequence[Sequence[Partials]], files: int) -> None:
    """In the order of their times, so many files a pane."""
    number = 0
    for pane, sources in enumerate(panes):
        rows = Partials.joined(sources)
        for part in range(files):
            write_file(folder, number, _table(pane, rows.part(slice(part, None, files))))
            number += 1
    for pane in (len(panes), len(panes) + 1):
        for _ in range(FILES):
            write_file(folder, number, _table(pane, Partials.joined(panes[0]).part(slice(0, 1))))
            number += 1


def _table(pane: int, rows: Partials) -> pa.Table:
    start = pa.scalar((_FIRST_PANE + pane) * 60, pa.timestamp("s")).cast(pa.timestamp("us", "UTC"))
    return pa.table(
        {
            "ts": pa.repeat(start, len(rows)),
            "src": rows.source,
            "dst": rows.destination,
            "packets": rows.packets,
            "bytes": rows.size,
        }
    )


def _totals(kafka: KafkaSettings, topic: str, load: Grouping) -> Totals:
    """Windows that end behind the last pane are left out: Spark's are not pushed out, or hold the rows that push."""
    rows = [row for some in json_rows(kafka, topic) for row in some]
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
