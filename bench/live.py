"""`python -m bench.live`: packets a second that a live reader takes without loss, against tcpdump and dumpcap to
/dev/null, and the time from a packet to its record in Kafka.

A generator of its own process sends from one end of a veth pair, in a network namespace that vanishes with the run; it
takes root. bench/README.md says what the figures show.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Protocol

import numpy as np
import typer

from bench.common.reports import RESULTS, Figure, describe_machine, write_csv
from bench.host.generator import Generator, enter_namespace
from bench.host.reach import record_delays
from ingest.config import LiveConfig
from ingest.live.source import LiveSource
from lowlevel.node import SourceNodes
from lowmark.app.kafka.jars import BROKER, obtain
from lowmark.query.compile import compile_query

_SILENT = 10  # empty blocks after which the generator has ended
_PAIRS = "SELECT srcIP, destIP, count(*), sum(len) [RANGE 10 seconds] FROM Main GROUP BY srcIP, destIP"
_GOAL, _CPU_GOAL = 1_500_000, 0.15
_IDLE, _STEPS = 64, 6  # random numbers between packets at first, and how often they are changed


@dataclass(frozen=True, slots=True)
class _Run:
    reader: str
    rate: float  # packets a second that were sent
    sent: int
    received: int
    dropped: int
    cpu: float  # share of a core that the reader took; what the system did for it is not all in it

    @property
    def lost(self) -> float:
        return self.dropped / self.sent


class _Reader(Protocol):
    def __call__(self, rate: int, seconds: float, idle: int = 0) -> _Run: ...


@dataclass(frozen=True, slots=True)
class _Program:
    """A reader that writes to /dev/null: it says that it has begun in a line with `begun`, and at last its counts."""

    name: str
    command: tuple[str, ...]
    package: str
    begun: str
    received: re.Pattern[str]
    dropped: re.Pattern[str]


_PROGRAMS = (
    _Program(
        "tcpdump", ("-i", "near", "-n", "-s", "96", "-w", os.devnull), "tcpdump", "listening on",
        re.compile(r"(\d+) packets? captured"), re.compile(r"(\d+) packets? dropped by kernel"),
    ),
    _Program(
        "dumpcap", ("-q", "-i", "near", "-s", "96", "-w", os.devnull), "wireshark-common", "File:",
        re.compile(r"received/dropped on interface 'near': (\d+)/"), re.compile(r"'near': \d+/(\d+)"),
    ),
)  # fmt: skip


def measure_live(results: Path, seconds: float, rates: Sequence[int]) -> None:
    """At each rate each reader alone; 0: as fast as it goes, and where that loses packets at less than that, to find
    the highest rate without loss. Then the delay of single packets. SystemExit where a namespace cannot be made."""
    enter_namespace()
    present = [program for program in _PROGRAMS if shutil.which(program.name)]
    readers: list[_Reader] = [_by_lowmark, *(partial(_by_program, program) for program in present)]
    runs = [reader(rate, seconds) for rate in rates if rate for reader in readers]
    if 0 in rates:
        for reader in readers:
            runs.append(reader(0, seconds))
            runs += _search(reader, runs[-1], seconds)
    for run in runs:
        if run.received + run.dropped != run.sent:
            print(f"{run.reader}: {run.sent - run.received - run.dropped} packets are in no count")
    for program in _PROGRAMS:
        if shutil.which(program.name) is None:
            print(f"{program.name}: left out, it is not installed: apt-get install {program.package}")
    header = ("reader", "rate", "sent", "received", "dropped", "cpu")
    write_csv(results, "live", header, [(r.reader, r.rate, r.sent, r.received, r.dropped, r.cpu) for r in runs])
    _tell(runs)
    delays = record_delays(seconds)
    shares = np.linspace(0, 1, 101)
    rows = zip(shares, 1000 * np.quantile(delays, shares), strict=True)
    write_csv(results, "live-delay", ("share", "delay_ms"), list(rows))
    print(
        f"from a packet to its record in Kafka: median {1000 * np.median(delays):.0f} ms, 99% within "
        f"{1000 * np.quantile(delays, 0.99):.0f} ms, of {len(delays)} packets"
    )
    with Figure(results, "live", "Packets lost by a live reader") as axes:
        for name in dict.fromkeys(run.reader for run in runs):
            points = sorted((run.rate, 100 * run.lost) for run in runs if run.reader == name)
            axes.plot(*zip(*points, strict=True), marker="o", label=name)
        axes.set_xlabel("packets a second that were sent")
        axes.set_ylabel("lost, %")
        axes.legend()


def _search(reader: _Reader, flooded: _Run, seconds: float) -> Iterator[_Run]:
    """From a flood that lost some, runs ever closer to the highest rate without loss, by how long it idles. Else one,
    for what a reader takes at a lower rate."""
    lossy, whole, idle = 0, 0, _IDLE
    for _ in range(_STEPS if flooded.dropped else 1):
        run = reader(0, seconds, idle)
        yield run
        if run.dropped:
            lossy = idle
        else:
            whole = idle
        idle = (lossy + whole) // 2 if whole else 2 * idle


def _told(run: _Run) -> _Run:
    print(
        f"{run.reader:8} {run.rate:12,.0f} packets/s sent, {100 * run.lost:6.3f}% lost, {100 * run.cpu:.1f}% of a core",
        flush=True,
    )
    return run


def _tell(runs: Sequence[_Run]) -> None:
    reached = max(run.rate for run in runs)
    for name in dict.fromkeys(run.reader for run in runs):
        whole = [run for run in runs if run.reader == name and not run.dropped]
        best = max(whole, key=lambda run: run.rate, default=None)
        told = "at no rate" if best is None else f"up to {best.rate:,.0f} packets/s, at {100 * best.cpu:.1f}% of a core"
        print(f"{name}: without loss {told}")
    print(f"the generator has reached {reached:,.0f} packets/s; the goal is {_GOAL:,} without loss")
    light = [run.rate for run in runs if run.reader == "lowmark" and run.cpu < _CPU_GOAL]
    print(f"lowmark takes less than {100 * _CPU_GOAL:.0f}% of a core up to {max(light, default=0):,.0f} packets/s")


def _by_lowmark(rate: int, seconds: float, idle: int = 0) -> _Run:
    """Ring, kernel and table of a query of addresses, in this process."""
    source = LiveSource(LiveConfig(name="near", stream="Main", interface="near"))
    nodes = SourceNodes(compile_query(_PAIRS).stage.nodes, stream="Main")
    source.start()
    nodes.start(touched=True)
    source.begin()
    generator = Generator(rate, seconds, idle)
    first = last = 0.0
    silent, began = 0, time.thread_time()
    for block in source.blocks():
        for _ in nodes.take(block):
            pass
        silent = 0 if len(block) else silent + 1
        if len(block):
            last = time.monotonic()
            first = first or last
        elif first and silent > _SILENT:
            break
    cpu = (time.thread_time() - began) / (last - first)
    source.close()
    sent, took = generator.ended()
    return _told(_Run("lowmark", sent / took, sent, source.received, nodes.dropped, cpu))


def _by_program(program: _Program, rate: int, seconds: float, idle: int = 0) -> _Run:
    reader = subprocess.Popen([program.name, *program.command], stderr=subprocess.PIPE, text=True)
    assert reader.stderr is not None
    said = ""
    while program.begun not in said:
        line = reader.stderr.readline()
        if not line:
            raise RuntimeError(f"{program.name} has ended: {said}")
        said += line
    sent, took = Generator(rate, seconds, idle).ended()
    time.sleep(1)  # what it has in its buffer is read, but it does not say when
    reader.send_signal(signal.SIGINT)
    said += reader.stderr.read()
    _, status, used = os.wait4(reader.pid, 0)
    reader.returncode = os.waitstatus_to_exitcode(status)
    received, dropped = (
        int(found[1]) if (found := pattern.search(said)) else 0 for pattern in (program.received, program.dropped)
    )
    cpu = (used.ru_utime + used.ru_stime) / took
    return _told(_Run(program.name, sent / took, sent, received, dropped, cpu))


def _main(
    seconds: Annotated[float, typer.Option(help="How long each reader is tried at each rate.")] = 5.0,
    rate: Annotated[list[int] | None, typer.Option(help="Packets a second; 0 is as fast as it goes.")] = None,
    results: Annotated[Path, typer.Option(help="Where CSV files and plots go.")] = RESULTS,
) -> None:
    describe_machine(results)
    obtain(BROKER, progress=print)  # while there is a network to fetch them from
    measure_live(results, seconds, rate or [100_000, 200_000, 400_000, 0])


if __name__ == "__main__":
    typer.run(_main)
