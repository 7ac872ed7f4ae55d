"""`python -m bench.restarts`: a broker that is restarted again and again under a job that is under load.

By SIGTERM and SIGKILL in turn, each time away for another while. After each restart the job has to go on, or to end
with its reason and go on when it is started again, as a supervisor does; else it is deaf. In the end every row has to
be there once. bench/README.md says what the figures show.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.json
import typer

from bench.common.feeding import Feed, Partials, random_partials
from bench.common.processes import ROOT
from bench.common.reports import RESULTS, describe_machine, write_csv
from bench.common.settings import PAIRS, QUERY, Installation
from bench.common.watching import Watcher
from bench.spark.runs import json_rows, run_job
from lowmark.app.kafka.broker import Broker
from lowmark.wire.kafka.topics import Topic, TopicKind

_SOURCES = ("left", "right")
_FIRST_PANE = 1_714_564_800
_ROWS, _GROUPS = 400, 200  # of a second, from each source
_SENT_EVERY_S = 0.25
_AWAY_S = 6.0  # at most
_CALM_S = 3.0  # between restarts, at most

_DEAF_AFTER_S = 180.0
"""Within a minute a job that hangs ends, and then it starts again."""

_END_WITHIN_S = 30.0

Totals = dict[str, tuple[int, int, int]]
"""By window: rows, packets and bytes."""


@dataclass(frozen=True, slots=True)
class _Restart:
    signal: str
    away_s: float
    ends: tuple[str, ...]  # of the job's processes: their last words
    visible_s: float | None  # from the broker's first answer to the first new window; None: it was deaf


class _Job:
    """`lowmark run`, started again whenever it ends, from a thread of its own."""

    def __init__(self, installation: Installation) -> None:
        self._command = [sys.executable, "-m", "lowmark", "run", "-c", str(installation.path)]
        self._log = installation.folder / "job.log"
        self._lock = threading.Lock()
        self._over = False
        self._process = self._start()
        self.ends: list[str] = []
        self._thread = threading.Thread(target=self._supervise, name="supervisor", daemon=True)
        self._thread.start()

    def __enter__(self) -> _Job:
        return self

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._over = True
        self._process.kill()
        self._process.wait()
        self._thread.join()

    def end(self) -> float:
        """By SIGTERM; the seconds that it took, or infinity when it had to be killed."""
        with self._lock:
            self._over = True
            self._process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        try:
            self._process.wait(_END_WITHIN_S)
            return time.monotonic() - began
        except subprocess.TimeoutExpired:
            return float("inf")

    def kill(self) -> None:
        """One that is deaf."""
        self._process.kill()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("wb") as output:
            return subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=ROOT, start_new_session=True
            )

    def _supervise(self) -> None:
        while True:
            status = self._process.wait()
            with self._lock:
                if self._over:
                    return
                said = self._log.read_text(errors="replace").splitlines() or [""]
                self.ends.append(f"{status}: {said[-1]}")
                self._process = self._start()


class _Load:
    """Sends a pane after the other, through outages, until `end`, and knows what must come of it."""

    def __init__(self, installation: Installation) -> None:
        self._feed = Feed(installation, _SOURCES)
        self._random = np.random.default_rng(1)
        self._stop = threading.Event()
        self._pane = _FIRST_PANE
        self._failed: Exception | None = None
        self.expected: Totals = {}
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._thread.start()

    @property
    def panes(self) -> int:
        return len(self.expected)

    @property
    def end_ns(self) -> int:
        """Of the window that is being sent."""
        return self._feed.pane_start_ns(self._pane + 1)

    def end(self) -> None:
        """Of all sources, when the broker has everything."""
        self._stop.set()
        self._thread.join()
        if self._failed is not None:
            raise self._failed
        self._send(last=True)

    def _run(self) -> None:
        try:
            while not self._stop.wait(_SENT_EVERY_S):
                self._send()
        except Exception as error:  # whatever it is, `end` raises it
            self._failed = error

    def _send(self, last: bool = False) -> None:
        parts = [random_partials(self._random, _ROWS, _GROUPS) for _ in _SOURCES]
        for source, rows in zip(_SOURCES, parts, strict=True):
            words = rows.words(self._feed.schema(source), self._pane)
            for partition, record in self._feed.records(source, self._pane, words, last=last):
                self._feed.send(partition, self._feed.wire(record))
        self._feed.flush()
        rows = Partials.joined(parts)
        pairs = len(set(zip(rows.source.tolist(), rows.destination.tolist(), strict=True)))
        start = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(self._pane))
        self.expected[start] = pairs, int(rows.packets.sum()), int(rows.size.sum())
        self._pane += 1


def measure_restarts(results: Path, *, restarts: int, seed: int) -> None:
    """RuntimeError when a restart has made the job deaf, or when its rows are others than those that were sent."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="lowmark-bench-") as name, _brokers(Path(name)) as restart:
        bootstrap = restart(None, 0.0)
        installation = Installation(
            Path(name) / "restarts", bootstrap, PAIRS.format(window="1 second"),
            {"Main": dict.fromkeys(_SOURCES, "not-read.pcap")},
        )  # fmt: skip
        installation.create_topics()
        load = _Load(installation)
        with _Job(installation) as job, Watcher(installation) as watcher:
            _await(watcher, load.end_ns)
            found = []
            for number in range(restarts):
                time.sleep(chance.uniform(0.5, _CALM_S))
                found.append(_restarted(restart, job, load, watcher, number, chance.uniform(0, _AWAY_S)))
                print(f"restart {number + 1} of {restarts}: {_told(found[-1])}", flush=True)
            load.end()
            restart(signal.SIGKILL, None)
            took_s = job.end()
        restart(None, 0.0)
        run_job(installation)
        topic = Topic(TopicKind.RESULTS, QUERY, installation.config.prefix).name
        exact = _totals(installation, topic) == load.expected
    _report(results, found, load, took_s, exact)


@contextmanager
def _brokers(folder: Path) -> Iterator[Callable[[signal.Signals | None, float | None], str]]:
    """A function that ends the broker by a signal, waits so long, and starts it at the same address, which it returns.
    None: it is not ended, or not started."""
    broker, port = Broker(folder / "broker"), 0
    running = False

    def restart(number: signal.Signals | None, away_s: float | None) -> str:
        nonlocal broker, port, running
        if number is not None:
            os.kill(broker.pid, number)
            broker.stop()
            running = False
        if away_s is None:
            return ""
        time.sleep(away_s)
        broker = Broker(folder / "broker", port)
        broker.start()
        running, port = True, int(broker.bootstrap.rpartition(":")[2])
        return broker.bootstrap

    try:
        yield restart
    finally:
        if running:
            broker.stop()


def _restarted(
    restart: Callable[[signal.Signals | None, float | None], str], job: _Job, load: _Load, watcher: Watcher,
    number: int, away_s: float,
) -> _Restart:  # fmt: skip
    ends = len(job.ends)
    by = signal.SIGKILL if number % 2 else signal.SIGTERM
    restart(by, away_s)
    end_ns = load.end_ns
    visible_s = _await(watcher, end_ns)
    if visible_s is None:
        job.kill()
        _await(watcher, end_ns)
    return _Restart(by.name, away_s, tuple(job.ends[ends:]), visible_s)


def _await(watcher: Watcher, end_ns: int) -> float | None:
    """The seconds until all windows up to this end are visible; None when the job is deaf."""
    began = time.monotonic()
    while time.monotonic() - began < _DEAF_AFTER_S:
        if watcher.complete_to >= end_ns:
            return time.monotonic() - began
        for _ in watcher.poll():
            pass
    return None


def _totals(installation: Installation, topic: str) -> Totals:
    found: Totals = {}
    for rows in json_rows(installation.config.kafka, topic):
        table = pa.json.read_json(pa.BufferReader(b"\n".join(rows)))
        sums = table.group_by("window_start").aggregate([("packets", "count"), ("packets", "sum"), ("bytes", "sum")])
        for start, *more in zip(*(column.to_pylist() for column in sums.columns), strict=True):
            window = str(start)[:19].replace(" ", "T")
            rows_, packets, size = found.get(window, (0, 0, 0))
            found[window] = rows_ + more[0], packets + more[1], size + more[2]
    return found


def _told(restart: _Restart) -> str:
    how = "deaf" if restart.visible_s is None else f"new windows after {restart.visible_s:.1f} s"
    ended = "".join(f"; the job ended with {end}" for end in restart.ends)
    return f"{restart.signal}, away for {restart.away_s:.1f} s: {how}{ended}"


def _report(results: Path, found: list[_Restart], load: _Load, took_s: float, exact: bool) -> None:
    deaf = sum(restart.visible_s is None for restart in found)
    ended = sum(bool(restart.ends) for restart in found)
    waits = sorted(restart.visible_s for restart in found if restart.visible_s is not None)
    print(f"{len(found)} restarts: {deaf} deaf; {ended} ended the job, which went on when it was started again")
    if waits:
        print(f"from the broker's answer to new windows: median {waits[len(waits) // 2]:.1f} s, most {waits[-1]:.1f} s")
    print(f"SIGTERM while the broker is away: ended in {took_s:.1f} s")
    print(f"rows of {load.panes} windows: {'each once' if exact else 'NOT those that were sent'}")
    rows = [
        (number, restart.signal, restart.away_s, restart.visible_s or "deaf", " | ".join(restart.ends))
        for number, restart in enumerate(found, 1)
    ]
    write_csv(results, "restarts", ("restart", "signal", "away_s", "visible_s", "ends"), rows)
    if deaf or not exact or took_s > _END_WITHIN_S:
        raise RuntimeError("a restart of the broker has done harm: see above")


app = typer.Typer(add_completion=False, help=__doc__, pretty_exceptions_enable=False)


@app.command()
def main(
    restarts: Annotated[int, typer.Option(min=1, help="How often the broker is restarted.")] = 30,
    seed: Annotated[int, typer.Option(help="Draws the times.")] = 1,
    results: Annotated[Path, typer.Option(help="Where the CSV file goes.")] = RESULTS,
) -> None:
    """How often a job is deaf after a restart of its broker, and whether each of its rows is there once."""
    describe_machine(results)
    measure_restarts(results, restarts=restarts, seed=seed)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that what was started is ended
    app()
