"""One SELECT over a FROM with a single input."""

from __future__ import annotations

from dataclasses import dataclass

from lowmark.query.bind.grouping import group
from lowmark.query.bind.hints import BUCKET, STRATEGY, Hints
from lowmark.query.bind.lowering import Lowering
from lowmark.query.bind.names import InputNames, check_function, is_aggregated
from lowmark.query.bind.relations import Arm, Relation
from lowmark.query.bind.scope import Scope
from lowmark.query.bind.select_list import selected_columns
from lowmark.query.expr.expressions import Expr, Field
from lowmark.query.parse import syntax as s
from lowmark.query.parse.errors import QueryError
from lowmark.query.plan.steps.stream_order import bind_order, order_of_arrival, ordered
from lowmark.wire.rows.schema import Column

__all__ = ["Selected", "bind_select", "groups"]


@dataclass(frozen=True, slots=True)
class Selected:
    relation: Relation
    ordered: bool  # by ORDER BY
    limit: s.IntegerLiteral | None = None  # over all rows, in the relation's order; LIMIT of groups is inside a window


def bind_select(select: s.Select, scope: Scope, strings: tuple[str, ...], hints: Hints) -> Selected:
    _check_functions(select, scope)
    where = _where(select, scope, strings)
    if groups(select):
        return _grouped(select, where, scope, strings, hints)
    hints.refuse(STRATEGY, "it applies to windows, and this SELECT has none")
    hints.refuse(BUCKET, "rows that are selected one by one need not meet")
    return Selected(_plain(select, where, scope, strings), False, select.limit)


def _check_functions(select: s.Select, scope: Scope) -> None:
    """Check the functions first: a call decides what kind of SELECT this is."""
    for part in (*select.items, *select.group_by, *select.order_by, select.where, select.having):
        for node in () if part is None else s.walk(part):
            if isinstance(node, s.FunctionCall):
                check_function(node, scope.text)


def groups(select: s.Select) -> bool:
    """Whether the SELECT makes groups instead of selecting row by row."""
    clauses = (*select.items, *select.order_by, *(() if select.having is None else (select.having,)))
    return bool(select.group_by) or select.distinct or any(map(is_aggregated, clauses))


def _where(select: s.Select, scope: Scope, strings: tuple[str, ...]) -> Expr | None:
    if select.where is None:
        return None
    names = InputNames(scope, "WHERE", "conditions on aggregates go to HAVING")
    return Lowering(scope.text, strings, names).condition(select.where)


def _grouped(select: s.Select, where: Expr | None, scope: Scope, strings: tuple[str, ...], hints: Hints) -> Selected:
    bound = group(select, where, scope, strings, hints)
    values: dict[str, Expr] = {item.name: item.expr for item in bound.columns}
    if bound.grouped.distinct:
        # Its rows have only the selected columns: the end of the window drops the rest.
        values = {item.name: Field(item.name, item.expr.kind, item.expr.nullable) for item in bound.columns}
    columns = tuple(Column(item.name, item.expr.kind, item.expr.nullable) for item in bound.columns)
    return Selected(Relation(columns, (Arm(bound.grouped, None, values),)), bool(select.order_by))


def _plain(select: s.Select, where: Expr | None, scope: Scope, strings: tuple[str, ...]) -> Relation:
    _refuse_clauses_of_groups(select, scope)
    order = bind_order(select, scope, strings) if select.order_by else ()
    if select.limit is not None and not order:
        order = order_of_arrival(select.limit, scope)
    lowering = Lowering(scope.text, strings, InputNames(scope, "a SELECT list without groups"))
    columns = selected_columns(select, scope, lowering)
    arms = []
    for arm in scope.relation.arms:
        hidden = {name: expr for name, expr in arm.values.items() if name.startswith(".")}
        values = {item.name: arm.lowered(item.expr) for item in columns}
        arms.append(Arm(arm.base, arm.filtered(where), hidden | values))
    relation = Relation(tuple(Column(item.name, item.expr.kind, item.expr.nullable) for item in columns), tuple(arms))
    return ordered(relation, order, scope.relation.arms) if order else relation


def _refuse_clauses_of_groups(select: s.Select, scope: Scope) -> None:
    text = scope.text
    if select.window is not None:
        hint = "add an aggregate such as count(*), GROUP BY or DISTINCT, or leave the window out"
        raise QueryError("this window holds no aggregate", text, select.window.span, hint=hint)
    if select.having is not None:
        raise QueryError("HAVING is about groups, and there are none", text, select.having.span, hint="use WHERE")
