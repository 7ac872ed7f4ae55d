"""Approximate aggregates: the details that tuples are counted by, and the estimate from these counts.

Their state is rows of words like that of any aggregate. So it is built where packets are captured, and merges in any
order and grouping to the same estimate. Groups are split not by the value, but by something with few values:

- *distinct*: a matrix of bits, 4,096 cells by 52 ranks. A hash of the value chooses the cell (all are equally likely)
  and the rank (each is half as likely as the one before it); the value sets that bit. The set bits depend on the set of
  values alone. The estimate is the number of values that are expected to set as many bits (ICON; Lang 2017, whose CPC
  keeps the same matrix, compressed). Its standard error is ln 2/√4096, and less if few bits are set. A row has 64 cells
  of a rank.
- *quantile*: the value's leading 7 bits. Whole numbers below 128 are unchanged, all other values lie within 1/128 of
  the value that stands for them. Counts are exact, so the result stands for the true value at the rank.
"""

from __future__ import annotations

from functools import cache
from math import log

import numpy as np
import numpy.typing as npt

from lowmark.query.aggregates.finalise import Groups, given
from lowmark.query.aggregates.lift import Lift
from lowmark.query.expr.evaluate import Values, all_valid
from lowmark.query.expr.expressions import Call, Expr, Literal, Named, Op
from lowmark.query.plan.nodes import FoldOp
from lowmark.wire.rows.schema import Kind

__all__ = [
    "BIT_ROWS", "CELL_ERROR", "LEADING_BITS", "bit_of_cell", "bit_row", "count_distinct", "leading", "leading_values",
]  # fmt: skip

_CELL_BITS, _WORD_BITS = 12, 6
_CELLS = 1 << _CELL_BITS
_RANK_BITS = 51
"""Bits of the hash in which the position of the lowest 1 is the rank; if they are all 0, it is the last rank."""

BIT_ROWS = (_RANK_BITS + 1) << _CELL_BITS - _WORD_BITS
"""The most rows in a matrix. A matrix of n values has the rows of about log2(n / 64) ranks, 64 for each."""
CELL_ERROR = log(2) * _CELLS**-0.5
"""Standard error of an estimated number of distinct values, relative to it."""

LEADING_BITS = 7


def bit_row(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The rank, as the lowest 1 of its bits, with the row of 64 cells after it."""
    hashed = _hash(args)
    rank_bits = _word(Op.BIT_AND, _word(Op.SHIFT_RIGHT, hashed, _CELL_BITS), (1 << _RANK_BITS) - 1)
    negated = Call(Op.NEG, (rank_bits,), Kind.INT, hashed.nullable)
    lowest = Call(Op.BIT_AND, (rank_bits, negated), Kind.INT, hashed.nullable)
    word_bits = _CELL_BITS - _WORD_BITS
    cells = _word(Op.BIT_AND, _word(Op.SHIFT_RIGHT, hashed, _WORD_BITS), (1 << word_bits) - 1)
    return (Call(Op.BIT_OR, (_word(Op.SHIFT_LEFT, lowest, word_bits), cells), Kind.INT, hashed.nullable),)


def bit_of_cell(args: tuple[Expr, ...], order: tuple[Named, ...]) -> tuple[Lift, ...]:
    place = _word(Op.BIT_AND, _hash(args), (1 << _WORD_BITS) - 1)
    bit = Call(Op.SHIFT_LEFT, (Literal(1, Kind.INT), place), Kind.INT, place.nullable)
    return (Lift(FoldOp.BIT_OR, (Named("", bit),)),)


def count_distinct(groups: Groups, parameters: tuple[str, ...]) -> Values:
    """The number of values that are expected to set as many bits."""
    details = given(groups.details)
    (rows,), ((bits,),) = details.values, details.folds
    order = np.lexsort((rows.data, details.group))
    order = order[rows.valid[order]]
    group, row = details.group[order], rows.data[order]
    first = np.ones(len(order), np.bool_)  # details of other calls may split a row
    first[1:] = (group[1:] != group[:-1]) | (row[1:] != row[:-1])
    starts = np.flatnonzero(first)
    ones = np.zeros(len(groups.tuples), np.int64)
    if len(starts):
        words = np.bitwise_or.reduceat(bits.data[order].view(np.uint64), starts)
        np.add.at(ones, group[starts], np.bitwise_count(words).astype(np.int64))
    numbers, expected = _expectation()
    return all_valid(Kind.INT, np.rint(np.interp(ones, expected, numbers)).astype(np.int64))


@cache
def _expectation() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Numbers of values, and the bits that each is expected to set: all numbers up to that of cells, then points so
    close that interpolation between them is exact to one part in a million."""
    numbers = np.concatenate([np.arange(_CELLS), 2.0 ** np.arange(_CELL_BITS, _RANK_BITS, 1 / 256)])
    chances = 2.0 ** -np.minimum(np.arange(1, _RANK_BITS + 2), _RANK_BITS) / _CELLS  # to set a given bit
    return numbers, _CELLS * sum(-np.expm1(numbers * np.log1p(-chance)) for chance in chances)


def leading(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
    (x,) = args
    return (Call(Op.COARSE, (x, Literal(LEADING_BITS, Kind.INT)), x.kind, x.nullable),)


def leading_values(kind: Kind) -> int:
    """How many values `leading` can have."""
    powers = 2 * 1023 if kind is Kind.FLOAT else 63 - LEADING_BITS
    return 2 * ((1 << LEADING_BITS) + (powers << LEADING_BITS - 1))


def _hash(args: tuple[Expr, ...]) -> Expr:
    return Call(Op.HASH, args, Kind.INT, any(arg.nullable for arg in args))


def _word(op: Op, of: Expr, by: int) -> Expr:
    return Call(op, (of, Literal(by, Kind.INT)), Kind.INT, of.nullable)
