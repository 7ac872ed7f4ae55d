"""A reduction above the low level: each row of an upstream step becomes a partial of one tuple."""

from __future__ import annotations

import numpy as np

from highlevel.aggregate.together import carried
from highlevel.interface import Out, Port, State, Words
from lowmark.query.evaluate import Values, all_valid, assemble, evaluate, holds
from lowmark.query.plan import Reduce
from lowmark.query.progressing import Progress, progress
from lowmark.wire.partials import PANE
from lowmark.wire.promises import FOREVER, Bound, Promise
from lowmark.wire.rows import column_of
from lowmark.wire.schema import Kind

__all__ = ["ReduceOperator"]


class ReduceOperator:
    """Rows of `plan.input` in, rows of `plan.reduction.schema` out. It merges nothing: what reads it does. Promises on
    the attribute of the panes go on, as promises on panes; those of several bounds as promises on keys."""

    def __init__(self, plan: Reduce) -> None:
        self._plan = plan
        self._reduction = plan.reduction
        named = (*self._reduction.keys, *self._reduction.details)
        lifts = (lift for fold in self._reduction.folds for lift in fold.lift)
        self._exprs = (*(item.expr for item in named), *lifts)
        self._keys: dict[str, list[tuple[str, Progress]]] = {}
        for key in self._reduction.keys:
            if (found := progress(key.expr, plan.input.names)) is not None:
                self._keys.setdefault(found.attribute, []).append((key.name, found))

    @property
    def inputs(self) -> tuple[Port, ...]:
        return (Port(self._plan.input, (self._reduction.pane.attribute,)),)

    @property
    def outputs(self) -> tuple[Port, ...]:
        return (Port(self._reduction.schema, (PANE,), tuple(key.name for key in self._reduction.keys)),)

    def on_batch(self, port: int, rows: Words, state: State, out: Out) -> None:
        schema = self._plan.input
        if self._reduction.where is not None:
            rows = rows[holds(self._reduction.where, rows, schema)]
        if not len(rows):
            return
        attribute, _ = column_of(schema, rows, self._reduction.pane.attribute)
        panes = all_valid(Kind.INT, self._reduction.pane.index(attribute.view(np.int64)))
        ones = all_valid(Kind.INT, np.broadcast_to(np.int64(1), len(rows)))
        columns: list[Values] = [panes, ones, *(evaluate(expr, rows, schema) for expr in self._exprs)]
        out.rows(0, assemble(self._reduction.schema, columns, len(rows)))

    def on_promise(self, port: int, promise: Promise, state: State, out: Out) -> None:
        below = promise.below(self._reduction.pane.attribute)
        if below is not None:
            last = below == FOREVER
            out.promise(0, Promise((Bound(PANE, FOREVER if last else self._reduction.pane.index(below)),), last))
        elif len(promise.bounds) > 1 and (joint := carried(promise, self._keys)) is not None:
            out.promise(0, joint)

    def work(self, state: State, out: Out, budget: int) -> int:
        return 0
