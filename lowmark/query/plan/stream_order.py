"""ORDER BY over a whole stream: a row is emitted as soon as no earlier row can follow.

The first expression must progress with `ts`, ascending, so the order is complete up to every promise. Others may go in
either direction if the first is `ts` itself, or a constant before or after it: rows that are equal in it have the same
time. Ties are broken by arrival; in joins, which have no arrival, by the shown columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from lowmark.query.bind.keys import free_name
from lowmark.query.bind.lowering import Lowering
from lowmark.query.bind.names import InputNames
from lowmark.query.bind.relations import ARRIVAL, ROW_NUM, Arm, Joined, Packets, Relation
from lowmark.query.bind.scope import Scope
from lowmark.query.bind.windows import GRANULE, progresses, progressing_columns
from lowmark.query.expr.expressions import Expr, Field, Literal, Named, Op, fields
from lowmark.query.parse import syntax as s
from lowmark.query.parse.errors import QueryError
from lowmark.query.plan.builder import Input, PlanBuilder
from lowmark.query.plan.columns import itself, itself_of, schema_of, typed
from lowmark.query.plan.nodes import Finish, NodeInput, Number, Order, Pane, Reduction, StepInput
from lowmark.query.windows.progressing import progress
from lowmark.wire.records.partials import PANE, TUPLES
from lowmark.wire.rows.schema import Column, Kind, Schema

__all__ = ["bind_order", "order_of_arrival", "ordered", "plan_order"]


def bind_order(select: s.Select, scope: Scope, strings: tuple[str, ...]) -> tuple[Order, ...]:
    """The ORDER BY of a SELECT without groups, over the input's columns; QueryError if it is never complete."""
    aliases = {item.alias.text.casefold(): item.expression for item in select.items if item.alias}
    lowering = Lowering(scope.text, strings, InputNames(scope, "ORDER BY without groups"))
    order = []
    for item in select.order_by:
        expression = item.expression
        if isinstance(expression, s.FieldRef) and expression.input is None:
            aliased = aliases.get(expression.name.text.casefold())
            expression = aliased if aliased is not None and not isinstance(aliased, s.Star) else expression
        order.append(Order(lowering.lower(expression), item.descending))
    first, spot = order[0], select.order_by[0].span
    arms = scope.relation.arms
    ways = progresses(first.expr, arms)
    if first.descending or ways is None:
        raise QueryError(
            "this order is never complete: the stream has no end", scope.text, spot, progressing_columns(scope),
            "order within windows, or ascending by what progresses",
        )  # fmt: skip
    known = all(isinstance(arm.base, Packets | Joined) for arm in arms)
    if not known or any(way.attribute == ROW_NUM or way.steps != ways[0].steps for way in ways):
        raise QueryError("ORDER BY over a whole stream cannot run yet but by ts of packets or joins", scope.text, spot)
    if len(order) > 1 and any(op is not Op.ADD for op, _ in ways[0].steps):
        second = select.order_by[1].span
        raise QueryError("a second order within a span of time cannot run yet: order by ts first", scope.text, second)
    return tuple(order)


def order_of_arrival(limit: s.IntegerLiteral, scope: Scope) -> tuple[Order, ...]:
    """The order that LIMIT over packets takes its first rows from: arrival. () for a single source, which is in it
    already."""
    arms = scope.relation.arms
    if not all(isinstance(arm.base, Packets) for arm in arms):
        hint = "a join can be in the order of an input: ORDER BY a.ts LIMIT 5; of groups LIMIT is within their windows"
        raise QueryError("LIMIT needs ORDER BY: which of these rows are first?", scope.text, limit.span, hint=hint)
    several = sum(arm.base.sources for arm in arms if isinstance(arm.base, Packets)) > 1
    return (Order(itself(ARRIVAL[0]).expr, False),) if several else ()


def ordered(relation: Relation, order: tuple[Order, ...], arms: tuple[Arm, ...]) -> Relation:
    """The relation with its rows ordered by columns of these arms, which follow its own columns."""
    hidden = tuple(Order(Field(f".order{i}", o.expr.kind, o.expr.nullable), o.descending) for i, o in enumerate(order))
    carrying = tuple(
        replace(arm, values={**arm.values, **{f".order{i}": below.lowered(o.expr) for i, o in enumerate(order)}})
        for arm, below in zip(relation.arms, arms, strict=True)
    )
    return replace(relation, arms=carrying, order=hidden)


def plan_order(
    relation: Relation, strings: tuple[str, ...], made: PlanBuilder, above: Callable[[Arm, Reduction], StepInput]
) -> None:
    """Nodes → Number → Finish: sort the rows second by second, then compute the shown columns. `above` makes the rows
    of packets whose row_num is read, and of a join, whose ties the shown columns break: it has no order of arrival."""
    arms = relation.arms
    derived = any(isinstance(arm.base, Joined) for arm in arms)
    several = sum(arm.base.sources for arm in arms if isinstance(arm.base, Packets)) > 1
    columns = (*relation.columns, *(Column(f"_order{i}", o.expr.kind, True) for i, o in enumerate(relation.order)))
    names: list[str] = []
    for name in (*(column.name for column in columns), *(f"_by_{item.name[1:]}" for item in ARRIVAL), "_by_arm"):
        names.append(free_name(name, (PANE, TUPLES, *names)))
    shown, order, arrival = (
        names[: len(relation.columns)], names[len(relation.columns) : len(columns)], names[len(columns) :],
    )  # fmt: skip
    fed: list[NodeInput] = []
    inputs: list[Input] = []
    schema = Schema((), strings)
    for number, arm in enumerate(arms):
        values = [arm.values[column.name] for column in relation.columns]
        values += [arm.values[f".order{i}"] for i in range(len(relation.order))]
        named = typed(tuple(Named(name, value) for name, value in zip(names, values, strict=False)), columns)
        if derived:
            reduction = Reduction(arm.where, _pane(arm), named, (), (), False, strings)
            inputs.append(above(arm, reduction))
            schema = reduction.schema
            continue
        places = [*(arm.values[item.name] for item in ARRIVAL), Literal(number, Kind.INT)]
        sent = tuple(Named(name, value) for name, value in zip(arrival, places, strict=True))
        reduction = Reduction(arm.where, GRANULE, (*named, *sent), (), (), False, strings)
        schema = reduction.schema
        if _is_numbered(arm, values):
            inputs.append(above(arm, reduction))
        else:
            made.node(arm.base, reduction, (), fed)
    kept = Schema(tuple(column for column in schema if column.name not in arrival), strings)
    ties = shown if derived else arrival if several else arrival[len(ARRIVAL) - 1 : len(ARRIVAL)]
    source = made.step(Number(schema, (order[0], *ties), kept, None), [*fed, *inputs])
    rest = tuple(
        Order(itself_of(kept.column(name)).expr, item.descending)
        for name, item in zip(order[1:], relation.order[1:], strict=True)
    )
    selected = tuple(
        Named(column.name, Field(name, column.kind, column.nullable))
        for column, name in zip(relation.columns, shown, strict=True)
    )
    within = (order[0],) if rest else ()
    made.step(Finish(kept, (), None, rest, None, False, selected, schema_of(selected, strings), within), [source])


def _is_numbered(arm: Arm, values: Iterable[Expr]) -> bool:
    """Whether row_num is read and the packets come from several sources."""
    several = isinstance(arm.base, Packets) and arm.base.sources > 1
    return several and any(ROW_NUM in fields(value) for value in (*values, *([arm.where] if arm.where else [])))


def _pane(arm: Arm) -> Pane:
    """The pane of the time on which the order of an arm's rows progresses."""
    if not isinstance(arm.base, Joined):
        return GRANULE
    found = progress(arm.values[".order0"], arm.base.progress)
    assert found is not None, "an order over a stream progresses"
    return replace(GRANULE, attribute=found.attribute)
