"""Figs. 8-8 and 8-11: the memory of a window count over a union whose sources are skewed, as tuples come (OOP: the
aggregate takes them in any order) and in order of time (IOP: a merge before the aggregate holds what is ahead)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.baselines.merging import Merge
from bench.common.aggregate_runs import CountingState, aggregate_of, rows_of
from bench.common.reports import Figure, spread, write_csv
from bench.common.row_count import RowCount
from highlevel.interface import Words
from highlevel.operators.aggregate import AggregateOperator
from lowmark.query.options import Strategy
from lowmark.query.plan.nodes import Aggregate
from lowmark.query.windows.window import Axis, Window, WindowKind
from lowmark.wire.records.partials import PANE
from lowmark.wire.records.punctuations import Bound, Promise
from lowmark.wire.rows.schema import Kind

__all__ = ["Q8_2", "Q8_5", "Union", "measure_unions"]

_SEED = 8


@dataclass(frozen=True, slots=True)
class Union:
    """A query: `rates` of its sources in tuples a second, of which the last one lags. Times in seconds."""

    figure: str
    title: str
    size: int
    slide: int
    rates: tuple[int, ...]
    groups: int
    lags: tuple[int, ...]
    length: int


Q8_2 = Union("fig_8_8", "Q8-2, M1 and M2", 60, 60, (11_000, 11_000), 6_554, (0, 10, 20, 30, 40), 200)
Q8_5 = Union("fig_8_11", "Q8-5, M1, M2 and C", 300, 60, (4_000, 4_000, 1), 1, (0, 2, 4, 6, 8, 10), 500)


@dataclass(frozen=True, slots=True)
class _Memory:
    lag: int
    oop: int  # bytes at the most: of the aggregate's state
    iop: int  # of that and of the tuples that wait


def measure_unions(results: Path, union: Union) -> None:
    window = Window(WindowKind.SLIDING, union.size, union.slide, Axis("ts", Kind.TIME, 10**9))
    plan = aggregate_of("count(*)", window, Strategy.WID)
    found = []
    for lag in union.lags:
        (oop, rows), (iop, others) = (_run(plan, union, lag, ordered) for ordered in (False, True))
        if rows != others:
            raise RuntimeError(f"lag of {lag} s: the two answers have {rows} and {others} rows")
        found.append(_Memory(lag, oop, iop))
        print(
            f"{union.title}, lag of {lag:2} s: as tuples come {oop / 2**10:9.1f} KiB, in order {iop / 2**10:9.1f} KiB "
            f"({iop / oop:.1f} times)",
            flush=True,
        )
    write_csv(
        results, union.figure, ("lag_s", "oop_bytes", "iop_bytes", "iop_to_oop"),
        [(item.lag, item.oop, item.iop, item.iop / item.oop) for item in found],
    )  # fmt: skip
    name = union.figure.replace("fig_", "fig. ").replace("_", "-")
    most = [spread(sizes) for sizes in zip(*((item.oop / 2**10, item.iop / 2**10) for item in found), strict=True)]
    ours = f"OOP takes {most[0]} KiB and IOP {most[1]} KiB at lags of {found[0].lag} to {found[-1].lag} s"
    with Figure(results, union.figure, f"{union.title} (after {name})", ours) as axes:
        axes.plot([item.lag for item in found], [item.iop / 2**20 for item in found], "s-", label="in order (IOP)")
        axes.plot(
            [item.lag for item in found], [item.oop / 2**20 for item in found], "o-", label="as tuples come (OOP)"
        )
        axes.set_xlabel("lag of the last source, seconds")
        axes.set_ylabel("MiB at the most")
        axes.set_ylim(bottom=0)
        axes.legend()


def _run(plan: Aggregate, union: Union, lag: int, ordered: bool) -> tuple[int, int]:
    """The most bytes, and the rows of the answer."""
    operator, state, out = AggregateOperator(plan), CountingState(), RowCount()
    merge = Merge(len(union.rates), 1)
    bounds = [0] * len(union.rates)
    most = 0
    for number, second, rows in _arrivals(plan, union, lag):
        bounds[number] = second + 1
        ready = merge.take(number, rows, second + 1) if ordered else rows
        operator.on_batch(0, ready, state, out)
        if number == 0:
            most = max(most, state.bytes + (merge.held if ordered else 0))
        operator.on_promise(0, Promise((Bound(PANE, merge.bound if ordered else min(bounds)),)), state, out)
    return most, out.count


def _arrivals(plan: Aggregate, union: Union, lag: int) -> Iterator[tuple[int, int, Words]]:
    """Source, second of its time, and the tuples of that, in the order in which they come. The last source lags."""
    random = np.random.default_rng(_SEED)
    late = len(union.rates) - 1
    for now in range(union.length + lag):
        for number in reversed(range(len(union.rates))):
            second = now - lag if number == late else now
            if 0 <= second < union.length:
                rate = union.rates[number]
                yield number, second, rows_of(plan, np.full(rate, second), random.integers(0, union.groups, rate))
