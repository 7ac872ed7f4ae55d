"""Whole queries above the kernels: whatever the interleaving of lanes, the cuts of batches, the places of promises, the
number of buckets, and wherever state is written and read again, the rows are those of the naive evaluator."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lowmark.query.options import Late, Strategy
from lowmark.wire.records.verdicts import Reason
from tests.acceptance import countingqueries
from tests.acceptance.bucketrun import run
from tests.acceptance.interleaved import check, packets_of
from tests.acceptance.queries import nested_joins
from tests.acceptance.traffic import Traffic, traffic
from tests.naive.compare import differences
from tests.naive.evaluate import rows_of

SEEDS = st.integers(0, 2**32)
BUCKETS = st.sampled_from((1, 1, 2, 5))
LATE = (Late.COUNT, Late.EMIT)  # what tells late tuples goes through the steps with all others, and changes no row


@given(text=countingqueries.queries, sent=traffic(), seed=SEEDS, buckets=BUCKETS, late=st.sampled_from(LATE))
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_windows_that_count(text: str, sent: Traffic, seed: int, buckets: int, late: Late) -> None:
    check(text, sent, seed, buckets, late=late)


COUNTED_SELECTIONS = (
    "SELECT sum(v) [RANGE 10 rows, SLIDE 4 rows, WA row_num] FROM (SELECT ts, len AS v FROM A) AS sub",
    "SELECT sum(v), first(v), last(v) [RANGE 10, SLIDE 4, WA sub.ROW-NUM] FROM (SELECT len v FROM B UNION A) sub",
    (
        "CREATE STREAM s AS SELECT len, proto FROM A WHERE proto <> 17; "
        "CREATE STREAM t AS SELECT len v, proto p FROM s WHERE len > 60; "
        "SELECT p, sum(v) [RANGE ALL, SLIDE 7 rows, WA row_num] FROM t WHERE v % 2 = 0 GROUP BY p"
    ),
    "SELECT first(len), last(ts) [RANGE 9 rows, WA row_num, PA proto] FROM (SELECT proto, len, ts FROM A UNION B) s",
    (
        "SELECT count(*), first(len) [RANGE 8 rows, SLIDE 3 rows, WA row_num] "
        "FROM (SELECT len FROM B WHERE proto = 6) UNION (SELECT ip_len AS len FROM A)"
    ),
    "SELECT count(*), max(v) [RANGE 9 s, RATTR t, SLIDE 5 rows, SATTR row_num] FROM (SELECT ts+1 s t, len v FROM A) s",
    "SELECT sum(n) [RANGE 6 rows, WA row_num] FROM (SELECT row_num AS n, len FROM A) s",  # not this column
)


@pytest.mark.parametrize("text", COUNTED_SELECTIONS)
@given(sent=traffic(), seed=SEEDS, buckets=BUCKETS)
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
def test_selections_are_counted_as_packets_are(text: str, sent: Traffic, seed: int, buckets: int) -> None:
    """Whether or not they show row_num."""
    check(text, sent, seed, buckets)


SLIDING = st.builds(
    "SELECT {0}, {1} [RANGE {2} s, SLIDE {3} s] FROM A UNION B GROUP BY {0}".format,
    st.sampled_from(("srcIP", "link, destPort", "prefix(destIP, 30)")),
    st.sampled_from(("count(*), sum(len)", "max(len), min(ts) AS t", "avg(ttl), last(len)", "count(distinct proto)")),
    st.integers(1, 40), st.integers(1, 25),
)  # fmt: skip


@given(
    text=SLIDING, sent=traffic(), seed=SEEDS, buckets=BUCKETS,
    strategy=st.sampled_from((Strategy.WID, Strategy.PANED, Strategy.ADAPT)),
)  # fmt: skip
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_strategy(text: str, sent: Traffic, seed: int, buckets: int, strategy: Strategy) -> None:
    check(text, sent, seed, buckets, strategy)


EXCHANGED = (
    "SELECT x.ts, y.ts, z.ts FROM B AS x [RANGE 11 s] LEFT JOIN B AS y [RANGE 12 s] ON x.srcIP = y.destIP "
    "LEFT JOIN A AS z [RANGE 1 s] ON x.len = z.ip_len + 14"
)


@example(text=EXCHANGED, sent=Traffic(0, (("A", 20), ("B", 117), ("B", 100)), 0, True), seed=1, buckets=2)
@given(text=nested_joins(), sent=traffic(), seed=SEEDS, buckets=BUCKETS)
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
def test_nested_joins(text: str, sent: Traffic, seed: int, buckets: int) -> None:
    assert check(text, sent, seed, buckets).overtaken == 0


DISTINCTS = st.sampled_from((
    "SELECT DISTINCT ts / 10 AS tens, srcIP FROM A",
    "SELECT DISTINCT ts / 10 AS tens, len / 2.5 AS f, len / (destPort - 80) AS x FROM A UNION B WHERE proto = 6",
    "SELECT ts / 20 AS t, destPort FROM A GROUP BY ts / 20, destPort HAVING destPort > 100",
    ("CREATE STREAM d AS SELECT DISTINCT ts / 10 AS tens, srcIP, proto FROM A; "
    "SELECT DISTINCT tens / 2 AS t, proto FROM d"),
    "CREATE STREAM d AS SELECT DISTINCT ts / 10 AS tens, srcIP FROM A; SELECT h, count(*) FROM d GROUP BY tens/3 AS h",
    ("CREATE STREAM s AS SELECT srcIP, count(*) AS n [RANGE 5 s] FROM A GROUP BY srcIP; "
    "SELECT DISTINCT window_end, n FROM s"),
    ("SELECT DISTINCT x.ts / 10 AS a, y.ts / 10 AS b, x.proto FROM A AS x [RANGE 4 s], B AS y [RANGE 3 s] "
    "WHERE x.srcIP = y.destIP"),
    "SELECT DISTINCT row_num / 10 AS tens, proto FROM A",
    ("CREATE STREAM d AS SELECT DISTINCT ts / 10 AS tens, srcIP FROM A; "
    "CREATE STREAM e AS SELECT DISTINCT ts / 10 AS tens, srcIP FROM B; SELECT * FROM d UNION e"),
))  # fmt: skip


@given(text=DISTINCTS, sent=traffic(), seed=SEEDS, buckets=BUCKETS)
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
def test_distinct_rows(text: str, sent: Traffic, seed: int, buckets: int) -> None:
    check(text, sent, seed, buckets)


@given(text=DISTINCTS, sent=traffic(), seed=SEEDS)
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_loss_leaves_no_distinct_row_that_is_told_as_exact_and_is_not(text: str, sent: Traffic, seed: int) -> None:
    streams = packets_of(sent)
    ran = run(text, streams, Random(seed), 2, lost=True)
    told = Counter(tuple(sorted(row.items(), key=str)) for row in ran.certain)
    assert not told - Counter(tuple(sorted(row.items(), key=str)) for row in rows_of(text, streams))


HANDSHAKES = "CREATE STREAM g AS SELECT a.ts AS t, b.ts AS u FROM A AS a [RANGE 40 s], B AS b [RANGE 30 s] WHERE {}; "
REST = "CREATE STREAM k AS SELECT a.ts AS u, b.ts AS t FROM B AS b [RANGE 50 s], A AS a [RANGE 3 s] WHERE {}; "
JOINT = st.sampled_from((
    f"{HANDSHAKES.format('a.srcIP = b.destIP')}SELECT t, u / 3, count(*) AS n FROM g GROUP BY t, u / 3",
    f"{HANDSHAKES.format('a.srcIP = b.destIP')}SELECT u, t, count(*), total(count(*)) FROM g GROUP BY t / 5, u, t",
    (f"{HANDSHAKES.format('a.proto = b.proto')}{REST.format('a.ttl = b.ttl')}"
    "SELECT t, u, count(*) FROM g UNION k GROUP BY t, u"),
    (f"{HANDSHAKES.format('a.srcIP = b.srcIP')}SELECT t, u, count(*) AS n FROM (SELECT ts AS t, ts + 1 s AS u FROM A) "
    "UNION g GROUP BY t, u HAVING count(*) > 1"),
    (f"{HANDSHAKES.format('a.srcIP = b.destIP')}CREATE STREAM n AS SELECT t, u, count(*) AS n FROM g GROUP BY t, u; "
    "SELECT n, count(*) [RANGE 10 s, WA t] FROM n GROUP BY n"),
))  # fmt: skip


@given(text=JOINT, sent=traffic(), seed=SEEDS, buckets=BUCKETS)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_groups_over_the_times_of_a_join(text: str, sent: Traffic, seed: int, buckets: int) -> None:
    """Joint promises let them close while others of their pane stay open."""
    check(text, sent, seed, buckets)


ORDERS = st.sampled_from((
    "SELECT ts, srcIP, len FROM A ORDER BY ts",
    "SELECT ts AS t, len * 2 AS w FROM A UNION B WHERE len > 60 ORDER BY t, len DESC, srcIP",
    "SELECT srcIP FROM (SELECT ts + 3 seconds AS later, srcIP, proto FROM A) AS x ORDER BY later, proto",
    "SELECT ts, row_num, srcIP FROM A ORDER BY ts",
    "SELECT ts, row_num AS r FROM A UNION B WHERE row_num % 3 <> 1 ORDER BY ts, len DESC",
))  # fmt: skip


@given(text=ORDERS, sent=traffic(), seed=SEEDS)
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
def test_order_over_a_stream(text: str, sent: Traffic, seed: int) -> None:
    streams = packets_of(sent)
    ran = run(text, streams, Random(seed), 3)
    assert ran.rows == rows_of(text, streams)
    assert ran.unfinished == 0
    assert all(complete.verdict.exact for completes in ran.completes for complete in completes)


BOTH = "FROM A AS x [RANGE 4 s], A UNION B AS y [RANGE 7 s] WHERE x.srcIP = y.destIP AND x.proto = y.proto"
JOIN_ORDERS = st.sampled_from((
    (f"SELECT x.ts, y.ts, x.len {BOTH} ORDER BY x.ts", ("x.ts",)),
    (f"SELECT x.ts, y.ts, x.len {BOTH} ORDER BY y.ts, x.len DESC", ("y.ts", "x.len")),
    (f"SELECT t, n FROM (SELECT x.ts + 3 s AS t, y.len AS n {BOTH}) AS p WHERE n > 50 ORDER BY t, n", ("t", "n")),
    ("SELECT x.ts, y.ts FROM A AS x [RANGE 4 s] LEFT JOIN B AS y [RANGE 7 s] ON x.srcIP = y.destIP ORDER BY x.ts",
     ("x.ts",)),
))  # fmt: skip
BY_TIME = st.sampled_from([
    (f"SELECT /*+ release({way}) */ {shown} {BOTH} ORDER BY {order}", keys)
    for way in ("sync", "filter", "adaptive")
    for shown, order, keys in (
        ("greatest(x.ts, y.ts) AS t, x.len", "t", ("t",)),
        ("x.ts + 2 s, greatest(y.ts, x.ts) AS t, y.len", "greatest(x.ts, y.ts), y.len DESC", ("t", "y.len")),
    )
])  # fmt: skip


@given(asked=st.one_of(JOIN_ORDERS, BY_TIME), sent=traffic(), seed=SEEDS)
@settings(max_examples=16, deadline=None, suppress_health_check=list(HealthCheck))
def test_order_over_a_join(asked: tuple[str, tuple[str, ...]], sent: Traffic, seed: int) -> None:
    """Equal rows in whatever order; a replay gives the same one."""
    text, keys = asked
    streams = packets_of(sent)
    ran, expected = run(text, streams, Random(seed), 3), rows_of(text, streams)
    assert not differences(ran.rows, expected)
    assert [[row[key] for key in keys] for row in ran.rows] == [[row[key] for key in keys] for row in expected]
    assert (ran.unfinished, ran.overtaken, len(ran.completes)) == (0, 0, 1)
    assert run(text, streams, Random(seed + 1), 3).rows == ran.rows


@given(sent=traffic(), seed=SEEDS)
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_first_of_each_window_over_a_join(sent: Traffic, seed: int) -> None:
    head = "SELECT x.proto, x.len, count(*) AS n [RANGE 9 s, SLIDE 3 s, WA x.ts]"
    check(f"{head} {BOTH} GROUP BY x.proto, x.len ORDER BY n DESC, x.len LIMIT 2", sent, seed, 1)


SELECTED = f"(SELECT y.ts AS t, y.srcIP AS s, y.len AS n {BOTH}) AS p"
ANSWERED = "A AS x [RANGE 9 s] WHERE EXISTS (SELECT y.ts FROM B AS y [RANGE 9 s] WHERE x.srcIP = y.destIP)"
FIRSTS = st.sampled_from((
    f"SELECT x.proto, first(x.len) AS f, last(y.len) AS l [RANGE 9 s, SLIDE 3 s, WA x.ts] {BOTH} GROUP BY x.proto",
    f"SELECT last(s) AS f, first(n / 2.5) AS l [RANGE 6 s, WA t] FROM {SELECTED}",
    f"SELECT first(len) AS f, last(ttl) AS l [RANGE 6 s] FROM {ANSWERED}",
))  # fmt: skip


@given(text=FIRSTS, sent=traffic(), seed=SEEDS, buckets=BUCKETS)
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
def test_first_and_last_over_a_join(text: str, sent: Traffic, seed: int, buckets: int) -> None:
    """Rows of one time with different values: the value is null, and the window says why."""
    streams = packets_of(sent)
    ran, expected = run(text, streams, Random(seed), buckets), rows_of(text, streams)
    assert not differences(ran.rows, expected), f"{text}\n{sent}\nseed {seed}, {buckets} buckets"
    tied = {row["window_start"] for row in expected if row["f"] is None or row["l"] is None}
    lossy = [complete for part in ran.completes for complete in part if not complete.verdict.exact]
    assert {reason for complete in lossy for reason in complete.verdict.reasons} <= {Reason.TIE}
    assert len({complete.start for complete in lossy}) == len(tied)
    assert not tied & {row["window_start"] for row in ran.certain if row["f"] is None or row["l"] is None}


LOSSES = st.sampled_from((
    "SELECT count(*), sum(len) [RANGE 9 rows, SLIDE 4 rows, WA row_num] FROM A",
    "SELECT proto, max(len) [RANGE ALL, SLIDE 5 rows, WA row_num] FROM A UNION B WHERE len > 60 GROUP BY proto",
    "SELECT srcIP, count(*), sum(len) [RANGE 3 rows, SLIDE 2 rows, WA row_num, PA srcIP] FROM A",
    "SELECT count(*), sum(len) [RANGE 10 s, RATTR ts, SLIDE 3 rows, SATTR row_num] FROM A",
    "SELECT srcIP, max(len) [RANGE 10 s, RATTR ts, SLIDE 2 rows, SATTR rank(ts), PA srcIP] FROM B",
    "SELECT count(*) [RANGE 10, WA half] FROM (SELECT row_num / 2 AS half, len FROM A) WHERE len > 60",
))  # fmt: skip


@given(text=LOSSES, sent=traffic(), seed=SEEDS)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_loss_leaves_no_wrong_exact(text: str, sent: Traffic, seed: int) -> None:
    """A batch that is lost shifts all later numbers: nothing that is told as exact differs from the truth."""
    streams = packets_of(sent)
    ran = run(text, streams, Random(seed), 2, lost=True)
    truth = Counter(tuple(sorted(row.items(), key=str)) for row in rows_of(text, streams))
    wrong = Counter(tuple(sorted(row.items(), key=str)) for row in ran.certain) - truth
    assert not wrong
    for completes in ran.completes:
        lossy = [complete for complete in completes if Reason.NUMBERING in complete.verdict.reasons]
        assert lossy == completes[len(completes) - len(lossy) :]  # from there on


@pytest.mark.slow
@given(text=countingqueries.queries, sent=traffic(), seed=SEEDS, buckets=BUCKETS, late=st.sampled_from(LATE))
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_more_windows_that_count(text: str, sent: Traffic, seed: int, buckets: int, late: Late) -> None:
    check(text, sent, seed, buckets, late=late)
