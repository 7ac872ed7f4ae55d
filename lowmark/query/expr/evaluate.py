"""Evaluates lowered expressions over the columns of a matrix of words, all rows at once.

The meaning is that of `expressions` and equals that of the generated kernels. HAVING, SELECT and the reductions above
the low level are evaluated here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from lowmark.query.expr.expressions import Call, Expr, Field, Literal, Op, Ranges
from lowmark.wire.rows.schema import Kind, Schema
from lowmark.wire.rows.values import INT64_MIN
from lowmark.wire.rows.words import Words, column_of

__all__ = ["Bools", "Data", "Ints", "Values", "all_valid", "assemble_rows", "evaluate", "holds", "lost_in", "place"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Data = npt.NDArray[Any]
"""The data of a column. Its dtype depends on the kind (see `Values`), which numpy's types cannot express."""


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """A column of values. `data` is float64 (FLOAT), uint64 of shape [n, words] (IP, COMMUNITY_ID) or
    int64 (all others; BOOL 0 or 1); it may be a read-only view. Its content is arbitrary where not `valid`.

    `lost`: where an integer left 64 bits on the way and the value depends on it; None: nowhere. A lost value is null,
    or computed from that null, such as true for IS NULL. A result is not lost if another operand decides it alone: an
    ordinary null, or one side of AND or OR."""

    kind: Kind
    data: Data
    valid: Bools
    lost: Bools | None = None


def all_valid(kind: Kind, data: Data) -> Values:
    return Values(kind, data, _constant(True, len(data)))


def evaluate(expr: Expr, rows: Words, schema: Schema) -> Values:
    """The values of an expression whose fields are columns of `schema`, one for each row of `rows`."""
    with np.errstate(all="ignore"):  # wrapping, division by zero and infinities are part of the meaning
        return _Evaluation(rows, schema).of(expr)


def holds(condition: Values) -> Bools:
    """Where a condition is true: neither false nor null."""
    true: Bools = (condition.data != 0) & condition.valid
    return true


def lost_in(columns: Iterable[Values], rows: int) -> Bools:
    """The rows in which a value of one of the columns is lost."""
    lost = [values.lost for values in columns if values.lost is not None]
    return reduce(np.logical_or, lost) if lost else _constant(False, rows)


def assemble_rows(schema: Schema, columns: Sequence[Values], rows: int) -> Words:
    """The matrix of columns, given in the schema's order. A column may have another kind if its form is the same."""
    words = np.zeros((rows, schema.words), np.uint64)
    for column, values in zip(schema, columns, strict=True):
        place(schema, column.name, values, words)
    return words


def place(schema: Schema, name: str, values: Values, words: Words) -> None:
    """Write a column into a matrix of the schema that holds no null in this column yet."""
    index, at = schema.index(name), schema.offset(name)
    target = words[:, at : at + schema.columns[index].kind.words]
    if target.shape[1] > 1:
        target[:] = values.data
    else:
        target[:, 0] = values.data.view(np.uint64) if values.data.strides[0] else values.data.copy().view(np.uint64)
    if not values.valid.all():
        null = ~values.valid
        target[null] = 0
        words[:, 0] |= null.astype(np.uint64) << np.uint64(index)


class _Evaluation:
    """One pass over one matrix. A part that occurs several times as one object is evaluated once."""

    def __init__(self, rows: Words, schema: Schema) -> None:
        self._rows = rows
        self._schema = schema
        self._done: dict[int, Values] = {}

    def of(self, expr: Expr) -> Values:
        done = self._done.get(id(expr))
        if done is None:
            done = self._done[id(expr)] = self._new(expr)
        return done

    def _new(self, expr: Expr) -> Values:
        match expr:
            case Field(name, kind):
                data, valid = column_of(self._schema, self._rows, name)
                return Values(kind, data, valid)
            case Literal(value, kind):
                return _literal(value, kind, len(self._rows))
            case Ranges():
                raise ValueError("a set is no value")
            case Call(Op.IN, (operand, Ranges() as ranges), kind):
                sought = self.of(operand)
                return Values(kind, _truth(_among(sought.data, ranges)), sought.valid, sought.lost)
            case Call(op, args, kind):
                values = [self.of(arg) for arg in args]
                if op in _TRUTH:
                    return _TRUTH[op](values)
                operands = [value.data for value in values]
                data = _COMPUTE[op](*operands)
                valid = reduce(np.logical_and, (value.valid for value in values))
                defined = _DEFINED[op](operands[1]) if op in _DEFINED else None
                if defined is not None:
                    valid = valid & defined
                lost = _inherited(values, defined)
                if expr.checked:
                    leaves = valid & ~_FITS[op](data, *operands)
                    if leaves.any():
                        valid, lost = valid & ~leaves, leaves if lost is None else lost | leaves
                return Values(kind, data, valid, lost)


def _inherited(values: Sequence[Values], defined: Bools | None) -> Bools | None:
    """Where a result is lost because an argument is, and no other argument makes it null. `defined`: where the second
    argument allows a result."""
    if all(value.lost is None for value in values):
        return None
    lost = [value.lost for value in values if value.lost is not None]
    known = [value.valid if value.lost is None else value.valid | value.lost for value in values]
    if defined is not None:
        known.append(defined if values[1].lost is None else defined | values[1].lost)
    return reduce(np.logical_and, known, reduce(np.logical_or, lost))


def _constant(value: bool, rows: int) -> Bools:
    return np.ones(rows, np.bool_) if value else np.zeros(rows, np.bool_)


def _literal(value: int | float | None, kind: Kind, rows: int) -> Values:
    valid = _constant(value is not None, rows)
    number = value or 0
    if kind.words > 1:
        words = np.array(
            [int(number) >> shift & 2**64 - 1 for shift in range(64 * kind.words - 64, -1, -64)], np.uint64
        )
        return Values(kind, np.broadcast_to(words, (rows, kind.words)), valid)
    scalar = np.float64(number) if kind is Kind.FLOAT else np.int64(number)
    return Values(kind, np.broadcast_to(scalar, rows), valid)


# The result of each operation where all arguments are valid.


def _truth(condition: Bools) -> Ints:
    return condition.astype(np.int64)


def _divisor(b: Data) -> Data:
    """The divisor, with 1 for 0, where the result is null."""
    return np.where(b == 0, b.dtype.type(1), b)


def _equal(a: Data, b: Data) -> Bools:
    same: Bools = a == b
    return same if same.ndim == 1 else np.logical_and.reduce(same, axis=1)


def _less(a: Data, b: Data) -> Bools:
    """a < b, for words, doubles, or values of several words, the most significant first."""
    if a.ndim == 1:
        return a < b
    return _earlier([*a.T], [*b.T])


def _earlier(left: Sequence[Data], right: Sequence[Data]) -> Bools:
    """Compare lists of columns word by word, the most significant first."""
    less = _constant(False, len(left[0]))
    for a, b in zip(reversed(left), reversed(right), strict=True):
        less = (a < b) | ((a == b) & less)
    return less


def _less_equal(a: Data, b: Data) -> Bools:
    return a <= b if a.ndim == 1 else ~_less(b, a)


def _among(values: Data, ranges: Ranges) -> Bools:
    """Whether each value lies in one of the ranges: only the last range that begins at or before it can hold it."""
    if not ranges:
        return _constant(False, len(values))
    sought, bounds = _keys(values), [*ranges.matrix.T]
    words = len(sought)
    at, left = np.zeros(len(values), np.int64), len(ranges)
    while left > 1:
        half = left >> 1
        at += np.where(_earlier(sought, [word[at + half] for word in bounds[:words]]), 0, half)
        left -= half
    found = [word[at] for word in bounds]
    return ~_earlier(sought, found[:words]) & ~_earlier(found[words:], sought)


def _keys(values: Data) -> list[Ints]:
    """The words by which ranges are ordered, one column each."""
    if values.dtype == np.float64:
        values = np.where(np.isnan(values), np.nan, values + 0.0)
    if values.ndim == 1:
        return [values.view(np.int64) if values.strides[0] else values.copy().view(np.int64)]
    return [(word ^ np.uint64(1 << 63)).view(np.int64) for word in values.T]


_MIXING = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


def _hashed(*columns: Data) -> Ints:
    """A hash of each row: splitmix64 of each word, combined with the hash of the words before it."""
    hashed = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        if column.dtype == np.float64:
            column = np.where(np.isnan(column), np.nan, column + 0.0)
        words = np.ascontiguousarray(column).view(np.uint64)
        for word in words.T if words.ndim > 1 else (words,):
            hashed = (hashed ^ word) + np.uint64(0x9E3779B97F4A7C15)
            for shift, factor in _MIXING:
                hashed = (hashed ^ hashed >> np.uint64(shift)) * np.uint64(factor)
            hashed ^= hashed >> np.uint64(31)
    return hashed.view(np.int64)


def _coarse(values: Data, bits: Ints) -> Data:
    if values.dtype == np.float64:
        dropped = 53 - bits
        words = np.ascontiguousarray(values).view(np.int64) + (1 << dropped >> 1)
        rounded = (words >> dropped << dropped).view(np.float64)
        finite: Data = np.where(np.isfinite(values) & np.isfinite(rounded), rounded, values)
        return finite
    sign = values >> 63
    magnitude = values ^ sign
    dropped = np.maximum(_bit_length(magnitude) - bits, 0)
    middle: Data = (magnitude >> dropped << dropped | 1 << dropped >> 1) ^ sign
    return middle


def _bit_length(words: Ints) -> Ints:
    """The bit length of words that are not negative, in two halves: a double cannot hold all of their bits."""
    high = np.frexp((words >> 32).astype(np.float64))[1]
    low = np.frexp((words & 0xFFFFFFFF).astype(np.float64))[1]
    return np.where(high > 0, high + 32, low).astype(np.int64)


_COMPUTE: dict[Op, Callable[..., Data]] = {
    Op.NEG: np.negative,
    Op.INVERT: np.invert,
    Op.ADD: np.add,
    Op.SUB: np.subtract,
    Op.MUL: np.multiply,
    Op.FLOOR_DIV: lambda a, b: np.floor_divide(a, _divisor(b)),
    Op.MOD: lambda a, b: np.mod(a, _divisor(b)),
    Op.BIT_AND: np.bitwise_and,
    Op.BIT_OR: np.bitwise_or,
    Op.BIT_XOR: np.bitwise_xor,
    Op.SHIFT_LEFT: lambda a, b: np.left_shift(a, b & 63),
    Op.SHIFT_RIGHT: lambda a, b: np.right_shift(a, b & 63),
    Op.TO_FLOAT: lambda a: a.astype(np.float64),
    Op.FLOAT_NEG: np.negative,
    Op.FLOAT_ADD: np.add,
    Op.FLOAT_SUB: np.subtract,
    Op.FLOAT_MUL: np.multiply,
    Op.FLOAT_DIV: lambda a, b: a / _divisor(b),
    Op.FLOAT_MOD: lambda a, b: np.mod(a, _divisor(b)),
    Op.EQ: lambda a, b: _truth(_equal(a, b)),
    Op.NE: lambda a, b: _truth(~_equal(a, b)),
    Op.LT: lambda a, b: _truth(_less(a, b)),
    Op.LE: lambda a, b: _truth(_less_equal(a, b)),
    Op.GT: lambda a, b: _truth(_less(b, a)),
    Op.GE: lambda a, b: _truth(_less_equal(b, a)),
    Op.PREFIX: lambda a, mask4, mask6: a & np.where(a[:, :1] == 4, mask4, mask6),
    Op.HASH: _hashed,
    Op.COARSE: _coarse,
    Op.NOT: lambda a: _truth(a == 0),
}

# Where an operation has a value at all, as a condition on its second argument.
_DEFINED: dict[Op, Callable[[Data], Bools]] = {
    Op.FLOOR_DIV: lambda b: b != 0,
    Op.MOD: lambda b: b != 0,
    Op.FLOAT_DIV: lambda b: b != 0,
    Op.FLOAT_MOD: lambda b: b != 0,
    Op.SHIFT_LEFT: lambda b: (b >= 0) & (b < 64),
    Op.SHIFT_RIGHT: lambda b: (b >= 0) & (b < 64),
}


# Where the result of a checked operation fits into 64 bits; the results were computed with wrapping.


def _product_fits(product: Ints, a: Ints, b: Ints) -> Bools:
    back = np.floor_divide(product, _divisor(a)) == b
    fits: Bools = (a == 0) | np.where(a == -1, b != INT64_MIN, back)
    return fits


_FITS: dict[Op, Callable[..., Bools]] = {
    Op.NEG: lambda result, a: a != INT64_MIN,
    Op.ADD: lambda result, a, b: ((a ^ result) & (b ^ result)) >= 0,
    Op.SUB: lambda result, a, b: ((a ^ b) & (a ^ result)) >= 0,
    Op.MUL: _product_fits,
    Op.FLOOR_DIV: lambda result, a, b: (a != INT64_MIN) | (b != -1),
    Op.SHIFT_LEFT: lambda result, a, b: np.right_shift(result, b & 63) == a,
}


def _and(values: Sequence[Values]) -> Values:
    """False if one is false, else null if one is null."""
    false = [(value.data == 0) & value.valid for value in values]
    valid = reduce(np.logical_and, (value.valid for value in values))
    decided = reduce(np.logical_or, false)
    return Values(Kind.BOOL, _truth(~decided), valid | decided, _undecided(values, false))


def _or(values: Sequence[Values]) -> Values:
    """True if one is true, else null if one is null."""
    true = [holds(value) for value in values]
    valid = reduce(np.logical_and, (value.valid for value in values))
    decided = reduce(np.logical_or, true)
    return Values(Kind.BOOL, _truth(decided), valid | decided, _undecided(values, true))


def _undecided(values: Sequence[Values], deciding: Sequence[Bools]) -> Bools | None:
    """Where one value is lost, and no other value decides the result."""
    lost = [value.lost for value in values if value.lost is not None]
    if not lost:
        return None
    surely = (d if value.lost is None else d & ~value.lost for value, d in zip(values, deciding, strict=True))
    undecided: Bools = reduce(np.logical_or, lost) & ~reduce(np.logical_or, surely)
    return undecided


def _is_null(values: Sequence[Values]) -> Values:
    (value,) = values
    return Values(Kind.BOOL, _truth(~value.valid), _constant(True, len(value.valid)), value.lost)


_TRUTH: dict[Op, Callable[[Sequence[Values]], Values]] = {Op.AND: _and, Op.OR: _or, Op.IS_NULL: _is_null}
