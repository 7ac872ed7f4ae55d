"""Slide-by-tuple windows (Li 5.1.5, 6.1.4): (w − RANGE, w] for the RATTR w of every n-th tuple.

A tuple is merged into the bin of its RATTR, in any order, and is not kept. By arrival, tuples are numbered as they
come, and the numbers give the windows. By rank, the windows follow from the tuples in the bins once these are complete.
A promise that no RATTR below b will come closes every window below b. Equal values give one window. Bins are stored in
pieces of a pane each, and are dropped when no window can reach back to them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from highlevel.groups.group_table import GroupRows, GroupTable
from highlevel.groups.layout import Layout
from highlevel.groups.split import split
from highlevel.groups.state import ClosedSoFar, closing_space, tables_space
from highlevel.interface import ONLY, MarkOut, Out, Space, State, Words
from highlevel.limits import GroupLimit
from highlevel.operators.bounds import promise_bounds
from highlevel.operators.row_windows.extents import Extents, Spans, before
from highlevel.operators.row_windows.partitions import Partitions, as_tuples
from highlevel.row_marks import RowMark, counted_anew
from lowmark.query.expr.evaluate import Ints
from lowmark.query.plan.nodes import Counted
from lowmark.wire.records.partials import PANE, TUPLES_WORD
from lowmark.wire.records.punctuations import Promise
from lowmark.wire.records.verdicts import Reason
from lowmark.wire.rows.values import FOREVER, INT64_MAX, INT64_MIN

__all__ = ["SlideByTupleOperator"]

_AT = 3  # the word of RATTR in a tuple
_GROUP_AT = 2  # the word of RATTR in a group


class SlideByTupleOperator:
    """Tuples of `counted.input` in, rows of its output out; for each partition in ascending order of windows."""

    def __init__(self, counted: Counted, limit: GroupLimit | None = None) -> None:
        if counted.slides is None:
            raise ValueError("these windows do not slide by tuple")
        self._plan = counted.slides
        self._counted = counted
        self._range, self._every = counted.window.size, counted.window.slide
        self._partitions = Partitions(counted, limit, self._panes)
        self._extents = Extents(counted)
        self._ends_layout = Layout(counted.input, (counted.at, *counted.partition), ())
        self._bins = tables_space("bins", self._extents.layout)
        self._ends = tables_space("ends", self._ends_layout)
        self._closing = closing_space()

    def on_batch(self, port: int, rows: Words, state: State, out: Out) -> None:
        closing = state.get(self._closing, ONLY)
        late = rows[:, _AT].view(np.int64) < (INT64_MIN if closing is None else closing.frontier)
        if late.any():
            out.late(0, rows[late])
            rows = rows[~late]
        if not len(rows):
            return
        self._merge(self._bins, self._extents.layout, rows, state)
        if not self._plan.ranked:
            numbers = self._numbers(rows, state, out)
            self._merge(self._ends, self._ends_layout, rows[numbers % self._every == 0], state)

    def on_promise(self, port: int, promise: Promise, state: State, out: Out) -> None:
        pane = promise.below(PANE)
        reached = (state.get(self._closing, ONLY) or ClosedSoFar(INT64_MIN, None)).frontier
        if pane is None:
            return
        bound = FOREVER
        if pane != FOREVER:
            bound = min(max(pane * self._plan.pane_ns + self._plan.shift_ns, INT64_MIN), INT64_MAX - 1)
        if bound <= reached:
            return
        if self._plan.ranked:
            ends = self._ranked(reached, bound, state, out)
        else:
            ends = self._arrived(reached, bound, state)
        if len(ends):
            self._close(ends, state, out)
        state.put(self._closing, ONLY, ClosedSoFar(bound, None))
        self._forget(bound, state)
        if promise.last:
            promise_bounds(out, FOREVER, iter(()))
            return
        for sub, ended in self._partitions.idle(bound // self._plan.pane_ns, state):
            self._partitions.forget(sub, ended, state)
            self._tell(out)
        start, end = self._counted.output.names[:2]
        promise_bounds(out, bound, iter(((start, max(bound - self._range, INT64_MIN)), (end, bound))))

    def on_mark(self, port: int, mark: RowMark, state: State, out: MarkOut) -> None:
        out.mark(0, counted_anew(mark, self._counted.output.names))

    def work(self, state: State, out: Out, budget: int) -> int:
        return 0

    def _panes(self, rows: Words) -> Ints:
        panes: Ints = rows[:, _AT].view(np.int64) // self._plan.pane_ns
        return panes

    def _numbers(self, rows: Words, state: State, out: Out) -> Ints:
        numbers, ended = self._partitions.numbers(rows, state)
        if ended:
            self._tell(out)
        return numbers

    def _tell(self, out: Out) -> None:
        """Report that a partition begins anew: from here on other tuples may be the n-th ones, unless n is 1."""
        if self._every > 1:
            out.flaw(0, 0, Reason.NUMBERING)

    def _merge(self, space: Space[GroupTable], layout: Layout, rows: Words, state: State) -> None:
        for piece, part in split(self._panes(rows), rows):
            table = state.get(space, piece) or GroupTable(layout)
            table.merge(part)
            state.put(space, piece, table)

    def _arrived(self, start: int, bound: int, state: State) -> Words:
        """By arrival: the tuples, as groups, at which windows from `start` up to `bound` end."""
        return self._between(self._ends, start, bound, state)

    def _ranked(self, start: int, bound: int, state: State, out: Out) -> Words:
        """By rank: the same tuples, from bins in ascending order, each of which continues the count."""
        groups = self._between(self._bins, start, bound, state)
        if not len(groups):
            return groups
        values = GroupTable(self._ends_layout)
        values.merge(as_tuples(groups))
        ordered = values.groups[np.argsort(_values(values.groups), kind="stable")]
        tuples = as_tuples(ordered)
        numbers = self._numbers(tuples, state, out)
        passed = (numbers - tuples[:, TUPLES_WORD].view(np.int64)) // self._every < numbers // self._every
        ends: Words = ordered[passed]
        return ends

    def _between(self, space: Space[GroupTable], start: int, bound: int, state: State) -> Words:
        """The groups of a space with values from `start` up to `bound`."""
        pieces = self._pieces(space, start, bound, state)
        if not pieces:
            return np.empty((0, self._ends_layout.schema.words), np.uint64)
        groups = np.concatenate([table.groups for table in pieces])
        values = _values(groups)
        found: Words = groups[(start <= values) & (values < bound)]
        return found

    def _pieces(self, space: Space[GroupTable], start: int, stop: int, state: State) -> list[GroupTable]:
        last = -(-stop // self._plan.pane_ns)
        keys: Sequence[int] = state.keys(space, None if stop == FOREVER else last)
        tables = (state.get(space, key) for key in keys if key >= start // self._plan.pane_ns)
        return [table for table in tables if table is not None]

    def _close(self, ends: Words, state: State, out: Out) -> None:
        values = _values(ends)
        known = self._partitions.table()
        of_ends = known.place(self._partitions.heads(as_tuples(ends)))
        order = np.lexsort((values, of_ends))
        values, of_ends = values[order], of_ends[order]
        least = max(int(values.min()) - self._range, INT64_MIN)
        bins = GroupRows.of(self._pieces(self._bins, least, int(values.max()) + 1, state))
        of_bins: Ints = known.place(self._partitions.heads(as_tuples(bins.rows)))
        self._extents.emit(bins, of_bins, Spans(values, of_ends, before(values, self._range - 1), values), out)

    def _forget(self, bound: int, state: State) -> None:
        """Drop what windows that end at the bound or later do not need."""
        if bound == FOREVER:
            oldest = opened = None
        else:
            oldest, opened = (bound - self._range + 1) // self._plan.pane_ns, bound // self._plan.pane_ns
        for space, below in ((self._bins, oldest), (self._ends, opened)):
            for key in state.keys(space, below):
                state.drop(space, key)


def _values(groups: Words) -> Ints:
    return groups[:, _GROUP_AT].view(np.int64)
