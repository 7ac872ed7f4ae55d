"""ORDER BY over a whole stream: a row is emitted as soon as no earlier row can follow.

The first expression must progress, ascending, so the order is complete up to every promise. Others may go in either
direction. Ties are broken by arrival; in joins and groups, which have no arrival, by the shown columns.

Rows of groups keep their windows if all of them show these and are ordered by window_end: the rows of one window come
together, in order. Rows in any other order have no windows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from lowmark.query.bind.keys import free_name
from lowmark.query.bind.lowering import Lowering
from lowmark.query.bind.names import InputNames
from lowmark.query.bind.relations import ARRIVAL, ROW_NUM, WINDOW_END, Arm, Packets, Relation
from lowmark.query.bind.scope import Scope
from lowmark.query.bind.windows import order_panes, progresses, progressing_columns
from lowmark.query.expr.expressions import Call, Expr, Field, Literal, Named, Op, fields
from lowmark.query.parse import syntax as s
from lowmark.query.parse.errors import QueryError
from lowmark.query.plan.nodes import Finish, NodeInput, Number, Order, Reduction, StepInput
from lowmark.query.plan.steps.builder import Input, PlanBuilder
from lowmark.query.plan.steps.columns import itself, itself_of, schema_of, typed
from lowmark.wire.records.partials import PANE, TUPLES
from lowmark.wire.rows.schema import Column, Kind, Schema

__all__ = [
    "arrives_in_order",
    "bind_order",
    "by_window_end",
    "order_of_arrival",
    "ordered",
    "plan_order",
    "sorted_windows",
]


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
    return tuple(order)


def order_of_arrival(limit: s.IntegerLiteral, scope: Scope) -> tuple[Order, ...]:
    """The order in which LIMIT over packets takes the first rows: arrival. () for a single source, whose packets come
    in this order already."""
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


def arrives_in_order(relation: Relation) -> bool:
    """Whether the order is the one in which packets are numbered, so that rows come in it already."""
    (first, *rest), (arm, *others) = relation.order, relation.arms
    by = arm.values[_name(first)]
    counted = not others and isinstance(arm.base, Packets) and ROW_NUM in fields(by)
    return counted and (not rest or _tells_apart(by))


def by_window_end(relation: Relation) -> bool:
    """Whether rows are ordered by the ends of the windows of each arm first."""
    values = (arm.values[_name(relation.order[0])] for arm in relation.arms)
    return all(isinstance(value, Field) and value.name == WINDOW_END for value in values)


def plan_order(
    relation: Relation, strings: tuple[str, ...], made: PlanBuilder, above: Callable[[Arm, Reduction], StepInput]
) -> None:
    """Nodes → Number → Finish: sort the rows pane by pane, then compute the shown columns. `above` makes the rows of
    packets whose row_num is read, and those of joins and groups."""
    arms = relation.arms
    arriving = all(isinstance(arm.base, Packets) for arm in arms)
    several = sum(arm.base.sources for arm in arms if isinstance(arm.base, Packets)) > 1
    columns = (*relation.columns, *(Column(f"_order{i}", o.expr.kind, True) for i, o in enumerate(relation.order)))
    names: list[str] = []
    for name in (*(column.name for column in columns), *(f"_by_{item.name[1:]}" for item in ARRIVAL), "_by_arm"):
        names.append(free_name(name, (PANE, TUPLES, *names)))
    shown, order, arrival = (
        names[: len(relation.columns)], names[len(relation.columns) : len(columns)], names[len(columns) :],
    )  # fmt: skip
    first = _name(relation.order[0])
    by_time = several and arriving and len(order) == 1  # arrival at several sources breaks ties by time
    split = by_time or all(_tells_apart(arm.values[first]) for arm in arms)
    fed: list[NodeInput] = []
    inputs: list[Input] = []
    schema = Schema((), strings)
    for number, (arm, pane) in enumerate(zip(arms, order_panes(first, arms, split), strict=True)):
        values = [arm.values[name] for name in (*relation.names, *map(_name, relation.order))]
        named = typed(tuple(Named(name, value) for name, value in zip(names, values, strict=False)), columns)
        if arriving:
            places = [*(arm.values[item.name] for item in ARRIVAL), Literal(number, Kind.INT)]
            named += tuple(Named(name, value) for name, value in zip(arrival, places, strict=True))
        reduction = Reduction(arm.where, pane, named, (), (), False, strings)
        schema = reduction.schema
        if _is_numbered(arm, values) or pane.attribute == ROW_NUM or not isinstance(arm.base, Packets):
            inputs.append(above(arm, reduction))
        else:
            made.node(arm.base, reduction, (), fed)
    kept = Schema(tuple(column for column in schema if column.name not in arrival), strings)
    ties = shown if not arriving else arrival if several else arrival[len(ARRIVAL) - 1 : len(ARRIVAL)]
    source = made.step(Number(schema, (order[0], *ties), kept, None), [*fed, *inputs])
    rest = _orders(kept, order[1:], relation.order[1:])
    selected = _selected(relation.columns, shown)
    within = (order[0],) if rest else ()
    made.step(Finish(kept, (), None, rest, None, False, selected, schema_of(selected, strings), within), [source])


def sorted_windows(relation: Relation, strings: tuple[str, ...], made: PlanBuilder, source: StepInput) -> None:
    """Sort the rows of each window, which come together: the columns of the relation, and behind them its order."""
    columns = (*relation.columns, *order_columns(relation))
    schema = Schema(columns, strings)
    names = [column.name for column in columns]
    shown, order = names[: len(relation.columns)], names[len(relation.columns) :]
    ties = tuple(Order(itself_of(column).expr, False) for column in relation.columns)
    by = (*_orders(schema, order[1:], relation.order[1:]), *ties)
    selected = _selected(relation.columns, shown)
    made.step(
        Finish(schema, (), None, by, None, False, selected, schema_of(selected, strings), (WINDOW_END,)), [source]
    )


def order_columns(relation: Relation) -> Iterator[Column]:
    """The values by which rows are ordered, as columns beside those of the relation."""
    names = [*relation.names]
    for number, item in enumerate(relation.order):
        names.append(free_name(f"_order{number}", (PANE, TUPLES, *names)))
        yield Column(names[-1], item.expr.kind, True)


def _name(item: Order) -> str:
    """The value of each arm that an item of a relation's order stands for."""
    assert isinstance(item.expr, Field)
    return item.expr.name


def _tells_apart(expr: Expr) -> bool:
    """Whether a progressing expression is equal only where its attribute is."""
    return not isinstance(expr, Call) or (expr.op in (Op.ADD, Op.SUB, Op.MUL) and all(map(_tells_apart, expr.args)))


def _orders(schema: Schema, names: Sequence[str], of: Sequence[Order]) -> tuple[Order, ...]:
    return tuple(
        Order(itself_of(schema.column(name)).expr, item.descending) for name, item in zip(names, of, strict=True)
    )


def _selected(columns: Sequence[Column], names: Sequence[str]) -> tuple[Named, ...]:
    pairs = zip(columns, names, strict=True)
    return tuple(Named(column.name, Field(name, column.kind, column.nullable)) for column, name in pairs)


def _is_numbered(arm: Arm, values: Iterable[Expr]) -> bool:
    """Whether row_num is read and the packets come from several sources."""
    several = isinstance(arm.base, Packets) and arm.base.sources > 1
    return several and any(ROW_NUM in fields(value) for value in (*values, *([arm.where] if arm.where else [])))
