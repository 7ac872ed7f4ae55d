"""A reduction above the low level: each row of an upstream step becomes a partial of one tuple."""

from __future__ import annotations

import numpy as np

from highlevel.groups.joint_closing import carried
from highlevel.interface import MarkOut, Out, State, Words
from highlevel.progress.promises.values import about_values
from highlevel.row_marks import RowMark, in_panes, of_panes
from highlevel.row_marks import carried as rows_at
from lowmark.query.expr.evaluate import Ints, all_valid, assemble_rows, evaluate, holds, lost_in
from lowmark.query.expr.expressions import Field
from lowmark.query.plan.nodes import Reduce
from lowmark.query.windows.progressing import Progress, progress
from lowmark.wire.records.partials import PANE
from lowmark.wire.records.punctuations import Bound, Promise
from lowmark.wire.records.verdicts import Reason, Verdict
from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.values import FOREVER
from lowmark.wire.rows.words import column_of

__all__ = ["ReduceOperator"]


class ReduceOperator:
    """Rows of `plan.input` in, rows of `plan.reduction.schema` out. It merges no rows; its reader does. Promises on the
    attribute of the panes become promises on panes; those with several bounds become promises on keys."""

    def __init__(self, plan: Reduce) -> None:
        self._plan = plan
        self._reduction = plan.reduction
        named = (*self._reduction.keys, *self._reduction.details)
        self._unchanged = {item.expr.name: item.name for item in named if isinstance(item.expr, Field)}
        self._keys: dict[str, list[tuple[str, Progress]]] = {}
        for key in self._reduction.keys:
            if (found := progress(key.expr, plan.input.names)) is not None:
                self._keys.setdefault(found.attribute, []).append((key.name, found))

    def on_batch(self, port: int, rows: Words, state: State, out: Out) -> None:
        schema = self._plan.input
        attribute, there = column_of(schema, rows, self._reduction.pane.attribute)
        if not there.all():  # a lost time lies in no pane; the step that computed it has reported the loss
            rows, attribute = rows[there], attribute[there]
        panes = self._reduction.pane.index(attribute.view(np.int64))
        if self._reduction.where is not None:
            where = evaluate(self._reduction.where, rows, schema)
            self._tell_lost(panes[lost_in((where,), len(rows))], out)
            passing = holds(where)
            rows, panes = rows[passing], panes[passing]
        if not len(rows):
            return
        ones = all_valid(Kind.INT, np.broadcast_to(np.int64(1), len(rows)))
        columns = [evaluate(expr, rows, schema) for expr in self._reduction.exprs]
        self._tell_lost(panes[lost_in(columns, len(rows))], out)
        out.rows(0, assemble_rows(self._reduction.schema, [all_valid(Kind.INT, panes), ones, *columns], len(rows)))

    def on_promise(self, port: int, promise: Promise, state: State, out: Out) -> None:
        below = promise.below(self._reduction.pane.attribute)
        if below is not None:
            last = below == FOREVER
            out.promise(0, Promise((Bound(PANE, FOREVER if last else self._reduction.pane.index(below)),), last))
        elif about_values(promise):
            if (made := self._valued(promise)) is not None:
                out.promise(0, made)
        elif len(promise.bounds) > 1 and (joint := carried(promise, self._keys)) is not None:
            out.promise(0, joint)

    def _valued(self, promise: Promise) -> Promise | None:
        """The output's form of a promise about values of columns passed on unchanged, with or without panes; None: any
        other promise."""
        bounds = []
        for bound in promise.bounds:
            if bound.values is not None and (named := bound.renamed(self._unchanged)) is not None:
                bounds.append(named)
            elif bound.below is not None and bound.column == self._reduction.pane.attribute:
                below = bound.below if bound.below == FOREVER else self._reduction.pane.index(bound.below)
                bounds.append(Bound(PANE, below=below))
            else:
                return None
        return Promise(tuple(bounds))

    def _tell_lost(self, panes: Ints, out: Out) -> None:
        for pane in np.unique(panes).tolist():
            verdict, times = Verdict(frozenset({Reason.OVERFLOW})), of_panes((pane, pane + 1), self._reduction.pane)
            out.mark(0, RowMark(verdict, {PANE: (pane, pane + 1)}, times, shifts=True))

    def on_mark(self, port: int, mark: RowMark, state: State, out: MarkOut) -> None:
        extents = rows_at(mark, self._keys)
        if (extent := mark.extents.get(self._reduction.pane.attribute)) is not None:
            extents[PANE] = in_panes(extent, self._reduction.pane)
        out.mark(0, mark.at(extents))

    def work(self, state: State, out: Out, budget: int) -> int:
        return 0
