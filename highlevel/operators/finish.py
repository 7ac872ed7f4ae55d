"""The end of a SELECT: totals, HAVING, ORDER BY, DISTINCT, LIMIT and the selected columns, inside one window at a time.

All rows of a window come in one batch, so there is no state. The columns that `plan.within` names distinguish the
windows in a batch. If the plan has none of these clauses, this is a projection of each row.
"""

from __future__ import annotations

import numpy as np

from highlevel.groups.ordering import same_as_before, sort_keys, sorted_rows
from highlevel.interface import MarkOut, Out, State, Words
from highlevel.operators.totals import add_totals
from highlevel.row_marks import RowMark, carried
from lowmark.query.expr.evaluate import Ints, Values, assemble_rows, evaluate, holds, lost_in
from lowmark.query.expr.expressions import Field
from lowmark.query.plan.nodes import Finish
from lowmark.query.windows.progressing import Progress, progress
from lowmark.query.windows.window import Window, WindowKind
from lowmark.wire.records.punctuations import Bound, Promise
from lowmark.wire.records.verdicts import Reason
from lowmark.wire.rows.schema import Column, Schema
from lowmark.wire.rows.values import INT64_MAX, INT64_MIN
from lowmark.wire.rows.words import column_of

__all__ = ["FinishOperator"]

_WINDOW = ("window_start", "window_end")


class FinishOperator:
    """Rows of `plan.input` in, rows of `plan.output` out: windows in order of arrival, the rows of each in the plan's
    order. Promises on input columns become promises on the output columns that progress with them."""

    def __init__(self, plan: Finish) -> None:
        self._plan = plan
        self._within = plan.within or (_WINDOW if plan.input.names[:2] == _WINDOW else ())
        if not self._within and (plan.totals or plan.order or plan.distinct or plan.limit is not None):
            raise ValueError("totals, ORDER BY, DISTINCT and LIMIT need to know which rows are a window's")
        self._totalled = Schema((*plan.input.columns, *(total.column for total in plan.totals)), plan.input.strings)
        self._carried: dict[str, list[tuple[str, Progress]]] = {}
        self._unchanged: dict[str, str] = {}
        for named in plan.columns:
            found = progress(named.expr, plan.input.names)
            if found is not None:
                self._carried.setdefault(found.attribute, []).append((named.name, found))
            if isinstance(named.expr, Field):
                self._unchanged.setdefault(named.expr.name, named.name)

    def on_batch(self, port: int, rows: Words, state: State, out: Out) -> None:
        if not len(rows):
            return
        plan = self._plan
        units = self._units(rows)
        if plan.totals:
            rows, overflowed = add_totals(plan.totals, rows, plan.input, self._totalled, units)
            self._tell_lost(rows[overflowed], out)
        if plan.having is not None:
            having = evaluate(plan.having, rows, self._totalled)
            self._tell_lost(rows[lost_in((having,), len(rows))], out)
            passing = holds(having)
            rows, units = rows[passing], units[passing]
        if plan.order:
            values = [evaluate(item.expr, rows, self._totalled) for item in plan.order]
            self._tell_lost(rows[lost_in(values, len(rows))], out)
            keys = [sort_keys(of, item.descending) for of, item in zip(values, plan.order, strict=True)]
            order = sorted_rows([(units,), *keys], len(rows))
            rows, units = rows[order], units[order]
        columns = [evaluate(named.expr, rows, self._totalled) for named in plan.columns]
        result, lost = assemble_rows(plan.output, columns, len(rows)), lost_in(columns, len(rows))
        if plan.distinct:
            self._tell_lost(rows[lost], out)  # a lost value may differ from the value that it seems to equal
            kept = _first_of_equal(columns, units)
            result, rows, units, lost = result[kept], rows[kept], units[kept], lost[kept]
        if plan.limit is not None:
            first = _places(units) < plan.limit
            result, rows, lost = result[first], rows[first], lost[first]
        self._tell_lost(rows[lost], out)
        if len(result):
            out.rows(0, result)

    def on_promise(self, port: int, promise: Promise, state: State, out: Out) -> None:
        """A bound passes through each column's expression with its rounding. A promise of several bounds, or on values,
        passes only through columns that are selected unchanged."""
        if promise.last:
            out.promise(0, Promise((), last=True))
            return
        if len(promise.bounds) == 1 and (below := promise.bounds[0].below) is not None:
            for name, found in self._carried.get(promise.bounds[0].columns[0], ()):
                value = found.value(below)
                if INT64_MIN <= value <= INT64_MAX:
                    out.promise(0, Promise((Bound(name, below=value),)))
            return
        bounds = [bound.renamed(self._unchanged) for bound in promise.bounds]
        if all(bounds):
            out.promise(0, Promise(tuple(bound for bound in bounds if bound)))

    def on_mark(self, port: int, mark: RowMark, state: State, out: MarkOut) -> None:
        """Map a mark. Where a clause depends on all rows of a window, a loss may change which other rows of the window
        come."""
        plan = self._plan
        if plan.totals or plan.distinct or plan.limit is not None:
            mark = mark.at({name: extent for name, extent in mark.extents.items() if name in self._within})
        out.mark(0, mark.at(carried(mark, self._carried)))

    def work(self, state: State, out: Out, budget: int) -> int:
        return 0

    def _units(self, rows: Words) -> Ints:
        """The number of the window of each row; windows are numbered in order of arrival."""
        units = np.zeros(len(rows), np.int64)
        keys = [sort_keys(_column(self._plan.input, rows, name)) for name in self._within]
        if all((key == key[0]).all() for column in keys for key in column):
            return units
        order = sorted_rows(keys, len(rows))
        starts = ~same_as_before(keys, order)
        numbers = np.cumsum(starts) - 1
        firsts = np.argsort(np.argsort(order[starts]))
        units[order] = firsts[numbers]
        return units

    def _tell_lost(self, rows: Words, out: Out) -> None:
        if not len(rows):
            return
        windows = [0] if self._plan.window is None else self._windows(self._plan.window, rows)
        for number in windows:
            out.flaw(0, number, Reason.OVERFLOW)

    def _windows(self, window: Window, rows: Words) -> list[int]:
        """The windows of these rows; without windows, their panes, computed from the key that panes divide. A lost key
        is null; the step below has reported its group."""
        if window.kind is WindowKind.NONE:
            values, valid = column_of(self._plan.input, rows, window.axis.attribute)
            return sorted({(value - window.axis.origin) // window.axis.unit for value in values[valid].tolist()})
        ends, _ = column_of(self._plan.input, rows, _WINDOW[1])
        return [window.ending_at(end) for end in np.unique(ends).tolist()]


def _column(schema: Schema, rows: Words, name: str) -> Values:
    column: Column = schema.column(name)
    data, valid = column_of(schema, rows, name)
    return Values(column.kind, data, valid)


def _first_of_equal(columns: list[Values], units: Ints) -> Ints:
    """The first of the rows that are equal in all columns, within one window; the rows keep their order."""
    keys = [(units,), *(sort_keys(values) for values in columns)]
    order = sorted_rows(keys, len(units))
    return np.sort(order[~same_as_before(keys, order)])


def _places(units: Ints) -> Ints:
    """The place of each row in its window, from 0. Windows either come one after the other, or have columns that
    distinguish them."""
    order = np.argsort(units, kind="stable")
    grouped = units[order]
    starts = np.flatnonzero(np.diff(grouped, prepend=-1))
    lengths = np.diff(np.append(starts, len(grouped)))
    places = np.empty(len(units), np.int64)
    places[order] = np.arange(len(units)) - np.repeat(starts, lengths)
    return places
