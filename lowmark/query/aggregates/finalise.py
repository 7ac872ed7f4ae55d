"""Computes an aggregate's values from the merged state of groups: one vectorised function for each kind of finish.

A finisher gets the state of all groups of a window and the call's parameters, and gives one value for each group. Sums
of integers are exact; a quotient is divided once, and so rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction

import numpy as np

from lowmark.query.aggregates.exact_division import float_variance, quotient
from lowmark.query.expr.evaluate import Bools, Data, Ints, Values, all_valid
from lowmark.wire.rows.schema import Kind

__all__ = [
    "Details", "Groups", "check_fraction", "check_place", "count", "count_distinct", "deviation", "given",
    "heavy_hitter", "heavy_hitter_count", "mean", "median", "only", "quantile", "total", "value_of_order", "variance",
]  # fmt: skip

_NS = 10**9
_SMALL = 2.0**62  # smaller products, computed in doubles, fit into int64, also twice


@dataclass(frozen=True, slots=True, eq=False)
class Details:
    """The details that split a call's groups: one entry for each combination of values in a group, in any order."""

    group: Ints  # index of the entry's group
    tuples: Ints  # number of tuples with these values
    values: tuple[Values, ...]  # of the call's details
    folds: tuple[tuple[Values, ...], ...] = ()  # the columns of the call's folds, over this entry's tuples alone
    repeat: bool = True  # whether details of other calls may split a combination into several entries


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """The state that a call reads: one entry for each group of at least one tuple. Sums (ADD, ADD_WIDE) over no value
    are 0, all other folds over no value are null."""

    tuples: Ints
    folds: tuple[tuple[Values, ...], ...]  # the columns of the call's folds, in the call's order
    details: Details | None = None
    lacking: tuple[Ints, ...] = ()
    """For each fold, how many times 2^64 a sum (ADD) needs added: 0 if it fits into 64 bits. (): all sums fit."""


def count(groups: Groups, parameters: tuple[str, ...]) -> Values:
    return all_valid(Kind.INT, groups.folds[0][0].data if groups.folds else groups.tuples)


def total(groups: Groups, parameters: tuple[str, ...]) -> Values:
    summed = _summed(groups, 0)
    return Values(summed.kind, summed.data, _counts(groups, 1) > 0)


def mean(groups: Groups, parameters: tuple[str, ...]) -> Values:
    summed = _summed(groups, 0)
    counts = _counts(groups, 1)
    valid = counts > 0
    n = np.where(valid, counts, 1)
    if summed.kind is Kind.FLOAT:
        return Values(Kind.FLOAT, summed.data / n, valid)
    unit = _unit(summed.kind)
    means = quotient(summed.data, n, unit)
    for group in np.flatnonzero(_lacking(groups, 0)).tolist():
        means[group] = _whole(groups, 0, group) / (int(n[group]) * unit)
    return Values(Kind.FLOAT, means, valid)


def variance(groups: Groups, parameters: tuple[str, ...]) -> Values:
    """Variance of the population: (n·Q − S²) / n² with Q = Σx², S = Σx."""
    squares, sums = groups.folds[:2]
    counts = _counts(groups, 2)
    valid = counts > 0
    n = np.where(valid, counts, 1)
    if sums[0].kind is Kind.FLOAT:
        spread_of_doubles = float_variance(n, (squares[0].data, squares[1].data), (sums[0].data, sums[1].data))
        return Values(Kind.FLOAT, spread_of_doubles, valid)
    (summed,) = sums
    high, low = (part.data for part in squares)  # Q = high·2⁶⁴ + low, low unsigned
    square = _unit(summed.kind) ** 2
    reals = summed.data.astype(np.float64)
    small = (high == 0) & (low >= 0) & (low.astype(np.float64) * n < _SMALL) & (reals * reals < _SMALL)
    small &= (n < 1 << 31) & (_lacking(groups, 1) == 0)
    spread, pairs = np.where(small, n * low - summed.data * summed.data, 0), np.where(small, n * n, 1)
    result = quotient(spread, pairs, square)
    for group in np.flatnonzero(~small).tolist():
        count, linear = int(n[group]), _whole(groups, 1, group)
        total_square = (int(high[group]) << 64) + int(low[group]) % 2**64
        result[group] = (count * total_square - linear * linear) / (count * count * square)
    return Values(Kind.FLOAT, result, valid)


def deviation(groups: Groups, parameters: tuple[str, ...]) -> Values:
    """Standard deviation; for integers within one unit in the last place: at most half a unit from rounding the root,
    and half from the variance."""
    squared = variance(groups, parameters)
    return Values(Kind.FLOAT, np.sqrt(squared.data), squared.valid)


def only(groups: Groups, parameters: tuple[str, ...]) -> Values:
    """The only column of the only fold, unchanged."""
    return groups.folds[0][0]


def value_of_order(groups: Groups, parameters: tuple[str, ...]) -> Values:
    return groups.folds[0][-1]


def count_distinct(groups: Groups, parameters: tuple[str, ...]) -> Values:
    """Number of different combinations without a null."""
    details = _complete(groups.details)
    if not details.repeat:
        return all_valid(Kind.INT, np.bincount(details.group, minlength=len(groups.tuples)))
    order, new = _by_value(details)
    counts = np.bincount(details.group[order[new]], minlength=len(groups.tuples))
    return all_valid(Kind.INT, counts.astype(np.int64))


def median(groups: Groups, parameters: tuple[str, ...]) -> Values:
    """The middle value, or the mean of the middle two, as a double."""
    ranked = _Ranked(groups)
    low = ranked.at(lambda n: (n + 1) // 2)
    high = ranked.at(lambda n: n // 2 + 1)
    if low.kind is Kind.FLOAT:
        return Values(Kind.FLOAT, low.data / 2 + high.data / 2, low.valid)
    unit, twice = _unit(low.kind), np.full_like(low.data, 2)
    doubled = low.data + high.data
    middle = quotient(doubled, twice, unit)
    for group in np.flatnonzero(((doubled ^ low.data) & (doubled ^ high.data)) < 0).tolist():  # the sum left 64 bits
        middle[group] = (int(low.data[group]) + int(high.data[group])) / (2 * unit)
    return Values(Kind.FLOAT, middle, low.valid)


def quantile(groups: Groups, parameters: tuple[str, ...]) -> Values:
    """The value at rank max(1, ceil(q·n)), with q as the exact decimal that was written."""
    q = Fraction(Decimal(parameters[0]))

    def rank(n: Ints) -> Ints:
        # Python's integers are used if the product of the greatest n might leave int64.
        wide = int(n.max(initial=0)) * q.numerator > np.iinfo(np.int64).max or q.denominator > np.iinfo(np.int64).max
        product = n.astype(object) * q.numerator if wide else n * q.numerator
        return np.maximum(1, -(-product // q.denominator)).astype(np.int64)

    return _Ranked(groups).at(rank)


def heavy_hitter(groups: Groups, parameters: tuple[str, ...]) -> Values:
    """The value at this place in the ranking by frequency; the lesser of equally frequent values comes first. Counts
    are exact; null if a group has fewer values."""
    values, _, place, valid = _heaviest(groups, int(parameters[0]))
    return Values(values.kind, values.data[place], valid)


def heavy_hitter_count(groups: Groups, parameters: tuple[str, ...]) -> Values:
    _, counts, place, valid = _heaviest(groups, int(parameters[0]))
    return Values(Kind.INT, counts[place], valid)


def check_place(parameters: tuple[str, ...]) -> None:
    if not parameters[0].isdecimal() or not 0 < int(parameters[0]) < 2**31:
        raise ValueError(f"{parameters[0]} is no place: the value that comes most often is at place 1")


def check_fraction(parameters: tuple[str, ...]) -> None:
    try:
        fraction = Decimal(parameters[0])
    except InvalidOperation:
        fraction = Decimal(-1)
    if not (fraction.is_finite() and 0 <= fraction <= 1):
        raise ValueError(f"{parameters[0]} is no fraction from 0 to 1")


def _heaviest(groups: Groups, place: int) -> tuple[Values, Ints, Ints, Bools]:
    """The different values of each group in sequence, their counts, and for each group the index of the value at this
    place and whether there is one."""
    details = given(groups.details)
    (values,) = details.values
    order, new = _by_value(details)
    firsts, counts = order[new], np.zeros(int(new.sum()), np.int64)
    np.add.at(counts, np.cumsum(new) - 1, details.tuples[order])
    # The sort is stable: equal counts stay in the order of values. Nulls are no value, and come last.
    ranked = np.lexsort((-counts, ~values.valid[firsts], details.group[firsts]))
    firsts, counts = firsts[ranked], counts[ranked]
    group, some = details.group[firsts], values.valid[firsts]
    starts = np.searchsorted(group, np.arange(len(groups.tuples)))
    valid = np.bincount(group[some], minlength=len(groups.tuples)) >= place
    index = np.where(valid, starts + place - 1, 0)
    return Values(values.kind, values.data[firsts], some), counts, index, valid


def _by_value(details: Details) -> tuple[Ints, Bools]:
    """The order of entries by group and value, and where in that order a value differs from the one before it."""
    words = [column for values in details.values for column in (values.valid, *_columns(values))]
    order = np.lexsort((*words[::-1], details.group))
    new = np.zeros(len(order), np.bool_)
    for column in (details.group, *words):
        placed = column[order]
        new[1:] |= placed[1:] != placed[:-1]
    new[:1] = True
    return order, new


class _Ranked:
    """The values of each group in order, each repeated once for every tuple."""

    def __init__(self, groups: Groups) -> None:
        details = _complete(groups.details)
        (values,) = details.values
        order = np.lexsort((values.data, details.group))
        self._values = Values(values.kind, values.data[order], values.valid[order])
        self._ends = np.cumsum(details.tuples[order])
        counts = np.zeros(len(groups.tuples), np.int64)
        np.add.at(counts, details.group, details.tuples)
        self._counts = counts

    def at(self, rank: Callable[[Ints], Ints]) -> Values:
        """Each group's value at a rank, counted from 1, that `rank` computes from the group's number of values."""
        valid = self._counts > 0
        starts = np.cumsum(self._counts) - self._counts
        place = np.searchsorted(self._ends, starts + rank(self._counts))
        data = self._values.data[np.where(valid, place, 0)] if len(self._ends) else np.zeros_like(self._counts)
        return Values(self._values.kind, data.astype(self._values.data.dtype), valid)


def _counts(groups: Groups, index: int) -> Ints:
    """The number of values of each group: from the fold with that index, or all tuples if there is none."""
    return groups.folds[index][0].data if len(groups.folds) > index else groups.tuples


def _lacking(groups: Groups, index: int) -> Ints:
    return groups.lacking[index] if groups.lacking else np.zeros(len(groups.tuples), np.int64)


def _whole(groups: Groups, index: int, group: int) -> int:
    """The sum of a group, in as many bits as it needs."""
    return int(groups.folds[index][0].data[group]) + (int(groups.lacking[index][group] if groups.lacking else 0) << 64)


def _summed(groups: Groups, index: int) -> Values:
    """The value of an additive fold."""
    first, *rest = groups.folds[index]
    return Values(first.kind, first.data + rest[0].data, first.valid) if rest else first


def _unit(kind: Kind) -> int:
    """Stored units in one shown unit. Means of durations are shown in seconds."""
    return _NS if kind is Kind.DURATION else 1


def given(details: Details | None) -> Details:
    """The details; TypeError if there are none, although the call declares some."""
    if details is None:
        raise TypeError("an aggregate was finished without its details")
    return details


def _complete(details: Details | None) -> Details:
    """The entries without those that contain a null."""
    details = given(details)
    valid = np.logical_and.reduce([values.valid for values in details.values])
    if valid.all():
        return details
    values = tuple(Values(value.kind, value.data[valid], value.valid[valid]) for value in details.values)
    return Details(details.group[valid], details.tuples[valid], values, repeat=details.repeat)


def _columns(values: Values) -> tuple[Data, ...]:
    """Columns to sort by, the most significant first, in the language's order; equal values are equal in them."""
    if values.kind.words > 1:
        return tuple(values.data.T)
    if values.kind is Kind.FLOAT:
        bits = values.data.view(np.int64)
        return (bits ^ (bits >> 63 & np.iinfo(np.int64).max),)
    return (values.data.view(np.int64),)
