"""Makes the rows of a window from its groups: window_start and window_end, the keys, the calls' values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from highlevel.groups.group_table import GroupRows, GroupTable
from highlevel.groups.layout import GROUP_TUPLES, Layout
from highlevel.groups.ordering import sort_keys
from highlevel.interface import Words
from highlevel.operators.window_groups import WindowGroups
from lowmark.query.aggregates.calls import DIFFERENTIAL, function
from lowmark.query.aggregates.finalise import Details, Groups
from lowmark.query.expr.evaluate import Bools, Ints, Values, all_valid, place
from lowmark.query.plan.nodes import Aggregate, AggregateCall, FoldOp
from lowmark.query.windows.window import WindowKind
from lowmark.wire.records.verdicts import Reason
from lowmark.wire.rows.values import INT64_MAX, INT64_MIN
from lowmark.wire.rows.words import column_of, data_of

__all__ = ["RowBuilder"]


Flawed = Mapping[Reason, Bools]
"""For each reason that occurs, the rows that have a null because of it."""


@dataclass(frozen=True, slots=True, eq=False)
class _Window:
    """The groups of a window (`rows`) and, if there are details, the rows of their combinations."""

    rows: Words
    lacking: tuple[Ints, ...]  # by fold, what the sum of each group lacks; (): no sum lacks anything
    detail_rows: Words
    detail_groups: Ints  # the group of each detail row


class RowBuilder:
    def __init__(self, plan: Aggregate) -> None:
        self._plan = plan
        self._layout = Layout(plan.input, plan.keys, plan.folds)
        shown = plan.window
        self._bounds = () if shown.kind is WindowKind.NONE else (shown.start, shown.end)
        self._nullable = any(plan.input.column(key).nullable for key in plan.keys)
        behind = len(self._bounds) + len(plan.keys)
        names = plan.output.names[behind:]
        self._finish = [
            (call, function(call.function).finish, name) for call, name in zip(plan.calls, names, strict=True)
        ]

    def of(self, table: GroupTable, window: int) -> tuple[Words, Flawed]:
        """A window's rows, and which of them have a null because a value cannot be computed."""
        groups = self._grouped(GroupRows.of((table,)))
        return self._rows(groups, [window], np.zeros(len(groups.rows), np.int64))

    def together(self, part: WindowGroups) -> tuple[Words, list[tuple[int, Reason]]]:
        """The rows of several windows, and the reasons of such nulls by window."""
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
        """Rows of no particular window, and the number of tuples that each stands for."""
        groups = self._grouped(GroupRows.of((table,)))
        return self._rows(groups, [0], np.zeros(len(groups.rows), np.int64))[0], groups.rows[:, GROUP_TUPLES].view(
            np.int64
        )

    def _rows(self, groups: _Window, windows: Sequence[int], of: Ints) -> tuple[Words, Flawed]:
        """`of`: for each group, the place of its window in `windows`."""
        rows = len(groups.rows)
        words = self._heads(groups.rows, windows, of)
        flawed: dict[Reason, Bools] = {}
        for call, finish, name in self._finish:
            with np.errstate(all="ignore"):  # overflowed sums give wrong values here, which are replaced by null
                values = finish(self._state_of(call, groups), call.parameters)
            lost = () if values.lost is None else ((Reason.OVERFLOW, values.lost),)
            for reason, flaw in (*lost, *self._flaws(call, groups)):
                if flaw.any():
                    values = Values(values.kind, values.data, values.valid & ~flaw)
                    flawed[reason] = flawed.get(reason, np.zeros(rows, np.bool_)) | flaw
            place(self._plan.output, name, values, words)
        return words, flawed

    def _heads(self, groups: Words, windows: Sequence[int], of: Ints) -> Words:
        """Rows with the columns before the calls. Keys have the same words in a row as in its group."""
        words = np.empty((len(groups), self._plan.output.words), np.uint64)
        words[:, 0] = 0
        for index, bound in enumerate(self._bounds):
            # Windows at the first and the last times would extend beyond int64, so they are cut there.
            numbers = [min(max(at, INT64_MIN), INT64_MAX) for at in map(bound, windows) if at is not None]
            if numbers:
                words[:, 1 + index] = np.array(numbers, np.int64).view(np.uint64)[of if len(numbers) > 1 else 0]
            else:
                words[:, 0], words[:, 1 + index] = 1 << index, 0
        first, end = 1 + len(self._bounds), self._layout.key_end
        words[:, first : first + end - 2] = groups[:, 2:end]
        if self._nullable:
            nulls = groups[:, 0] & self._layout.key_mask
            words[:, 0] |= nulls >> np.uint64(1) << np.uint64(len(self._bounds))
        return words

    def _flaws(self, call: AggregateCall, groups: _Window) -> Iterator[tuple[Reason, Bools]]:
        for fold in call.folds if groups.lacking else ():
            if not (function(call.function).wide and self._plan.folds[fold].op is FoldOp.ADD):
                yield Reason.OVERFLOW, groups.lacking[fold] != 0
        for pair in call.ties:
            one, other = (self._column(groups.rows, self._plan.folds[fold].columns[-1].name) for fold in pair)
            keys = zip(sort_keys(one), sort_keys(other), strict=True)
            yield Reason.TIE, np.logical_or.reduce([a != b for a, b in keys])

    def _grouped(self, groups: GroupRows) -> _Window:
        """The groups with tuples; groups that details split are merged again."""
        live = groups.rows[:, GROUP_TUPLES] != 0
        if not self._plan.details:
            rows = groups.rows if live.all() else groups.rows[live]
            return _Window(rows, self._lacking(groups, live), rows, np.arange(len(rows)))
        whole = GroupTable(self._layout)
        positions = whole.merge_groups(groups)
        kept = whole.groups[:, GROUP_TUPLES] != 0
        places = np.cumsum(kept) - 1
        return _Window(
            whole.groups[kept], self._lacking(GroupRows.of((whole,)), kept), groups.rows[live], places[positions[live]]
        )

    def _lacking(self, groups: GroupRows, kept: Bools) -> tuple[Ints, ...]:
        if not groups.carries:
            return ()
        return tuple(groups.lacking(fold)[kept] for fold in range(len(self._plan.folds)))

    def _state_of(self, call: AggregateCall, groups: _Window) -> Groups:
        folds = self._folds(call, groups.rows)
        details = None
        if call.details:
            values = tuple(self._column(groups.detail_rows, name) for name in call.details)
            repeat = not set(self._plan.details) <= set(call.details)
            tuples = groups.detail_rows[:, GROUP_TUPLES].view(np.int64)
            details = Details(groups.detail_groups, tuples, values, self._folds(call, groups.detail_rows), repeat)
        lacking = tuple(groups.lacking[fold] for fold in call.folds) if groups.lacking else ()
        return Groups(groups.rows[:, GROUP_TUPLES].view(np.int64), folds, details, lacking)

    def _folds(self, call: AggregateCall, rows: Words) -> tuple[tuple[Values, ...], ...]:
        folds = []
        for index in call.folds:
            fold = self._plan.folds[index]
            column_of = self._sum if fold.op in DIFFERENTIAL else self._column
            folds.append(tuple(column_of(rows, column.name) for column in fold.columns))
        return tuple(folds)

    def _column(self, rows: Words, name: str) -> Values:
        schema = self._layout.schema
        data, valid = column_of(schema, rows, name)
        return Values(schema.column(name).kind, data, valid)

    def _sum(self, rows: Words, name: str) -> Values:
        """The sum; 0 if there are no values."""
        schema = self._layout.schema
        return all_valid(schema.column(name).kind, data_of(schema, rows, name))
