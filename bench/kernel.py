"""`python -m bench.kernel`: nanoseconds a packet of the generated kernel, against the same algorithm by hand in C.

host/kernel.c is compiled with `cc -O3 -march=native`; before anything is timed both have to put out the same rows in
the same order. Repetitions are interleaved and the least CPU time of each counts. The figures and a plot go to
bench/results; bench/README.md says what they show.
"""

from __future__ import annotations

import ctypes
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from bench.common.frames import MINUTE_NS, START_NS, Traffic, blocks_of, records_of
from bench.common.reports import RESULTS, Figure, describe_machine, write_csv
from bench.host.collisions import contenders
from bench.host.handmade_kernel import HandMade, compiled_library, differences
from lowlevel.config import Flush, FlushOrder, LowLevelConfig
from lowlevel.node import SourceNodes
from lowmark.query.compile import compile_query
from lowmark.query.plan.nodes import Node
from lowmark.wire.frames import FrameBlock

__all__ = ["generated", "nodes_of", "packets_of", "timed"]

_BLOCK = 32_768
_SLOTS = 1 << 20
_GOAL = 0.85
_COMPARED = 150_000  # packets of which both have to put out the same

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


_MODES = {
    "slow": LowLevelConfig(slots=_SLOTS),
    "slow, i = 160": LowLevelConfig(slots=_SLOTS, flush_every=160),
    "lazy": LowLevelConfig(slots=_SLOTS, flush=Flush.LAZY),
    "full": LowLevelConfig(slots=_SLOTS, flush=Flush.FULL),
    "in order": LowLevelConfig(slots=_SLOTS, order=FlushOrder.PRESERVED, flush_every=1),
}


@dataclass(frozen=True, slots=True)
class _Case:
    traffic: Traffic
    mode: str
    queries: int  # 1 or 10

    @property
    def config(self) -> LowLevelConfig:
        return _MODES[self.mode]

    @property
    def nodes(self) -> list[Node]:
        return nodes_of(_TEN[: self.queries])


@dataclass(frozen=True, slots=True)
class _Figure:
    case: _Case
    lowmark_ns: float
    c_ns: float

    @property
    def ratio(self) -> float:
        return self.c_ns / self.lowmark_ns


def _cases(groups: Sequence[int], quick: bool) -> list[_Case]:
    """Those of the middle number of groups alone where it has to be quick."""
    middle = groups[len(groups) // 2]
    found = [
        _Case(Traffic(count, zipf, version), mode, queries)
        for queries in (1, 10)
        for version in (4, 6)
        for count in groups
        for zipf in (False, True)
        for mode in _MODES
        if queries == 1 or mode != "in order"
    ]
    if not quick:
        return found
    plain = Traffic(middle, False, 4)
    return [case for case in found if case.traffic == plain or (case.traffic.groups == middle and case.mode == "slow")]


def packets_of(traffic: Traffic, packets: int) -> list[FrameBlock]:
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


def nodes_of(queries: Sequence[str]) -> list[Node]:
    plans = [compile_query(sql, name=f"q{place}", streams={"Main": 1}, buckets=1) for place, sql in enumerate(queries)]
    return [replace(node, name=f"{place}.{node.name}") for place, plan in enumerate(plans) for node in plan.stage.nodes]


_Taking = Callable[[FrameBlock], None]


def timed(takers: Mapping[str, tuple[_Taking, Sequence[FrameBlock]]], repeat: int) -> dict[str, float]:
    """The least CPU nanoseconds a packet of each. The first repetition warms up."""
    least = dict.fromkeys(takers, float("inf"))
    for repetition in range(repeat + 1):
        for name, (take, blocks) in takers.items():
            now = _later(blocks, repetition)
            begun = time.thread_time_ns()
            for block in now:
                take(block)
            if repetition:
                least[name] = min(least[name], (time.thread_time_ns() - begun) / sum(map(len, blocks)))
    return least


def _taking(nodes: SourceNodes) -> _Taking:
    def take(block: FrameBlock) -> None:
        for _output in nodes.take(block):
            pass

    return take


def generated(nodes: Sequence[Node], config: LowLevelConfig) -> _Taking:
    made = SourceNodes(nodes, stream="Main", config=config)
    made.start()
    return _taking(made)


def measure_kernel(results: Path, packets: int, groups: Sequence[int], repeat: int, quick: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="lowmark-bench-") as folder:
        library = compiled_library(Path(folder))
        figures = []
        for figure in _against_c(library, _cases(groups, quick), packets, repeat):
            case = figure.case
            print(f"{case.queries:2} {case.traffic.name:20} {case.mode:14} {figure.lowmark_ns:6.1f} ns, C "
                  f"{figure.c_ns:6.1f}: {figure.ratio:.2f}", flush=True)  # fmt: skip
            figures.append(figure)
    rows = [(of.case.queries, of.case.traffic.name, of.case.mode, of.lowmark_ns, of.c_ns, of.ratio) for of in figures]
    write_csv(results, "kernel", ("queries", "packets", "flush", "lowmark_ns", "c_ns", "ratio"), rows)
    _plot(results, figures)
    _measure_apart(results, packets_of(Traffic(groups[len(groups) // 2]), packets), repeat)
    _measure_colliding(results, packets, repeat)


def _against_c(library: ctypes.CDLL, cases: Sequence[_Case], packets: int, repeat: int) -> Iterator[_Figure]:
    for case in cases:
        blocks, nodes = packets_of(case.traffic, packets), case.nodes
        few = packets_of(case.traffic, min(packets, _COMPARED))
        # Room for all that leaves at once: where it has to wait for room, it is at another packet.
        said = differences(library, nodes, replace(case.config, output_rows=_SLOTS), [*few, *_later(few, 1)])
        if said:
            raise SystemExit(f"{case}: not the same is put out: {'; '.join(said)}")
        by_hand = HandMade(library, nodes, case.config)
        least = timed({"lowmark": (generated(nodes, case.config), blocks), "C": (by_hand.take, blocks)}, repeat)
        yield _Figure(case, least["lowmark"], least["C"])


def _measure_apart(results: Path, blocks: Sequence[FrameBlock], repeat: int) -> None:
    """Ten queries in one kernel, against a kernel for each."""
    config = _MODES["slow"]
    found = {"all": (generated(nodes_of(_TEN), config), blocks)}
    found |= {f"query {place}": (generated(nodes_of([sql]), config), blocks) for place, sql in enumerate(_TEN, 1)}
    least = timed(found, repeat)
    apart = sum(least.values()) - least["all"]
    print(f"ten queries in one kernel {least['all']:.1f} ns, in one each {apart:.1f} ns, the first alone "
          f"{least['query 1']:.1f} ns")  # fmt: skip
    write_csv(results, "kernel-queries", ("queries", "ns"), list(least.items()))


def _measure_colliding(results: Path, packets: int, repeat: int) -> None:
    """Packets of somebody who knows the seed, against the speed at which every packet evicts another group."""
    least = timed({name: (_taking(nodes), blocks) for name, (nodes, blocks) in contenders(packets, _BLOCK).items()},
                   repeat)  # fmt: skip
    ratio = least["colliding"] / least["two slots"]
    print(f"packets that all collide {least['colliding']:.1f} ns, any in a table of two slots {least['two slots']:.1f}"
          f": {ratio:.2f} times; any in the large one {least['spread']:.1f}")  # fmt: skip
    write_csv(results, "kernel-colliding", ("packets", "ns"), list(least.items()))


def _plot(results: Path, figures: Sequence[_Figure]) -> None:
    """By mode, a point for each kind of packets."""
    modes = list(_MODES)
    with Figure(results, "kernel", "The generated kernel against C") as axes:
        for queries, marker, shift in ((1, "o", -0.1), (10, "s", 0.1)):
            some = [of for of in figures if of.case.queries == queries]
            places = [modes.index(of.case.mode) + shift for of in some]
            label = "1 query" if queries == 1 else "10 queries"
            axes.plot(places, [of.ratio for of in some], marker, markersize=4, label=label)
        axes.axhline(_GOAL, color="black", linestyle="--")
        axes.set_xticks(range(len(modes)), modes)
        axes.set_ylabel("time of C / time of the kernel (dashed: the goal)")
        axes.legend()


def _main(
    packets: Annotated[int, typer.Option(help="Packets of a repetition.")] = 1_000_000,
    groups: Annotated[list[int] | None, typer.Option(help="Numbers of groups (repeatable).")] = None,
    repeat: Annotated[int, typer.Option(help="Repetitions; the least counts.")] = 5,
    quick: Annotated[bool, typer.Option("--quick", help="The middle number of groups, and each mode once.")] = False,
    results: Annotated[Path, typer.Option(help="Where CSV files and plots go.")] = RESULTS,
) -> None:
    describe_machine(results)
    measure_kernel(results, packets, groups or [66_000, 260_000, 520_000], repeat, quick)


if __name__ == "__main__":
    typer.run(_main)
