"""`python -m bench.cluster`: the job on a standalone cluster with one worker and with two, each a host of its own.

Master, workers, driver, three brokers and an S3 server share this machine's CPUs; bench/README.md says what the figures
show. Needs root, for namespaces.
"""

from __future__ import annotations

import signal
import tempfile
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from bench.common.feeding import Feed, random_partials
from bench.common.processes import Child
from bench.common.reports import RESULTS, describe_machine, write_csv
from bench.common.settings import PAIRS, Installation
from bench.common.watching import Watcher
from bench.spark.delay import delays
from lowmark.app.job.packed import pack
from lowmark.app.kafka.jars import S3A, SPARK_KAFKA
from lowmark.jit.cache_folder import cache_root
from tests.fixtures.sparkhosts import SparkHosts, kill, spark_hosts

_SOURCE = "tap"
_GROUPS = 66_000
_FIRST_PANE = 28_576_080
_GIVE_UP_S = 240.0


def main(
    workers: Annotated[list[int] | None, typer.Option(help="Workers of the cluster (repeatable).")] = None,
    windows: Annotated[int, typer.Option(help="One-minute windows; half of them are for warming up.")] = 12,
    rows: Annotated[int, typer.Option(help="Partial rows in each window, which is a micro-batch.")] = 400_000,
    punctuations: Annotated[int, typer.Option(help="Punctuations whose delay is measured.")] = 30,
    results: Annotated[Path, typer.Option(help="Where CSV files go.")] = RESULTS,
) -> None:
    """Partial rows a second, and the delay from a punctuation to its last visible result, for one worker and two."""
    describe_machine(results)
    found = []
    cache_root().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=cache_root()) as name:
        folder = Path(name)
        packed = pack(folder / "packed", (SPARK_KAFKA, S3A), (), False, lambda text: None)
        for count in workers or [1, 2]:
            with spark_hosts(folder / f"hosts{count}", lambda: packed, count) as cluster:
                speed = _rows_a_second(folder / f"speed{count}", cluster, windows, rows)
                late = _delays(folder / f"delay{count}", cluster, punctuations)
            median, p99 = np.quantile(late, 0.5), np.quantile(late, 0.99)
            print(f"{count} workers: {speed:,.0f} rows/s; delay {median:.2f} s, of 99 in 100 {p99:.2f} s", flush=True)
            found.append((count, speed, median, p99))
    write_csv(results, "cluster", ("workers", "rows_per_s", "delay_median_s", "delay_p99_s"), found)


def _installed(folder: Path, cluster: SparkHosts, window: str) -> Installation:
    streams = {"Main": {_SOURCE: "not-read.pcap"}}
    made = Installation(folder, cluster.bootstrap, PAIRS.format(window=window), streams, 3)
    made.create_topics()
    return made


def _set_job(made: Installation, cluster: SparkHosts, batch: int) -> None:
    """`batch`: the records of a micro-batch."""
    made.set_job(f'master = "{cluster.master}"\ncheckpoint = "s3a://checkpoints/{made.folder.name}"')
    made.set_job(f"max_offsets_per_trigger = {batch}\n[job.spark]")
    settings = {"spark.executor.memory": "512m", "spark.driver.host": cluster.driver.address, **cluster.s3}
    settings |= {"spark.archives": f"{cluster.packed}/environment.tar.gz#environment"}
    settings |= {"spark.pyspark.python": "./environment/bin/python"}
    for name, value in settings.items():
        made.set_job(f'"{name}" = "{value}"')


def _rows_a_second(folder: Path, cluster: SparkHosts, windows: int, rows: int) -> float:
    """Over the second half of a backlog, by when its windows have become complete."""
    made = _installed(folder, cluster, "1 minute")
    feed, random = Feed(made, [_SOURCE]), np.random.default_rng(1)
    records = [
        record
        for pane in range(_FIRST_PANE, _FIRST_PANE + windows)
        for record in feed.records(
            _SOURCE, pane, random_partials(random, rows, _GROUPS).words(feed.schema(_SOURCE), pane),
            last=pane == _FIRST_PANE + windows - 1,
        )
    ]  # fmt: skip
    feed.produce(records)
    _set_job(made, cluster, len(records) // windows)
    ends = [feed.pane_start_ns(_FIRST_PANE + number + 1) for number in range(windows)]
    job = Child(cluster.run("run", "-c", str(made.path), "--until-last"), cluster.driver.folder / "driver.out")
    at: dict[int, float] = {}
    with Watcher(made) as watcher:
        deadline = time.monotonic() + _GIVE_UP_S
        while len(at) < windows:
            job.check()
            if time.monotonic() > deadline:
                raise RuntimeError(f"not complete within {_GIVE_UP_S:.0f} s:\n{job.said()}")
            for _ in watcher.poll():
                for number, end in enumerate(ends):
                    if watcher.complete_to >= end:
                        at.setdefault(number, time.monotonic())
    job.wait(_GIVE_UP_S)
    half = windows // 2
    return rows * (windows - half) / (at[windows - 1] - at[half - 1])


def _delays(folder: Path, cluster: SparkHosts, punctuations: int) -> list[float]:
    made = _installed(folder, cluster, "1 second")
    _set_job(made, cluster, 20_000)
    process = cluster.run("run", "-c", str(made.path))
    with Watcher(made) as watcher:
        found = delays(
            Feed(made, [_SOURCE]), watcher, Child(process, cluster.driver.folder / "driver.out"), punctuations
        )
    kill(cluster.driver.processes(str(made.path)), signal.SIGTERM)
    process.wait(60)
    return found


if __name__ == "__main__":
    typer.run(main)
