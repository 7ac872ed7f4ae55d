"""From the groups of a window to its rows: window_start and window_end, the keys, the calls' values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from highlevel.aggregate.groups import GroupTable
from highlevel.aggregate.layout import Layout
from highlevel.aggregate.ordering import sort_keys
from highlevel.interface import Words
from lowmark.query.aggregates import DIFFERENTIAL, function
from lowmark.query.evaluate import Bools, Ints, Values, all_valid, assemble
from lowmark.query.finishing import Details, Groups
from lowmark.query.plan import Aggregate, AggregateCall
from lowmark.query.windows import WindowKind
from lowmark.wire.results import Reason
from lowmark.wire.rows import column_of
from lowmark.wire.schema import Kind
from lowmark.wire.values import INT64_MAX, INT64_MIN

__all__ = ["ResultRows"]


Flawed = Mapping[Reason, Bools]
"""By reason, the rows that have a null for it; reasons that there are."""


@dataclass(frozen=True, slots=True, eq=False)
class _Window:
    """The groups of a window (`rows`), and where there are details the rows of their combinations."""

    rows: Words
    overflowed: tuple[Bools, ...]  # by fold, of each group
    detail_rows: Words
    detail_groups: Ints  # the group of each detail row


class ResultRows:
    def __init__(self, plan: Aggregate) -> None:
        self._plan = plan
        self._layout = Layout(plan.input, plan.keys, plan.folds)
        self._finish = [(call, function(call.function).finish) for call in plan.calls]

    def of(self, table: GroupTable, window: int) -> tuple[Words, Flawed]:
        """A window's rows, and which of them have a null because a value cannot be told."""
        return self._rows(self._grouped(table), window)

    def counted(self, table: GroupTable) -> tuple[Words, Ints]:
        """Rows of no window in particular, and the tuples that each stands for."""
        groups = self._grouped(table)
        return self._rows(groups, 0)[0], groups.rows[:, 1].view(np.int64)

    def _rows(self, groups: _Window, window: int) -> tuple[Words, Flawed]:
        rows = len(groups.rows)
        columns = [*self._bounds(window, rows), *(self._column(groups.rows, key) for key in self._plan.keys)]
        flawed: dict[Reason, Bools] = {}
        for call, finish in self._finish:
            with np.errstate(all="ignore"):  # of sums that left the integers nonsense is computed, and not shown
                values = finish(self._state_of(call, groups), call.parameters)
            for reason, flaw in self._flaws(call, groups):
                if flaw.any():
                    values = Values(values.kind, values.data, values.valid & ~flaw)
                    flawed[reason] = flawed.get(reason, np.zeros(rows, np.bool_)) | flaw
            columns.append(values)
        return assemble(self._plan.output, columns, rows), flawed

    def _flaws(self, call: AggregateCall, groups: _Window) -> Iterator[tuple[Reason, Bools]]:
        for fold in call.folds:
            yield Reason.OVERFLOW, groups.overflowed[fold]
        for pair in call.ties:
            one, other = (self._column(groups.rows, self._plan.folds[fold].columns[-1].name) for fold in pair)
            keys = zip(sort_keys(one), sort_keys(other), strict=True)
            yield Reason.TIE, np.logical_or.reduce([a != b for a, b in keys])

    def _grouped(self, table: GroupTable) -> _Window:
        """Groups without tuples are gone; with details, what they split is one group again."""
        live = table.groups[:, 1] != 0
        if not self._plan.details:
            rows, flags = table.groups[live], self._flags(table, live)
            return _Window(rows, flags, rows, np.arange(len(rows)))
        whole = GroupTable(self._layout)
        positions = whole.merge_table(table)
        kept = whole.groups[:, 1] != 0
        places = np.cumsum(kept) - 1
        return _Window(whole.groups[kept], self._flags(whole, kept), table.groups[live], places[positions[live]])

    def _flags(self, table: GroupTable, kept: Bools) -> tuple[Bools, ...]:
        return tuple(table.overflowed(fold)[kept] for fold in range(len(self._plan.folds)))

    def _state_of(self, call: AggregateCall, groups: _Window) -> Groups:
        folds = self._folds(call, groups.rows)
        details = None
        if call.details:
            values = tuple(self._column(groups.detail_rows, name) for name in call.details)
            repeat = not set(self._plan.details) <= set(call.details)
            tuples = groups.detail_rows[:, 1].view(np.int64)
            details = Details(groups.detail_groups, tuples, values, self._folds(call, groups.detail_rows), repeat)
        return Groups(groups.rows[:, 1].view(np.int64), folds, details)

    def _folds(self, call: AggregateCall, rows: Words) -> tuple[tuple[Values, ...], ...]:
        folds = []
        for index in call.folds:
            fold = self._plan.folds[index]
            columns = tuple(self._column(rows, column.name) for column in fold.columns)
            if fold.op in DIFFERENTIAL:
                columns = tuple(all_valid(values.kind, values.data) for values in columns)
            folds.append(columns)
        return tuple(folds)

    def _column(self, rows: Words, name: str) -> Values:
        schema = self._layout.schema
        data, valid = column_of(schema, rows, name)
        return Values(schema.column(name).kind, data, valid)

    def _bounds(self, window: int, rows: int) -> list[Values]:
        shown = self._plan.window
        if shown.kind is WindowKind.NONE:
            return []
        return [_constant(shown.axis.kind, value, rows) for value in (shown.start(window), shown.end(window))]


def _constant(kind: Kind, value: int | None, rows: int) -> Values:
    """Windows of the first and the last times that there are reach beyond them: they end where time does."""
    number = np.int64(min(max(value or 0, INT64_MIN), INT64_MAX))
    return Values(kind, np.full(rows, number), np.full(rows, value is not None))
