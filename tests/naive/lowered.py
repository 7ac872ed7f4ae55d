"""Checked operations of lowered expressions: their values, and what an overflow decides."""

from __future__ import annotations

import operator
from collections.abc import Callable

from lowmark.query.expr.expressions import Call, Expr, Op

Scalar = int | float | None

CHECKED: dict[Op, Callable[..., int]] = {
    Op.NEG: operator.neg,
    Op.ADD: operator.add,
    Op.SUB: operator.sub,
    Op.MUL: operator.mul,
    Op.FLOOR_DIV: operator.floordiv,
    Op.SHIFT_LEFT: operator.lshift,
}
"""The operations whose result can leave 64 bits."""

_BY_SECOND = {
    **dict.fromkeys((Op.FLOOR_DIV, Op.MOD, Op.FLOAT_DIV, Op.FLOAT_MOD), lambda by: by != 0),
    **dict.fromkeys((Op.SHIFT_LEFT, Op.SHIFT_RIGHT), lambda by: 0 <= by <= 63),
}


def checked(op: Op, values: list[Scalar], bits: int = 64) -> int | None:
    """Of arguments none of which is null: null where it has not so many bits, or where there is none."""
    if op in _BY_SECOND and not _BY_SECOND[op](values[1]):
        return None
    exact = CHECKED[op](*values)
    return exact if -1 << (bits - 1) <= exact < 1 << (bits - 1) else None


def is_lost(expr: Expr, value: Callable[[Expr], Scalar]) -> bool:
    """`value`: of an expression on the row in question."""

    def lost(part: Expr) -> bool:
        return is_lost(part, value)

    match expr:
        case Call(op=Op.AND | Op.OR as op, args=args):
            decides = op is Op.OR
            decided = any(value(arg) is not None and bool(value(arg)) is decides and not lost(arg) for arg in args)
            return any(map(lost, args)) and not decided
        case Call(op=Op.IS_NULL, args=(arg,)) | Call(op=Op.IN, args=(arg, _)):
            return lost(arg)
        case Call(op=op, args=args):
            if any(value(arg) is None and not lost(arg) for arg in args):
                return False
            if op in _BY_SECOND and not lost(args[1]) and not _BY_SECOND[op](value(args[1])):
                return False
            return any(map(lost, args)) or (expr.checked and value(expr) is None)
    return False
