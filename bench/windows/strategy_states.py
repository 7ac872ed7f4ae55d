"""What each strategy keeps of open windows and groups, and the time it takes, by kind of window and of traffic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from bench.common.aggregate_runs import Feeding, aggregate_of, feed, rows_of
from bench.common.reports import Figure, write_csv
from highlevel.operators.aggregate import AggregateOperator
from lowmark.query.expr.evaluate import Ints
from lowmark.query.options import Strategy
from lowmark.query.plan.nodes import Aggregate
from lowmark.query.windows.window import Axis, Window, WindowKind
from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.values import FOREVER

__all__ = ["measure_states"]

_WINDOWS = ((10, 1), (12, 5))
"""Panes of a window, and of a slide."""

_PANES = 45
_SEED = 8
_STRATEGIES = (Strategy.WID, Strategy.PANED, Strategy.ADAPT)


def measure_states(results: Path, *, groups: int) -> None:
    """`groups` of which something comes at all times, in partials: one a group and pane."""
    traffics: dict[str, Callable[[int], Ints]] = {
        "steady": lambda pane: np.arange(groups),
        "zipf": lambda pane: np.unique(_zipf(groups, pane)),
        "flood": lambda pane: np.concatenate((np.arange(groups), _new(groups, pane))),
    }
    rows: list[tuple[object, ...]] = []
    for size, slide in _WINDOWS:
        window = Window(WindowKind.SLIDING, size, slide, Axis("ts", Kind.TIME, 60 * 10**9))
        for call in ("count(*)", "max(len)"):
            for name, groups_of in traffics.items():
                rows += _measured(window, call, name, groups_of)
    head = ("panes_a_window", "panes_a_slide", "aggregate", "traffic", "strategy", "most_state_bytes", "cpu_s")
    write_csv(results, "states", head, rows)
    shown = [row for row in rows if row[2] == "max(len)"]
    with Figure(results, "states", "max(len) by source: the most state that is kept") as axes:
        for place, strategy in enumerate(_STRATEGIES):
            of = [row for row in shown if row[4] == strategy.value]
            sizes = [float(str(row[5])) / 2**20 for row in of]
            axes.bar(np.arange(len(of)) + 0.27 * place, sizes, 0.25, label=strategy.value)
        names = [f"{row[3]}\n{row[0]}/{row[1]}" for row in shown if row[4] == Strategy.WID.value]
        axes.set_xticks(np.arange(len(names)) + 0.27, names)
        axes.set_xlabel("traffic, panes of a window / of a slide")
        axes.set_ylabel("MiB")
        axes.legend()


def _measured(window: Window, call: str, name: str, groups_of: Callable[[int], Ints]) -> Iterator[tuple[object, ...]]:
    rows = set()
    for strategy in _STRATEGIES:
        plan = aggregate_of(call, window, strategy)
        taken = feed(AggregateOperator(plan), _stream(plan, groups_of), measure=True)
        rows.add(taken.rows)
        print(
            f"{window.size:3} panes every {window.slide}, {call:8} {name:6} {strategy.value:6}: "
            f"{taken.most_bytes / 2**20:6.2f} MiB, {taken.total:.2f} s",
            flush=True,
        )
        yield window.size, window.slide, call, name, strategy.value, taken.most_bytes, taken.total
    if len(rows) > 1:
        raise RuntimeError(f"answers differ: {rows} rows")


def _stream(plan: Aggregate, groups_of: Callable[[int], Ints]) -> Iterator[Feeding]:
    for pane in range(_PANES):
        groups = groups_of(pane)
        yield Feeding(rows_of(plan, np.full(len(groups), pane, np.int64), groups), pane + 1)
    nothing = np.empty(0, np.int64)
    yield Feeding(rows_of(plan, nothing, nothing), FOREVER)


def _zipf(groups: int, pane: int) -> Ints:
    drawn: Ints = np.random.default_rng((_SEED, pane)).zipf(1.2, groups).clip(0, 1 << 30)
    return drawn


def _new(groups: int, pane: int) -> Ints:
    """In the middle third of the stream groups that come once."""
    count = 10 * groups if _PANES // 3 <= pane < 2 * _PANES // 3 else 0
    return (1 << 31) + pane * 10 * groups + np.arange(count)
