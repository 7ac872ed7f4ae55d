"""`python -m bench.day`: what a bucket keeps after a day of traffic is what it kept after an hour.

A day of packet time goes through the operators and the driver of one bucket, a minute at a time, for each kind of
window; state is written every ten minutes, and read again every hour by a driver that knows nothing else. Hosts are
always the same ones: a landmark window and partitions (PA) grow with every new key, which is theirs to do, unless idle
ones are let go of. Source ports are of ten minutes each.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from bench.common.reports import RESULTS, Figure, describe_machine, write_csv
from highlevel.progress.driver import BucketDriver
from highlevel.progress.outputs import ResultRows
from highlevel.progress.records import Arrival, Batch, Record
from highlevel.rosters.roster import Roster
from highlevel.state import MemoryByteStore, PiecewiseState
from lowlevel.node import NodeOutput, NodeProgress
from lowlevel.outbox import Outbox, Rows
from lowmark.query.compile import compile_query
from lowmark.query.options import Limits
from lowmark.query.plan.nodes import QueryPlan
from lowmark.wire.records.partials import Origin
from lowmark.wire.records.punctuations import Ending
from lowmark.wire.records.verdicts import Complete, Reason
from lowmark.wire.rows.schema import Schema
from lowmark.wire.rows.words import Words
from tests.acceptance.bucketrun import FIELDS, reduced

__all__ = ["IDLE_NS", "KINDS", "Sample", "day", "most", "simulate"]

KINDS: Mapping[str, str] = {
    "tumbling": "SELECT srcIP, count(*), sum(len) [RANGE 1 minute] FROM A GROUP BY srcIP",
    "sliding": "SELECT srcIP, count(*), max(len) [RANGE 10 minutes, SLIDE 1 minute] FROM A GROUP BY srcIP",
    "sketches": "SELECT proto, approx_count_distinct(srcIP, destIP) AS pairs [RANGE 10 minutes, SLIDE 1 minute] FROM A "
    "GROUP BY proto",
    "distinct": "SELECT proto, count(distinct srcPort) AS ports [RANGE 10 minutes, SLIDE 1 minute] FROM A "
    "GROUP BY proto",
    "landmark": "SELECT srcIP, count(*), sum(len) [RANGE ALL, SLIDE 1 minute] FROM A GROUP BY srcIP",
    "rows": "SELECT count(*), sum(len) [RANGE 1000 rows, SLIDE 200 rows, WA row_num] FROM A",
    "rows by PA": "SELECT srcIP, count(*), sum(len) [RANGE 50 rows, SLIDE 10 rows, WA row_num, PA srcIP] FROM A",
    "idle PA let go": "SELECT srcPort, count(*), sum(len) [RANGE 20 rows, SLIDE 5 rows, WA row_num, PA srcPort] FROM A",
    "slide by tuple": "SELECT count(*), sum(len) [RANGE 10 minutes, RATTR ts, SLIDE 200 rows, SATTR row_num] FROM A",
    "slide by rank": "SELECT srcIP, max(len) [RANGE 10 minutes, RATTR ts, SLIDE 20 rows, SATTR rank(ts), PA srcIP] "
    "FROM A",
    "no window": "SELECT minute, srcIP, count(*) FROM A GROUP BY ts/60 AS minute, srcIP",
    "stages": "CREATE STREAM s AS SELECT srcIP, count(*) AS n [RANGE 1 minute] FROM A GROUP BY srcIP; "
    "SELECT srcIP, max(n) AS m [RANGE 10 minutes, SLIDE 2 minutes, WA window_end] FROM s GROUP BY srcIP",
    "join": "SELECT x.srcIP, count(*) [RANGE 1 minute, WA x.ts] FROM A AS x [RANGE 10 s], A AS y [RANGE 10 s] "
    "WHERE x.srcIP = y.destIP AND x.proto = y.proto GROUP BY x.srcIP",
}
"""By name a query of each kind, over the stream A of two sources."""

IDLE_NS: Mapping[str, int] = {"idle PA let go": 20 * 60 * 10**9}
"""`expire_idle` of those that declare it."""

_SOURCES = ("A-0", "A-1")
_HOSTS = 60
_START_S = 1_714_521_600  # a day's beginning
_NS = 10**9
_COMMIT_MINUTES = 10
_PORTS, _PORT_MINUTES = 20, 10
_SAMPLES = 60 // _COMMIT_MINUTES  # an hour


@dataclass(frozen=True, slots=True)
class Sample:
    """When state has just been written."""

    minute: int  # of packet time
    pieces: int
    state_bytes: int
    resident_mib: float
    rows: int  # of results so far


class _Source:
    """Packets of a host's minute: as many as chance wants at this rate, sizes and hosts as traffic has them."""

    def __init__(self, rank: int, rate: float) -> None:
        self._rank, self._rate, self._position = rank, rate, 0
        self._random = np.random.default_rng(rank)

    def minute(self, number: int, strings: tuple[str, ...]) -> Words:
        schema, count = Schema(FIELDS, strings), int(self._random.poisson(60 * self._rate))
        rows = np.zeros((count, schema.words), np.uint64)
        positions = self._position + np.arange(count)
        self._position += count
        start = (_START_S + 60 * number) * _NS
        times = np.sort(self._random.integers(start, start + 60 * _NS, count))
        numbers = {
            "ts": times, "arrival_ts": times, "row_num": positions + 1, "_position": positions,
            "_rank": np.full(count, self._rank), "proto": self._random.choice((6, 17, 1), count, p=(0.7, 0.25, 0.05)),
            "srcPort": _PORTS * (number // _PORT_MINUTES) + positions % _PORTS,
            "len": self._random.choice((60, 130, 590, 1514), count),
        }  # fmt: skip
        for name, values in numbers.items():
            rows[:, schema.offset(name)] = values.astype(np.int64).view(np.uint64)
        for name in ("srcIP", "destIP"):
            hosts = (self._random.zipf(1.3, count) % _HOSTS).astype(np.uint64)
            rows[:, schema.offset(name)] = 4
            rows[:, schema.offset(name) + 2] = np.uint64(10 << 24) + hosts
        return rows


def simulate(kind: str, *, hours: int, rate: float) -> list[Sample]:
    """`rate`: packets a second of both sources together. RuntimeError where a completion says what it should not."""
    idle_ns = IDLE_NS.get(kind)
    plan = compile_query(KINDS[kind], streams={"A": len(_SOURCES)}, buckets=1, limits=Limits(expire_idle_ns=idle_ns))
    allowed = frozenset() if idle_ns is None else frozenset({Reason.NUMBERING})
    sources = [_Source(rank, rate / len(_SOURCES)) for rank in range(len(_SOURCES))]
    outboxes = {
        (name, node.name): Outbox(node, Origin(plan.stage.fingerprint, name, 1, node.name), 1)
        for name in _SOURCES
        for node in plan.stage.nodes
    }
    store, samples, rows, position = MemoryByteStore(), [], 0, 0
    for hour in range(hours):
        state = PiecewiseState(store, plan.stage.fingerprint)
        driver = BucketDriver(plan.stage, (plan,), 0, state, Roster.of({"A": _SOURCES}), 1)
        for minute in range(60 * hour, 60 * hour + 60):
            for record in _records(plan, sources, outboxes, minute):
                driver.take(record, Arrival(position))
                position += 1
            rows += _counted(driver, allowed)
            if (minute + 1) % _COMMIT_MINUTES == 0:
                state.commit()
                samples.append(Sample(minute + 1, *_size(store), _resident_mib(), rows))
    return samples


def most(samples: Sequence[Sample]) -> tuple[int, int]:
    """Pieces and bytes."""
    return max(sample.pieces for sample in samples), max(sample.state_bytes for sample in samples)


def _records(
    plan: QueryPlan, sources: Sequence[_Source], outboxes: Mapping[tuple[str, str], Outbox], minute: int
) -> Iterator[Record]:
    """Both sources' partials of a minute, and promises as far as its panes have ended."""
    end = (_START_S + 60 * (minute + 1)) * _NS
    for source, name in zip(sources, _SOURCES, strict=True):
        packets: dict[tuple[str, ...], Words] = {}
        for node in plan.stage.nodes:
            strings, pane = node.reduction.strings, node.reduction.pane
            if strings not in packets:
                packets[strings] = source.minute(minute, strings)
            progress = NodeProgress(pane.start(pane.index(end)))
            output = NodeOutput(node.name, reduced(node, packets[strings])[0], progress)
            for _, sent in outboxes[name, node.name].take(output, Ending.NONE):
                yield Batch(sent.origin, sent.sequence, sent.rows, sent.tuples) if isinstance(sent, Rows) else sent


def _counted(driver: BucketDriver, allowed: frozenset[Reason]) -> int:
    rows = 0
    for output in driver.flush().outputs:
        if isinstance(output, ResultRows):
            rows += len(output.rows)
        elif isinstance(output, Complete) and not output.verdict.reasons <= allowed:
            raise RuntimeError(f"a window is {output.verdict}")
    return rows


def _size(store: MemoryByteStore) -> tuple[int, int]:
    return len(store.pieces), sum(map(len, store.pieces.values()))


def _resident_mib() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def day(
    only: Annotated[list[str] | None, typer.Option(help=f"Kinds: {', '.join(KINDS)}. Default: all.")] = None,
    hours: Annotated[int, typer.Option(min=2, help="Hours of packet time.")] = 24,
    rate: Annotated[float, typer.Option(help="Packets a second of packet time.")] = 2,
    results: Annotated[Path, typer.Option(help="Where CSV files and plots go.")] = RESULTS,
) -> None:
    unknown = [kind for kind in only or [] if kind not in KINDS]
    if unknown:
        raise typer.BadParameter(f"no kind {unknown[0]}; there are {', '.join(KINDS)}")
    describe_machine(results)
    simulate("tumbling", hours=1, rate=rate)  # what is loaded once is no growth
    seen = {kind: simulate(kind, hours=hours, rate=rate) for kind in only or KINDS}
    print(f"{'the most in':<16}{'first hour: pieces, KiB':>26}{'last hour: pieces, KiB':>26}{'times':>7}  process, MiB")
    for kind, samples in seen.items():
        (pieces, size), (later_pieces, later) = most(samples[:_SAMPLES]), most(samples[-_SAMPLES:])
        first, last = (f"{count:,}  {kept / 1024:>8.1f}" for count, kept in ((pieces, size), (later_pieces, later)))
        memory = f"{samples[0].resident_mib:.0f} to {samples[-1].resident_mib:.0f}"
        print(f"{kind:<16}{first:>26}{last:>26}{later / size:>7.2f}  {memory}")
    lines = [
        (kind, sample.minute, sample.pieces, sample.state_bytes, sample.resident_mib, sample.rows)
        for kind, samples in seen.items()
        for sample in samples
    ]
    write_csv(results, "day", ("kind", "minute", "pieces", "state_bytes", "resident_mib", "result_rows"), lines)
    with Figure(results, "day", "State of a bucket over a day, by kind of window") as axes:
        for kind, samples in seen.items():
            axes.plot([s.minute / 60 for s in samples], [s.state_bytes / 1024 for s in samples], label=kind)
        axes.set_xlabel("hours of packet time")
        axes.set_ylabel("KiB")
        axes.set_yscale("log")
        axes.legend(fontsize="x-small", ncols=3)


if __name__ == "__main__":
    typer.run(day)
