"""Duplicate elimination (Li 8.2, DupElim): the first tuple of a group is output, later ones are dropped.

Groups seen are kept by pane until a promise says that the pane has ended, or that no more tuples of a group can come.
The first tuple to arrive need not be the earliest, because all tuples of a group show the same values.
"""

from __future__ import annotations

from highlevel.groups.group_table import GroupTable
from highlevel.groups.joint_closing import complete, progressing, within_reach
from highlevel.groups.layout import Layout
from highlevel.groups.split import split
from highlevel.groups.state import ClosedSoFar, closing_space, tables_space
from highlevel.interface import ONLY, MarkOut, Out, State, Words
from highlevel.operators.bounds import moved_frontier, promise_bounds
from highlevel.operators.incoming import panes_of, timely
from highlevel.operators.result_rows import RowBuilder
from highlevel.row_marks import RowMark, shown_windows
from lowmark.query.plan.nodes import Aggregate
from lowmark.wire.records.partials import PANE
from lowmark.wire.records.punctuations import Promise
from lowmark.wire.rows.values import FOREVER, INT64_MIN

__all__ = ["DistinctOperator"]


class DistinctOperator:
    """Partials of `plan.input` in, in any order; rows of `plan.output` out, each once. It closes and promises as
    `AggregateOperator` does for groups without windows: panes that have ended, and the least values of its keys."""

    def __init__(self, plan: Aggregate) -> None:
        self._plan = plan
        self._layout = Layout(plan.input, plan.keys, ())
        self._seen = tables_space("seen", self._layout)
        self._closing = closing_space()
        self._result = RowBuilder(plan)
        self._progress = tuple(map(progressing, plan.progress))

    def on_batch(self, port: int, rows: Words, state: State, out: Out) -> None:
        closing, panes = state.get(self._closing, ONLY), panes_of(rows)
        if closing is not None:
            panes, rows = timely(panes, rows, closing.frontier, out)
        for pane, part in split(panes, rows):
            seen = state.get(self._seen, pane) or GroupTable(self._layout)
            known = len(seen)
            seen.merge(part)
            state.put(self._seen, pane, seen)
            if known < len(seen):
                out.rows(0, self._result.of(seen.since(known), pane)[0])

    def on_promise(self, port: int, promise: Promise, state: State, out: Out) -> None:
        if len(promise.bounds) > 1:
            self._forget(promise, state)
            return
        closing = state.get(self._closing, ONLY) or ClosedSoFar(INT64_MIN, None)
        frontier = moved_frontier(promise, PANE, closing.frontier)
        if frontier is None:
            return
        for pane in state.keys(self._seen, None if frontier == FOREVER else frontier):
            seen = state.get(self._seen, pane)
            assert seen is not None, "a listed piece is there"
            out.closed(0, range(pane, pane + 1), seen.tuples)
            state.drop(self._seen, pane)
        state.put(self._closing, ONLY, ClosedSoFar(frontier, frontier))
        promise_bounds(out, frontier, ((name, key.value(frontier)) for name, key in self._progress))

    def on_mark(self, port: int, mark: RowMark, state: State, out: MarkOut) -> None:
        out.mark(0, shown_windows(self._plan.window, mark))

    def work(self, state: State, out: Out, budget: int) -> int:
        return 0

    def _forget(self, promise: Promise, state: State) -> None:
        """Forget groups whose keys lie below all bounds before their pane has ended. The pane still counts as used."""
        if not {bound.column for bound in promise.bounds} <= {*self._plan.keys}:
            return
        for pane in state.keys(self._seen):
            seen = state.get(self._seen, pane) if within_reach(promise, pane, self._progress) else None
            if seen is not None and len(seen.take(complete(promise, seen.groups, self._layout.schema))):
                state.put(self._seen, pane, seen)
