"""Aggregate functions, each declared once: its arguments, its folds, and how a window's value is finished."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from lowmark.query.aggregates import finalise, lift, sketches
from lowmark.query.aggregates.finalise import Groups
from lowmark.query.aggregates.lift import Lift
from lowmark.query.expr.evaluate import Values
from lowmark.query.expr.expressions import Expr, Interval, Named
from lowmark.query.expr.intervals import interval
from lowmark.query.plan.nodes import FoldOp
from lowmark.wire.rows.schema import Kind

__all__ = ["BUILT_IN", "AggregateFunction", "Result"]


@dataclass(frozen=True, slots=True)
class Result:
    """The type of a call's value."""

    kind: Kind
    nullable: bool
    range: Interval | None = None  # for integers: the range in which it lies, if known


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """One function. `lift` gives its folds from the arguments and from the columns that order the input (first, last);
    `finish` gives the values of all groups from their merged state, null for a group without a value."""

    name: str
    kinds: frozenset[Kind]  # kinds that its arguments may have
    lift: Callable[[tuple[Expr, ...], tuple[Named, ...]], tuple[Lift, ...]]
    result: Callable[[tuple[Expr, ...]], Result]
    finish: Callable[[Groups, tuple[str, ...]], Values]
    arguments: tuple[int, int | None] = (1, 1)  # least and greatest number (None: any number); `*` counts as none
    parameters: tuple[str, ...] = ()  # names of the constants after the arguments
    check: Callable[[tuple[str, ...]], None] = lambda parameters: None  # raises ValueError: what they must be
    details: Callable[[tuple[Expr, ...]], tuple[Expr, ...]] | None = None
    """Gives the expressions that split a group, with a row for each combination of values; None: one row a group."""
    most: Callable[[Kind], int] | None = None  # the most rows in a group with details, by the first detail's kind
    error: str = ""  # for an approximate value: how far it may be off
    ordered: bool = False  # it needs the order of the input
    wide: bool = False  # `finish` adds `Groups.lacking` to sums that left 64 bits; else their value is null


_ANY = frozenset(Kind)
_WHOLE = frozenset({Kind.INT})
_QUANTITY = frozenset({Kind.INT, Kind.FLOAT, Kind.DURATION})
_FRACTION = "a fraction from 0 to 1"
_PLACE = "a place from 1"
_COUNTED = (0, 2**60)  # reached in 36 years at 10^9 tuples a second


def _values(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
    return args


def _number(args: tuple[Expr, ...]) -> Result:
    return Result(Kind.INT, False, _COUNTED)


def _as_argument(args: tuple[Expr, ...]) -> Result:
    return Result(args[0].kind, args[0].nullable)


def _one_of_them(args: tuple[Expr, ...]) -> Result:
    return Result(args[0].kind, args[0].nullable, interval(args[0]))


def _sum(args: tuple[Expr, ...]) -> Result:
    return Result(args[0].kind, args[0].nullable or args[0].kind is not Kind.FLOAT)


def _mean(args: tuple[Expr, ...]) -> Result:
    return Result(Kind.FLOAT, _sum(args).nullable)


def _perhaps(args: tuple[Expr, ...]) -> Result:
    return replace(_one_of_them(args), nullable=True)


def _median(args: tuple[Expr, ...]) -> Result:
    return Result(Kind.FLOAT, args[0].nullable)


BUILT_IN = (
    AggregateFunction("count", _ANY, lift.count, _number, finalise.count, arguments=(0, 1)),
    AggregateFunction("sum", _QUANTITY, lift.total, _sum, finalise.total),
    AggregateFunction("avg", _QUANTITY, lift.total, _mean, finalise.mean, wide=True),
    AggregateFunction("variance", _QUANTITY, lift.squares, _mean, finalise.variance, wide=True),
    AggregateFunction("stddev", _QUANTITY, lift.squares, _mean, finalise.deviation, wide=True),
    AggregateFunction("min", _ANY, lift.single(FoldOp.MIN), _one_of_them, finalise.only),
    AggregateFunction("max", _ANY, lift.single(FoldOp.MAX), _one_of_them, finalise.only),
    AggregateFunction("bit_or", _WHOLE, lift.single(FoldOp.BIT_OR), _as_argument, finalise.only),
    AggregateFunction("bit_and", _WHOLE, lift.single(FoldOp.BIT_AND), _as_argument, finalise.only),
    AggregateFunction(
        "first", _ANY, lift.by_order(FoldOp.FIRST), _one_of_them, finalise.value_of_order, ordered=True
    ),
    AggregateFunction(
        "last", _ANY, lift.by_order(FoldOp.LAST), _one_of_them, finalise.value_of_order, ordered=True
    ),
    AggregateFunction(
        "count distinct", _ANY, lift.nothing, _number, finalise.count_distinct,
        arguments=(1, None), details=_values,
    ),
    AggregateFunction("median", _QUANTITY, lift.nothing, _median, finalise.median, details=_values),
    AggregateFunction(
        "quantile", _QUANTITY, lift.nothing, _one_of_them, finalise.quantile,
        parameters=(_FRACTION,), check=finalise.check_fraction, details=_values,
    ),
    AggregateFunction(
        "heavy_hitter", _ANY, lift.nothing, _perhaps, finalise.heavy_hitter,
        parameters=(_PLACE,), check=finalise.check_place, details=_values,
    ),
    AggregateFunction(
        "heavy_hitter_count", _ANY, lift.nothing, lambda args: replace(_number(args), nullable=True),
        finalise.heavy_hitter_count, parameters=(_PLACE,), check=finalise.check_place, details=_values,
    ),
    AggregateFunction(
        "approx_count_distinct", _ANY - {Kind.STR}, sketches.bit_of_cell, _number,
        sketches.count_distinct, arguments=(1, None), details=sketches.bit_row, most=lambda kind: sketches.BIT_ROWS,
        error=f"has a standard error of {100 * sketches.CELL_ERROR:.1f}%",
    ),
    AggregateFunction(
        "approx_quantile", _QUANTITY, lift.nothing, _as_argument, finalise.quantile,
        parameters=(_FRACTION,), check=finalise.check_fraction, details=sketches.leading,
        most=sketches.leading_values, error=f"is within 1/{2**sketches.LEADING_BITS} of the value at that rank",
    ),
)  # fmt: skip
