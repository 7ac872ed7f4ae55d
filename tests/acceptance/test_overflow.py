"""Integers that leave 64 bits: the value is null, and the window that it concerns says so, whatever computes it."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from lowmark.query.compile import compile_query
from lowmark.query.parse.errors import QueryError
from lowmark.wire.records.verdicts import Complete, Reason
from lowmark.wire.rows.values import show
from tests.acceptance.bucketrun import Ran, run
from tests.acceptance.command import query
from tests.acceptance.interleaved import check, packets_of
from tests.acceptance.traffic import Traffic
from tests.naive.evaluate import ResultRow

SENT = Traffic(seed=5, sizes=(("A", 90), ("A", 60), ("B", 70)), disorder_s=2, nanoseconds=False)
BIG = 10**16  # of lengths some times it are 64-bit integers
HUGE = 4 * 10**18

STAGE = "CREATE STREAM s AS SELECT srcIP, sum(len) AS b [RANGE 2 s] FROM A GROUP BY srcIP; "
SLIDING = "CREATE STREAM s AS SELECT {} AS x [RANGE 5 s, RATTR ts, SLIDE 2 rows, SATTR row_num] FROM A; "
PAIRS = "FROM A AS x [RANGE 5 s], B AS y [RANGE 5 s] WHERE x.srcIP = y.srcIP"

TOLD = {
    "of an aggregate": f"SELECT srcIP, sum(len) * 8 * {BIG // 10} AS x [RANGE 10 s] FROM A GROUP BY srcIP",
    "in HAVING": f"SELECT srcIP, count(*) [RANGE 10 s] FROM A GROUP BY srcIP HAVING sum(len) * {BIG} > 5",
    "in ORDER BY": "SELECT srcIP, count(*) AS n [RANGE 10 s] FROM A GROUP BY srcIP ORDER BY max(len) << 52, n LIMIT 2",
    "of a time and a duration": "SELECT max(ts) + 90000 d AS x [RANGE 10 s] FROM A",
    "of a duration and a number": "SELECT (max(ts) - min(ts)) * 3000000000 AS x [RANGE 10 s] FROM A",
    "of a number of seconds": f"SELECT max(ts) + max(len) * {10**7} AS x [RANGE 10 s] FROM A",
    "of times": "SELECT (max(ts) + 86000 d) - (min(ts) - 90000 d) AS x [RANGE 10 s] FROM A",
    "by a minus": "SELECT -(min(len) - 9223372036854775807 - min(len) - 1) AS x, count(*) [RANGE 10 s] FROM A",
    "by a quotient": "SELECT (min(ttl) - min(ttl) - 9223372036854775807 - 1) / (0 - min(ip_version) / 4) AS x "
    "[RANGE 10 s] FROM A WHERE ip_version = 4",
    "by a shift": "SELECT max(len) << 53 AS x [RANGE 10 s] FROM A",
    "in total": f"SELECT srcIP, count(*) AS n, total(sum(len) * {BIG}) AS t [RANGE 10 s] FROM A GROUP BY srcIP",
    "by total": f"SELECT srcIP, total(sum(len) * {BIG // 50}) AS t [RANGE 10 s] FROM A GROUP BY srcIP",
    "by total without windows": f"SELECT ten, proto, total(sum(len) * {BIG // 50}) AS t FROM A GROUP BY ts/10 AS ten, "
    "proto",
    "without windows": f"SELECT ts/10 AS ten, sum(len) * {BIG} AS x FROM A GROUP BY ts/10",
    "without windows, in HAVING": "SELECT ts/10 AS ten, proto FROM A GROUP BY ts/10, proto "
    f"HAVING max(len) * {BIG} > 3",
    "in WHERE": f"SELECT srcIP, count(*) [RANGE 10 s] FROM A WHERE len * {BIG} > 5 GROUP BY srcIP",
    "that is all there is": f"SELECT count(*) [RANGE 10 s] FROM A WHERE len > 80 AND len * {HUGE} > 5",
    "of all rows": f"SELECT count(*) [RANGE 10 rows] FROM A WHERE len > 80 AND len * {HUGE} > 5",
    "of a key": f"SELECT k, count(*) [RANGE 10 s] FROM A GROUP BY len * {BIG} AS k",
    "of a time as a key": "SELECT t, count(*) FROM A GROUP BY ts, ts + 90000 d AS t",
    "of an argument": f"SELECT sum(len * {BIG}) AS s, count(len * {BIG}) AS n, count(*) AS m [RANGE 10 s] FROM A",
    "of a value that is counted": f"SELECT count(distinct len * {BIG}) AS n, median(len * {BIG}) [RANGE 9 s] FROM A",
    "selected": f"SELECT ts, len * {BIG} AS x FROM A WHERE proto = 6",
    "distinct": f"SELECT DISTINCT ts/10 AS ten, len * {BIG} AS x FROM A",
    "numbered": f"SELECT row_num * len * {BIG // 100} AS x, ts FROM A",
    "in WHERE of what is counted": f"SELECT count(*) [RANGE 10 rows, SLIDE 5 rows] FROM A WHERE len * {BIG} > 5",
    "of positions": f"SELECT count(*) [RANGE 10, WA row_num] FROM A WHERE row_num * {BIG} * 10 > 5",
    "in a stage": f"CREATE STREAM s AS SELECT srcIP, sum(len) * {BIG} AS x [RANGE 2 s] FROM A GROUP BY srcIP; "
    "SELECT count(x) AS n, count(*) AS m [RANGE 10 s, WA window_end] FROM s",
    "in WHERE of a stage": f"{STAGE}SELECT count(*) [RANGE 10 s, WA window_end] FROM s WHERE b * {BIG} > 5",
    "of a stage's argument": f"{STAGE}SELECT count(b * {BIG}) AS n, count(*) AS m [RANGE 10 s, WA window_end] FROM s",
    "of a stage's key": f"{STAGE}SELECT k, count(*) [RANGE 10 s, WA window_end] FROM s GROUP BY b * {BIG} AS k",
    "of the rows of a stage": f"{STAGE}SELECT srcIP, window_end, b * {BIG} AS x FROM s WHERE b > 100",
    "in a stage without windows": f"CREATE STREAM s AS SELECT ts/2 AS two, sum(len) * {BIG} AS x FROM A GROUP BY ts/2; "
    "SELECT two/5 AS ten, count(x) AS n, count(*) AS m FROM s GROUP BY two/5",
    "in a stage that slides by tuple": f"{SLIDING.format(f'sum(len) * {BIG // 100}')}"
    "SELECT count(x), count(*) [RANGE 10 s, WA window_end] FROM s",
    "of a sum in such a stage": f"{SLIDING.format(f'sum(len * {BIG // 100})')}"
    "SELECT count(x), count(*) [RANGE 10 s, WA window_end] FROM s",
    "in a union of windows": "CREATE STREAM p AS SELECT srcIP, sum(len) AS b [RANGE 10 s] FROM A GROUP BY srcIP; "
    "CREATE STREAM q AS SELECT destIP AS srcIP, sum(len) AS b [RANGE 10 s] FROM B GROUP BY destIP; "
    f"SELECT srcIP, b * {BIG} AS x FROM p UNION q",
    "in a union of windows under an aggregate": f"CREATE STREAM p AS SELECT srcIP, sum(len) * {BIG} AS b [RANGE 5 s] "
    "FROM A GROUP BY srcIP; CREATE STREAM q AS SELECT srcIP, count(*) AS b [RANGE 10 s, SLIDE 4 s] FROM A "
    "GROUP BY srcIP; SELECT count(b) AS n, count(*) AS m [RANGE 7 s, SLIDE 3 s, WA window_start] FROM p UNION q",
    "in ON": f"SELECT x.ts, y.ts {PAIRS} AND x.len * y.len * {BIG // 10} > 5",
    "in ON of an outer join": "SELECT x.ts, y.ts FROM A AS x [RANGE 5 s] LEFT JOIN B AS y [RANGE 5 s] "
    f"ON x.srcIP = y.srcIP AND x.len * y.len * {BIG // 10} > 5",
    "in ON under an aggregate": f"SELECT x.proto, count(*) [RANGE 10 s, WA x.ts] {PAIRS} "
    f"AND x.len * y.len * {BIG // 10} > 5 GROUP BY x.proto",
    "of a pair": f"SELECT x.ts, x.len * y.len * {BIG // 10} AS p {PAIRS}",
    "of a pair's argument": f"SELECT count(x.len * y.len * {BIG // 10}), count(*) AS m [RANGE 9 s, WA x.ts] {PAIRS}",
    "under a join of windows": f"CREATE STREAM p AS SELECT srcIP, sum(len) * {BIG} AS b [RANGE 5 s] FROM A "
    "GROUP BY srcIP; CREATE STREAM q AS SELECT srcIP, count(*) AS n [RANGE 5 s] FROM B GROUP BY srcIP; "
    "SELECT count(p.b) AS n, count(*) AS m [RANGE 10 s, WA p.window_end] "
    "FROM p [RANGE 6 s, WA window_end], q [RANGE 6 s, WA window_end] WHERE p.srcIP = q.srcIP",
}  # fmt: skip

EXACT = {
    "decided by something else": f"SELECT count(*) [RANGE 10 s] FROM A WHERE len < 100 AND len * {BIG * 5} > 5",
    "decided by something else above": f"SELECT srcIP, max(len) < 900 AND max(len) * {BIG} > 5 AS y [RANGE 10 s] "
    "FROM A GROUP BY srcIP",
    "true in any case": f"SELECT count(*) [RANGE 10 s] FROM A WHERE len * {BIG} > 5 OR len > 500",
    "null by itself": f"SELECT max(len) * {HUGE} / 0 AS x, max(len / 0) * {HUGE} AS y [RANGE 10 s] FROM A",
    "beyond LIMIT": f"SELECT srcIP, max(len) * {HUGE} / 4 AS x [RANGE 10 s] FROM A WHERE len < 2 OR len > 1000 "
    "GROUP BY srcIP HAVING max(len) < 2 ORDER BY max(len) LIMIT 1",
    "within": "SELECT sum(len * 8), max(len) * 1000000000, min(ttl - 255) [RANGE 10 s] FROM A WHERE len << 20 > 3",
}


@pytest.mark.parametrize("buckets", [1, 3])
@pytest.mark.parametrize("name", TOLD)
def test_a_window_says_that_something_of_it_overflowed(name: str, buckets: int) -> None:
    """As often as the evaluator that knows the definitions alone finds something lost."""
    ran = check(TOLD[name], SENT, 1, buckets)
    assert any(Reason.OVERFLOW in complete.verdict.reasons for complete in completes(ran))


@pytest.mark.parametrize("buckets", [1, 3])
@pytest.mark.parametrize("name", EXACT)
def test_nothing_is_said_where_it_decides_nothing(name: str, buckets: int) -> None:
    ran = check(EXACT[name], SENT, 1, buckets)
    assert all(complete.verdict.exact for complete in completes(ran))


@pytest.mark.parametrize("buckets", [1, 3])
@pytest.mark.parametrize("name", ["of an aggregate", "of an argument", "in a stage", "of a stage's argument"])
def test_it_is_this_window_and_no_other(name: str, buckets: int) -> None:
    """In these each loss shows: as a null, or as a count that is less than the other one."""
    ran = run(TOLD[name], packets_of(SENT), Random(3), buckets)
    showing = {row["window_end"] for row in ran.rows if shows(row)}
    every = {row["window_end"] for row in ran.rows}
    told = {end for complete in completes(ran) if Reason.OVERFLOW in complete.verdict.reasons for end in ends(complete)}
    assert showing == told & every
    assert showing < every


def shows(row: ResultRow) -> bool:
    return None in (row.get("x", 0), row.get("s", 0)) or row.get("n") != row.get("m")


def ends(complete: Complete) -> list[str]:
    assert complete.windows is not None
    count = complete.windows.to - complete.windows.first
    return [str(show(complete.kind, complete.end - 10 * 10**9 * back)) for back in range(count + 1)]


def completes(ran: Ran) -> list[Complete]:
    return [complete for part in ran.completes for complete in part]


@pytest.mark.parametrize(
    "name",
    [
        "of an aggregate", "of a time and a duration", "in WHERE", "that is all there is", "of a key",
        "of a time as a key", "of an argument", "selected", "numbered", "in WHERE of what is counted", "in ON",
    ],
)  # fmt: skip
@pytest.mark.slow
def test_the_command_says_so(name: str, tmp_path: Path) -> None:
    outcome = query(TOLD[name], SENT.write(tmp_path))
    assert outcome.code == 4, outcome.error
    assert "overflow" in outcome.error


def test_the_command_says_so_of_what_the_kernel_computes(tmp_path: Path) -> None:
    text = f"SELECT count(*) [RANGE 10 s] FROM A WHERE len * {BIG} > 5"
    outcome = query(text, SENT.write(tmp_path))
    assert (outcome.code, "lossy: overflow" in outcome.error) == (4, True), outcome.error


@pytest.mark.parametrize(
    ("text", "spot"),
    [
        ("SELECT count(*) [RANGE 1 s] FROM A WHERE len > 9223372036854775807 + 1", "9223372036854775807 + 1"),
        ("SELECT ts, -(-9223372036854775808) AS x FROM A", "-(-9223372036854775808)"),
        ("SELECT ts, 3 << 62 AS x FROM A", "3 << 62"),
        ("SELECT ts, 90000 d + 90000 d AS x FROM A", "90000 d + 90000 d"),
        ("SELECT ts, 2 * 90000 d AS x FROM A", "2 * 90000 d"),
    ],
)
def test_a_constant_that_leaves_64_bits_is_refused(text: str, spot: str) -> None:
    with pytest.raises(QueryError, match="integers have 64 bits") as refused:
        compile_query(text)
    assert text[refused.value.span.start : refused.value.span.end] == spot
