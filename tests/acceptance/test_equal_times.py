"""Joins without windows, in which an equality of times says which rows meet: whatever the interleaving of lanes, the
cuts of batches, the number of buckets, and wherever state is written and read again, the rows are those of the naive
evaluator."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.acceptance.interleaved import check
from tests.acceptance.queries import windowless
from tests.acceptance.traffic import Traffic, traffic

SEEDS = st.integers(0, 2**32)
BUCKETS = st.sampled_from((1, 1, 2, 5))
TREES = (
    # A binary tree, in which the times of the inner join go on.
    (
        "SELECT p.t, p.len, z.ts, z.len FROM (SELECT x.ts AS t, y.len AS len FROM A AS x, B AS y WHERE x.ts = y.ts "
        "AND x.proto = y.proto) AS p, A AS z WHERE p.t = z.ts"
    ),
    # Query 2 of Wu, over two streams.
    (
        "CREATE STREAM j1 AS SELECT a.ts AS t, a.len AS len FROM A AS a, B AS b, A AS c WHERE a.ts/7 = b.ts/7 AND "
        "b.ts/7 = c.ts/7 AND a.srcIP = b.srcIP AND b.srcIP = c.srcIP; "
        "CREATE STREAM j2 AS SELECT a.ts AS t, b.len AS len FROM B a, B b, A c WHERE a.ts = b.ts AND b.ts = c.ts; "
        "SELECT j1.t, j1.len, j2.t, j2.len FROM j1, j2 WHERE j1.t/2 = j2.t/2"
    ),
    # One operator of three inputs, one of which shows nothing.
    "SELECT a.ts, b.len FROM A AS a, B AS b, A AS c WHERE a.ts/2 = b.ts/2 AND b.ts/2 = c.ts/2 AND a.proto = c.proto",
    # An aggregate above a tree, and one below it.
    (
        "SELECT proto, count(*) AS n [RANGE 9 s, SLIDE 3 s, WA t] FROM (SELECT x.ts AS t, y.proto AS proto FROM A x, "
        "B y WHERE x.ts/500 ms = y.ts/500 ms) AS p GROUP BY proto"
    ),
    (
        "CREATE STREAM p AS SELECT srcIP, count(*) AS n [RANGE 3 s] FROM A GROUP BY srcIP; SELECT p.window_end, y.len "
        "FROM p, B AS y WHERE p.window_end = y.ts"
    ),
    # A bucket of its own for either join: rows move through an exchange.
    (
        "SELECT p.t, p.len, z.len FROM (SELECT x.ts AS t, x.len AS len, y.srcIP AS srcIP FROM A AS x, B AS y WHERE "
        "x.ts + 1 second = y.ts) AS p, A AS z WHERE p.t/5 = z.ts/5 AND p.srcIP = z.srcIP"
    ),
)


_JOINING = re.compile(r"SELECT (?=[^();]*? FROM (?:\w+ (?:AS )?\w+|\w+), )")
"""The beginning of a SELECT from several streams."""


@given(text=windowless(), sent=traffic(), seed=SEEDS, buckets=BUCKETS)
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
def test_rows_are_those_of_loops_over_everything(text: str, sent: Traffic, seed: int, buckets: int) -> None:
    check(text, sent, seed, buckets)


@pytest.mark.parametrize("text", TREES)
@given(sent=traffic(), seed=SEEDS, buckets=BUCKETS, buffer=st.sampled_from(("keep", "disk", "sort", "hybrid")))
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
def test_trees(text: str, sent: Traffic, seed: int, buckets: int, buffer: str) -> None:
    """However rows wait before they join."""
    hinted = _JOINING.sub(f"SELECT /*+ buffer({buffer}) */ ", text)
    assert hinted != text
    check(hinted, sent, seed, buckets)


@pytest.mark.parametrize("kind", ["LEFT JOIN", "JOIN"])
def test_an_overflow_that_decides_nothing_marks_nothing(kind: str) -> None:
    condition = "x.len * y.len * 1000000000000000 > 7 AND x.len < 0"
    text = f"SELECT x.len FROM A AS x {kind} B AS y ON x.ts/3 = y.ts/3 AND x.proto <> y.proto AND {condition}"
    sent = Traffic(seed=0, sizes=(("A", 20), ("B", 20)), disorder_s=0, nanoseconds=False)
    check(text.replace("x.len < 0", "x.len + y.len < 0"), sent, 1, 1)
