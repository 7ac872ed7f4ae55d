"""What calls of aggregates plan, share and refuse. Their values are tested with the operator that computes them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowmark.query.aggregates.calls import BadAggregate, CallPlanner, function, names, plan_aggregate
from lowmark.query.aggregates.finalise import Details, Groups
from lowmark.query.expr.evaluate import Values, all_valid, evaluate
from lowmark.query.expr.expressions import Field, Named
from lowmark.query.plan.nodes import FoldOp
from lowmark.wire.rows.schema import Column, Kind, Schema
from tests.wire.strategies import INT64, matrix

LEN = Field("len", Kind.INT)
MAYBE = Field("maybe", Kind.INT, nullable=True)
HOST = Field("srcIP", Kind.IP)
ORDER = (Named("ts", Field("ts", Kind.TIME)), Named("_rank", Field("_rank", Kind.INT)))


def test_calls_share_folds_and_details() -> None:
    planner = CallPlanner((Named("srcIP", HOST),), ORDER)
    calls = [
        planner.add("sum", (LEN,), "sum_len"),
        planner.add("avg", (LEN,), "avg_len"),
        planner.add("variance", (LEN,), "variance_len"),
        planner.add("stddev", (LEN,), "stddev_len"),
        planner.add("median", (LEN,), "median_len"),
        planner.add("quantile", (LEN,), "q", parameters=("0.9",)),
        planner.add("count", (LEN, HOST), "pairs", distinct=True),
        planner.add("count", (), "count"),
    ]
    assert [call.folds for call in calls] == [(0,), (0,), (1, 0), (1, 0), (), (), (), ()]
    assert [fold.op for fold in planner.folds] == [FoldOp.ADD, FoldOp.ADD_WIDE]
    assert [detail.expr for detail in planner.details] == [LEN]
    assert calls[4].details == calls[5].details == (planner.details[0].name,)
    assert calls[6].details == (planner.details[0].name, "srcIP")


def test_columns_have_names_of_their_own() -> None:
    planner = CallPlanner((Named("_add0", HOST),), ORDER, taken=("_min1",))
    planner.add("sum", (LEN,), "a")
    planner.add("min", (LEN,), "b")
    planner.add("first", (LEN,), "c")
    columns = [column.name for fold in planner.folds for column in fold.columns]
    assert columns == ["__add0", "__min1", "_first2_ts", "_first2__rank", "_first2_value"]


@pytest.mark.parametrize(
    ("name", "arg", "kind", "nullable", "folds"),
    [
        ("count", LEN, Kind.INT, False, []),
        ("count", MAYBE, Kind.INT, False, [FoldOp.ADD]),
        ("sum", LEN, Kind.INT, True, [FoldOp.ADD]),
        ("sum", MAYBE, Kind.INT, True, [FoldOp.ADD, FoldOp.ADD]),
        ("sum", Field("x", Kind.FLOAT), Kind.FLOAT, False, [FoldOp.ADD_FLOAT]),
        ("sum", Field("x", Kind.DURATION), Kind.DURATION, True, [FoldOp.ADD]),
        ("avg", LEN, Kind.FLOAT, True, [FoldOp.ADD]),
        ("variance", LEN, Kind.FLOAT, True, [FoldOp.ADD_WIDE, FoldOp.ADD]),
        ("min", HOST, Kind.IP, False, [FoldOp.MIN]),
        ("max", MAYBE, Kind.INT, True, [FoldOp.MAX]),
        ("last", HOST, Kind.IP, False, [FoldOp.LAST]),
        ("median", MAYBE, Kind.FLOAT, True, []),
    ],
)
def test_types_and_folds(name: str, arg: Field, kind: Kind, nullable: bool, folds: list[FoldOp]) -> None:
    planned = plan_aggregate(name, (arg,), order=ORDER)
    assert (planned.result.kind, planned.result.nullable) == (kind, nullable)
    assert [lift.op for lift in planned.lifts] == folds


@pytest.mark.parametrize(
    ("name", "args", "distinct", "parameters", "reason", "argument"),
    [
        ("sum", (HOST,), False, (), "sum cannot take a value of kind ip", 0),
        ("avg", (Field("ts", Kind.TIME),), False, (), "avg cannot take a value of kind time", 0),
        ("bit_or", (Field("x", Kind.FLOAT),), False, (), "bit_or cannot take a value of kind float", 0),
        ("sum", (LEN, LEN), False, (), "sum takes one argument, not 2", 1),
        ("sum", (), False, (), "sum takes one argument, not *", None),
        ("max", (LEN,), True, (), "DISTINCT goes with count alone", None),
        ("quantile", (LEN,), False, (), "quantile takes a fraction from 0 to 1", 1),
        ("quantile", (LEN,), False, ("1.01",), "1.01 is no fraction from 0 to 1", 1),
        ("quantile", (LEN,), False, ("many",), "many is no fraction from 0 to 1", 1),
    ],
)
def test_refusals_say_why_and_where(
    name: str, args: tuple[Field, ...], distinct: bool, parameters: tuple[str, ...], reason: str, argument: int | None
) -> None:
    with pytest.raises(BadAggregate) as caught:
        plan_aggregate(name, args, distinct, parameters)
    assert reason in caught.value.reason
    assert caught.value.argument == argument


def test_first_needs_an_order() -> None:
    with pytest.raises(BadAggregate, match="first needs an order"):
        plan_aggregate("first", (LEN,))


def test_names_are_what_queries_may_call() -> None:
    assert {"count", "sum", "quantile"} <= set(names())
    assert all(function(name).name == name for name in names())
    with pytest.raises(KeyError):
        plan_aggregate("sums", (LEN,))


@given(st.lists(INT64, max_size=8))
def test_squares_are_exact_in_two_words(numbers: list[int]) -> None:
    schema = Schema((Column("len", Kind.INT),))
    (wide, _) = plan_aggregate("variance", (LEN,)).lifts
    words = matrix(schema, [[number] for number in numbers])
    high, low = (evaluate(part.expr, words, schema).data.tolist() for part in wide.columns)
    assert [(h << 64) + l % 2**64 for h, l in zip(high, low, strict=True)] == [n * n for n in numbers]  # noqa: E741


def _groups_of(numbers: list[int], tuples: list[int]) -> Groups:
    values = all_valid(Kind.INT, np.array(numbers, np.int64))
    details = Details(np.zeros(len(numbers), np.int64), np.array(tuples, np.int64), (values,))
    return Groups(np.array([sum(tuples)]), (), details)


def test_quantiles_of_more_tuples_than_products_fit() -> None:
    groups = _groups_of([1, 2, 3], [2**60, 2**60, 2**60])
    q = "0.66666666666666666666666666666666666667"
    assert function("quantile").finish(groups, (q,)).data.tolist() == [3]
    assert function("quantile").finish(groups, ("0.6666",)).data.tolist() == [2]


def test_a_median_between_great_numbers_does_not_wrap() -> None:
    assert function("median").finish(_groups_of([2**62, 2**62 + 2], [1, 1]), ()).data.tolist() == [float(2**62)]


def test_values_of_nothing_are_null() -> None:
    nothing = Values(Kind.INT, np.array([0]), np.array([False]))
    details = Details(np.zeros(1, np.int64), np.ones(1, np.int64), (nothing,))
    groups = Groups(np.array([1]), (), details)
    for name, parameters in (("median", ()), ("quantile", ("0.5",))):
        assert not function(name).finish(groups, parameters).valid.any()
    assert function("count", distinct=True).finish(groups, ()).data.tolist() == [0]
