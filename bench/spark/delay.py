"""From a punctuation's production to the last result record that it lets out, as a read_committed reader sees it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.common.feeding import Feed, random_partials
from bench.common.processes import Child, child
from bench.common.reports import Figure, write_csv
from bench.common.settings import PAIRS, Installation
from bench.common.watching import Watcher
from lowlevel.outbox import Rows
from lowmark.app.kafka.broker import Broker
from lowmark.jit.cache_folder import cache_root

__all__ = ["delays", "measure_delay"]

_WARM_UP = 10
_ROWS = 400
_GROUPS = 200
_FIRST_PANE = 1_714_564_800
_GIVE_UP_S = 180.0
_MEDIAN_GOAL_S, _P99_GOAL_S = 0.5, 1.0


def measure_delay(results: Path, *, windows: int, spark: Sequence[str] = ()) -> None:
    """One-second windows of a few hundred rows; the checkpoint is on the disk of the user's cache. `spark`: settings
    of Spark, NAME=VALUE."""
    cache_root().mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=cache_root()) as name,
        Broker(Path(name) / "broker") as broker,
    ):
        sql = PAIRS.format(window="1 second")
        streams = {"Main": {"tap": "not-read.pcap"}}
        installation = Installation(Path(name) / "delay", broker.bootstrap, sql, streams)
        installation.create_topics()
        installation.set_job("[job.spark]")
        for name, _, value in (setting.partition("=") for setting in spark):
            installation.set_job(f'"{name}" = "{value}"')
        with (
            child(installation.folder / "job.log", "-m", "lowmark", "run", "-c", installation.path) as job,
            Watcher(installation) as watcher,
        ):
            found = delays(Feed(installation, ["tap"]), watcher, job, windows)
    _report(results, found)


def delays(feed: Feed, watcher: Watcher, job: Child, windows: int) -> list[float]:
    """In seconds, without the windows of the warm-up."""
    random = np.random.default_rng(1)
    found = []
    for pane in range(_FIRST_PANE, _FIRST_PANE + _WARM_UP + windows):
        rows = random_partials(random, _ROWS, _GROUPS).words(feed.schema("tap"), pane)
        records = list(feed.records("tap", pane, rows))
        wires = [(partition, feed.wire(record), isinstance(record, Rows)) for partition, record in records]
        for partition, wire, is_data in wires:
            if is_data:
                feed.send(partition, wire)
        feed.flush()
        # The data comes while the window is open, and its end at any moment of a micro-batch.
        time.sleep(random.uniform(0.3, 1.0))
        began = time.monotonic()
        for partition, wire, is_data in wires:
            if not is_data:
                feed.send(partition, wire)
        feed.flush()
        _await(watcher, feed.pane_start_ns(pane + 1), job)
        found.append(time.monotonic() - began)
    return found[_WARM_UP:]


def _await(watcher: Watcher, end_ns: int, job: Child) -> None:
    deadline = time.monotonic() + _GIVE_UP_S
    while watcher.complete_to < end_ns:
        job.check()
        if time.monotonic() > deadline:
            raise RuntimeError(f"no result within {_GIVE_UP_S:.0f} s:\n{job.said()}")
        for _ in watcher.poll():
            pass


def _report(results: Path, delays: Sequence[float]) -> None:
    median, p99 = np.quantile(delays, 0.5), np.quantile(delays, 0.99)
    for what, value, goal in (("median", median, _MEDIAN_GOAL_S), ("p99", p99, _P99_GOAL_S)):
        verdict = "reached" if value <= goal else "missed"
        print(f"punctuation to visible result, {what}: {value * 1000:.0f} ms (goal {goal * 1000:.0f} ms: {verdict})")
    print(f"of {len(delays)} windows; least {min(delays) * 1000:.0f} ms, most {max(delays) * 1000:.0f} ms")
    write_csv(results, "delay", ("window", "delay_s"), list(enumerate(delays)))
    with Figure(results, "delay", "From a punctuation to its last visible result") as axes:
        axes.step([1000 * delay for delay in sorted(delays)], [i / len(delays) for i in range(1, len(delays) + 1)])
        axes.axvline(1000 * _MEDIAN_GOAL_S, linestyle=":", color="gray")
        axes.axvline(1000 * _P99_GOAL_S, linestyle="--", color="gray")
        axes.set_xlabel("ms (dotted: goal for the median, dashed: for 99 of 100)")
        axes.set_ylabel("share of windows")
        axes.set_xlim(left=0)
