"""The contribution of a single tuple to an aggregate's folds, from the expressions of its arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lowmark.query.expr.expressions import Call, Expr, Literal, Named, Op
from lowmark.query.plan.nodes import FoldOp
from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.values import INT64_MIN

__all__ = ["Lift", "by_order", "count", "nothing", "opposite", "single", "squares", "total"]


@dataclass(frozen=True, slots=True)
class Lift:
    """A fold whose columns have only name endings; a single column needs none."""

    op: FoldOp
    columns: tuple[Named, ...]


Lifting = Callable[[tuple[Expr, ...], tuple[Named, ...]], tuple[Lift, ...]]


def nothing(args: tuple[Expr, ...], order: tuple[Named, ...]) -> tuple[Lift, ...]:
    return ()


def count(args: tuple[Expr, ...], order: tuple[Named, ...]) -> tuple[Lift, ...]:
    """Count of the values that are not null. No fold if none can be null: the number of tuples is the count."""
    if not args or not args[0].nullable:
        return ()
    absent = Call(Op.IS_NULL, args, Kind.BOOL, False)
    present = Call(Op.NOT, (absent,), Kind.BOOL, False)
    return (Lift(FoldOp.ADD, (Named("", _call(Op.ADD, Literal(0, Kind.INT), present)),)),)


def total(args: tuple[Expr, ...], order: tuple[Named, ...]) -> tuple[Lift, ...]:
    """Sum, then the count of its values unless that is the number of tuples."""
    (x,) = args
    if x.kind is Kind.FLOAT:
        return (
            Lift(FoldOp.ADD_FLOAT, (Named("high", x), Named("low", _float(Op.FLOAT_SUB, x, x)))),
            *count(args, order),
        )
    return (Lift(FoldOp.ADD, (Named("", x),)), *count(args, order))


def squares(args: tuple[Expr, ...], order: tuple[Named, ...]) -> tuple[Lift, ...]:
    """Sum of squares, then the folds of `total`."""
    (x,) = args
    if x.kind is Kind.FLOAT:
        high, low = _float_square(x)
        square = Lift(FoldOp.ADD_FLOAT, (Named("high", high), Named("low", low)))
    else:
        high, low = _square(x)
        square = Lift(FoldOp.ADD_WIDE, (Named("high", high), Named("low", low)))
    return (square, *total(args, order))


def single(op: FoldOp) -> Lifting:
    return lambda args, order: (Lift(op, (Named("", args[0]),)),)


def by_order(op: FoldOp) -> Lifting:
    return lambda args, order: (Lift(op, (*order, Named("value", args[0]))),)


def opposite(lift: Lift) -> Lift | None:
    """The fold that takes the other extreme, least or greatest, of the values of tuples that tie for first or last.
    None if the fold does not depend on order."""
    other = {FoldOp.FIRST: FoldOp.LAST, FoldOp.LAST: FoldOp.FIRST}.get(lift.op)
    if other is None:
        return None
    *order, value = lift.columns
    return Lift(other, (*(Named(item.name, _call(Op.INVERT, item.expr)) for item in order), value))


def _square(x: Expr) -> tuple[Expr, Expr]:
    """x² in 128 bits (high and low word), from operations that wrap at 64.

    With x = a·2³² + b, 0 ≤ b < 2³², it is a²·2⁶⁴ + ab·2³³ + b²; ab fits into 64 bits, b² into 64 unsigned bits.
    """
    a = _call(Op.SHIFT_RIGHT, x, Literal(32, Kind.INT))
    b = _call(Op.BIT_AND, x, Literal(2**32 - 1, Kind.INT))
    ab = _call(Op.MUL, a, b)
    middle = _call(Op.SHIFT_LEFT, ab, Literal(33, Kind.INT))
    low = _call(Op.ADD, middle, _call(Op.MUL, b, b))
    sign = Literal(INT64_MIN, Kind.INT)  # swaps the orders of signed and unsigned words
    unsigned = (_call(Op.BIT_XOR, low, sign), _call(Op.BIT_XOR, middle, sign))
    carry = Call(Op.LT, unsigned, Kind.BOOL, x.nullable)
    upper = _call(Op.ADD, _call(Op.MUL, a, a), _call(Op.SHIFT_RIGHT, ab, Literal(31, Kind.INT)))
    return _call(Op.ADD, upper, carry), low


def _float_square(x: Expr) -> tuple[Expr, Expr]:
    """x² and its rounding error, by halves of x whose products are exact as doubles (Veltkamp, Dekker)."""
    product = _float(Op.FLOAT_MUL, x, x)
    split = _float(Op.FLOAT_MUL, x, Literal(2.0**27 + 1, Kind.FLOAT))
    upper = _float(Op.FLOAT_SUB, split, _float(Op.FLOAT_SUB, split, x))
    lower = _float(Op.FLOAT_SUB, x, upper)
    mixed = _float(Op.FLOAT_MUL, upper, lower)
    rest = _float(Op.FLOAT_SUB, _float(Op.FLOAT_MUL, upper, upper), product)
    rest = _float(Op.FLOAT_ADD, _float(Op.FLOAT_ADD, rest, mixed), mixed)
    return product, _float(Op.FLOAT_ADD, rest, _float(Op.FLOAT_MUL, lower, lower))


def _float(op: Op, *args: Expr) -> Expr:
    return Call(op, args, Kind.FLOAT, any(arg.nullable for arg in args))


def _call(op: Op, *args: Expr) -> Expr:
    return Call(op, args, Kind.INT, any(arg.nullable for arg in args))
