"""Sums and variances of floats: nearly as if they were computed without rounding, in whatever order values come."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from highlevel.groups.group_table import GroupTable
from highlevel.groups.layout import Layout
from highlevel.interface import Words
from lowmark.query.aggregates import lift
from lowmark.query.aggregates.finalise import Groups, total, variance
from lowmark.query.expr.evaluate import Values, evaluate
from lowmark.query.expr.expressions import Field
from lowmark.query.plan.nodes import Fold
from lowmark.wire.rows.schema import Column, Kind, Schema
from lowmark.wire.rows.words import column_of
from tests.wire.strategies import matrix

GIVEN = Schema((Column("x", Kind.FLOAT),))
LIFTS = lift.squares((Field("x", Kind.FLOAT),), ())
FOLDS = tuple(
    Fold(lift.op, tuple(Column(f"{at}{part.name}", Kind.FLOAT) for part in lift.columns), ())
    for at, lift in enumerate(LIFTS)
)
STATE = Schema((Column("pane", Kind.INT), Column("tuples", Kind.INT), *(c for fold in FOLDS for c in fold.columns)))
LAYOUT = Layout(STATE, (), FOLDS)

KNOWN = Fraction(1, 2**88)
"""The part of all magnitudes, added up, to which sums are known."""

_SMALL = st.floats(-1e6, 1e6).filter(lambda value: value == 0 or abs(value) > 1e-100)  # else squares vanish
VALUES = st.lists(st.integers(-1500, 1500).map(lambda n: n * 0.1) | _SMALL | st.floats(1e15, 1.001e15), min_size=1)


def merged(values: list[float], seed: int) -> Groups:
    """The state of one group, from partials of a tuple each that come shuffled, in parts that merge in any order."""
    chance = random.Random(seed)
    values = chance.sample(values, len(values))
    rows = matrix(GIVEN, [[value] for value in values])
    lifted = [evaluate(part.expr, rows, GIVEN).data.tolist() for lift in LIFTS for part in lift.columns]
    partials = matrix(STATE, [[0, 1, *row] for row in zip(*lifted, strict=True)])
    tables = [_table(partials[low : low + 3]) for low in range(0, len(partials), 3)]
    while len(tables) > 1:
        tables[0].merge_table(tables.pop(chance.randrange(1, len(tables))))
        chance.shuffle(tables)
    groups = tables[0].groups
    folds = tuple(
        tuple(Values(Kind.FLOAT, *column_of(LAYOUT.schema, groups, column.name)) for column in fold.columns)
        for fold in FOLDS
    )
    return Groups(groups[:, 1].view(np.int64), folds, None)


def _table(partials: Words) -> GroupTable:
    table = GroupTable(LAYOUT)
    table.merge(partials)
    return table


@given(VALUES, st.integers())
def test_sums_and_variances(values: list[float], seed: int) -> None:
    exact, n = [Fraction(value) for value in values], len(values)
    state = merged(values, seed)
    (spread,) = variance(state, ()).data
    (summed,) = total(Groups(state.tuples, state.folds[1:], None), ()).data
    right = sum(exact)
    assert abs(Fraction(summed) - right) <= abs(right) / 2**53 + KNOWN * sum(map(abs, exact))
    mean = right / n
    right = sum((value - mean) ** 2 for value in exact) / n
    assert abs(Fraction(spread) - right) <= right / 2**51 + KNOWN * sum(value * value for value in exact) / n


@given(st.floats(1e-3, 1e12), st.integers(1, 200), st.integers())
def test_values_that_are_all_alike_have_no_variance(value: float, times: int, seed: int) -> None:
    assert variance(merged([value] * times, seed), ()).data.tolist() == [0.0]


def test_what_is_not_finite_has_no_sum() -> None:
    state = merged([1.0, float("inf")], 0)
    assert not np.isfinite(variance(state, ()).data).any()
    assert not np.isfinite(total(Groups(state.tuples, state.folds[1:], None), ()).data).any()
