"""An aggregating SELECT: keys, aggregates, window, and what happens to the groups of a window at its end."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lowmark.query.bind.aggregates import Calls
from lowmark.query.bind.hints import BUCKET, STRATEGY, Hints
from lowmark.query.bind.keys import Keys, bind_keys
from lowmark.query.bind.lowering import Lowering
from lowmark.query.bind.names import GroupNames, InputNames
from lowmark.query.bind.relations import (
    ARRIVAL,
    ROW_NUM,
    WINDOW_END,
    WINDOW_START,
    Arm,
    Grouped,
    Joined,
    Packets,
    Relation,
    Turn,
)
from lowmark.query.bind.scope import Scope
from lowmark.query.bind.select_list import selected_columns
from lowmark.query.bind.windows import Frame, bind_window, group_frame, least, progresses, progressing_columns
from lowmark.query.expr.expressions import Expr, Field, Literal, Named
from lowmark.query.optimize.partitioning import choosing
from lowmark.query.options import Strategy
from lowmark.query.parse import syntax as s
from lowmark.query.parse.errors import QueryError
from lowmark.query.parse.size_limits import ROW, TooLarge
from lowmark.query.plan.nodes import Order
from lowmark.query.windows.window import WindowKind
from lowmark.wire.rows.schema import Column

__all__ = ["GroupedSelect", "group"]


@dataclass(frozen=True, slots=True)
class GroupedSelect:
    grouped: Grouped
    columns: tuple[Named, ...]  # the selected columns, over the group's columns


def group(
    select: s.Select, where: Expr | None, scope: Scope, strings: tuple[str, ...], hints: Hints
) -> GroupedSelect:  # fmt: skip
    """Bind the SELECT; `where` is over the columns of the scope's input."""
    keys = bind_keys(select, scope, strings)
    frame = _frame(select, keys, scope, strings)
    keys, frame = _partitioned(select, keys, frame, scope, strings)
    joined = any(isinstance(arm.base, Joined) for arm in scope.relation.arms)
    arrival = () if joined and select.window is None else _arrival(frame, scope.relation)
    calls = Calls(scope, strings, keys.named, arrival, joined)
    names = GroupNames(
        scope,
        keys.named,
        keys.aliases,
        Lowering(scope.text, strings, InputNames(scope, "a key")),
        calls.aggregate,
        lambda call: calls.total(call, post),
    )
    post = Lowering(scope.text, strings, names)
    shown = _window_columns(frame)
    columns = selected_columns(select, scope, post, keys.shown, tuple(column.name for column in shown))
    aliases = {item.alias.text for item in select.items if item.alias is not None}
    names.aliases.update((column.name.casefold(), column.expr) for column in columns if column.name in aliases)
    having = None if select.having is None else post.condition(select.having)
    order = _order(select, scope, post, keys.named)
    selected = (*(Named(column.name, Field.of(column)) for column in shown), *columns)
    distinct = selected if _needs_distinct(select, keys, columns) else ()
    if distinct and order:
        _check_distinct_order(select, order, columns, scope.text)
    grouped = Grouped(
        input=scope.relation,
        where=where,
        panes=frame.panes,
        keys=keys.named,
        details=calls.details,
        folds=calls.folds,
        calls=calls.planned,
        window=frame.window,
        totals=calls.totals,
        having=having,
        order=order,
        limit=None if select.limit is None else select.limit.value,
        distinct=distinct,
        makers=_makers(keys, frame, scope.relation.arms),
        within=_within(keys, frame, scope.relation.arms, shown),
        columns=(
            *shown,
            *(Column(key.name, key.expr.kind, key.expr.nullable) for key in keys.named),
            *(call.column for call in calls.planned),
            *(total.column for total in calls.totals),
        ),
        counting=frame.counting,
        strategy=_strategy(frame, hints),
        span=select.span,
    )
    _check_columns(grouped)
    return GroupedSelect(replace(grouped, bucket=_bucket(grouped, keys, scope, strings, hints)), selected)


def _check_columns(grouped: Grouped) -> None:
    """Refuse groups with too many columns, either in the rows that nodes send or in the rows of a closed window."""
    kept = [(call.column.name, sum(len(grouped.folds[n].columns) for n in call.folds)) for call in grouped.calls]
    states = sum(len(fold.columns) for fold in grouped.folds)
    below = len(grouped.keys) + len(grouped.details) + states + 2
    above = len(grouped.columns)
    if max(below, above) <= ROW.most:
        return
    parts = [(len(grouped.keys), "of keys")]
    if below > above:
        parts += [
            (len(grouped.details), "of values that split the groups"),
            (states, "of aggregates' states"),
            (2, "of the pane"),
        ]
    else:
        others = len(grouped.columns) - len(grouped.keys) - len(grouped.calls) - len(grouped.totals)
        parts += [(len(grouped.calls), "of aggregates"), (len(grouped.totals), "of totals"), (others, "of the window")]
    listed = ", ".join(f"{count} {what}" for count, what in parts if count)
    hint = "group by less, or ask some of it in a query of its own"
    if (most := max(kept, key=lambda item: item[1], default=("", 0)))[1] > 1 and below > above:
        hint = f"{most[0]} alone takes {most[1]}: {hint}"
    raise TooLarge(ROW, f"this takes {max(below, above)} columns of a group: {listed}", grouped.span, hint)


def _frame(select: s.Select, keys: Keys, scope: Scope, strings: tuple[str, ...]) -> Frame:
    arms = scope.relation.arms
    if select.window is not None:
        of_several = ", or over greatest() or least() of the times of several inputs" if scope.inputs else ""
        hint = f"it goes over one of the columns that progress{of_several}"
        names = InputNames(scope, "a window", hint, progressing_columns(scope))
        return bind_window(select.window, scope, Lowering(scope.text, strings, names))
    frame = group_frame(keys.named, arms)
    if frame is not None:
        return frame
    listed = select.group_by or select.items[:1]
    spot = s.Span(listed[0].span.start, listed[-1].span.end)
    what = "none of these keys progresses" if keys.named else "no GROUP BY that progresses"
    raise QueryError(
        f"nothing ever closes these groups: there is no window, and {what}",
        scope.text,
        spot,
        progressing_columns(scope),
        "add a window such as [RANGE 1 minute, WA ts], or group by something like ts/60",
    )


def _partitioned(
    select: s.Select, keys: Keys, frame: Frame, scope: Scope, strings: tuple[str, ...]
) -> tuple[Keys, Frame]:
    """The keys and the frame. If a window counts tuples for each value of PA, the keys of PA come first."""
    if select.window is None or frame.counting is None or not select.window.pa:
        return keys, frame
    lowering = Lowering(scope.text, strings, InputNames(scope, "PA"))
    listed = [lowering.lower(field) for field in select.window.pa]
    first = tuple(key for key in keys.named if key.expr in listed)
    ordered = replace(keys, named=(*first, *(key for key in keys.named if key not in first)))
    counting = replace(frame.counting, partition=tuple(key.name for key in first))
    return ordered, replace(frame, counting=counting)


def _arrival(frame: Frame, relation: Relation) -> tuple[Named, ...]:
    """The order for first and last: by ts (in derived streams, the windowing attribute), then by arrival."""
    arms = relation.arms
    bases = [arm.base for arm in arms if isinstance(arm.base, Packets)]
    if len(bases) < len(arms):
        assert frame.attribute is not None, "windows that count tuples are of packets"
        return (Named("by", frame.attribute),)
    ts, *_, position = fields = [Named(item.name[1:], Field(item.name, item.expr.kind)) for item in ARRIVAL]
    rest = fields[1:] if sum(base.sources for base in bases) > 1 else [position]
    if frame.counting is not None and frame.counting.turn is Turn.ROWS:
        if not relation.derived:
            return (ts, *rest)
        if frame.attribute is None or (len(arms) == 1 and _is_row_num(frame.attribute, arms[0])):
            return (*([ts] if len(rest) > 1 else []), *rest)
    elif all(arm.plain or (frame.attribute and arm.lowered(frame.attribute) == ARRIVAL[0].expr) for arm in arms):
        return (ts, *rest)
    assert frame.attribute is not None
    return (Named("by", frame.attribute), *([ts] if len(rest) > 1 else []), *rest)


def _is_row_num(attribute: Expr, arm: Arm) -> bool:
    expr = arm.lowered(attribute)
    return isinstance(expr, Field) and expr.name == ROW_NUM


def _order(select: s.Select, scope: Scope, post: Lowering, keys: tuple[Named, ...]) -> tuple[Order, ...]:
    """ORDER BY, with ties broken by the group's key."""
    if select.limit is not None and not select.order_by:
        hint = "LIMIT is within each window: ORDER BY says which of its rows are first"
        raise QueryError("LIMIT needs ORDER BY: which rows are first?", scope.text, select.limit.span, hint=hint)
    order = []
    for item in select.order_by:
        expr = post.lower(item.expression)
        if isinstance(expr, Literal):
            hint = "name a column or an expression; positions mean nothing here"
            raise QueryError("a constant orders nothing", scope.text, item.span, hint=hint)
        order.append(Order(expr, item.descending))
    if order:
        named = {item.expr for item in order}
        ties = (Field(key.name, key.expr.kind, key.expr.nullable) for key in keys)
        order += [Order(tie, False) for tie in ties if tie not in named]
    return tuple(order)


def _needs_distinct(select: s.Select, keys: Keys, columns: tuple[Named, ...]) -> bool:
    """Whether two groups of a window can show equal rows."""
    shown = {column.expr for column in columns}
    return select.distinct and any(Field(key.name, key.expr.kind, key.expr.nullable) not in shown for key in keys.named)


def _check_distinct_order(select: s.Select, order: tuple[Order, ...], columns: tuple[Named, ...], text: str) -> None:
    shown = {column.expr for column in columns}
    for item, by in zip(select.order_by, order, strict=False):
        if by.expr not in shown:
            message = "DISTINCT rows can be ordered by selected columns only"
            raise QueryError(message, text, item.span, hint="select it, or leave DISTINCT out")


def _strategy(frame: Frame, hints: Hints) -> Strategy:
    counting = frame.counting
    if frame.window.kind is not WindowKind.SLIDING or (counting is not None and counting.partition):
        hints.refuse(STRATEGY, "it applies to sliding and tumbling windows, but not over rows with PA")
    return hints.strategy()


def _bucket(
    grouped: Grouped, keys: Keys, scope: Scope, strings: tuple[str, ...], hints: Hints
) -> tuple[str, ...]:  # fmt: skip
    """The keys that a hint names, by their alias or as fields of the input."""
    lowering = Lowering(scope.text, strings, InputNames(scope, "a hint"))
    found = []
    for ref in hints.bucket():
        key = keys.aliases.get(ref.name.text.casefold()) if ref.input is None else None
        if key is None and scope.has(ref):
            expr = lowering.lower(ref)
            key = next((key for key in keys.named if key.expr == expr), None)
        if key is None and ref.input is None:
            key = next((key for key in keys.named if key.name.casefold() == ref.name.text.casefold()), None)
        if key is None or key.name not in choosing(grouped):
            message = f"{BUCKET} names keys of the groups that can choose it"
            raise QueryError(message, scope.text, ref.span, choosing(grouped))
        found.append(key.name)
    return tuple(key.name for key in keys.named if key.name in found)


def _makers(keys: Keys, frame: Frame, arms: tuple[Arm, ...]) -> tuple[Named, ...]:
    """The keys that have bounds in the output rows, each with its least value by pane."""
    if frame.window.kind is not WindowKind.NONE:
        return ()
    return tuple(Named(key.name, low) for key in keys.named if (low := least(key.expr, frame, arms)) is not None)


def _within(keys: Keys, frame: Frame, arms: tuple[Arm, ...], shown: tuple[Column, ...]) -> tuple[str, ...]:
    if frame.counting is not None and frame.counting.partition:
        return (*(column.name for column in shown), *frame.counting.partition)
    if frame.window.kind is not WindowKind.NONE:
        return ()
    return tuple(key.name for key in keys.named if progresses(key.expr, arms) is not None)


def _window_columns(frame: Frame) -> tuple[Column, ...]:
    if frame.window.kind is WindowKind.NONE:
        return ()
    kind = frame.window.axis.kind
    return (Column(WINDOW_START, kind, frame.window.kind is WindowKind.LANDMARK), Column(WINDOW_END, kind))
