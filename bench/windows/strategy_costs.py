"""Which strategy is in fact the fastest, by groups of a pane and panes of a window, and which one `auto` takes.

Partials come as a bucket gets them, one a group and pane, with a promise behind each pane. *In memory* pieces of state
stay as they are, as in `lowmark query`; *stored*, a pane comes in two micro-batches, each of which reads and writes the
pieces that it needs, as in the job (but for what RocksDB takes).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from bench.common.aggregate_runs import Sink, aggregate_of, rows_of
from bench.common.reports import Figure, write_csv
from highlevel.interface import State, Words
from highlevel.operators.aggregate import AggregateOperator
from highlevel.state import MemoryByteStore, MemoryState, PiecewiseState
from lowmark.query.optimize.window_strategy import cheapest
from lowmark.query.options import Rates, Strategy
from lowmark.query.plan.nodes import Aggregate
from lowmark.query.windows.window import Axis, Window, WindowKind
from lowmark.wire.records.partials import PANE
from lowmark.wire.records.punctuations import Bound, Promise
from lowmark.wire.rows.schema import Kind

__all__ = ["GROUPS", "WINDOWS", "measure_costs"]

GROUPS = (1, 10, 100, 1_000, 10_000)
WINDOWS = ((1, 1), (2, 1), (3, 1), (5, 1), (10, 1), (30, 1), (60, 1), (3, 2), (5, 3), (12, 5), (60, 10), (3, 10))
"""Panes of a window, and of a slide."""

_CALLS = ("sum(len)", "max(len)")
_WAYS = (Strategy.PANED, Strategy.WID, Strategy.ADAPT)
_PLACES = ("in memory", "stored")
_LEAST_PANES = 10  # that are measured, behind those of a whole window
_MUCH_US = 300_000  # a run that takes longer is not repeated


@dataclass(frozen=True, slots=True)
class _Compared:
    place: str
    call: str
    window: Window
    groups: int
    taken: dict[Strategy, float]  # microseconds of CPU, a pane
    auto: Strategy

    @property
    def best(self) -> Strategy:
        return min(self.taken, key=self.taken.__getitem__)

    @property
    def lost(self) -> float:
        """How many times the best one's time the choice takes."""
        return self.taken[self.auto] / self.taken[self.best]


def measure_costs(
    results: Path, *, groups: Sequence[int] = GROUPS, windows: Sequence[tuple[int, int]] = WINDOWS, repeat: int
) -> None:
    found = []
    for place, call, (size, slide), count in product(_PLACES, _CALLS, windows, groups):
        window = Window(WindowKind.SLIDING, size, slide, Axis("ts", Kind.TIME, 10**9))
        plans = {way: aggregate_of(call, window, way) for way in _WAYS}
        taken = _taken(plans, place, count, repeat)
        rates = Rates(tuples=1e9, groups=count, stored=place == "stored")
        auto = cheapest(plans[Strategy.PANED], rates)
        item = _Compared(place, call, window, count, taken, auto)
        found.append(item)
        listed = ", ".join(f"{way.value} {time:8.0f}" for way, time in taken.items())
        print(
            f"{place:9} {call:8} {size:2} panes every {slide:2}, {count:6,} groups: {listed} us a pane; best "
            f"{item.best.value:5}, auto {auto.value:5} {item.lost:5.2f}",
            flush=True,
        )
    _report(results, found)


def _taken(plans: dict[Strategy, Aggregate], place: str, groups: int, repeat: int) -> dict[Strategy, float]:
    """The least CPU microseconds of a pane, once windows have as many panes as they ever will."""
    least = dict.fromkeys(plans, float("inf"))
    plan = plans[Strategy.PANED]
    warm = plan.window.size + plan.window.slide
    panes = warm + max(_LEAST_PANES, 2 * plan.window.slide)
    of = np.arange(groups)
    batches = [rows_of(plan, np.full(groups, pane, np.int64), of) for pane in range(panes)]
    for run, (way, plan) in product(range(repeat), plans.items()):
        if run and least[way] * (panes - warm) > _MUCH_US:
            continue
        least[way] = min(least[way], _fed(plan, place, batches, warm) / 1e3 / (panes - warm))
    return least


def _fed(plan: Aggregate, place: str, batches: Sequence[Words], warm: int) -> int:
    operator, sink, store = AggregateOperator(plan), Sink(), MemoryByteStore()
    state: State = MemoryState()
    began = 0
    for pane, rows in enumerate(batches):
        if pane == warm:
            began = time.thread_time_ns()
        ended = Promise((Bound(PANE, pane + 1),))
        if place == "in memory":
            operator.on_batch(0, rows, state, sink)
            operator.on_promise(0, ended, state, sink)
            continue
        half = len(rows) // 2
        for part, promise in ((rows[:half], None), (rows[half:], ended)):
            stored = PiecewiseState(store, "stage")
            operator.on_batch(0, part, stored, sink)
            if promise is not None:
                operator.on_promise(0, promise, stored, sink)
            stored.commit()
    return time.thread_time_ns() - began


def _report(results: Path, found: Sequence[_Compared]) -> None:
    write_csv(
        results, "costs",
        ("place", "aggregate", "panes_a_window", "panes_a_slide", "groups", *(f"{way.value}_us" for way in _WAYS),
         "best", "auto", "auto_to_best"),
        [
            (item.place, item.call, item.window.size, item.window.slide, item.groups,
             *(item.taken[way] for way in _WAYS), item.best.value, item.auto.value, item.lost)
            for item in found
        ],
    )  # fmt: skip
    lost = sorted(item.lost for item in found)
    within = sum(item <= 1.2 for item in lost)
    print(
        f"auto takes the best strategy's time {lost[len(lost) // 2]:.2f} times (median), {lost[-1]:.2f} at the most; "
        f"in {within} of {len(lost)} cases at most 1.2 times"
    )
    with Figure(results, "costs", "The time of auto's choice against that of the fastest strategy") as axes:
        for place, call in product(_PLACES, _CALLS):
            of = [item for item in found if (item.place, item.call) == (place, call)]
            points = sorted((item.groups, item.lost) for item in of)
            shift = 1 + 0.12 * (2 * _PLACES.index(place) + _CALLS.index(call))
            axes.semilogx([shift * x for x, _ in points], [y for _, y in points], "o", ms=4, label=f"{call}, {place}")
        axes.axhline(1.2, color="gray", linewidth=1)
        axes.set_xlabel("groups a pane")
        axes.set_ylabel("auto / best, for each kind of window")
        axes.legend()
