"""Merges the rows of a window that come through an exchange or from the members of a union, or the buckets' parts of
its totals.

Both operators wait for the promise that a window is complete. Input pane k has the rows of window k.
"""

from __future__ import annotations

import numpy as np

from highlevel.groups.group_table import GroupTable
from highlevel.groups.layout import Layout
from highlevel.groups.split import split
from highlevel.groups.state import rows_space, tables_space
from highlevel.interface import MarkOut, Out, Space, State, Words
from highlevel.operators.bounds import promise_bounds, window_bounds
from highlevel.operators.incoming import panes_of
from highlevel.operators.result_rows import RowBuilder
from highlevel.row_marks import RowMark, shown_windows
from lowmark.query.bind.relations import WINDOW_END, WINDOW_START
from lowmark.query.expr.evaluate import Bools, Data, Values, assemble_rows
from lowmark.query.plan.nodes import Aggregate, Gather, Totals
from lowmark.query.windows.window import Window, WindowKind
from lowmark.wire.records.partials import PANE
from lowmark.wire.records.punctuations import Promise
from lowmark.wire.rows.schema import Kind, Schema
from lowmark.wire.rows.values import FOREVER
from lowmark.wire.rows.words import column_of

__all__ = ["GatherOperator", "SendOperator", "TotalsOperator"]

_EXCHANGE, _OWN = 0, 1


class SendOperator:
    """The entrance of an exchange: passes its input on unchanged to the code that runs the graph."""

    def on_batch(self, port: int, rows: Words, state: State, out: Out) -> None:
        out.rows(0, rows)

    def on_promise(self, port: int, promise: Promise, state: State, out: Out) -> None:
        out.promise(0, promise)

    def on_mark(self, port: int, mark: RowMark, state: State, out: MarkOut) -> None:
        out.mark(0, mark)

    def work(self, state: State, out: Out, budget: int) -> int:
        return 0


class GatherOperator:
    """Rows of `plan.input` in, rows of `plan.output` out: window by window."""

    def __init__(self, plan: Gather) -> None:
        self._plan = plan
        self._rows = rows_space("rows", plan.input.words)

    def on_batch(self, port: int, rows: Words, state: State, out: Out) -> None:
        _keep(self._rows, rows, state)

    def on_promise(self, port: int, promise: Promise, state: State, out: Out) -> None:
        front = promise.below(PANE)
        if front is None:
            return
        for window in state.keys(self._rows, None if front == FOREVER else front):
            rows = _take(self._rows, window, state)
            out.rows(0, _without_head(rows))
            out.closed(0, range(window, window + 1), len(rows))
        _promise(self._plan.window, self._plan.output, front, out)

    def on_mark(self, port: int, mark: RowMark, state: State, out: MarkOut) -> None:
        out.mark(0, shown_windows(self._plan.window, mark))

    def work(self, state: State, out: Out, budget: int) -> int:
        return 0


class TotalsOperator:
    """Adds a column for each total to the bucket's rows of each window."""

    def __init__(self, plan: Totals) -> None:
        self._plan = plan
        self._output = plan.output
        self._layout = Layout(plan.input, (), plan.folds)
        self._totals = Schema(tuple(call.column for call in plan.calls), plan.rows.strings)
        ungated = Window(WindowKind.NONE, 1, 1, plan.window.axis)
        self._sums = RowBuilder(Aggregate(plan.input, (), (), plan.folds, plan.calls, ungated, self._totals))
        self._parts = tables_space("totals", self._layout)
        self._rows = rows_space("rows", plan.rows.words)

    def on_batch(self, port: int, rows: Words, state: State, out: Out) -> None:
        if port == _OWN:
            _keep(self._rows, rows, state)
            return
        for window, part in split(panes_of(rows), rows):
            table = state.get(self._parts, window) or GroupTable(self._layout)
            table.merge(part)
            state.put(self._parts, window, table)

    def on_promise(self, port: int, promise: Promise, state: State, out: Out) -> None:
        front = promise.below(PANE)
        if port == _OWN or front is None:  # the promise on totals covers its own bucket
            return
        below = None if front == FOREVER else front
        for window in state.keys(self._rows, below):
            rows = _take(self._rows, window, state)
            totals, flawed = self._sums.of(state.get(self._parts, window) or GroupTable(self._layout), window)
            out.rows(0, self._with_totals(rows, totals))
            for reason in flawed:
                out.flaw(0, window, reason)
            out.closed(0, range(window, window + 1), len(rows))
        for window in state.keys(self._parts, below):
            state.drop(self._parts, window)
        _promise(self._plan.window, self._output, front, out)

    def on_mark(self, port: int, mark: RowMark, state: State, out: MarkOut) -> None:
        out.mark(0, shown_windows(self._plan.window, mark))

    def work(self, state: State, out: Out, budget: int) -> int:
        return 0

    def _with_totals(self, rows: Words, totals: Words) -> Words:
        """Add the totals to the rows; `totals`: one row, or none if they were lost."""
        schema = self._plan.rows
        columns = [Values(c.kind, *column_of(schema, rows, c.name)) for c in schema.columns[2:]]
        for column in self._totals:
            data, valid = column_of(self._totals, totals, column.name) if len(totals) else _nothing(column.kind)
            columns.append(
                Values(column.kind, np.broadcast_to(data[0], len(rows)), np.broadcast_to(valid[0], len(rows)))
            )
        return assemble_rows(self._output, columns, len(rows))


def _nothing(kind: Kind) -> tuple[Data, Bools]:
    return np.zeros(1, np.float64 if kind is Kind.FLOAT else np.int64), np.zeros(1, np.bool_)


def _keep(space: Space[list[Words]], rows: Words, state: State) -> None:
    for window, part in split(panes_of(rows), rows):
        kept = state.get(space, window) or []
        kept.append(part.copy())
        state.put(space, window, kept)


def _take(space: Space[list[Words]], window: int, state: State) -> Words:
    kept = state.get(space, window)
    assert kept is not None, "a listed piece is there"
    state.drop(space, window)
    return np.concatenate(kept)


def _without_head(rows: Words) -> Words:
    """The rows without pane and number of tuples."""
    shown = np.ascontiguousarray(np.delete(rows, (1, 2), axis=1))
    shown[:, 0] >>= np.uint64(2)
    return shown


def _promise(window: Window, output: Schema, front: int, out: Out) -> None:
    """Promise that the rows of windows below `front` are out."""
    bounds = window_bounds(window, front, (WINDOW_START, WINDOW_END))
    promise_bounds(out, front, ((name, below) for name, below in bounds if name in output.names))
