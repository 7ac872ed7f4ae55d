"""Nodes for tests: selections of packet fields, groups with every kind of fold."""

from __future__ import annotations

from lowmark.query.catalog import PACKET_FIELDS, packet_field
from lowmark.query.expr.expressions import Call, Expr, Field, Literal, Named, Op
from lowmark.query.plan.nodes import Fold, FoldOp, Node, Pane, Reduction
from lowmark.wire.rows.schema import Column, Kind

SECOND = 1_000_000_000


def field(name: str) -> Field:
    if name in ("_rank", "_position"):
        return Field(name, Kind.INT)
    known = packet_field(name)
    assert known is not None
    return Field(known.name, known.kind, known.nullable)


def named(name: str) -> Named:
    return Named(name, field(name))


def number(value: int) -> Literal:
    return Literal(value, Kind.INT)


def selection(*names: str, where: Expr | None = None, pane: Pane | None = None) -> Node:
    keys = tuple(named(name) for name in names)
    strings = ("Main", "Other")
    reduction = Reduction(where, pane or Pane(SECOND), keys, (), (), grouped=False, strings=strings)
    return Node("rows", ("Main",), reduction, ())


ALL_FIELDS = tuple(item.name for item in PACKET_FIELDS)


def grouped(
    keys: tuple[Named, ...],
    folds: tuple[Fold, ...] = (),
    *,
    pane: Pane | None = None,
    where: Expr | None = None,
    details: tuple[Named, ...] = (),
    name: str = "groups",
    at_once: bool = False,
) -> Node:
    reduction = Reduction(where, pane or Pane(SECOND), keys, details, folds, grouped=True, at_once=at_once)
    return Node(name, ("Main",), reduction, tuple(key.name for key in keys))


def fold(op: FoldOp, *lifts: Expr, name: str = "x") -> Fold:
    columns = tuple(Column(f"{name}{place}", lift.kind, lift.nullable) for place, lift in enumerate(lifts))
    return Fold(op, columns, lifts)


def call(op: Op, *args: Expr, kind: Kind = Kind.INT, nullable: bool | None = None) -> Call:
    return Call(op, args, kind, any(arg.nullable for arg in args) if nullable is None else nullable)


def null_if_zero(expr: Expr) -> Expr:
    """The value, or null for 0: expr // expr * expr."""
    return call(Op.MUL, call(Op.FLOOR_DIV, expr, expr, nullable=True), expr)
