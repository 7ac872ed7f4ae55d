"""ORDER BY ts over a join: the rows' greatest time, and how it is kept."""

from __future__ import annotations

import pytest

from lowmark.query.compile import compile_query
from lowmark.query.explain.report import render
from lowmark.query.optimize.stream_statistics import Expected
from lowmark.query.options import Joins
from lowmark.query.parse.errors import QueryError
from lowmark.query.plan.joins import InOrder, Release
from lowmark.query.plan.nodes import Join

FROM = "FROM A [RANGE 5 s, WA ts], B [RANGE 5 s, WA ts] WHERE A.srcIP = B.srcIP"


def join_of(sql: str) -> Join:
    joins = [step.plan for step in compile_query(sql).steps if isinstance(step.plan, Join)]
    assert len(joins) == 1
    return joins[0]


def test_ts_is_the_greatest_of_the_inputs_times() -> None:
    orders = "ts, A.len", "greatest(B.ts, A.ts), A.len"
    short, long = (compile_query(f"SELECT A.len, B.ttl {FROM} ORDER BY {order}") for order in orders)
    assert short.steps == long.steps
    assert join_of(f"SELECT A.len {FROM} ORDER BY ts").in_order == InOrder()
    assert short.stage.buckets == 1


@pytest.mark.parametrize("order", ["A.ts", "least(A.ts, B.ts)", "greatest(A.ts, B.ts) + 1 s"])
def test_other_orders_are_sorted_behind_the_join(order: str) -> None:
    assert join_of(f"SELECT A.len {FROM} ORDER BY {order}").in_order is None


def test_an_alias_comes_before_the_inputs() -> None:
    assert join_of(f"SELECT A.ts AS ts, A.len {FROM} ORDER BY ts").in_order is None


def test_three_inputs() -> None:
    sql = (
        "SELECT A.len FROM A [RANGE 5 s], B [RANGE 5 s], C [RANGE 9 s] WHERE A.srcIP = B.srcIP AND B.srcIP = C.srcIP "
        "ORDER BY ts"
    )
    assert join_of(sql).in_order == InOrder()


def test_a_hint_forces_the_way() -> None:
    for release in Release:
        found = join_of(f"SELECT /*+ release({release.value}) */ A.len {FROM} ORDER BY ts")
        assert found.in_order == InOrder(release, asked=True)


def test_what_a_pair_costs_is_an_option() -> None:
    ordered, dear = f"SELECT A.len {FROM} ORDER BY ts", Joins(pair_ns=5000)
    plan = compile_query(ordered, joins=dear)
    assert [step.plan.in_order for step in plan.steps if isinstance(step.plan, Join)] == [InOrder(cost_ns=5000)]
    assert plan.stage == compile_query(ordered).stage
    assert "at 5000 ns a pair" in render(plan)
    for text in (f"SELECT A.len {FROM}", ordered.replace("SELECT", "SELECT /*+ release(sync) */"), "SELECT len FROM A"):
        with pytest.raises(QueryError, match="pair_ns of `join` is for joins that choose"):
            compile_query(text, joins=dear)
    for impossible in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="pair_ns is"):
            Joins(pair_ns=impossible)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (f"SELECT /*+ release(heap) */ A.len {FROM} ORDER BY ts", "no release called heap"),
        (f"SELECT /*+ release(sync) release(filter) */ A.len {FROM} ORDER BY ts", "given once"),
        (f"SELECT /*+ release(sync) */ A.len {FROM} ORDER BY A.ts", "with ORDER BY ts"),
        (f"SELECT /*+ release(sync) */ A.len {FROM}", "with ORDER BY ts"),
        ("SELECT /*+ release(sync) */ len FROM A ORDER BY ts", "with ORDER BY ts"),
        (f"SELECT A.len {FROM} ORDER BY ts DESC", "never complete"),
        (f"SELECT A.len {FROM} ORDER BY len", "more than one input"),
    ],
)
def test_what_is_refused(sql: str, message: str) -> None:
    with pytest.raises(QueryError, match=message):
        compile_query(sql)


def test_explain_says_which_algorithm_runs_and_why() -> None:
    rates = Expected.of({"A": 2000.0, "B": 300.0}, {})
    said = {
        release: render(
            compile_query(f"SELECT /*+ release({release}) */ A.len {FROM} ORDER BY ts", expected=rates)
        )
        for release in ("sync", "filter", "adaptive")
    }  # fmt: skip
    assert "Sync-Filter: rows wait until all inputs have passed their time" in said["sync"]
    assert "the query asks for it" in said["sync"]
    assert "Filter-Order: rows meet at once" in said["filter"]
    assert "below 0.3 (0.3 expected, at 100 ns a pair)" in said["adaptive"]
    results = "a result until all inputs have passed its time"
    assert [results in text for text in said.values()] == [False, True, True]
    assert "OA-Join" in render(compile_query(f"SELECT A.len {FROM}"))
