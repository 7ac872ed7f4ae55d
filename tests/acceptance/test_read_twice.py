"""What has a name is planned once, however many read it: its operator feeds all of them, in one bucket or through
exchanges, and the rows are those of the naive evaluator."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lowmark.query.compile import compile_query
from lowmark.query.explain.report import render
from lowmark.query.expr.print import text_of
from lowmark.query.plan.nodes import Aggregate, Counted, Join, NodeInput, Number, QueryPlan, StepInput
from tests.acceptance.bucketrun import run
from tests.acceptance.interleaved import check, packets_of
from tests.acceptance.traffic import Traffic, traffic
from tests.naive.evaluate import rows_of

STREAMS = {"A": 2, "B": 1}
SEEDS = st.integers(0, 2**32)

PAIRS = (
    "CREATE STREAM j AS SELECT a.ts AS t, b.ts AS u, a.srcIP AS s, b.destIP AS d, a.len AS n, b.proto AS p "
    "FROM A a [RANGE 5 s], B b [RANGE 3 s] WHERE a.srcIP = b.destIP AND a.len > 50; "
)
LEFT = (
    "CREATE STREAM j AS SELECT a.ts AS t, a.srcIP AS s, b.len AS n, a.proto AS p "
    "FROM A a [RANGE 2 s] LEFT JOIN B b [RANGE 2 s] ON a.srcIP = b.destIP; "
)
COUNTS = "CREATE STREAM c AS SELECT srcIP, proto, count(*) AS n [RANGE 5 s] FROM A UNION B GROUP BY srcIP, proto; "
NUMBERED = "CREATE STREAM r AS SELECT row_num AS r, ts, srcIP, len FROM A UNION B WHERE len > 40; "

# Each query, and how many of its steps are joins, aggregates and numberings.
QUERIES = {
    "union": (
        PAIRS + "SELECT t, n FROM (SELECT t, n FROM j WHERE n > 60 AND p = 6) UNION "
        "(SELECT u AS t, p AS n FROM j WHERE n > 60 AND s = 10.0.0.1)",
        (1, 0, 0),
    ),
    "union with itself": (PAIRS + "SELECT * FROM j UNION j", (1, 0, 0)),
    "self-join": (
        PAIRS + "SELECT x.t, y.u, x.n FROM j x [RANGE 2 s, WA t], j y [RANGE 3 s, WA t] "
        "WHERE x.s = y.s AND x.n > 60 AND y.p = 6",
        (2, 0, 0),
    ),
    "self-join by another key": (
        PAIRS + "SELECT x.t, y.u FROM j x [RANGE 1 s, WA t], j y [RANGE 1 s, WA u] WHERE x.p = y.p",
        (2, 0, 0),
    ),
    "two stages": (
        PAIRS + "CREATE STREAM g AS SELECT s, count(*) AS n [RANGE 4 s, WA t] FROM j WHERE n > 60 GROUP BY s; "
        "CREATE STREAM h AS SELECT p AS s, max(n) AS n [RANGE 4 s, WA t] FROM j GROUP BY p; "
        "SELECT x.s, x.n, y.n AS m FROM g x [RANGE 4 s, WA window_end], h y [RANGE 8 s, WA window_end]",
        (2, 2, 0),
    ),
    "a join and a stage of it": (
        PAIRS + "CREATE STREAM g AS SELECT s, sum(n) AS b [RANGE 6 s, WA t] FROM j GROUP BY s; "
        "SELECT j.t, j.n, g.b FROM j [RANGE 6 s, WA t], g [RANGE 6 s, WA window_end] WHERE j.s = g.s",
        (2, 1, 0),
    ),
    "a left join": (
        LEFT + "SELECT x.t, y.n FROM j x [RANGE 2 s, WA t], j y [RANGE 2 s, WA t] WHERE x.s = y.s AND x.n > 50",
        (2, 0, 0),
    ),
    "exists": (
        PAIRS + "SELECT t, n FROM j x [RANGE 3 s, WA t] WHERE NOT EXISTS "
        "(SELECT t FROM j y [RANGE 3 s, WA t] WHERE x.s = y.d AND y.n > 60)",
        (2, 0, 0),
    ),
    "read in a row": (
        PAIRS + "CREATE STREAM k AS SELECT x.t AS t, x.s AS s, y.n AS n FROM j x [RANGE 1 s, WA t], "
        "j y [RANGE 1 s, WA t] WHERE x.s = y.s AND x.p = 6; "
        "SELECT x.t, y.n FROM k x [RANGE 1 s, WA t], k y [RANGE 1 s, WA t] WHERE x.s = y.s AND x.n = y.n",
        (3, 0, 0),
    ),
    "counts": (
        COUNTS + "SELECT x.srcIP, x.n, y.n AS m FROM c x [RANGE 5 s, WA window_end], c y [RANGE 10 s, WA window_end] "
        "WHERE x.proto = y.proto AND x.n > 1",
        (1, 1, 0),
    ),
    "counts of counts": (
        COUNTS + "CREATE STREAM d AS SELECT srcIP, max(n) AS n [RANGE 10 s, WA window_end] FROM c GROUP BY srcIP; "
        "CREATE STREAM e AS SELECT proto, sum(n) AS n [RANGE 10 s, WA window_end] FROM c GROUP BY proto; "
        "SELECT d.srcIP, e.proto, d.n, e.n AS m FROM d [RANGE 10 s, WA window_end], e [RANGE 10 s, WA window_end] "
        "WHERE d.n = e.n",
        (1, 3, 0),
    ),
    "numbered": (
        NUMBERED + "SELECT x.r, y.r AS q FROM r x [RANGE 2 s], r y [RANGE 3 s] WHERE x.srcIP = y.srcIP AND y.len > 60",
        (1, 0, 1),
    ),
    "numbered and counted": (
        NUMBERED + "CREATE STREAM n AS SELECT count(*) AS n, max(r) AS m [RANGE 7 rows, WA row_num] FROM r; "
        "CREATE STREAM o AS SELECT count(*) AS n, max(r) AS m [RANGE 20, WA r] FROM r; SELECT n, m FROM "
        "(SELECT n, m FROM n) UNION (SELECT n, m FROM o)",
        (0, 2, 2),  # all packets once, and those of the rows windows
    ),
}  # fmt: skip


def steps_of(plan: QueryPlan) -> tuple[int, int, int]:
    found = Counter(type(step.plan) for step in plan.steps)
    return found[Join], found[Aggregate] + found[Counted], found[Number]


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("buckets", [1, 4])
def test_each_operator_is_there_once(name: str, buckets: int) -> None:
    text, steps = QUERIES[name]
    assert steps_of(compile_query(text, streams=STREAMS, buckets=buckets)) == steps


@pytest.mark.parametrize("name", QUERIES)
@given(sent=traffic(), seed=SEEDS, buckets=st.sampled_from((1, 2, 5)))
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
def test_rows(name: str, sent: Traffic, seed: int, buckets: int) -> None:
    check(QUERIES[name][0], sent, seed, buckets)


@given(name=st.sampled_from(sorted(QUERIES)), sent=traffic(), seed=SEEDS)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_loss_leaves_no_wrong_exact(name: str, sent: Traffic, seed: int) -> None:
    streams = packets_of(sent)
    ran = run(QUERIES[name][0], streams, Random(seed), 2, lost=True)
    told = Counter(tuple(sorted(row.items(), key=str)) for row in ran.certain)
    assert not told - Counter(tuple(sorted(row.items(), key=str)) for row in rows_of(QUERIES[name][0], streams))


def test_a_condition_goes_into_the_join_where_all_readers_ask_it() -> None:
    """What only some ask stays with them."""
    plan = compile_query(QUERIES["union"][0], streams=STREAMS)
    kept = [node.reduction.where for node in plan.stage.nodes]
    assert [None if where is None else text_of(where) for where in kept] == ["(len > 50) AND (len > 60)", None]
    text = render(plan)
    assert text.count("finds the rows that meet") == 1
    assert text.count("reads        step 0") == 2
    (join,) = [at for at, step in enumerate(plan.steps) if isinstance(step.plan, Join)]
    readers = [step for step in plan.steps if StepInput(join) in step.inputs]
    assert len(readers) == 2
    assert all(not isinstance(source, NodeInput) for step in readers for source in step.inputs)


def test_rows_change_their_bucket_once_for_each_reader_that_needs_it() -> None:
    plan = compile_query(QUERIES["self-join by another key"][0], streams=STREAMS, buckets=4)
    assert plan.stage.buckets == 4
    assert plan.exchanges is not None
    assert len(plan.exchanges.each) == 2


def chained(depth: int) -> str:
    text = "CREATE STREAM j0 AS SELECT ts AS t, srcIP AS s, len AS n FROM A; "
    for n in range(depth):
        text += f"CREATE STREAM j{n + 1} AS SELECT x.t AS t, x.s AS s, y.n AS n FROM j{n} x [RANGE 2 s, WA t], "
        text += f"j{n} y [RANGE 3 s, WA t] WHERE x.s = y.s; "
    return f"{text}SELECT count(*) [RANGE 9 s, WA t] FROM j{depth}"


def test_steps_grow_with_the_text_and_not_with_the_ways_through_it() -> None:
    sizes = [len(compile_query(chained(depth)).steps) for depth in (2, 3, 8)]
    assert sizes[1] - sizes[0] == 3
    assert sizes[2] - sizes[1] == 15


@pytest.mark.parametrize("buckets", [1, 2])
def test_neither_planning_nor_progress_goes_every_way_through_a_chain(buckets: int) -> None:
    """There are 2^20 of them."""
    check(chained(20), Traffic(seed=1, sizes=(("A", 1), ("B", 1)), disorder_s=0, nanoseconds=False), 1, buckets)
