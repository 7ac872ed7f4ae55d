"""The errors that approximate aggregates state, on values of every spread; that order and cut mean nothing to them is
tested with the operator."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from lowmark.query.aggregates.calls import function, plan_aggregate
from lowmark.query.aggregates.finalise import Details, Groups
from lowmark.query.aggregates.sketches import BIT_ROWS, CELL_ERROR, LEADING_BITS, leading_values
from lowmark.query.expr.evaluate import Values, evaluate
from lowmark.query.expr.expressions import Field
from lowmark.wire.rows.schema import Column, Kind, Schema

Ints = npt.NDArray[np.int64]


def finished(name: str, parameters: tuple[str, ...], column: Column, group: Ints, values: Ints) -> Values:
    """The call over rows of (group, value), each a tuple of its own."""
    schema = Schema((column,))
    rows = np.zeros((len(values), schema.words), np.uint64)
    rows[:, 1:] = values.view(np.uint64).reshape(len(values), -1)
    planned = plan_aggregate(name, (Field(column.name, column.kind),), parameters=parameters)
    details = tuple(evaluate(expr, rows, schema) for expr in planned.details)
    folds = tuple(tuple(evaluate(part.expr, rows, schema) for part in lift.columns) for lift in planned.lifts)
    counts = np.bincount(group)
    split = Details(group, np.ones(len(values), np.int64), details, folds)
    return function(name).finish(Groups(counts, folds, split), parameters)


NUMBERS = np.arange(400_000, dtype=np.int64)
VALUES = {  # of one to many bits, near each other and far apart, each once
    "ports": (Kind.INT, NUMBERS),
    "times": (Kind.INT, 1_714_564_800 * 10**9 + NUMBERS * 1_000_000),
    "scattered": (Kind.INT, np.random.default_rng(1).permutation(2**62 // (NUMBERS + 1))),
    "halves": (Kind.FLOAT, (NUMBERS / 2).view(np.int64)),
    "hosts": (Kind.IP, np.stack([0 * NUMBERS + 4, 0 * NUMBERS, (10 << 24) + NUMBERS], 1)),
    "networks": (Kind.IP, np.stack([0 * NUMBERS + 6, (0x20010DB8 << 32) + (NUMBERS << 16), 0 * NUMBERS + 1], 1)),
}


@pytest.mark.parametrize("spread", VALUES)
@pytest.mark.parametrize("size", [1, 10, 100, 1_000, 4_096, 20_000])
def test_numbers_of_distinct_values_err_as_stated(spread: str, size: int) -> None:
    """Over many groups the errors' root of mean squares is the standard error, or less where cells are empty."""
    kind, values = VALUES[spread]
    values = np.unique(values, axis=0) if spread == "scattered" else values
    groups = min(len(values) // size, 200)
    group = np.repeat(np.arange(groups), size)
    estimates = finished("approx_count_distinct", (), Column("x", kind), group, values[: groups * size]).data
    errors = estimates / size - 1
    within = CELL_ERROR * (1 + 4 / np.sqrt(2 * groups))  # of so few groups the root itself is known to a part
    assert np.sqrt(np.mean(errors**2)) <= within, (spread, size)
    assert abs(np.mean(errors)) <= 4 * CELL_ERROR / np.sqrt(groups) + 0.5 / size  # it is told as a whole number
    if size <= 10:
        assert np.mean(errors == 0) > 0.9


def test_repeated_values_are_one() -> None:
    values = NUMBERS[:5000]
    skewed = np.repeat(values, 1 + 300 // (1 + values))
    once = finished("approx_count_distinct", (), Column("x", Kind.INT), np.zeros_like(values), values)
    often = finished("approx_count_distinct", (), Column("x", Kind.INT), np.zeros_like(skewed), skewed)
    assert once.data.tolist() == often.data.tolist()


def test_millions_are_estimated_as_well_as_thousands() -> None:
    values = np.arange(3_000_000, dtype=np.int64)
    (estimate,) = finished("approx_count_distinct", (), Column("x", Kind.INT), np.zeros_like(values), values).data
    assert abs(estimate / len(values) - 1) < 4 * CELL_ERROR


@pytest.mark.parametrize("kind", [Kind.INT, Kind.FLOAT, Kind.DURATION])
@pytest.mark.parametrize("spread", ["uniform", "skewed", "negative", "extreme"])
def test_quantiles_err_as_stated(kind: Kind, spread: str) -> None:
    random = np.random.default_rng(7)
    values = {
        "uniform": random.integers(0, 1515, 10_000),
        "skewed": (random.pareto(0.5, 10_000) * 50).astype(np.int64),
        "negative": random.integers(-(2**40), 100, 10_000),
        "extreme": np.array([-(2**63), 2**63 - 1, 0, 1, -1, 2**62], np.int64),
    }[spread]
    words = values.astype(np.float64).view(np.int64) if kind is Kind.FLOAT else values
    for q in ("0", "0.01", "0.5", "0.95", "0.999", "1"):
        found, exact = (
            finished(name, (q,), Column("x", kind), np.zeros_like(values), words).data.tolist()[0]
            for name in ("approx_quantile", "quantile")
        )
        assert abs(found - exact) <= abs(exact) * 2.0**-LEADING_BITS
        if abs(exact) < 2**LEADING_BITS:
            assert found == exact


def test_bounds_on_rows_hold() -> None:
    values = np.array([2**bits + step * 2**bits // 256 for bits in range(63) for step in range(256)], np.int64)
    values = np.concatenate([values, ~values, [0, -1]])
    schema = Schema((Column("x", Kind.INT),))
    rows = np.zeros((len(values), 2), np.uint64)
    rows[:, 1] = values.view(np.uint64)
    (quantile,) = plan_aggregate("approx_quantile", (Field("x", Kind.INT),), parameters=("0.5",)).details
    assert len(np.unique(evaluate(quantile, rows, schema).data)) == leading_values(Kind.INT)


@pytest.mark.parametrize("size", [1, 100, 10_000, 400_000])
def test_rows_of_distinct_values_grow_with_their_logarithm(size: int) -> None:
    schema = Schema((Column("x", Kind.INT),))
    rows = np.zeros((size, 2), np.uint64)
    rows[:, 1] = NUMBERS[:size].view(np.uint64)
    (detail,) = plan_aggregate("approx_count_distinct", (Field("x", Kind.INT),)).details
    found = len(np.unique(evaluate(detail, rows, schema).data))
    assert found <= min(size, BIT_ROWS, 64 * (np.log2(1 + size / 64) + 2))
