"""Unions as the answer, as text: of windows that are counted alike, and of whatever else has the same columns."""

from __future__ import annotations

from hypothesis import strategies as st

__all__ = ["APART", "TOGETHER", "unions"]

_P = "CREATE STREAM p AS SELECT srcIP, count(*) AS n [RANGE 10 s] FROM A GROUP BY srcIP; "
_Q = "CREATE STREAM q AS SELECT srcIP, count(*) AS n [RANGE 10 s] FROM B GROUP BY srcIP; "

TOGETHER = {
    "same keys": f"{_P}{_Q}SELECT * FROM p UNION q",
    "other keys": f"{_P}CREATE STREAM q AS SELECT destIP AS srcIP, count(*) AS n [RANGE 10 s] FROM B GROUP BY destIP; "
    "SELECT * FROM p UNION q WHERE n > 1",
    "no keys": f"{_P}CREATE STREAM q AS SELECT 10.0.0.1 AS srcIP, count(*) AS n [RANGE 10 s] FROM B; "
    "SELECT srcIP, n, window_end FROM p UNION q",
    "one of two stages": f"{_P}CREATE STREAM s AS SELECT srcIP, count(*) AS n [RANGE 5 s] FROM B GROUP BY srcIP; "
    "CREATE STREAM q AS SELECT srcIP, sum(n) AS n [RANGE 10 s, WA window_end] FROM s GROUP BY srcIP; "
    "SELECT n, window_end, window_start FROM p UNION q",
    "one of the best": f"{_P}CREATE STREAM q AS SELECT srcIP, count(*) AS n [RANGE 10 s] FROM B GROUP BY srcIP "
    "ORDER BY n DESC LIMIT 2; SELECT * FROM q UNION p",
    "one of totals, one twice": f"{_P}CREATE STREAM q AS SELECT srcIP, count(*) AS n [RANGE 10 s] FROM A "
    "GROUP BY srcIP HAVING count(*) >= 0.2 * total(count(*)); SELECT * FROM p UNION q UNION p",
    "landmark": "CREATE STREAM p AS SELECT srcIP, count(*) AS n [RANGE ALL, SLIDE 10 s] FROM A GROUP BY srcIP; "
    "CREATE STREAM q AS SELECT srcIP, count(*) AS n [RANGE ALL, SLIDE 10 s] FROM B GROUP BY srcIP; "
    "SELECT * FROM p UNION q",
    "of a union": f"{_P}{_Q}CREATE STREAM u AS SELECT srcIP, n, window_end FROM p UNION q WHERE n > 1; "
    "SELECT n + 1 AS m, window_end FROM u UNION (SELECT srcIP, n, window_end FROM q)",
    "sliding and joined": "CREATE STREAM p AS SELECT proto, count(*) AS n [RANGE 9 s, SLIDE 3 s] FROM A GROUP BY proto;"
    "CREATE STREAM q AS SELECT x.proto AS proto, sum(y.len) AS n [RANGE 9 s, SLIDE 3 s, WA x.ts] FROM A AS x "
    "[RANGE 4 s], B AS y [RANGE 3 s] WHERE x.srcIP = y.destIP GROUP BY x.proto; SELECT * FROM p UNION q",
    "a constant beside nulls": f"{_P}SELECT * FROM (SELECT 7 AS n, window_end FROM p) "
    "UNION (SELECT n / (n - 1) AS n, window_end FROM p)",
    "distinct": "CREATE STREAM p AS SELECT DISTINCT proto [RANGE 10 s] FROM A; "
    "CREATE STREAM q AS SELECT DISTINCT proto [RANGE 10 s] FROM B; SELECT * FROM p UNION q",
}
"""All members have the same windows, and the answer has."""

APART = {
    "other windows": f"{_P}CREATE STREAM q AS SELECT srcIP, count(*) AS n [RANGE 15 s, SLIDE 5 s] FROM B "
    "GROUP BY srcIP; SELECT * FROM p UNION q",
    "no window shown": f"{_P}{_Q}SELECT n FROM p UNION q",
    "rows": "CREATE STREAM p AS SELECT count(*) AS n [RANGE 10 rows, WA row_num] FROM A; "
    "CREATE STREAM q AS SELECT count(*) AS n [RANGE 10 rows, WA row_num] FROM B; SELECT * FROM p UNION q",
    "rows of partitions": "CREATE STREAM p AS SELECT srcIP, count(*) AS n [RANGE 3 rows, WA row_num, PA srcIP] FROM A; "
    "CREATE STREAM q AS SELECT srcIP, count(*) AS n [RANGE 3 rows, WA row_num, PA srcIP] FROM B; "
    "SELECT * FROM p UNION q",
    "groups and packets": f"{_P}SELECT * FROM (SELECT srcIP, n FROM p) UNION (SELECT srcIP, len AS n FROM B)",
    "one group and packets": "CREATE STREAM p AS SELECT count(*) AS n [RANGE 10 s] FROM A; "
    "SELECT * FROM (SELECT n FROM p) UNION (SELECT len AS n FROM B)",
    "groups and pairs": f"{_P}SELECT * FROM (SELECT srcIP, n FROM p) UNION (SELECT x.srcIP AS srcIP, y.len AS n "
    "FROM A AS x [RANGE 4 s], B AS y [RANGE 3 s] WHERE x.srcIP = y.destIP)",
    "pairs": "CREATE STREAM j AS SELECT x.srcIP AS s, y.len AS n, x.ts AS t FROM A AS x [RANGE 4 s], B AS y [RANGE 3 s]"
    " WHERE x.srcIP = y.destIP; CREATE STREAM k AS SELECT x.srcIP AS s, y.len AS n, x.ts AS t FROM A AS x [RANGE 4 s] "
    "LEFT JOIN B AS y [RANGE 3 s] ON x.destIP = y.destIP; SELECT * FROM j UNION k WHERE n > 50",
    "groups that progress": "CREATE STREAM p AS SELECT ten, count(*) AS n FROM A GROUP BY ts / 10 AS ten, srcIP; "
    "CREATE STREAM q AS SELECT ten, count(*) AS n FROM B GROUP BY ts / 10 AS ten, destIP; SELECT * FROM p UNION q",
    "constants beside nulls": "SELECT * FROM (SELECT 7 AS n, ts FROM A) "
    "UNION (SELECT len / (destPort - 80) AS n, ts FROM B)",
}
"""The answer tells up to where it is complete."""

_MEMBERS = (
    "SELECT srcIP AS k, count(*) AS n [{0}] FROM {1} GROUP BY srcIP",
    "SELECT destIP AS k, sum(len) AS n [{0}] FROM {1} WHERE proto <> 17 GROUP BY destIP HAVING sum(len) > 70",
    "SELECT srcIP AS k, max(len) AS n [{0}] FROM {1} GROUP BY srcIP, destPort ORDER BY n DESC, k LIMIT 3",
    "SELECT destIP AS k, count(*) AS n [{0}] FROM {1} GROUP BY destIP HAVING count(*) > 0.1 * total(count(*))",
    "SELECT max(srcIP) AS k, count(*) AS n [{0}] FROM {1}",
)
_WINDOWS = ("RANGE 10 s", "RANGE 10 s", "RANGE 20 s, SLIDE 10 s", "RANGE ALL, SLIDE 10 s", "RANGE 5 s")


@st.composite
def unions(draw: st.DrawFn) -> str:
    """Of two or three windowed streams."""
    text, names = "", ("p", "q", "r")[: draw(st.integers(2, 3))]
    common = draw(st.sampled_from((None, None, *_WINDOWS)))
    for name in names:
        window = common or draw(st.sampled_from(_WINDOWS))
        source = draw(st.sampled_from(("A", "B", "A UNION B")))
        text += f"CREATE STREAM {name} AS {draw(st.sampled_from(_MEMBERS)).format(window, source)}; "
    shown = draw(st.sampled_from(("*", "k, n, window_end", "n * 2 AS m, window_end, k", "k, n")))
    return f"{text}SELECT {shown} FROM {' UNION '.join(names)}" + draw(st.sampled_from(("", " WHERE n > 1")))
