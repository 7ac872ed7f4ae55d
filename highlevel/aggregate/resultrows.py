"""From the groups of a window to its rows: window_start and window_end, the keys, the calls' values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from highlevel.aggregate.groups import GroupRows, GroupTable
from highlevel.aggregate.layout import Layout
from highlevel.aggregate.ordering import sort_keys
from highlevel.aggregate.parts import Part
from highlevel.interface import Words
from lowmark.query.aggregates import DIFFERENTIAL, function
from lowmark.query.evaluate import Bools, Ints, Values, all_valid, assemble
from lowmark.query.finishing import Details, Groups
from lowmark.query.plan import Aggregate, AggregateCall, FoldOp
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
    lacking: tuple[Ints, ...]  # by fold, of each group what its sum lacks
    detail_rows: Words
    detail_groups: Ints  # the group of each detail row


class ResultRows:
    def __init__(self, plan: Aggregate) -> None:
        self._plan = plan
        self._layout = Layout(plan.input, plan.keys, plan.folds)
        self._finish = [(call, function(call.function).finish) for call in plan.calls]

    def of(self, table: GroupTable, window: int) -> tuple[Words, Flawed]:
        """A window's rows, and which of them have a null because a value cannot be told."""
        groups = self._grouped(GroupRows.of((table,)))
        return self._rows(groups, [window], np.zeros(len(groups.rows), np.int64))

    def together(self, part: Part) -> tuple[Words, list[tuple[int, Reason]]]:
        """The rows of windows, and for which reasons a window has such a null."""
        several = len(part.windows) > 1
        if several and self._plan.details:
            found = [self.together(one) for one in part.apart()]
            return np.concatenate([rows for rows, _ in found]), [flaw for _, flaws in found for flaw in flaws]
        groups = self._grouped(part.groups)
        of = np.repeat(np.arange(len(part.windows)), part.counts) if several else np.zeros(len(groups.rows), np.int64)
        rows, flawed = self._rows(groups, part.windows, of)
        flaws = [(part.windows[at], reason) for reason, bad in flawed.items() for at in np.unique(of[bad]).tolist()]
        return rows, sorted(flaws, key=lambda flaw: flaw[0])

    def counted(self, table: GroupTable) -> tuple[Words, Ints]:
        """Rows of no window in particular, and the tuples that each stands for."""
        groups = self._grouped(GroupRows.of((table,)))
        return self._rows(groups, [0], np.zeros(len(groups.rows), np.int64))[0], groups.rows[:, 1].view(np.int64)

    def _rows(self, groups: _Window, windows: Sequence[int], of: Ints) -> tuple[Words, Flawed]:
        """`of`: of each group, the place of its window in `windows`."""
        rows = len(groups.rows)
        columns = [*self._bounds(windows, of), *(self._column(groups.rows, key) for key in self._plan.keys)]
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
            if not (function(call.function).wide and self._plan.folds[fold].op is FoldOp.ADD):
                yield Reason.OVERFLOW, groups.lacking[fold] != 0
        for pair in call.ties:
            one, other = (self._column(groups.rows, self._plan.folds[fold].columns[-1].name) for fold in pair)
            keys = zip(sort_keys(one), sort_keys(other), strict=True)
            yield Reason.TIE, np.logical_or.reduce([a != b for a, b in keys])

    def _grouped(self, groups: GroupRows) -> _Window:
        """Groups without tuples are gone; with details, what they split is one group again."""
        live = groups.rows[:, 1] != 0
        if not self._plan.details:
            rows = groups.rows if live.all() else groups.rows[live]
            lacking = self._lacking(groups, live)
            return _Window(rows, lacking, rows, np.arange(len(rows)))
        whole = GroupTable(self._layout)
        positions = whole.merge_groups(groups)
        kept = whole.groups[:, 1] != 0
        places = np.cumsum(kept) - 1
        return _Window(
            whole.groups[kept], self._lacking(GroupRows.of((whole,)), kept), groups.rows[live], places[positions[live]]
        )

    def _lacking(self, groups: GroupRows, kept: Bools) -> tuple[Ints, ...]:
        return tuple(groups.lacking(fold)[kept] for fold in range(len(self._plan.folds)))

    def _state_of(self, call: AggregateCall, groups: _Window) -> Groups:
        folds = self._folds(call, groups.rows)
        details = None
        if call.details:
            values = tuple(self._column(groups.detail_rows, name) for name in call.details)
            repeat = not set(self._plan.details) <= set(call.details)
            tuples = groups.detail_rows[:, 1].view(np.int64)
            details = Details(groups.detail_groups, tuples, values, self._folds(call, groups.detail_rows), repeat)
        lacking = tuple(groups.lacking[fold] for fold in call.folds)
        return Groups(groups.rows[:, 1].view(np.int64), folds, details, lacking)

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

    def _bounds(self, windows: Sequence[int], of: Ints) -> list[Values]:
        shown = self._plan.window
        if shown.kind is WindowKind.NONE:
            return []
        return [_spread(shown.axis.kind, list(map(bound, windows)), of) for bound in (shown.start, shown.end)]


def _spread(kind: Kind, bounds: Sequence[int | None], of: Ints) -> Values:
    """Windows of the first and the last times that there are reach beyond them: they end where time does."""
    numbers = [min(max(bound or 0, INT64_MIN), INT64_MAX) for bound in bounds]
    known = [bound is not None for bound in bounds]
    if len(bounds) == 1:
        return Values(kind, np.full(len(of), numbers[0], np.int64), np.full(len(of), known[0]))
    return Values(kind, np.array(numbers, np.int64)[of], np.array(known)[of])
