"""The window aggregate for windows that close in crowds: many at a time, each with few tuples.

Its output equals that of `AggregateOperator`. Panes share pieces of state instead of having a table each, and all
windows that a promise closes are computed together, so a window costs only its groups and no calls.
"""

from __future__ import annotations

import numpy as np

from highlevel.groups.group_table import GroupRows, GroupTable
from highlevel.groups.layout import GROUP_KEYS, GROUP_TUPLES, keyed_by_pane
from highlevel.groups.split import split
from highlevel.groups.state import ClosedSoFar, closing_space, tables_space
from highlevel.interface import ONLY, MarkOut, Out, State, Words
from highlevel.operators.bounds import moved_frontier, promise_bounds, window_bounds
from highlevel.operators.incoming import in_windows, panes_of, timely, with_pane_as_key
from highlevel.operators.row_windows.extents import Extents, Spans
from highlevel.row_marks import RowMark, shown_windows
from lowmark.query.expr.evaluate import Ints
from lowmark.query.plan.nodes import Aggregate, Counted
from lowmark.wire.records.partials import PANE
from lowmark.wire.records.punctuations import Promise
from lowmark.wire.rows.values import FOREVER, INT64_MIN

__all__ = ["CrowdedAggregateOperator"]

_PANES = 1024
"""Panes in a piece of state, which is rewritten as long as tuples come for one of them."""


class CrowdedAggregateOperator:
    """Partials of `plan.input` in, rows of `plan.output` out, in ascending order of windows. Sliding windows only."""

    def __init__(self, plan: Aggregate) -> None:
        self._plan = plan
        self._window = plan.window
        schema, at = keyed_by_pane(plan.input)
        self._extents = Extents(
            Counted(schema, at, (), plan.keys, plan.details, plan.folds, plan.calls, plan.window, plan.output)
        )
        self._bins = tables_space("bins", self._extents.layout)
        self._closing = closing_space()

    def on_batch(self, port: int, rows: Words, state: State, out: Out) -> None:
        closing, panes = state.get(self._closing, ONLY), panes_of(rows)
        if closing is not None:
            panes, rows = timely(panes, rows, closing.frontier, out)
        panes, rows = in_windows(panes, rows, self._window)
        for piece, part in split(panes // _PANES, with_pane_as_key(rows)):
            table = state.get(self._bins, piece) or GroupTable(self._extents.layout)
            table.merge(part)
            state.put(self._bins, piece, table)

    def on_promise(self, port: int, promise: Promise, state: State, out: Out) -> None:
        closing = state.get(self._closing, ONLY) or ClosedSoFar(INT64_MIN, None)
        frontier = moved_frontier(promise, PANE, closing.frontier)
        if frontier is None:
            return
        reached = FOREVER if frontier == FOREVER else self._window.closed_by(frontier)
        bins = self._ended(frontier, state)
        if len(bins.rows):
            self._close(bins, closing.window, reached, state, out)
        state.put(self._closing, ONLY, ClosedSoFar(frontier, reached))
        promise_bounds(out, frontier, window_bounds(self._window, reached, self._plan.output.names[:2]))

    def on_mark(self, port: int, mark: RowMark, state: State, out: MarkOut) -> None:
        out.mark(0, shown_windows(self._window, mark))

    def work(self, state: State, out: Out, budget: int) -> int:
        return 0

    def _ended(self, frontier: int, state: State) -> GroupRows:
        """The groups of all panes that have ended."""
        keys = state.keys(self._bins, None if frontier == FOREVER else frontier // _PANES + 1)
        tables = [table for key in keys if (table := state.get(self._bins, key)) is not None]
        return GroupRows.of(tables or [GroupTable(self._extents.layout)])

    def _close(self, bins: GroupRows, first: int | None, reached: int, state: State, out: Out) -> None:
        """Close the windows from `first` (None: from the earliest) up to `reached` that hold a tuple."""
        values = bins.rows[:, GROUP_KEYS].view(np.int64)
        panes, which = np.unique(values, return_inverse=True)
        counts = np.zeros(len(panes), np.int64)
        np.add.at(counts, which, bins.rows[:, GROUP_TUPLES].view(np.int64))
        window = self._window
        starts = panes // window.slide if first is None else np.maximum(panes // window.slide, first)
        stops = np.minimum((panes + window.size) // window.slide, reached)
        # Panes ascend, so each adds only windows that hold no earlier pane.
        starts[1:] = np.maximum(starts[1:], np.maximum.accumulate(stops)[:-1])
        lengths = np.maximum(stops - starts, 0)
        ids = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(int(lengths.sum()))
        if len(ids):
            ends = (ids + 1) * window.slide
            spans = Spans(ids, np.zeros_like(ids), ends - window.size, ends - 1)
            self._extents.emit(bins, np.zeros_like(values), spans, out)
            for number, tuples in zip(ids.tolist(), _sums(panes, counts, spans).tolist(), strict=True):
                out.closed(0, range(number, number + 1), tuples)
        self._let_go(window.first_needed(reached), state)

    def _let_go(self, needed: int, state: State) -> None:
        """Drop the panes before `needed`. A piece that also has later panes is cut only once most of it can go, so at
        most twice as much is kept as is needed."""
        for key in state.keys(self._bins, needed // _PANES + 1):
            table = state.get(self._bins, key) if key == needed // _PANES else None
            if table is None:
                state.drop(self._bins, key)
                continue
            passed = table.groups[:, GROUP_KEYS].view(np.int64) < needed
            if passed.all():
                state.drop(self._bins, key)
            elif 2 * np.count_nonzero(passed) > len(table):
                table.take(passed)
                state.put(self._bins, key, table)


def _sums(panes: Ints, counts: Ints, spans: Spans) -> Ints:
    """The number of tuples of each window."""
    before = np.concatenate(([0], np.cumsum(counts)))
    sums: Ints = before[np.searchsorted(panes, spans.lasts, "right")] - before[np.searchsorted(panes, spans.starts)]
    return sums
