"""Means, variances and medians of integers are the doubles nearest to what they are, however long their sums."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from lowmark.query.aggregates.exact_division import quotient
from lowmark.query.aggregates.finalise import Details, Groups, deviation, mean, median, variance
from lowmark.query.expr.evaluate import Values, all_valid
from lowmark.wire.rows.schema import Kind
from tests.wire.strategies import INT64

Runs = list[tuple[int, int]]
"""A value, and how many tuples have it."""

NUMBERS = st.integers(-1500, 1500) | st.integers(-(2**33), 2**33) | st.integers(2**52, 2**54) | INT64
TIMES = st.integers(1, 3) | st.integers(1, 2**26) | st.integers(1, 2**50)
RUNS = st.lists(st.tuples(NUMBERS, TIMES), min_size=1, max_size=4)
UNITS = {Kind.INT: 1, Kind.DURATION: 10**9}


def moments(runs: Runs) -> tuple[int, int, int]:
    """Tuples, the sum, the sum of squares."""
    return sum(t for _, t in runs), sum(x * t for x, t in runs), sum(x * x * t for x, t in runs)


def wrapped(numbers: list[int]) -> tuple[list[int], list[int]]:
    """The upper words, and the lower ones as int64."""
    lower = [(number + 2**63) % 2**64 - 2**63 for number in numbers]
    return [number - low >> 64 for number, low in zip(numbers, lower, strict=True)], lower


def state(kind: Kind, groups: list[Runs], *, squares: bool) -> Groups:
    counts, sums, second = (list(column) for column in zip(*map(moments, groups), strict=True))
    lacking, low = wrapped(sums)
    folds = [(column(kind, low),)]
    if squares:
        _, lower = wrapped(second)
        folds.insert(0, (column(Kind.INT, [q >> 64 for q in second]), column(Kind.INT, lower)))
    none = np.zeros(len(groups), np.int64)
    return Groups(np.array(counts), tuple(folds), None, (*[none] * squares, np.array(lacking)))


def column(kind: Kind, numbers: list[int]) -> Values:
    return all_valid(kind, np.array(numbers, np.int64))


@given(st.lists(st.tuples(INT64, st.integers(1, 2**63 - 1)), max_size=5), st.sampled_from([1, 10**9, 10**18]))
def test_quotients_are_those_of_python(pairs: list[tuple[int, int]], scale: int) -> None:
    dividends, divisors = (np.array([pair[at] for pair in pairs], np.int64) for at in (0, 1))
    assert quotient(dividends, divisors, scale).tolist() == [a / (b * scale) for a, b in pairs]


@pytest.mark.parametrize("kind", UNITS)
@given(groups=st.lists(RUNS, min_size=1, max_size=4))
@example(groups=[[(2**53 + 1, 1)], [(2**62 + 1, 1), (2**61 + 3, 2)], [(-(2**63), 2**40)], [(2**63 - 1, 3)]])
def test_means_are_rounded_once(kind: Kind, groups: list[Runs]) -> None:
    exact = [Fraction(s, n * UNITS[kind]) for n, s, _ in map(moments, groups)]
    assert mean(state(kind, groups, squares=False), ()).data.tolist() == [float(value) for value in exact]


@pytest.mark.parametrize("kind", UNITS)
@given(groups=st.lists(RUNS, min_size=1, max_size=4))
@example(groups=[[(2**53 + 1, 1)], [(0, 68_469_572), (1, 31_653_561)], [(2**62, 1), (-(2**62), 1), (3, 1)]])
def test_variances_are_rounded_once_and_deviations_within_a_unit(kind: Kind, groups: list[Runs]) -> None:
    assume(all(q < 2**127 for _, _, q in map(moments, groups)))  # beyond, no value is shown
    exact = [Fraction(n * q - s * s, (n * UNITS[kind]) ** 2) for n, s, q in map(moments, groups)]
    merged = state(kind, groups, squares=True)
    assert variance(merged, ()).data.tolist() == [float(value) for value in exact]
    for found, value in zip(deviation(merged, ()).data.tolist(), exact, strict=True):
        unit = Fraction(math.ulp(found)) if found else Fraction(0)
        assert max(Fraction(found) - unit, 0) ** 2 <= value <= (Fraction(found) + unit) ** 2


@pytest.mark.parametrize("kind", UNITS)
@given(low=INT64, high=INT64)
@example(low=2**53 + 1, high=2**53 + 2)
@example(low=2**63 - 1, high=2**63 - 2)
def test_medians_between_two_values_are_rounded_once(kind: Kind, low: int, high: int) -> None:
    details = Details(np.zeros(2, np.int64), np.ones(2, np.int64), (column(kind, [low, high]),))
    (found,) = median(Groups(np.array([2]), (), details), ()).data.tolist()
    assert found == (low + high) / (2 * UNITS[kind])
