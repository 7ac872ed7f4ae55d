"""Approximate aggregates: what a tuple is counted by, and the estimate from those counts.

Their state is rows of words like any other's, so they are built where packets are, and merge in any order and in any
cut to the same estimate. What splits a group is not the value, but something with few values:

- *distinct*: 4,096 cells, chosen by a hash of the value. Each keeps the least of 51 further bits of the hashes in it:
  a cell that k values have met has a least one of about 1/(k + 1). Seen as arrivals of one rate, of which each cell has
  told the first or that there was none, the most likely number of values has a closed form; its standard error is
  1/√4096, and less where many cells are empty.
- *quantile*: the value's leading 7 bits. Whole numbers below 128 are themselves, all others lie within 1/128 of what
  stands for them. Counts are exact, so the rank is.
"""

from __future__ import annotations

import numpy as np

from lowmark.query.evaluate import Values, all_valid
from lowmark.query.expressions import Call, Expr, Literal, Named, Op
from lowmark.query.finishing import Groups, given
from lowmark.query.lifting import Lift
from lowmark.query.plan import FoldOp
from lowmark.wire.schema import Kind

__all__ = [
    "CELLS", "CELL_ERROR", "LEADING_BITS", "cell", "count_distinct", "leading", "leading_values", "least_of_cell",
]  # fmt: skip

_CELL_BITS = 12
_RANK_BITS = 51  # so that the sum over all cells of a group fits into 63
CELLS = 1 << _CELL_BITS
CELL_ERROR = CELLS**-0.5
"""Standard error of an estimated number of distinct values, as a part of it."""

LEADING_BITS = 7


def cell(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
    return (_word(Op.BIT_AND, _hash(args), CELLS - 1),)


def least_of_cell(args: tuple[Expr, ...], order: tuple[Named, ...]) -> tuple[Lift, ...]:
    rank = _word(Op.BIT_AND, _word(Op.SHIFT_RIGHT, _hash(args), _CELL_BITS), (1 << _RANK_BITS) - 1)
    return (Lift(FoldOp.MIN, (Named("", rank),)),)


def count_distinct(groups: Groups, parameters: tuple[str, ...]) -> Values:
    """The most likely number of values: cells that are not empty, over the sum of all cells' least hashes, where that
    of an empty cell is 1; times the number of cells."""
    details = given(groups.details)
    (cells,), ((ranks,),) = details.values, details.folds
    order = np.lexsort((ranks.data, cells.data, details.group))
    order = order[cells.valid[order]]
    group, number = details.group[order], cells.data[order]
    first = np.ones(len(order), np.bool_)  # other calls' details may split a cell
    first[1:] = (group[1:] != group[:-1]) | (number[1:] != number[:-1])
    full = np.bincount(group[first], minlength=len(groups.tuples))
    summed = np.zeros(len(groups.tuples), np.int64)
    np.add.at(summed, group[first], ranks.data[order[first]])
    waited = CELLS - full + (summed + full / 2) / (1 << _RANK_BITS)
    return all_valid(Kind.INT, np.rint(CELLS * full / waited).astype(np.int64))


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
