"""The range of integers in which an expression lies, from the known ranges of its fields. It tells whether the result
can leave 64 bits.

Fields get their ranges from the catalog, operations when they are made (`simplify.exact`); others have no known range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product

from lowmark.query.expr.expressions import Call, Expr, Field, Interval, Literal, Op
from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.values import INT64_MAX, INT64_MIN

__all__ = ["around", "fits", "interval", "result", "within"]

_ANY: Interval = (INT64_MIN, INT64_MAX)

_TRUTH: Interval = (0, 1)
_DISTANCES: Interval = (0, 63)  # by which a shift is defined


def interval(expr: Expr) -> Interval:
    """The range of its values that are not null."""
    if expr.kind is Kind.BOOL:
        return _TRUTH
    match expr:
        case Literal(value=int(value)) if expr.kind.words == 1:
            return value, value
        case Field(range=range) | Call(range=range) if range is not None:
            return range
    return _ANY


def result(op: Op, args: Iterable[Expr]) -> Interval:
    """The range of the result of an operation on int64 words, in unlimited precision."""
    return _RESULTS[op](*map(interval, args))


def fits(found: Interval) -> bool:
    """Whether the whole range fits into 64 bits."""
    return found[0] >= INT64_MIN and found[1] <= INT64_MAX


def within(found: Interval) -> Interval:
    """The part of the range that fits into 64 bits."""
    low, high = (min(max(end, INT64_MIN), INT64_MAX) for end in found)
    return low, high


def around(intervals: Iterable[Interval]) -> Interval:
    """The least range that holds all of these, of which there is at least one."""
    lows, highs = zip(*intervals, strict=True)
    return min(lows), max(highs)


def _of_corners(op: Callable[[int, int], int], a: Interval, b: Interval) -> Interval:
    """The range of an operation that is monotonic in each argument for any value of the other."""
    ends = [op(left, right) for left, right in product(a, b)]
    return min(ends), max(ends)


def _divisors(b: Interval) -> list[Interval]:
    """The parts of the range below 0 and above 0."""
    parts = [(b[0], min(b[1], -1)), (max(b[0], 1), b[1])]
    return [(low, high) for low, high in parts if low <= high]


def _quotient(a: Interval, b: Interval) -> Interval:
    return around([(0, 0), *(_of_corners(lambda x, y: x // y, a, part) for part in _divisors(b))])


def _rest(a: Interval, b: Interval) -> Interval:
    low, high = min(b[0] + 1, 0), max(b[1] - 1, 0)
    return (low, min(high, a[1])) if a[0] >= 0 and b[0] > 0 else (low, high)


def _both_bits(a: Interval, b: Interval) -> Interval:
    if a[0] < 0 and b[0] < 0:
        return _some_bits(a, b)
    return 0, min(high for low, high in (a, b) if low >= 0)


def _some_bits(a: Interval, b: Interval) -> Interval:
    most = (1 << max(max(end, ~end).bit_length() for end in (*a, *b))) - 1
    return (0 if a[0] >= 0 and b[0] >= 0 else ~most), most


def _shifted(op: Callable[[int, int], int]) -> Callable[[Interval, Interval], Interval]:
    def result(a: Interval, b: Interval) -> Interval:
        low, high = max(b[0], _DISTANCES[0]), min(b[1], _DISTANCES[1])
        return _of_corners(op, a, (low, high)) if low <= high else (0, 0)

    return result


_RESULTS: dict[Op, Callable[..., Interval]] = {
    Op.NEG: lambda a: (-a[1], -a[0]),
    Op.INVERT: lambda a: (~a[1], ~a[0]),
    Op.ADD: lambda a, b: (a[0] + b[0], a[1] + b[1]),
    Op.SUB: lambda a, b: (a[0] - b[1], a[1] - b[0]),
    Op.MUL: lambda a, b: _of_corners(lambda x, y: x * y, a, b),
    Op.FLOOR_DIV: _quotient,
    Op.MOD: _rest,
    Op.BIT_AND: _both_bits,
    Op.BIT_OR: _some_bits,
    Op.BIT_XOR: _some_bits,
    Op.SHIFT_LEFT: _shifted(lambda x, y: x << y),
    Op.SHIFT_RIGHT: _shifted(lambda x, y: x >> y),
}
