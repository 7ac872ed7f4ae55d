"""`python -m bench.kernel`: nanoseconds a packet of the generated kernel, against the same algorithm by hand in C.

bench/kernel.c is compiled with `cc -O3 -march=native`. Repetitions are interleaved and the least CPU time of each
counts. The figures and a plot go to bench/results; bench/README.md says what they show.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from bench.frames import MINUTE_NS, START_NS, Traffic, blocks_of, records_of
from bench.reports import RESULTS, Figure, describe_machine, write_csv
from lowlevel.config import Flush, LowLevelConfig, Order
from lowlevel.node import SourceNodes
from lowmark.query.compile import compile_query
from lowmark.query.plan import Node
from lowmark.wire.frames import FrameBlock

_BLOCK = 32_768
_SLOTS = 1 << 20
_ROOM = 8192
_GOAL = 0.85

_PAIRS = "SELECT srcIP, destIP, count(*), sum(len) [RANGE 1 minute] FROM Main GROUP BY srcIP, destIP"
_TEN = (
    _PAIRS,
    "SELECT srcIP, count(*) [RANGE 1 minute] FROM Main GROUP BY srcIP",
    "SELECT destIP, sum(len) [RANGE 1 minute] FROM Main WHERE proto = 17 GROUP BY destIP",
    "SELECT destPort, count(*), sum(len) [RANGE 10 s] FROM Main GROUP BY destPort",
    "SELECT proto, count(*), max(len) [RANGE 1 s] FROM Main GROUP BY proto",
    "SELECT prefix(srcIP, 24), count(*) [RANGE 1 minute] FROM Main GROUP BY prefix(srcIP, 24)",
    "SELECT vlan, sum(payload_len) [RANGE 1 minute] FROM Main GROUP BY vlan",
    "SELECT count(*), sum(len), min(ttl) [RANGE 1 s] FROM Main",
    "SELECT srcIP, count(*) [RANGE 1 minute] FROM Main WHERE tcp_flags & 18 = 2 GROUP BY srcIP",
    "SELECT ip_version, fragment, count(*) [RANGE 1 minute] FROM Main GROUP BY ip_version, fragment",
)


@dataclass(frozen=True, slots=True)
class _Case:
    traffic: Traffic
    mode: str = "slow"

    @property
    def config(self) -> LowLevelConfig:
        if self.mode == "in order":
            return LowLevelConfig(slots=_SLOTS, order=Order.PRESERVED, flush_every=1)
        if self.mode == "slow, i = 160":
            return LowLevelConfig(slots=_SLOTS, flush_every=160)
        return LowLevelConfig(slots=_SLOTS, flush=Flush(self.mode))


class _State(ctypes.Structure):
    """`state` of kernel.c."""

    _fields_ = (
        ("table", ctypes.c_void_p), ("slots", ctypes.c_uint64), ("ring", ctypes.c_void_p), ("head", ctypes.c_uint64),
        ("length", ctypes.c_uint64), ("panes", ctypes.c_int64 * 512), ("open", ctypes.c_int64),
        ("due", ctypes.c_int64), ("open_until", ctypes.c_int64), ("out", ctypes.c_void_p), ("room", ctypes.c_uint64),
        ("put", ctypes.c_uint64), ("evicted", ctypes.c_uint64), ("straight", ctypes.c_uint64),
        ("flushed", ctypes.c_uint64), ("decoded", ctypes.c_uint64), ("skipped", ctypes.c_uint64),
        ("late", ctypes.c_uint64), ("secrets", ctypes.c_uint64 * 16),
    )  # fmt: skip


class _InC:
    """The kernel in C, with tables of its own."""

    def __init__(self, library: Path) -> None:
        self._run = ctypes.CDLL(str(library)).run
        self._run.restype = None
        raw = np.zeros(8 * _SLOTS + 8, np.uint64)
        start = -raw.ctypes.data % 64 // 8
        self._kept = (raw, np.zeros(_SLOTS, np.uint32), np.zeros((_ROOM, 8), np.uint64))
        rng = np.random.default_rng(7)
        self._state = _State(table=raw[start:].ctypes.data, slots=_SLOTS, ring=self._kept[1].ctypes.data)
        self._state.out, self._state.room = self._kept[2].ctypes.data, _ROOM
        self._state.open = self._state.due = self._state.open_until = -(2**62)
        self._state.secrets = (ctypes.c_uint64 * 16)(*(int(word) for word in rng.integers(0, 2**63, 16)))

    def take(self, block: FrameBlock) -> None:
        columns = (block.data, block.offset, block.captured, block.length, block.ts, block.link, block.low)
        pointers = (ctypes.c_void_p(column.ctypes.data) for column in columns)
        self._run(ctypes.byref(self._state), *pointers, ctypes.c_int64(len(block)), ctypes.c_int64(MINUTE_NS))


def _blocks(traffic: Traffic, packets: int) -> list[FrameBlock]:
    """A minute and a half of packets, in order."""
    times = START_NS + np.arange(packets, dtype=np.int64) * (3 * MINUTE_NS // 2 // packets)
    return list(blocks_of(records_of(traffic, packets), times, _BLOCK))


def _later(blocks: Sequence[FrameBlock], repetition: int) -> list[FrameBlock]:
    """The same packets, as they come after those of the repetitions before."""
    shift = repetition * 2 * MINUTE_NS
    return [
        replace(block, ts=block.ts + shift, low=block.low + shift, low_after=block.low_after + shift)
        for block in blocks
    ]


def _nodes(queries: Sequence[str], config: LowLevelConfig) -> SourceNodes:
    plans = [compile_query(sql, name=f"q{place}", streams={"Main": 1}, buckets=1) for place, sql in enumerate(queries)]
    nodes: list[Node] = [
        replace(node, name=f"{place}.{node.name}") for place, plan in enumerate(plans) for node in plan.stage.nodes
    ]
    made = SourceNodes(nodes, stream="Main", config=config)
    made.start()
    return made


def _timed(
    blocks: Sequence[FrameBlock], contenders: Mapping[str, Callable[[FrameBlock], None]], repeat: int
) -> dict[str, float]:
    """The least CPU nanoseconds a packet of each. The first repetition warms up."""
    packets = sum(map(len, blocks))
    least = dict.fromkeys(contenders, float("inf"))
    for repetition in range(repeat + 1):
        now = _later(blocks, repetition)
        for name, take in contenders.items():
            begun = time.thread_time_ns()
            for block in now:
                take(block)
            if repetition:
                least[name] = min(least[name], (time.thread_time_ns() - begun) / packets)
    return least


def _taking(nodes: SourceNodes) -> Callable[[FrameBlock], None]:
    def take(block: FrameBlock) -> None:
        for _output in nodes.take(block):
            pass

    return take


def measure_kernel(results: Path, packets: int, groups: Sequence[int], repeat: int) -> None:
    cases = [_Case(Traffic(count, zipf, version)) for version in (4, 6) for count in groups for zipf in (False, True)]
    middle = Traffic(groups[len(groups) // 2], False, 4)
    cases += [_Case(middle, mode) for mode in ("slow, i = 160", "lazy", "full", "in order")]
    rows: list[tuple[str, str, float, float, float]] = []
    with tempfile.TemporaryDirectory(prefix="lowmark-bench-") as folder:
        library = Path(folder) / "kernel.so"
        source = Path(__file__).with_suffix(".c")
        subprocess.run(["cc", "-O3", "-march=native", "-shared", "-fPIC", source, "-o", library], check=True)
        for case in cases:
            blocks = _blocks(case.traffic, packets)
            nodes = _nodes([_PAIRS], case.config)
            least = _timed(blocks, {"lowmark": _taking(nodes), "C": _InC(library).take}, repeat)
            rows.append((case.traffic.name, case.mode, least["lowmark"], least["C"], least["C"] / least["lowmark"]))
            print(
                f"{case.traffic.name:20} {case.mode:14} {rows[-1][2]:6.1f} ns, C {rows[-1][3]:6.1f}: {rows[-1][4]:.2f}"
            )
    write_csv(results, "kernel", ("packets", "flush", "lowmark_ns", "c_ns", "ratio"), rows)
    _plot(results, rows)
    _measure_ten(results, _blocks(middle, packets), repeat)


def _measure_ten(results: Path, blocks: Sequence[FrameBlock], repeat: int) -> None:
    """Ten queries in one kernel, against a kernel for each."""
    config = LowLevelConfig(slots=_SLOTS)
    contenders = {"all": _taking(_nodes(_TEN, config))}
    contenders |= {f"query {place}": _taking(_nodes([sql], config)) for place, sql in enumerate(_TEN, 1)}
    least = _timed(blocks, contenders, repeat)
    apart = sum(least.values()) - least["all"]
    print(f"ten queries in one kernel {least['all']:.1f} ns, in one each {apart:.1f} ns, the first alone "
          f"{least['query 1']:.1f} ns")  # fmt: skip
    write_csv(results, "kernel-queries", ("queries", "ns"), list(least.items()))


def _plot(results: Path, rows: Sequence[tuple[str, str, float, float, float]]) -> None:
    names = [name if mode == "slow" else f"{name}, {mode}" for name, mode, *_ in rows]
    with Figure(results, "kernel", "The generated kernel against C") as axes:
        axes.barh(names, [ratio for *_, ratio in rows])
        axes.axvline(_GOAL, color="black", linestyle="--")
        axes.invert_yaxis()
        axes.tick_params(labelsize=7)
        axes.set_xlabel("time of C / time of the kernel (dashed: the goal)")


def _main(
    packets: Annotated[int, typer.Option(help="Packets of a repetition.")] = 1_000_000,
    groups: Annotated[list[int] | None, typer.Option(help="Numbers of groups (repeatable).")] = None,
    repeat: Annotated[int, typer.Option(help="Repetitions; the least counts.")] = 5,
    results: Annotated[Path, typer.Option(help="Where CSV files and plots go.")] = RESULTS,
) -> None:
    describe_machine(results)
    measure_kernel(results, packets, groups or [66_000, 260_000, 520_000], repeat)


if __name__ == "__main__":
    typer.run(_main)
