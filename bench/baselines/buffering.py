"""The window aggregate by buffering (Li 6.1.5): tuples are kept in order, and each window's are aggregated anew.

It takes no promises. How far tuples may be out of order is declared as slack: a window closes when a tuple comes that
lies so far behind its end. A tuple that comes for windows that have closed is dropped from these windows (generous
slack), or, if there is any such window, from all (consistent slack). `LazyOperator` waits for promises (6.3).
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from highlevel.groups.group_table import GroupTable
from highlevel.groups.layout import Layout
from highlevel.groups.state import rows_space
from highlevel.interface import ONLY, MarkOut, Out, State, Words
from highlevel.operators.incoming import in_windows, panes_of
from highlevel.operators.result_rows import RowBuilder
from highlevel.row_marks import RowMark
from lowmark.query.plan.nodes import Aggregate
from lowmark.wire.records.partials import PANE
from lowmark.wire.records.punctuations import Promise
from lowmark.wire.rows.values import INT64_MIN

__all__ = ["BufferingOperator", "LazyOperator"]


class BufferingOperator:
    """Sliding windows over rows of `plan.input`; `slack` is in panes. For measurements: its state is its own, not the
    runner's, and nothing is told but rows and closings. `dropped` are tuples that came too late."""

    def __init__(self, plan: Aggregate, slack: int = 0, *, generous: bool = False) -> None:
        self._plan = plan
        self._window = plan.window
        self._slack = slack
        self._generous = generous
        self._layout = Layout(plan.input, (*plan.keys, *plan.details), plan.folds)
        self._result = RowBuilder(plan)
        self._parts: list[Words] = []  # behind the buffer, unordered
        self._buffer: Words = np.empty((0, plan.input.words), np.uint64)  # ordered by pane
        self._high = INT64_MIN
        self._next: int | None = None  # the first window that is open
        self.dropped = 0

    def on_batch(self, port: int, rows: Words, state: State, out: Out) -> None:
        panes, rows = in_windows(panes_of(rows), rows, self._window)
        if not len(panes):
            return
        if self._next is None:
            self._next = self._window.wids(int(panes.min()) - self._slack).start
        # Each tuple finds those windows closed that the greatest one before it has closed.
        before = np.maximum(np.concatenate(([self._high], np.maximum.accumulate(panes)[:-1])), self._high)
        closed = np.where(before == INT64_MIN, INT64_MIN, (before - self._slack) // self._window.slide)
        first, stop = panes // self._window.slide, (panes + self._window.size) // self._window.slide
        kept = stop > closed if self._generous else first >= closed
        self.dropped += len(panes) - int(np.count_nonzero(kept))
        cuts = [0, *(np.flatnonzero(np.diff(closed)) + 1).tolist(), len(panes)]
        for start, end in pairwise(cuts):
            self._close(int(closed[start]), out)
            self._parts.append(rows[start:end][kept[start:end]])
        self._high = max(self._high, int(panes.max()))
        self._close(self._window.closed_by(self._high - self._slack), out)

    def on_promise(self, port: int, promise: Promise, state: State, out: Out) -> None:
        if promise.last:
            if self._high > INT64_MIN:
                self._close(self._window.wids(self._high).stop, out)
            out.promise(0, Promise((), last=True))

    def on_mark(self, port: int, mark: RowMark, state: State, out: MarkOut) -> None:
        out.mark(0, mark)

    def work(self, state: State, out: Out, budget: int) -> int:
        return 0

    def _close(self, end: int, out: Out) -> None:
        """Close the windows up to `end`."""
        if self._next is None or self._next >= end:
            return
        self._order()
        panes = panes_of(self._buffer)
        numbers = np.arange(self._next, end)
        stops = (numbers + 1) * self._window.slide
        first = np.searchsorted(panes, stops - self._window.size).tolist()
        after = np.searchsorted(panes, stops).tolist()
        for number, begin, stop in zip(numbers.tolist(), first, after, strict=True):
            if begin < stop:
                table = GroupTable(self._layout)
                table.merge(self._buffer[begin:stop])
                out.rows(0, self._result.of(table, number)[0])
                out.closed(0, range(number, number + 1), stop - begin)
        self._next = end
        self._buffer = self._buffer[np.searchsorted(panes, self._window.first_needed(end)) :]

    def _order(self) -> None:
        """IOP: what has come since goes to its places."""
        if self._parts:
            rows = np.concatenate([self._buffer, *self._parts])
            self._buffer = rows[np.argsort(panes_of(rows), kind="stable")]
            self._parts = []


class LazyOperator(BufferingOperator):
    """The same where a promise closes windows, and nothing comes too late. The tuples are state, so that they can be
    measured."""

    def __init__(self, plan: Aggregate) -> None:
        super().__init__(plan)
        self._space = rows_space("tuples", plan.input.words)

    def on_batch(self, port: int, rows: Words, state: State, out: Out) -> None:
        panes, rows = in_windows(panes_of(rows), rows, self._window)
        if len(rows):
            self._parts.append(rows)
            self._high = max(self._high, int(panes.max()))
        state.put(self._space, ONLY, [self._buffer, *self._parts])

    def on_promise(self, port: int, promise: Promise, state: State, out: Out) -> None:
        frontier = promise.below(PANE)
        if self._high > INT64_MIN and frontier is not None:
            end = self._window.wids(self._high).stop
            end = end if promise.last else min(end, self._window.closed_by(frontier))
            if self._next is None:
                self._order()
                first = self._window.wids(int(panes_of(self._buffer)[0])).start
                self._next = first if first < end else None
            self._close(end, out)
        state.put(self._space, ONLY, [self._buffer, *self._parts])
        if promise.last:
            out.promise(0, Promise((), last=True))
