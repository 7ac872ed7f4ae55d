"""The window aggregate: takes partials in any order, outputs the rows of closed windows (Li ch. 6).

One of several strategies (`highlevel.strategies`) holds its groups. Panes that lie in the same windows are passed to
the strategy as one cell (`shared_panes`). A promise that panes below p have ended closes every window that ends at or
below p. Each window that holds tuples has rows and is reported separately, with the tuples of its extent (for a
landmark window: of its own slide, because only those are new to it; they may all be in other buckets). A run of windows
without tuples is reported as one. Reports begin with the first window still open at the first promise, or an earlier
one that holds a tuple. At the end of the input every window that holds a tuple closes, and no later window is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from highlevel.groups.closed_groups import take_closed
from highlevel.groups.group_table import GroupTable
from highlevel.groups.joint_closing import complete, progressing, within_reach
from highlevel.groups.layout import Layout
from highlevel.groups.state import ClosedSoFar, closing_space, early_space, tables_space
from highlevel.interface import ONLY, MarkOut, Out, State, Words
from highlevel.limits import GroupLimit
from highlevel.operators.bounds import moved_frontier, promise_bounds, window_bounds
from highlevel.operators.incoming import in_windows, panes_of, timely
from highlevel.operators.result_rows import RowBuilder
from highlevel.progress.promises.values import ValuePromises, about_values
from highlevel.row_marks import RowMark, shown_windows
from highlevel.strategies.adaptwid import AdaptHolding
from highlevel.strategies.adaptwid_switching import COSTS, HoldingCosts
from highlevel.strategies.holding import Ended, Holding, PanedHolding
from highlevel.strategies.wid import WidHolding
from lowmark.query.aggregates.calls import kept_columns
from lowmark.query.optimize.shared_panes import cells_of
from lowmark.query.options import Strategy
from lowmark.query.plan.nodes import Aggregate
from lowmark.query.windows.window import Window, WindowKind
from lowmark.wire.records.partials import PANE
from lowmark.wire.records.punctuations import Promise
from lowmark.wire.rows.values import FOREVER, INT64_MIN

__all__ = ["AggregateOperator"]


class AggregateOperator:
    """Partials of `plan.input` in, rows of `plan.output` out, in ascending order of windows."""

    def __init__(self, plan: Aggregate, limit: GroupLimit | None = None, costs: HoldingCosts = COSTS) -> None:
        self._plan = plan
        self._limit = limit if plan.window.kind is WindowKind.LANDMARK else None
        self._window = plan.window
        layout = Layout(plan.input, (*plan.keys, *plan.details), plan.folds)
        self._layout = layout
        self._panes = tables_space("pane", layout)
        self._closing = closing_space()
        self._early = early_space()
        self._cells = cells_of(plan.window)
        self._holding = _holding_of(plan, self._cells.window, layout, costs)
        self._result = RowBuilder(plan)
        self._keys_progress = tuple(map(progressing, plan.progress))

    def on_batch(self, port: int, rows: Words, state: State, out: Out) -> None:
        closing, panes = state.get(self._closing, ONLY), panes_of(rows)
        if closing is not None:
            panes, rows = timely(panes, rows, closing.frontier, out)
        panes, rows = in_windows(panes, rows, self._window)
        if len(rows):
            self._holding.take(self._cells.of(panes), rows, state)

    def on_promise(self, port: int, promise: Promise, state: State, out: Out) -> None:
        if about_values(promise):
            self._close_early(promise, state, out)
            return
        if len(promise.bounds) > 1:
            self._close_groups(promise, state, out)
            return
        closing = state.get(self._closing, ONLY) or ClosedSoFar(INT64_MIN, None)
        frontier = moved_frontier(promise, PANE, closing.frontier)
        if frontier is None:
            return
        ended = self._holding.ended(None if frontier == FOREVER else self._cells.of(frontier), state)
        first = self._first(frontier, ended) if closing.window is None else closing.window
        end = self._end(frontier, ended)
        if first is not None and end is not None and first < end:
            self._close(first, end, ended, state, out)
            first = end
        state.put(self._closing, ONLY, ClosedSoFar(frontier, first))
        promise_bounds(out, frontier, self._bounds(frontier, first))

    def on_mark(self, port: int, mark: RowMark, state: State, out: MarkOut) -> None:
        out.mark(0, shown_windows(self._window, mark))

    def work(self, state: State, out: Out, budget: int) -> int:
        return 0

    def touch(self, panes: Iterable[int], state: State) -> None:
        """Note panes with tuples in any bucket, because they give a landmark window rows in this one."""
        for pane in {*panes}.difference(state.keys(self._panes)):
            state.add(self._panes, pane, GroupTable(self._layout))

    def _close_early(self, promise: Promise, state: State, out: Out) -> None:
        """Output groups with promised values, in windows that end before the bound on panes: no later row changes them.
        The number of their tuples is kept until the window closes."""
        (named,) = (bound for bound in promise.bounds if bound.values is not None)
        below = next((bound.below for bound in promise.bounds if bound.below is not None), FOREVER)
        if not self._plan.closes or not {*named.columns} <= {*self._plan.keys} or named.values is None:
            return
        closed = ValuePromises(len(named.values))
        closed.take(Promise((named,)))
        closing, cell = state.get(self._closing, ONLY), None if below == FOREVER else self._cells.of(below)
        first = None if closing is None else self._first_open(closing)
        for window, groups in take_closed(
            closed, cell, first, self._cells.window, self._panes, self._layout, state
        ):  # fmt: skip
            rows, flawed = self._result.of(groups, window)
            out.rows(0, rows)
            for reason in flawed:
                out.flaw(0, window, reason)
            state.put(self._early, window, (state.get(self._early, window) or 0) + groups.tuples)

    def _first_open(self, closing: ClosedSoFar) -> int | None:
        if closing.window is not None or closing.frontier == INT64_MIN:
            return closing.window
        return self._window.closed_by(closing.frontier)

    def _close_groups(self, promise: Promise, state: State, out: Out) -> None:
        """Without windows, output groups whose keys lie below all bounds before their pane has ended. A bound on panes
        limits this to panes below it."""
        keys = Promise(tuple(bound for bound in promise.bounds if bound.column != PANE))
        if self._window.kind is not WindowKind.NONE or not {b.column for b in keys.bounds} <= {*self._plan.keys}:
            return
        below = next((bound.below for bound in promise.bounds if bound.column == PANE), None)
        for pane in state.keys(self._panes, below):
            table = state.get(self._panes, pane) if within_reach(keys, pane, self._keys_progress) else None
            if table is None:
                continue
            gone = table.take(complete(keys, table.groups, self._layout.schema))
            if not len(gone):
                continue
            rows, flawed = self._result.of(gone, pane)
            out.rows(0, rows)
            for reason in flawed:
                out.flaw(0, pane, reason)
            state.put(self._panes, pane, table)

    def _end(self, frontier: int, ended: Ended) -> int | None:
        """The first window that stays open; at the end of the input, the one after the last that holds a tuple."""
        if frontier != FOREVER:
            return self._window.closed_by(frontier)
        span = ended.span
        return span.stop if span else None

    def _first(self, frontier: int, ended: Ended) -> int | None:
        firsts = [] if frontier == FOREVER else [self._window.closed_by(frontier)]
        if span := ended.span:
            firsts.append(span.start)
        return min(firsts, default=None)

    def _gone_early(self, window: int, state: State) -> int:
        """Remove and return the tuple counts of groups that left before this window."""
        tuples = state.get(self._early, window) if self._plan.closes else None
        if tuples is None:
            return 0
        state.drop(self._early, window)
        return tuples

    def _close(self, first: int, end: int, ended: Ended, state: State, out: Out) -> None:
        told = first
        for part in ended.parts(first, end):
            if self._limit is not None:
                self._limit.check(len(part.groups.rows), kept_columns(self._plan))
            rows, flaws = self._result.together(part)
            out.rows(0, rows)
            for window, reason in flaws:
                out.flaw(0, window, reason)
            for window, tuples in zip(part.windows, part.tuples, strict=True):
                if told < window:
                    out.closed(0, range(told, window), 0)
                out.closed(0, range(window, window + 1), tuples + self._gone_early(window, state))
                told = window + 1
            ended.leave(told)
        if told < end:
            out.closed(0, range(told, end), 0)
            ended.leave(end)

    def _bounds(self, frontier: int, window: int | None) -> Iterator[tuple[str, int | None]]:
        """Bounds on later rows: with windows, those of windows from `window` on; without, on keys of panes from
        `frontier` on."""
        if self._window.kind is not WindowKind.NONE and window is not None:
            return window_bounds(self._window, window, self._plan.output.names[:2])
        return ((name, key.value(frontier)) for name, key in self._keys_progress)


def _holding_of(plan: Aggregate, window: Window, layout: Layout, costs: HoldingCosts) -> Holding:
    match plan.strategy:
        case Strategy.WID:
            return WidHolding(window, layout)
        case Strategy.ADAPT:
            return AdaptHolding(window, layout, costs)
        case _:
            return PanedHolding(window, layout, early=bool(plan.closes))
