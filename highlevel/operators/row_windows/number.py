"""Numbers tuples in a definite order: each tuple waits until no earlier one can come.

Tuples of several sources wait for their pane to end, and are then sorted. Tuples of one source arrive in order,
whatever their times. Each waits until its own pane and those of all tuples before it have ended, because losses before
it are unknown until then.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from highlevel.groups.ordering import sort_keys, sorted_rows
from highlevel.groups.split import split
from highlevel.groups.state import rows_space
from highlevel.interface import ONLY, MarkOut, Out, Space, State, Words
from highlevel.operators.bounds import moved_frontier, promise_bounds
from highlevel.operators.incoming import panes_of, timely
from highlevel.row_marks import RowMark, counted_anew
from lowmark.query.expr.evaluate import Values, all_valid, assemble_rows
from lowmark.query.plan.nodes import Number
from lowmark.wire.records.partials import PANE
from lowmark.wire.records.punctuations import Promise
from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.values import FOREVER, INT64_MIN
from lowmark.wire.rows.words import column_of

__all__ = ["NumberOperator"]

_TOGETHER = 1 << 16
"""Waiting panes are output together once they have this many tuples; the last pane may exceed it."""

_COUNTER = struct.Struct(">qqq")
_LOW = struct.Struct(">q")


@dataclass(slots=True)
class _Counter:
    """`frontier`: the first pane that has not ended; `given`: count of numbers assigned; `high`: the last pane of the
    tuples of one source."""

    frontier: int = INT64_MIN
    given: int = 0
    high: int = INT64_MIN


class NumberOperator:
    """Tuples of `plan.input` in, the same tuples in order with `plan.number` out: rows of `plan.output`. A promise on
    panes gives a promise on the numbers. If tuples are sorted, the promise on panes is passed on, too. With one source
    it is passed on only if the plan asks for it, and only as far as no tuple of an earlier pane waits."""

    def __init__(self, plan: Number) -> None:
        self._plan = plan
        self._counter = Space(
            "counter", lambda p: _COUNTER.pack(p.frontier, p.given, p.high), lambda b: _Counter(*_COUNTER.unpack(b))
        )
        self._waiting = rows_space("waiting", plan.input.words)
        self._passes_panes = (bool(plan.order) or plan.panes) and PANE in plan.output.names
        self._lows = Space("lows", lambda low: _LOW.pack(low), lambda data: int(_LOW.unpack(data)[0]))
        self._keeps_lows = plan.panes and not plan.order

    def on_batch(self, port: int, rows: Words, state: State, out: Out) -> None:
        counter = state.get(self._counter, ONLY) or _Counter()
        panes, rows = timely(panes_of(rows), rows, counter.frontier, out)
        if not self._plan.order and len(panes):
            panes = np.maximum(np.maximum.accumulate(panes), counter.high)
            counter.high = int(panes[-1])
            state.put(self._counter, ONLY, counter)
        for pane, part in split(panes, rows):
            waiting = state.get(self._waiting, pane) or []
            waiting.append(part.copy())
            state.put(self._waiting, pane, waiting)
            if self._keeps_lows:
                low, known = int(panes_of(part).min()), state.get(self._lows, pane)
                state.put(self._lows, pane, low if known is None else min(low, known))

    def on_promise(self, port: int, promise: Promise, state: State, out: Out) -> None:
        counter = state.get(self._counter, ONLY) or _Counter()
        frontier = moved_frontier(promise, PANE, counter.frontier)
        if frontier is None:
            return
        ready: list[Words] = []
        for pane in state.keys(self._waiting, None if frontier == FOREVER else frontier):
            waiting = state.get(self._waiting, pane) or []
            ready += waiting
            state.drop(self._waiting, pane)
            if self._keeps_lows:
                state.drop(self._lows, pane)
            if sum(map(len, ready)) >= _TOGETHER:
                self._give(ready, counter, out)
                ready = []
        if ready:
            self._give(ready, counter, out)
        counter.frontier = frontier
        state.put(self._counter, ONLY, counter)
        promise_bounds(out, frontier, self._bounds(frontier, counter, state))

    def _bounds(self, frontier: int, counter: _Counter, state: State) -> Iterator[tuple[str, int | None]]:
        if self._passes_panes:
            yield PANE, min(frontier, self._lowest(state))
        if self._plan.number is not None:
            yield self._plan.number, counter.given + 1

    def on_mark(self, port: int, mark: RowMark, state: State, out: MarkOut) -> None:
        """Map a mark. Tuples of one source get numbers in order of arrival, so a loss concerns all later ones."""
        counter = state.get(self._counter, ONLY) or _Counter()
        names, number = self._plan.output.names, self._plan.number
        if number is None:
            out.mark(0, mark.at({name: mark.extents[name] for name in names if name in mark.extents}))
        else:
            since = {} if self._plan.order else {number: counter.given + 1}
            out.mark(0, counted_anew(mark, names, since))

    def work(self, state: State, out: Out, budget: int) -> int:
        return 0

    def _lowest(self, state: State) -> int:
        """The least pane of tuples that wait behind others of one source."""
        keys = state.keys(self._lows) if self._keeps_lows else ()
        return min((low for key in keys if (low := state.get(self._lows, key)) is not None), default=FOREVER)

    def _give(self, ready: list[Words], counter: _Counter, out: Out) -> None:
        rows = np.concatenate(ready)
        out.rows(0, self._numbered(rows, counter.given + 1))
        counter.given += len(rows)

    def _numbered(self, rows: Words, first: int) -> Words:
        rows = rows[sorted_rows([sort_keys(self._column(rows, name)) for name in self._plan.order], len(rows))]
        numbers = all_valid(Kind.INT, np.arange(first, first + len(rows)))
        names = self._plan.output.names
        columns = [numbers if name == self._plan.number else self._column(rows, name) for name in names]
        return assemble_rows(self._plan.output, columns, len(rows))

    def _column(self, rows: Words, name: str) -> Values:
        data, valid = column_of(self._plan.input, rows, name)
        return Values(self._plan.input.column(name).kind, data, valid)
