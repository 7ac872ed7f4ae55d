"""What a query is split into, and what stands in it."""

from __future__ import annotations

from dataclasses import dataclass

from lowmark.query.expressions import Call, Expr
from lowmark.query.plan import Exchange, Node, Reduce, Reduction, Step
from lowmark.query.windows import Window
from lowmark.wire.schema import Kind, Schema

__all__ = ["Halves", "expressions_of", "mentions_text"]


@dataclass(frozen=True, slots=True)
class Halves:
    nodes: tuple[Node, ...]
    steps: tuple[Step, ...]
    output: Schema
    window: Window | None  # that the rows of the answer belong to, and show
    reasons: tuple[str, ...]  # why all must be in one bucket; (): any number will do
    exchanges: tuple[Exchange, ...] = ()


def mentions_text(halves: Halves) -> bool:
    """Whether a text can turn up anywhere in it."""
    schemas = [halves.output, *(node.reduction.schema for node in halves.nodes)]
    schemas += [step.plan.reduction.schema for step in halves.steps if isinstance(step.plan, Reduce)]
    reductions = [node.reduction for node in halves.nodes]
    reductions += [step.plan.reduction for step in halves.steps if isinstance(step.plan, Reduce)]
    exprs = [expr for reduction in reductions for expr in expressions_of(reduction)]
    return any(column.kind is Kind.STR for schema in schemas for column in schema) or any(map(_reads_text, exprs))


def _reads_text(expr: Expr) -> bool:
    return expr.kind is Kind.STR or (isinstance(expr, Call) and any(map(_reads_text, expr.args)))


def expressions_of(reduction: Reduction) -> list[Expr]:
    """All that it computes of a tuple."""
    lifts = [expr for fold in reduction.folds for expr in fold.lift]
    where = [] if reduction.where is None else [reduction.where]
    return [*where, *(item.expr for item in (*reduction.keys, *reduction.details)), *lifts]
