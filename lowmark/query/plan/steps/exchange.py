"""The end of a SELECT if the rows of a window lie in many buckets: totals, ORDER BY, LIMIT and DISTINCT across them.

total(x)     each bucket sends its part to all buckets; rows stay where they are
ORDER BY     each bucket sends its rows (with LIMIT n, its n best) to one bucket
DISTINCT     rows go to the buckets that the hash of the selected columns chooses, and are compared there
"""

from __future__ import annotations

from lowmark.query.aggregates import lift
from lowmark.query.bind.relations import WINDOW_END, WINDOW_START, Grouped
from lowmark.query.expr.expressions import Expr, Named
from lowmark.query.optimize.partitioning import moves_at_end
from lowmark.query.plan.nodes import (
    AggregateCall,
    Finish,
    Fold,
    Gather,
    Pane,
    Reduce,
    Reduction,
    StepInput,
    Total,
    Totals,
)
from lowmark.query.plan.steps.builder import PlanBuilder
from lowmark.query.plan.steps.columns import itself_of, schema_of
from lowmark.query.windows.window import Window
from lowmark.wire.rows.schema import Column, Schema

__all__ = ["end_pane", "finished"]

_TOTALS = "total() is over all groups of a window"
_ORDER = "ORDER BY is over all rows of a window"
_LIMIT = "LIMIT is over all rows of a window: of each bucket its first {} go there"
_DISTINCT = "DISTINCT is over all rows of a window, whose keys are not all selected"


def finished(
    base: Grouped, columns: tuple[Named, ...], having: Expr | None, source: StepInput, schema: Schema, made: PlanBuilder
) -> StepInput:  # fmt: skip
    """The steps after an aggregate, up to the selected rows. `having` includes the condition of the reader."""
    if base.totals:
        source, schema = _totalled(base, source, schema, made)
    strings = schema.strings

    def finish(
        below: Schema, having: Expr | None, distinct: bool, ordered: bool, shown: tuple[Named, ...], of: StepInput
    ) -> StepInput:  # fmt: skip
        order, limit = (base.order, base.limit) if ordered else ((), None)
        output = schema_of(shown, strings)
        plan = Finish(below, (), having, order, limit, distinct, shown, output, base.within, base.window)
        return made.step(plan, [of])

    if base.order:
        if having is not None or base.limit is not None:
            every = tuple(map(itself_of, schema))
            source = finish(schema, having, False, base.limit is not None and not base.distinct, every, source)
        reason = _ORDER if base.limit is None else _LIMIT.format(base.limit)
        gathered = _gathered(base.window, source, schema, (), reason, made)
        return finish(schema, None, bool(base.distinct), True, columns, gathered)
    if base.distinct and moves_at_end(base):
        source = finish(schema, having, True, False, base.distinct, source)
        schema = schema_of(base.distinct, strings)
        by = tuple(name for name in schema.names if name not in (WINDOW_START, WINDOW_END))
        gathered = _gathered(base.window, source, schema, by, _DISTINCT, made)
        return finish(schema, None, True, False, tuple(map(itself_of, schema)), gathered)
    return finish(schema, having, bool(base.distinct), False, columns, source)


def _gathered(
    window: Window, source: StepInput, schema: Schema, by: tuple[str, ...], reason: str, made: PlanBuilder
) -> StepInput:  # fmt: skip
    rows = _rows(window, schema)
    back = made.exchange(source, schema, rows, by, reason)
    return made.step(Gather(rows.schema, window, schema), [back])


def _totalled(base: Grouped, source: StepInput, schema: Schema, made: PlanBuilder) -> tuple[StepInput, Schema]:
    own = _rows(base.window, schema)
    folds, calls = _sums(base.totals)
    parts = Reduction(None, end_pane(base.window), (), (), folds, True, schema.strings)
    back = made.exchange(source, schema, parts, (), _TOTALS, to_all=True)
    beside = made.step(Reduce(schema, own), [source])
    totals = Totals(parts.schema, folds, calls, own.schema, base.window)
    return made.step(totals, [back, beside], (0, 1)), totals.output


def _sums(totals: tuple[Total, ...]) -> tuple[tuple[Fold, ...], tuple[AggregateCall, ...]]:
    folds: list[Fold] = []
    calls = []
    for total in totals:
        first = len(folds)
        for summed in lift.total((total.expr,), ()):
            columns = tuple(
                Column(f"_part{len(folds)}{part.name}", part.expr.kind, part.expr.nullable) for part in summed.columns
            )
            folds.append(Fold(summed.op, columns, tuple(part.expr for part in summed.columns)))
        calls.append(AggregateCall("sum", tuple(range(first, len(folds))), (), (), total.column))
    return tuple(folds), tuple(calls)


def _rows(window: Window, schema: Schema) -> Reduction:
    return Reduction(None, end_pane(window), tuple(map(itself_of, schema)), (), (), False, schema.strings)


def end_pane(window: Window) -> Pane:
    """The pane of a window's end: pane k holds the end of window k, and no other."""
    return Pane(window.slide * window.axis.unit, window.axis.origin + 1, WINDOW_END)
