"""Hints on the strategy of windows and on what chooses the bucket; those on the order of joins are in test_probing."""

from __future__ import annotations

import pytest

from lowmark.query.compile import compile_query
from lowmark.query.explain.report import render
from lowmark.query.options import Strategy
from lowmark.query.parse.errors import QueryError
from lowmark.query.plan.nodes import Aggregate, QueryPlan

COUNT = "SELECT {} srcIP, destIP AS d, count(*) [RANGE 1 minute, SLIDE 10 s] FROM Main GROUP BY srcIP, destIP"
PAIRS = (
    "CREATE STREAM p AS SELECT {} A.ts AS ts, A.srcIP AS s, A.destIP AS d FROM A, B [RANGE TUMBLING 1 s] "
    "WHERE A.srcIP = B.srcIP AND A.destIP = B.destIP; SELECT {} s, d, count(*) [RANGE 9 s] FROM p GROUP BY s, d"
)


def strategies(plan: QueryPlan) -> list[Strategy]:
    return [step.plan.strategy for step in plan.steps if isinstance(step.plan, Aggregate)]


def buckets(plan: QueryPlan) -> list[tuple[str, ...]]:
    """By what rows come into their buckets: of the first node, and of each exchange."""
    each = () if plan.exchanges is None else plan.exchanges.each
    return [plan.stage.nodes[0].bucket_by, *(exchange.node.bucket_by for exchange in each)]


@pytest.mark.parametrize("strategy", ["wid", "paned", "ADAPT"])
@pytest.mark.parametrize("option", list(Strategy))
def test_a_strategy_in_the_text_stands_whatever_the_option_says(strategy: str, option: Strategy) -> None:
    plan = compile_query(COUNT.format(f"/*+ strategy({strategy}) */"), strategy=option)
    assert strategies(plan) == [Strategy(strategy.lower())]
    assert "as the query asks" in render(plan)


def test_a_comma_may_stand_between_hints() -> None:
    plain, parted = (compile_query(COUNT.format(f"/*+ strategy(wid){mark} bucket(srcIP) */")) for mark in ("", ","))
    assert (strategies(parted), buckets(parted)) == (strategies(plain), buckets(plain))


def test_each_stage_has_its_own_strategy() -> None:
    both = COUNT.format("/*+ strategy(wid) */"), "SELECT /*+ strategy(adapt) */ d, count(*) [RANGE 9 m, WA window_end]"
    plan = compile_query(f"CREATE STREAM s AS {both[0]}; {both[1]} FROM s GROUP BY d")
    assert strategies(plan) == [Strategy.WID, Strategy.ADAPT]
    auto = compile_query(COUNT.format("/*+ strategy(auto) */"), strategy=Strategy.WID)
    assert strategies(auto) == [Strategy.WID]


@pytest.mark.parametrize("asked", [("srcIP",), ("d",), ("destIP", "Main.srcIP"), ("srcIP", "destIP")])
def test_keys_that_are_named_choose_the_bucket(asked: tuple[str, ...]) -> None:
    plan = compile_query(COUNT.format(f"/*+ bucket({', '.join(asked)}) */"))
    called = {"srcIP": "srcIP", "Main.srcIP": "srcIP", "d": "d", "destIP": "d"}
    assert buckets(plan) == [tuple(sorted({called[name] for name in asked}, reverse=True))]


@pytest.mark.parametrize(
    ("join", "groups", "expected"),
    [
        ("", "", [("srcIP", "destIP")]),
        ("", "bucket(s)", [("srcIP",)]),
        ("bucket(A.destIP)", "", [("destIP",)]),
        ("bucket(B.destIP)", "bucket(s)", [("destIP",), ("s",)]),
        ("bucket(A.destIP)", "bucket(s, d)", [("destIP",), ("s", "d")]),
        ("bucket(A.srcIP, B.destIP)", "bucket(d)", [("srcIP", "destIP"), ("d",)]),
    ],
)
def test_rows_change_buckets_where_what_is_asked_for_of_two_stages_differs(
    join: str, groups: str, expected: list[tuple[str, ...]]
) -> None:
    hints = (f"/*+ {hint} */" if hint else "" for hint in (join, groups))
    assert buckets(compile_query(PAIRS.format(*hints))) == expected


@pytest.mark.parametrize(
    ("sql", "message", "valid"),
    [
        (COUNT.format("/*+ strategy(wd) */"), "there is no strategy called wd", ("auto", "wid", "paned", "adapt")),
        (COUNT.format("/*+ strategy(wid) strategy(wid) */"), "strategy is given once, and names one", None),
        (COUNT.format("/*+ strategy(wid, paned) */"), "strategy is given once, and names one", None),
        ("SELECT /*+ strategy(wid) */ ts FROM A", "strategy has no effect here: it applies to windows", ()),
        (
            "SELECT /*+ strategy(wid) */ count(*) [RANGE ALL, SLIDE 1 s] FROM A",
            "strategy has no effect here: it applies to sliding and tumbling windows",
            (),
        ),
        (COUNT.format("/*+ bucket(len) */"), "bucket names keys of the groups", ("srcIP", "d")),
        (COUNT.format("/*+ bucket(d) bucket(d) */"), "bucket is given once, and names all keys", ()),
        ("SELECT /*+ bucket(ts) */ ts FROM A", "bucket has no effect here: rows that are selected one by one", ()),
        (
            "SELECT /*+ bucket(proto) */ DISTINCT srcIP, count(*) [RANGE 1 s] FROM A GROUP BY srcIP, proto",
            "bucket names keys of the groups",
            ("srcIP",),
        ),
        (
            "SELECT /*+ bucket(proto) */ count(*) [RANGE 9 rows, WA row_num, PA srcIP] FROM A GROUP BY srcIP, proto",
            "bucket names keys of the groups",
            ("srcIP",),
        ),
        (
            PAIRS.format("/*+ bucket(A.ts) */", ""),
            "bucket names fields that are equal in all inputs of the join",
            ("A.srcIP", "B.srcIP", "A.destIP", "B.destIP"),
        ),
    ],
)
def test_a_hint_that_nothing_can_follow_is_refused(sql: str, message: str, valid: tuple[str, ...] | None) -> None:
    with pytest.raises(QueryError) as error:
        compile_query(sql)
    assert error.value.message.startswith(message)
    assert valid is None or error.value.expected == valid
