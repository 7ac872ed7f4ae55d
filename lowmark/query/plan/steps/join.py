"""A join as a step: what its inputs send, the names of columns on the way, and where its rows meet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lowmark.query.bind.keys import free_name
from lowmark.query.bind.relations import Arm, Joined, Side
from lowmark.query.expr.expressions import Expr, Field, Named, fields
from lowmark.query.optimize.join_order import choose
from lowmark.query.optimize.join_statistics import JoinRates
from lowmark.query.optimize.partitioning import joint_keys
from lowmark.query.parse.size_limits import ROW, TooLarge
from lowmark.query.parse.syntax import Span
from lowmark.query.plan.nodes import Join, JoinInput, Pane, Reduction
from lowmark.query.plan.steps.columns import typed
from lowmark.wire.records.partials import PANE, TUPLES
from lowmark.wire.rows.schema import Column, Kind, Schema

__all__ = ["JoinPlan", "NothingToPromise", "Sent", "plan_join"]


@dataclass(frozen=True, slots=True)
class Sent:
    """What one input of a join sends: one row for each tuple, in the same form from all of its arms."""

    columns: tuple[Named, ...]  # over the columns of the input's relation
    attribute: str
    keys: tuple[str | None, ...]  # one for each equality
    joint: tuple[str, ...]  # keys of the equalities in which all inputs take part
    shown: tuple[tuple[str, str], ...]  # columns, and the join's names for them
    side: Side
    strings: tuple[str, ...]

    def reduction(self, arm: Arm, pane: Pane) -> Reduction:
        """The reduction that one arm of the input's relation applies to its tuples."""
        lowered = tuple(Named(item.name, arm.lowered(item.expr)) for item in self.columns)
        return Reduction(arm.where, pane, typed(lowered, self._nullable()), (), (), False, self.strings)

    @property
    def schema(self) -> Schema:
        return Schema((Column(PANE, Kind.INT), Column(TUPLES, Kind.INT), *self._nullable()), self.strings)

    def _nullable(self) -> list[Column]:
        """The columns; one is nullable if it is nullable in any of the arms."""
        arms = self.side.relation.arms
        return [
            Column(item.name, item.expr.kind, any(arm.lowered(item.expr).nullable for arm in arms))
            for item in self.columns
        ]


class NothingToPromise(Exception):
    """A hint asks for promises about values in a join that requires no equal values."""

    def __init__(self, span: Span | None) -> None:
        super().__init__(span)
        self.span = span


@dataclass(frozen=True, slots=True)
class JoinPlan:
    join: Join
    sent: tuple[Sent, ...]


def plan_join(base: Joined, exprs: Iterable[Expr], strings: tuple[str, ...], expected: JoinRates) -> JoinPlan:
    """Plan the step of a join whose readers compute these expressions over its columns. `push_down` has found the keys
    already."""
    read = {name for expr in exprs for name in fields(expr)}
    if base.where is not None:
        read |= {*fields(base.where)}
    extremes = tuple(extreme for extreme in base.extremes if extreme.name in read)
    read |= {name for extreme in extremes for name in extreme.of}
    sent = tuple(_sent(base, number, read, strings) for number in range(len(base.sides)))
    names = {shown for item in sent for _, shown in item.shown} | {extreme.name for extreme in extremes}
    output = tuple(column for column in base.columns if column.name in names)
    if len(output) > ROW.most:
        raise TooLarge(ROW, f"{len(output)} columns are read of this join", hint=_FEWER)
    rates = list(map(expected.of, base.sides))
    inputs = tuple(
        JoinInput(
            label=item.side.label,
            schema=item.schema,
            attribute=item.attribute,
            unit=item.side.unit,
            size=item.side.size,
            output=item.shown,
            progress=tuple(named for named in item.side.progress if named.name in names),
            rate=rates[number].rows,
            needs=rates[number].needs,
            estimated=rates[number].estimated,
            prefix=item.side.prefix,
        )
        for number, item in enumerate(sent)
    )
    if base.punctuated is not None and base.punctuated.asked and not base.equal:
        raise NothingToPromise(base.span)
    equal = tuple(zip(*(item.keys for item in sent), strict=True)) if base.equal else ()
    probes = choose(expected.costs(base, rates), base.probes)
    schema = Schema(output, strings)
    join = Join(
        inputs,
        base.tumbling,
        equal,
        base.where,
        schema,
        base.kind,
        windowless=base.windowless,
        oblivious=base.oblivious,
        punctuated=base.punctuated,
        probes=probes,
        extremes=extremes,
        in_order=base.in_order,
        scheduling=base.scheduling,
        plain=base.plain,
    )
    return JoinPlan(join, sent)


def _sent(base: Joined, number: int, read: set[str], strings: tuple[str, ...]) -> Sent:
    side = base.sides[number]
    columns: list[Named] = []
    shown = []
    for own in side.relation.known:
        if side.named(own.name) in read:
            name = free_name(own.name, _taken(columns))
            columns.append(Named(name, Field.of(own)))
            shown.append((name, side.named(own.name)))
    attribute = _name_of(side.attribute, columns)
    if base.time is not None and base.time in read:
        shown.insert(0, (attribute, base.time))
    keys = {every: None if (key := every[number]) is None else _name_of(key, columns) for every in base.equal}
    if len(columns) + 2 > ROW.most:
        what = f"{len(columns)} columns are read of {side.label}, its keys and its time included, with 2 of its pane"
        raise TooLarge(ROW, what, hint=_FEWER)
    joint = tuple(column for every in joint_keys(base) if (column := keys[every]) is not None)
    return Sent(tuple(columns), attribute, tuple(keys.values()), joint, tuple(shown), side, strings)


_FEWER = "select fewer columns of the join"


def _name_of(expr: Expr, columns: list[Named]) -> str:
    """The column that holds an expression; a new one if none does."""
    for item in columns:
        if item.expr == expr:
            return item.name
    name = free_name(expr.name if isinstance(expr, Field) else "key", _taken(columns))
    columns.append(Named(name, expr))
    return name


def _taken(columns: Sequence[Named]) -> tuple[str, ...]:
    return (PANE, TUPLES, *(item.name for item in columns))
