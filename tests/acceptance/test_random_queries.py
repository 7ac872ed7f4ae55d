"""Random captures and random queries: the command's rows are those of the naive evaluator, whatever the order of the
packets, the number of sources, the size of the table, and the way in which it is flushed."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.acceptance import countingqueries
from tests.acceptance.command import query
from tests.acceptance.queries import joins, outer_joins, queries
from tests.acceptance.traffic import Traffic, traffic
from tests.acceptance.whole import check_command, options
from tests.naive.compare import differences
from tests.naive.evaluate import answer

bounded = settings(suppress_health_check=list(HealthCheck))

# Kernels are compiled once a query: these run on many captures.
QUERIES = {
    "selection": "SELECT *, len / (destPort - 80) AS x FROM A WHERE NOT (proto = 1 OR srcIP IN 10.0.0.0/31)",
    "sliding": "SELECT srcIP, destIP, count(*), sum(len), sum(len / (destPort - 80)) AS s [RANGE 10 s, SLIDE 4 s] "
    "FROM A UNION B GROUP BY srcIP, destIP",
    "tumbling": "SELECT link, destPort, first(len), last(srcIP), min(ts) AS t, max(destIP) AS m, avg(len), "
    "variance(ttl) [RANGE TUMBLING 10 s] FROM B UNION A WHERE proto IN (6, 17) GROUP BY link, destPort",
    "derived": "SELECT conn, prefix(srcIP, 30) AS net, max(prefix(destIP, 31, 120)) AS m, count(inner.srcIP) AS i, "
    "count(distinct conn) AS c [RANGE 20 s] FROM A UNION B GROUP BY prefix(srcIP, 30), conn",
    "holistic": "SELECT count(*), count(distinct srcIP, destPort), median(payload_len), quantile(len, 0.9) "
    "[RANGE 30 s, SLIDE 10 s, WA ts] FROM A HAVING count(*) > 1",
    "landmark": "SELECT vlan, bit_or(tcp_flags), sum(len / 2.5) AS f [RANGE ALL, SLIDE 15 s] FROM A GROUP BY vlan",
    "top": "SELECT srcIP, count(*) AS n, 100.0 * sum(len) / total(sum(len)) AS p [RANGE 1 minute, SLIDE 20 s] "
    "FROM A UNION B GROUP BY srcIP ORDER BY n DESC LIMIT 2",
    "ungated": "SELECT ten, proto, count(*), sum(len) FROM A UNION B GROUP BY ts / 10 AS ten, proto "
    "HAVING sum(len) > 200",
    "distinct": "SELECT DISTINCT ts / 10 AS tens, srcIP FROM A",
    "subquery": "SELECT p, count(*), avg(bits) [RANGE 3 s, SLIDE 10 s] FROM "
    "(SELECT ts, destPort AS p, len * 8 AS bits FROM A UNION B WHERE fragment = 0) AS big WHERE bits > 500 GROUP BY p",
    "stages": "CREATE STREAM s AS SELECT srcIP, count(*) AS n, sum(len) AS b [RANGE 3 s] FROM A UNION B "
    "GROUP BY srcIP; SELECT srcIP, max(n) AS m, sum(b) AS b [RANGE 30 s, SLIDE 15 s, WA window_start] FROM s "
    "WHERE b > 60 GROUP BY srcIP",
    "join": "SELECT x.ts, y.ts, x.srcIP, y.len / (x.destPort - 80) AS n FROM A AS x [RANGE 20 s], B UNION A AS y "
    "[RANGE 9 s] WHERE x.srcIP = y.destIP AND x.proto = y.proto AND x.len <= y.len",
    "joined": "SELECT proto, count(*), sum(b) AS b [RANGE 15 s, SLIDE 5 s, WA t] FROM (SELECT x.ts AS t, y.proto AS "
    "proto, z.len AS b FROM A AS x, B AS y, A UNION B AS z [RANGE TUMBLING 12 s] WHERE x.srcIP = y.srcIP AND "
    "y.destIP = z.destIP) AS p WHERE b > 50 GROUP BY proto",
    "union": "CREATE STREAM p AS SELECT srcIP, count(*) AS n, 7 AS m [RANGE 10 s, SLIDE 5 s] FROM A GROUP BY srcIP; "
    "CREATE STREAM q AS SELECT destIP AS srcIP, max(len) AS n, sum(len) / (count(*) - 1) AS m [RANGE 10 s, SLIDE 5 s] "
    "FROM B UNION A GROUP BY destIP; SELECT * FROM p UNION q WHERE n > 1",
    "united": "CREATE STREAM p AS SELECT DISTINCT ts / 10 AS t, proto AS x FROM A; "
    "CREATE STREAM q AS SELECT ts / 20 AS t, count(*) AS x FROM B GROUP BY ts / 20, srcIP; "
    "SELECT x FROM (SELECT x FROM p) UNION (SELECT x FROM q) "
    "UNION (SELECT len / (destPort - 80) AS x FROM A WHERE proto = 17) UNION (SELECT 7 AS x FROM B WHERE len > 90)",
    "windowed": "CREATE STREAM p AS SELECT srcIP, count(*) AS n, max(len) AS m [RANGE 10 s, SLIDE 5 s] FROM A "
    "GROUP BY srcIP; CREATE STREAM q AS SELECT destIP, count(*) AS n [RANGE 5 s] FROM B GROUP BY destIP; "
    "SELECT p.srcIP, p.window_start, q.window_end, p.n, q.n, m FROM p [RANGE 10 s, WA window_end], q [RANGE 1 s, "
    "WA window_end] WHERE p.srcIP = q.destIP",
}


# Compiling a kernel takes seconds: the quick tests make few.
QUICK = ("sliding", "tumbling", "holistic", "ungated")


@pytest.mark.parametrize(
    "text", [pytest.param(QUERIES[name], id=name, marks=() if name in QUICK else pytest.mark.slow) for name in QUERIES]
)
@given(data=st.data())
@settings(bounded, max_examples=8)
def test_random_captures(text: str, data: st.DataObject) -> None:
    sent = data.draw(traffic())
    check_command(text, sent, data.draw(options(sent)), data.draw(st.integers(0, 9)) == 9)


@given(text=queries, data=st.data())
@settings(bounded, max_examples=4)
def test_random_queries(text: str, data: st.DataObject) -> None:
    sent = data.draw(traffic())
    check_command(text, sent, data.draw(options(sent)))


@pytest.mark.slow
@given(text=st.one_of(joins(), outer_joins()), data=st.data())
@settings(bounded, max_examples=5)
def test_random_joins(text: str, data: st.DataObject) -> None:
    sent = data.draw(traffic())
    check_command(text, sent, data.draw(options(sent)))


@pytest.mark.slow
@given(text=queries, data=st.data())
@settings(bounded, max_examples=25)
def test_more_random_queries(text: str, data: st.DataObject) -> None:
    sent = data.draw(traffic())
    for chosen in (data.draw(options(sent)) for _ in range(3)):
        check_command(text, sent, chosen)


@pytest.mark.slow
@given(text=countingqueries.queries, data=st.data())
@settings(bounded, max_examples=2)
def test_random_queries_that_count(text: str, data: st.DataObject) -> None:
    """Few, for each compiles a kernel: `test_interleavings` draws many without one."""
    sent = data.draw(traffic())
    check_command(text, sent, data.draw(options(sent)))


@pytest.mark.slow
@pytest.mark.parametrize("text", [QUERIES["sliding"], QUERIES["holistic"], QUERIES["stages"]])
@pytest.mark.parametrize("order", ["any", "preserved"])
def test_rows_are_the_same_however_a_table_is_flushed(text: str, order: str, tmp_path: Path) -> None:
    sent = Traffic(seed=11, sizes=(("A", 150), ("A", 100), ("B", 120)), disorder_s=20, nanoseconds=False)
    captures = sent.write(tmp_path)
    expected = answer(text, captures).rows
    assert expected
    flushes = (["slow"], ["slow", "--flush-every", "1"], ["slow", "--flush-every", "40"], ["lazy"], ["full"])
    for slots, flush, panes in product((1, 2, 32, 1 << 12), flushes, (1, 3)):
        chosen = ["--table", str(slots), "--flush", *flush, "--flush-panes", str(panes), "--order", order]
        outcome = query(text, captures, *chosen)
        assert outcome.code == 0, f"{chosen}\n{outcome.error}"
        assert differences(outcome.rows, expected) == [], chosen


@pytest.mark.parametrize("flush", ["slow", "lazy", "full"])
def test_one_slot_and_every_flush(flush: str) -> None:
    """All groups meet in one slot: every packet but the first of a run is a collision."""
    sent = Traffic(seed=7, sizes=(("A", 120), ("A", 100), ("B", 110)), disorder_s=30, nanoseconds=True)
    check_command(QUERIES["sliding"], sent, ["--table", "1", "--flush", flush])
