"""How fast a job and its peer were, on the same load: for people, as a table and as a plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench.common.processes import PARTS
from bench.common.reports import Figure, write_csv

__all__ = ["OURS", "SPARKS", "Grouping", "Load", "Speed", "print_speeds", "report_speeds"]

OURS = "lowmark run"
SPARKS = "Spark's own"


class Load(Protocol):
    """What both are given."""

    @property
    def goal(self) -> float:
        """Times as fast as Spark's own."""
        ...

    @property
    def counted(self) -> str:
        """What the speed is one of."""
        ...

    @property
    def columns(self) -> Mapping[str, object]:
        """What a table says of it."""
        ...

    @property
    def mark(self) -> str:
        """What stands below its bars."""
        ...


@dataclass(frozen=True, slots=True)
class Grouping:
    """Windows that are aggregated. Half of the panes are for warming up."""

    groups: int
    rows: int  # partial rows in each pane, half of each source
    panes: int
    held: int = 1  # panes of a window, which slides by one: 1 is a tumbling window
    having: int = 0  # result rows are those of more packets than this
    cuts: int = 1  # micro-batches in which a pane is read

    def __post_init__(self) -> None:
        if self.panes < 2:
            raise ValueError("half of the panes are for warming up: measure at least 2")

    def __str__(self) -> str:
        cuts = "" if self.cuts == 1 else f", {self.cuts} micro-batches a pane"
        return f"{self.groups} groups, {'one pane' if self.held == 1 else f'{self.held} panes'} a window{cuts}"

    @property
    def window(self) -> str:
        return "1 minute" if self.held == 1 else f"{self.held} minutes, SLIDE 1 minute"

    @property
    def goal(self) -> float:
        """DESIGN of the job: from 260,000 groups on, and below."""
        return 3.0 if self.groups >= 260_000 else 2.0

    @property
    def counted(self) -> str:
        return "rows"

    @property
    def columns(self) -> Mapping[str, object]:
        return {"groups": self.groups, "panes_a_window": self.held, "having_over": self.having, "cuts": self.cuts}

    @property
    def mark(self) -> str:
        return f"{self.groups} groups\n{self.held} a window"


@dataclass(frozen=True, slots=True)
class Speed:
    """Over the batches after the warm-up."""

    contender: str
    load: Load
    count: int  # of what counts
    wall_s: float
    cpu_parts: dict[str, float]  # seconds
    state: int  # bytes of state written a batch: of the changes that the state store keeps
    batches: tuple[tuple[int, float], ...]  # what counts and seconds of each, warm-up included but for the first

    @property
    def cpu_s(self) -> float:
        return sum(self.cpu_parts.values())

    @property
    def per_s(self) -> float:
        return self.count / self.wall_s

    @property
    def per_cpu_s(self) -> float:
        return self.count / self.cpu_s


def print_speeds(ours: Speed, theirs: Speed) -> None:
    ratio, cpu_ratio = ours.per_s / theirs.per_s, ours.per_cpu_s / theirs.per_cpu_s
    for speed in (ours, theirs):
        parts = ", ".join(f"{part} {seconds:.1f}" for part, seconds in speed.cpu_parts.items())
        counted = speed.load.counted
        print(
            f"  {speed.contender:12} {speed.per_s / 1e6:6.3f} M {counted}/s, {speed.per_cpu_s / 1e6:6.3f} M "
            f"{counted}/CPU-s, CPU seconds: {parts}; state written {speed.state / 1e6:.1f} MB a batch",
            flush=True,
        )
    reached = "reached" if ratio >= ours.load.goal else "missed"
    print(
        f"  lowmark is {ratio:.2f} times as fast, {cpu_ratio:.2f} times by CPU time; goal {ours.load.goal:.0f} times: "
        f"{reached}; writes {ours.state / max(1, theirs.state):.2f} times as much state",
        flush=True,
    )


def report_speeds(results: Path, name: str, speeds: Sequence[Speed], title: str) -> None:
    load = speeds[0].load
    header = (
        "contender", *load.columns, load.counted, "wall_s", *(f"cpu_s_{part}" for part in PARTS),
        f"{load.counted}_per_s", f"{load.counted}_per_cpu_s", "state_bytes_a_batch", "batches",
    )  # fmt: skip
    rows = [
        (
            speed.contender, *speed.load.columns.values(), speed.count, speed.wall_s,
            *(speed.cpu_parts[part] for part in PARTS), speed.per_s, speed.per_cpu_s, speed.state,
            " ".join(f"{batch}/{seconds:.2f}s" for batch, seconds in speed.batches),
        )
        for speed in speeds
    ]  # fmt: skip
    write_csv(results, name, header, rows)
    with Figure(results, name, title) as axes:
        for offset, contender in ((-0.2, OURS), (0.2, SPARKS)):
            of = [speed for speed in speeds if speed.contender == contender]
            places = [place + offset for place in range(len(of))]
            bars = axes.bar(places, [speed.per_s / 1e6 for speed in of], 0.4, label=contender)
            axes.bar_label(bars, fmt="%.2f")
        loads = list(dict.fromkeys(speed.load for speed in speeds))
        axes.set_xticks(range(len(loads)), [load.mark for load in loads])
        axes.set_ylabel(f"million {load.counted} per second")
        axes.legend()
