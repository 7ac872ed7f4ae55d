"""Fig. 6-15: the execution time of Paned-WID against WID, over tuples of a pane and panes of a window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from bench.common.aggregate_runs import Feeding, Taken, aggregate_of, feed, rows_of
from bench.common.reports import Figure, spread, write_csv
from highlevel.operators.aggregate import AggregateOperator
from lowmark.query.options import Strategy
from lowmark.query.plan.nodes import Aggregate
from lowmark.query.windows.window import Axis, Window, WindowKind
from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.values import FOREVER

__all__ = ["GROUPS", "PANES", "measure_panes"]

_TUPLES_A_PANE = (1, 2, 5, 10, 20, 50, 100)
PANES = (2, 5, 10, 20)
GROUPS = (500, 5_000)
_SEED = 8
_LIGHTER = 0.3  # opacity of the lines of fewer groups
_STATED = (20, 5, 0.3)
"""Tuples a pane, panes a window, and the ratio that the paper states for them."""


@dataclass(frozen=True, slots=True)
class _Ratio:
    groups: int
    tuples: int
    panes: int
    paned: float  # CPU seconds
    wid: float
    model: float  # eq. 6.1 over eq. 6.3, all constants 1

    @property
    def ratio(self) -> float:
        return self.paned / self.wid


def measure_panes(results: Path, *, groups: Sequence[int], repeat: int, windows: Sequence[int] = PANES) -> None:
    """`max(len)` of each group, in order, a promise behind each pane; each pane has so many tuples of each group.
    Nothing is read or parsed: the paper takes the cost of scanning the stream off. Li's query has no groups and takes
    tuples one by one; here a pane's come together, and the fewer groups there are, the more it is calls that are
    measured."""
    found = []
    for number, panes, tuples in product(groups, windows, _TUPLES_A_PANE):
        item = _measured(number, tuples, panes, repeat)
        found.append(item)
        print(
            f"{number:5,} groups, {tuples:3} tuples a pane, {panes:2} panes a window: Paned-WID takes {item.ratio:.2f} "
            f"of the time of WID (model {item.model:.2f})",
            flush=True,
        )
    _report(results, found)


def _measured(groups: int, tuples: int, panes: int, repeat: int) -> _Ratio:
    window = Window(WindowKind.SLIDING, panes, 1, Axis("ts", Kind.TIME, 10**9))
    plans = [aggregate_of("max(len)", window, way) for way in (Strategy.PANED, Strategy.WID)]

    def run(plan: Aggregate, keep: bool = False) -> Taken:
        """Over a stream that is made as it is read: the longest would take two gigabytes."""
        return feed(AggregateOperator(plan), _stream(plan, tuples, groups, 3 * panes + 10), keep=keep)

    ours, theirs = (np.concatenate(run(plan, keep=True).outputs) for plan in plans)
    if not np.array_equal(ours[np.lexsort(ours.T)], theirs[np.lexsort(theirs.T)]):
        raise RuntimeError("the two answers differ")
    runs = [[run(plan).total for plan in plans] for _ in range(repeat)]
    paned, wid = (min(run[number] for run in runs) for number in range(2))
    return _Ratio(groups, tuples, panes, paned, wid, (tuples + 1 + panes) / (tuples * panes))


def _stream(plan: Aggregate, tuples: int, groups: int, panes: int) -> Iterator[Feeding]:
    random = np.random.default_rng(_SEED)
    for pane in range(panes):
        of = random.permutation(np.repeat(np.arange(groups), tuples))
        yield Feeding(rows_of(plan, np.full(len(of), pane, np.int64), of), pane + 1)
    nothing = np.empty(0, np.int64)
    yield Feeding(rows_of(plan, nothing, nothing), FOREVER)


def _report(results: Path, found: list[_Ratio]) -> None:
    write_csv(
        results, "fig_6_15",
        ("groups", "tuples_a_pane", "panes_a_window", "paned_cpu_s", "wid_cpu_s", "paned_to_wid", "model"),
        [(i.groups, i.tuples, i.panes, i.paned, i.wid, i.ratio, i.model) for i in found],
    )  # fmt: skip
    seen = [item for item in found if (item.tuples, item.panes) == _STATED[:2]]
    every = spread(item.ratio for item in found)
    ratios = ", ".join(f"{item.ratio:.2f} of the time with {item.groups:,} groups" for item in seen)
    ours = f"{ratios} at 20 tuples a pane and 5 panes a window; {every} over all cases"
    most = max(item.groups for item in found)
    title = f"max of {most:,} groups: Paned-WID against WID (after fig. 6-15)"
    with Figure(results, "fig_6_15", title, ours) as axes:
        for number, panes in enumerate(dict.fromkeys(item.panes for item in found)):
            for groups in dict.fromkeys(item.groups for item in found):
                of = [item for item in found if (item.groups, item.panes) == (groups, panes)]
                line, opacity, label = (
                    ("o-", 1.0, f"{panes} panes/window") if groups == most else ("o--", _LIGHTER, None)
                )
                axes.semilogx(
                    [i.tuples for i in of], [i.ratio for i in of], f"C{number}{line}", alpha=opacity, label=label
                )
        for groups in sorted({item.groups for item in found} - {most}):
            axes.plot([], [], "ko--", alpha=_LIGHTER, label=f"the same with {groups:,} groups")
        axes.plot([_STATED[0]], [_STATED[2]], "k*", markersize=12, label="Li, 5 panes/window: about 0.3")
        axes.set_xlabel("tuples a pane (of each group)")
        axes.set_ylabel("time of Paned-WID / time of WID")
        axes.margins(y=0.3)
        axes.set_ylim(bottom=0)
        axes.legend(fontsize="small", ncols=2)
