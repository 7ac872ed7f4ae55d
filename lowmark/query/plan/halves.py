"""The two halves that a query is split into, and the expressions in them."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TypeVar, cast

from lowmark.query.expr.expressions import Call, Expr
from lowmark.query.plan.nodes import Exchange, Node, Reduce, Reduction, Step
from lowmark.query.windows.window import Window
from lowmark.wire.rows.schema import Kind, Schema

__all__ = ["Halves", "expressions_of", "without_idle_texts"]


@dataclass(frozen=True, slots=True)
class Halves:
    nodes: tuple[Node, ...]
    steps: tuple[Step, ...]
    output: Schema
    window: Window | None  # the window that rows of the answer belong to, and show
    reasons: tuple[str, ...]  # why all rows must be in one bucket; (): they may be in any number
    exchanges: tuple[Exchange, ...] = ()


def without_idle_texts(halves: Halves) -> Halves:
    """The same halves, without the query's table of texts if they use no text: it must not change the stage."""
    return halves if _mentions_text(halves) else _without_texts(halves)


_T = TypeVar("_T")


def _without_texts(part: _T) -> _T:
    """Remove the table everywhere in a plan: it is the field `strings` of schemas and reductions."""
    if isinstance(part, tuple):
        return cast(_T, tuple(map(_without_texts, part)))
    if not is_dataclass(part) or isinstance(part, Expr | type):
        return part
    texts: dict[str, object] = {}
    for field in fields(part):
        value = getattr(part, field.name)
        new = () if field.name == "strings" else _without_texts(value)
        if new is not value:
            texts[field.name] = new
    return replace(part, **texts) if texts else part


def _mentions_text(halves: Halves) -> bool:
    """Whether a text can occur anywhere in the halves."""
    reductions = [node.reduction for node in halves.nodes]
    reductions += [step.plan.reduction for step in halves.steps if isinstance(step.plan, Reduce)]
    schemas = [halves.output, *(reduction.schema for reduction in reductions)]
    exprs = [expr for reduction in reductions for expr in expressions_of(reduction)]
    return any(column.kind is Kind.STR for schema in schemas for column in schema) or any(map(_reads_text, exprs))


def _reads_text(expr: Expr) -> bool:
    return expr.kind is Kind.STR or (isinstance(expr, Call) and any(map(_reads_text, expr.args)))


def expressions_of(reduction: Reduction) -> list[Expr]:
    """All expressions that a reduction computes of a tuple."""
    lifts = [expr for fold in reduction.folds for expr in fold.lift]
    where = [] if reduction.where is None else [reduction.where]
    return [*where, *(item.expr for item in (*reduction.keys, *reduction.details)), *lifts]
