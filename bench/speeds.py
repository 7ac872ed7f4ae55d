"""How fast a job and its peer were, on the same load: for people, as a table and as a plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.processes import PARTS
from bench.reports import Figure, write_csv

__all__ = ["OURS", "SPARKS", "Load", "Speed", "print_speeds", "report_speeds"]

OURS = "lowmark run"
SPARKS = "Spark's own"


@dataclass(frozen=True, slots=True)
class Load:
    """What both are given. Half of the panes are for warming up."""

    groups: int
    rows: int  # partial rows in each pane, half of each source
    panes: int
    held: int = 1  # panes of a window, which slides by one: 1 is a tumbling window

    def __post_init__(self) -> None:
        if self.panes < 2:
            raise ValueError("half of the panes are for warming up: measure at least 2")

    def __str__(self) -> str:
        return f"{self.groups} groups, {'one pane' if self.held == 1 else f'{self.held} panes'} a window"

    @property
    def window(self) -> str:
        return "1 minute" if self.held == 1 else f"{self.held} minutes, SLIDE 1 minute"

    @property
    def goal(self) -> float:
        """Times as fast as Spark's own (DESIGN of the job: from 260,000 groups on, and below)."""
        return 3.0 if self.groups >= 260_000 else 2.0


@dataclass(frozen=True, slots=True)
class Speed:
    """Over the batches after the warm-up."""

    contender: str
    load: Load
    rows: int
    wall_s: float
    cpu_parts: dict[str, float]  # seconds
    state: int  # bytes of state written a batch: of the changes that the state store keeps
    batches: tuple[tuple[int, float], ...]  # rows and seconds of each, warm-up included but for the first

    @property
    def cpu_s(self) -> float:
        return sum(self.cpu_parts.values())

    @property
    def per_s(self) -> float:
        return self.rows / self.wall_s

    @property
    def per_cpu_s(self) -> float:
        return self.rows / self.cpu_s


def print_speeds(ours: Speed, theirs: Speed) -> None:
    ratio, cpu_ratio = ours.per_s / theirs.per_s, ours.per_cpu_s / theirs.per_cpu_s
    for speed in (ours, theirs):
        parts = ", ".join(f"{part} {seconds:.1f}" for part, seconds in speed.cpu_parts.items())
        print(
            f"  {speed.contender:12} {speed.per_s / 1e6:6.3f} M rows/s, {speed.per_cpu_s / 1e6:6.3f} M rows/CPU-s, "
            f"CPU seconds: {parts}; state written {speed.state / 1e6:.1f} MB a batch"
        )
    reached = "reached" if ratio >= ours.load.goal else "missed"
    print(
        f"  lowmark is {ratio:.2f} times as fast, {cpu_ratio:.2f} times by CPU time; goal {ours.load.goal:.0f} times: "
        f"{reached}; writes {ours.state / max(1, theirs.state):.2f} times as much state"
    )


def report_speeds(results: Path, name: str, speeds: Sequence[Speed], having: int) -> None:
    header = (
        "contender", "groups", "panes_a_window", "having_over", "rows", "wall_s", *(f"cpu_s_{part}" for part in PARTS),
        "rows_per_s",
        "rows_per_cpu_s", "state_bytes_a_batch", "batches",
    )  # fmt: skip
    rows = [
        (
            speed.contender, speed.load.groups, speed.load.held, having, speed.rows, speed.wall_s,
            *(speed.cpu_parts[part] for part in PARTS), speed.per_s, speed.per_cpu_s, speed.state,
            " ".join(f"{batch}/{seconds:.2f}s" for batch, seconds in speed.batches),
        )
        for speed in speeds
    ]  # fmt: skip
    write_csv(results, name, header, rows)
    output = f"rows of more than {having} packets out" if having else "all rows out"
    with Figure(results, name, f"Partial rows merged a second, {output}") as axes:
        for offset, contender in ((-0.2, OURS), (0.2, SPARKS)):
            of = [speed for speed in speeds if speed.contender == contender]
            places = [place + offset for place in range(len(of))]
            bars = axes.bar(places, [speed.per_s / 1e6 for speed in of], 0.4, label=contender)
            axes.bar_label(bars, fmt="%.2f")
        loads = list(dict.fromkeys(speed.load for speed in speeds))
        axes.set_xticks(range(len(loads)), [f"{load.groups} groups\n{load.held} a window" for load in loads])
        axes.set_ylabel("million rows per second")
        axes.legend()
