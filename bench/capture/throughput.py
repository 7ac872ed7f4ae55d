"""Fig. 8-7: the highest rate without loss of nodes that keep order (IOP) and that do not (OOP), by number of groups.

The node runs for real over frames in memory, and each block's CPU time is noted; a ring of packets in front of it is
simulated from these times.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.capture.ring_model import largest_ring, loss_free_rate
from bench.capture.service_times import Node, Served
from bench.common.reports import Figure, spread, write_csv
from lowlevel.config import Flush, FlushOrder, LowLevelConfig

__all__ = ["measure_throughput"]

_TABLES = (0.5, 1.0, 2.0)  # slots for each group
_SMALL, _LARGE = 256, 2048  # packets of a block; a ring has room for four
_GOAL, _GOAL_GROUPS, _LIKE = 2.5, 1 << 19, 0.1
_MOST_RING = 1 << 22
_IOP, _LAZY, _SLOW = "IOP", "OOP", "OOP (sf)"
_MARKS = {0.5: ":", 1.0: "--", 2.0: "-"}
_COLOURS = {_IOP: "C3", _LAZY: "C0", _SLOW: "C2"}


@dataclass(frozen=True, slots=True)
class _Case:
    groups: int
    table: float
    mode: str

    @property
    def config(self) -> LowLevelConfig:
        """As Li 8.4.1 sets them: i = 160, m = 2, and IOP flushes one partial with each packet."""
        slots = int(self.groups * self.table)
        if self.mode == _IOP:
            return LowLevelConfig(slots=slots, order=FlushOrder.PRESERVED, flush_every=1)
        if self.mode == _LAZY:
            return LowLevelConfig(slots=slots, flush=Flush.LAZY)
        return LowLevelConfig(slots=slots, flush_every=160)


@dataclass(frozen=True, slots=True)
class _Seen:
    """Of one case: runs by the packets of a block."""

    runs: Mapping[int, Sequence[Served]]

    def best(self, ring: int) -> Served:
        """The run that was disturbed least, as this ring shows it."""
        runs = self.runs[_LARGE if ring >= 4 * _LARGE else _SMALL]
        return max(runs, key=lambda served: loss_free_rate(served.service, ring))

    def rate(self, ring: int) -> float:
        return loss_free_rate(self.best(ring).service, ring)

    @property
    def stall_ms(self) -> float:
        """The longest time that a block took, in the best run."""
        return min(served.service.longest_ns for served in self.runs[_LARGE]) / 1e6


def measure_throughput(results: Path, *, groups: Sequence[int], rings: Sequence[int], repeat: int) -> None:
    """`groups` are powers of two, since tables of half, once and twice as many slots are."""
    seen: dict[_Case, _Seen] = {}
    for count in groups:
        if count & (count - 1) or count < 4 * _LARGE:
            raise ValueError(f"{count} groups: a power of two is needed, from {4 * _LARGE} on")
        cases = [_Case(count, table, mode) for table in _TABLES for mode in (_IOP, _LAZY, _SLOW)]
        runs: dict[_Case, dict[int, list[Served]]] = {case: {_SMALL: [], _LARGE: []} for case in cases}
        with tempfile.TemporaryDirectory(prefix="lowmark-bench-") as name:
            node = Node(Path(name) / "node", count)
            for _ in range(repeat):
                for case in cases:
                    for block, served in runs[case].items():
                        if block == _LARGE or min(rings) < 4 * _LARGE:
                            served.append(node.serve(case.config, block))
        for case in cases:
            seen[case] = _Seen(runs[case])
            rates = ", ".join(f"{seen[case].rate(ring) / 1e6:6.2f}" for ring in rings)
            of = seen[case].runs[_LARGE][0]
            print(
                f"{count:9,} groups, table x {case.table:3}, {case.mode:8}: {rates} M packets/s; longest stall "
                f"{seen[case].stall_ms:7.2f} ms, {of.mean_ns:4.0f} ns a packet, {of.evicted:.2f} rows evicted a packet",
                flush=True,
            )
    _report(results, seen, rings)


def _report(results: Path, seen: Mapping[_Case, _Seen], rings: Sequence[int]) -> None:
    ratios = {
        (case.groups, case.table, ring): (min(_others(seen, case, ring)) / max(1e-9, of.rate(ring)))
        for case, of in seen.items()
        if case.mode == _IOP
        for ring in rings
    }
    rows = [
        (case.groups, case.table, case.mode, ring, of.rate(ring), of.stall_ms, of.best(ring).mean_ns,
         of.best(ring).evicted, ratios[case.groups, case.table, ring])
        for case, of in seen.items() for ring in rings
    ]  # fmt: skip
    header = ("groups", "slots_per_group", "mode", "ring_packets", "packets_per_s", "longest_stall_ms",
              "mean_ns_per_packet", "evicted_per_packet", "oop_to_iop")  # fmt: skip
    write_csv(results, "fig_8_7", header, rows)
    shown = _GOAL_GROUPS if any(case.groups == _GOAL_GROUPS for case in seen) else max(case.groups for case in seen)
    for table in _TABLES:
        _tell(seen, shown, table, rings, ratios)
    ring = max((ring for ring in rings if min(ratios[shown, t, ring] for t in _TABLES) > 1), default=max(rings))
    _plot(results, seen, ring)
    most = ", ".join(f"{spread(ratios[shown, table, ring] for ring in rings)} (x {table:g})" for table in _TABLES)
    ours = f"OOP sustains so many times IOP's rate, over rings of {min(rings):,} to {max(rings):,}: {most}"
    title = f"OOP's loss-free rate as a multiple of IOP's, {shown:,} groups"
    with Figure(results, "fig_8_7-rings", title, ours) as axes:
        for table in _TABLES:
            points = [ratios[shown, table, ring] for ring in rings]
            axes.plot(rings, points, _MARKS[table], marker="o", color="black", label=f"table of {table:g} x the groups")
        axes.axhline(_GOAL, color="gray", linewidth=0.8)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel(f"packets that the ring holds (grey: the goal, {_GOAL:g})")
        axes.legend()


def _others(seen: Mapping[_Case, _Seen], case: _Case, ring: int) -> list[float]:
    return [seen[_Case(case.groups, case.table, mode)].rate(ring) for mode in (_LAZY, _SLOW)]


def _tell(
    seen: Mapping[_Case, _Seen], groups: int, table: float, rings: Sequence[int],
    ratios: Mapping[tuple[int, float, int], float],
) -> None:  # fmt: skip
    iop, lazy, slow = (seen[_Case(groups, table, mode)] for mode in (_IOP, _LAZY, _SLOW))
    told = ", ".join(f"{ratios[groups, table, ring]:.2f} at {ring:,}" for ring in rings)
    print(f"{groups:,} groups, table x {table:g}: OOP takes so many times IOP's rate, by packets of the ring: {told}")
    losing = [ring for ring in rings if ratios[groups, table, ring] > 1]
    if losing:
        ratio = ratios[groups, table, max(losing)]
        verdict = "reached" if ratio >= _GOAL else "missed"
        print(f"    the largest of them with which IOP loses what OOP does not: {max(losing):,} packets, "
              f"{ratio:.2f} times (goal {_GOAL:g}: {verdict})")  # fmt: skip
    up_to = min(
        largest_ring(of.best(max(rings)).service, iop.best(max(rings)).service, _GOAL, _MOST_RING)
        for of in (lazy, slow)
    )
    print(f"    {_GOAL:g} times or more with rings of up to {up_to:,} packets")
    apart = max(abs(lazy.rate(ring) / slow.rate(ring) - 1) for ring in rings)
    print(f"    lazy and slow are {100 * apart:.0f}% apart at most (goal {100 * _LIKE:.0f}%)")


def _plot(results: Path, seen: Mapping[_Case, _Seen], ring: int) -> None:
    told = []
    for groups in dict.fromkeys(case.groups for case in seen):
        iop, lazy, slow = (seen[_Case(groups, _TABLES[-1], mode)].rate(ring) / 1e6 for mode in (_IOP, _LAZY, _SLOW))
        told.append(f"at {groups:,} groups {lazy:.3g}, {slow:.3g} and {iop:.3g}")
    ours = f"million packets a second, lazy, slow and IOP, tables of twice the groups: {'; '.join(told)}"
    title = f"Q8-1: packets a second without loss, a ring of {ring:,} (after fig. 8-7)"
    with Figure(results, "fig_8_7", title, ours) as axes:
        for table in _TABLES:
            for mode in (_IOP, _LAZY, _SLOW):
                points = [
                    (case.groups, of.rate(ring) / 1e6)
                    for case, of in seen.items()
                    if (case.table, case.mode) == (table, mode)
                ]
                label = f"{mode}-{table:g}"
                axes.plot(*zip(*points, strict=True), _MARKS[table], marker="o", color=_COLOURS[mode], label=label)
        axes.set_xscale("log", base=2)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("groups")
        axes.set_ylabel("million packets a second")
        axes.legend(fontsize=7)
