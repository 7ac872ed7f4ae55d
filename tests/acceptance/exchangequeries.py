"""Queries whose rows change buckets on the way, by what it is that makes them."""

from __future__ import annotations

EXCHANGED = {
    "other keys": "CREATE STREAM s AS SELECT srcIP, destIP, count(*) AS n [RANGE 5 s] FROM A GROUP BY srcIP, destIP; "
    "SELECT n, count(*) AS pairs [RANGE 20 s, SLIDE 10 s, WA window_end] FROM s GROUP BY n",
    "three stages": "CREATE STREAM s AS SELECT srcIP, destPort, sum(len) AS n [RANGE 5 s] FROM A UNION B "
    "GROUP BY srcIP, destPort; CREATE STREAM t AS SELECT srcIP, max(n) AS m [RANGE 10 s, WA window_end] FROM s "
    "GROUP BY srcIP HAVING max(n) > 60; SELECT m, count(*), count(distinct srcIP) [RANGE 20 s, WA window_end] FROM t "
    "GROUP BY m",
    "no key": "CREATE STREAM s AS SELECT srcIP, count(*) AS n [RANGE 5 s] FROM A GROUP BY srcIP; "
    "SELECT max(n), sum(n), count(*) [RANGE 20 s, SLIDE 5 s, WA window_end] FROM s",
    "total": "SELECT srcIP, sum(len), total(count(*)) AS packets [RANGE 10 s, SLIDE 5 s] FROM A GROUP BY srcIP "
    "HAVING sum(len) >= 0.3 * total(sum(len))",
    "top": "SELECT destIP, count(*) AS n [RANGE 10 s] FROM A UNION B GROUP BY destIP ORDER BY n DESC LIMIT 2",
    "top of totals": "SELECT srcIP, 100 * count(*) / total(count(*)) AS share [RANGE 20 s, SLIDE 10 s] FROM A "
    "GROUP BY srcIP HAVING count(*) > 1 ORDER BY share LIMIT 3",
    "order": "SELECT srcIP, proto, max(len) AS most [RANGE 15 s] FROM A GROUP BY srcIP, proto "
    "ORDER BY most, proto DESC",
    "distinct": "SELECT DISTINCT count(*) AS n [RANGE 20 s] FROM A GROUP BY srcIP, destPort",
    "top of distinct": "SELECT DISTINCT proto, max(len) AS n [RANGE 20 s] FROM A GROUP BY srcIP, proto "
    "ORDER BY n, proto LIMIT 2",
    "landmark": "SELECT srcIP, count(*), max(len) [RANGE ALL, SLIDE 5 s] FROM A GROUP BY srcIP",
    "landmark of groups": "CREATE STREAM s AS SELECT srcIP, count(*) AS n [RANGE 5 s] FROM A GROUP BY srcIP "
    "HAVING count(*) > 1; SELECT srcIP, sum(n) [RANGE ALL, SLIDE 10 s, WA window_end] FROM s GROUP BY srcIP",
    "top of all": "SELECT srcIP, count(*) AS n [RANGE ALL, SLIDE 10 s] FROM A GROUP BY srcIP ORDER BY n DESC LIMIT 2",
    "top of top": "CREATE STREAM s AS SELECT srcIP, destPort, count(*) AS n [RANGE 5 s] FROM A "
    "GROUP BY srcIP, destPort ORDER BY n DESC LIMIT 4; SELECT srcIP, sum(n) AS m [RANGE 20 s, WA window_end] FROM s "
    "GROUP BY srcIP",
    "groups of pairs": "SELECT a.destPort, count(*) [RANGE 20 s, SLIDE 10 s, WA a.ts] FROM A AS a [RANGE 4 s], "
    "B AS b [RANGE 3 s] WHERE a.srcIP = b.destIP GROUP BY a.destPort",
    "asked bucket": "CREATE STREAM s AS SELECT /*+ bucket(destIP) strategy(wid) */ srcIP, destIP, count(*) AS n "
    "[RANGE 10 s, SLIDE 5 s] FROM A GROUP BY srcIP, destIP; "
    "SELECT /*+ bucket(srcIP) */ srcIP, max(n) [RANGE 20 s, WA window_end] FROM s GROUP BY srcIP",
    "asked bucket of pairs": "CREATE STREAM s AS SELECT /*+ bucket(a.destIP) */ a.ts AS ts, a.srcIP AS k FROM A AS a "
    "[RANGE 4 s], B AS b [RANGE 3 s] WHERE a.srcIP = b.srcIP AND a.destIP = b.destIP; "
    "SELECT k, count(*) [RANGE 20 s, SLIDE 10 s] FROM s GROUP BY k",
    "groups of times": "CREATE STREAM g AS SELECT a.ts AS t, b.ts AS u FROM A AS a [RANGE 9 s], B AS b [RANGE 7 s] "
    "WHERE a.srcIP = b.destIP; SELECT t, u / 2 AS h, count(*) FROM g GROUP BY t, u / 2",
    "groups of times of a union": "CREATE STREAM g AS SELECT a.ts AS t, b.ts AS u FROM A AS a [RANGE 9 s], "
    "B AS b [RANGE 7 s] WHERE a.srcIP = b.destIP; CREATE STREAM k AS SELECT b.ts AS t, a.ts AS u FROM A AS a "
    "[RANGE 20 s], B AS b [RANGE 2 s] WHERE a.srcPort = b.destPort AND a.proto = b.proto; "
    "SELECT t, u, count(*) FROM g UNION k GROUP BY t, u",
    "groups by the later time": "SELECT count(*), max(least(a.ts, b.ts)) AS m [RANGE 9 s, SLIDE 3 s, "
    "WA greatest(a.ts, b.ts)] FROM A AS a [RANGE 4 s], B AS b [RANGE 3 s] WHERE a.srcIP = b.destIP",
    "groups by the earlier time": "CREATE STREAM p AS SELECT least(a.ts, b.ts) AS t, greatest(b.ts, a.ts) AS u, "
    "a.len AS n FROM A AS a [RANGE 4 s], B AS b [RANGE 3 s] WHERE a.srcIP = b.destIP "
    "AND greatest(a.ts, b.ts) - least(a.ts, b.ts) < 2 s; "
    "SELECT t/5 AS five, n, count(*), max(u) AS last FROM p GROUP BY t/5, n",
    "joins by the later time": "CREATE STREAM p AS SELECT greatest(a.ts, b.ts) AS u, a.srcIP AS k, b.len AS n "
    "FROM A AS a [RANGE 4 s], B AS b [RANGE 3 s] WHERE a.srcIP = b.destIP; "
    "SELECT p.u, c.ts, p.n FROM p [RANGE 2 s, WA u], B AS c [RANGE 1 s] WHERE p.n = c.len",
    "pairs of groups": "CREATE STREAM s AS SELECT srcIP, destIP, count(*) AS n [RANGE 5 s] FROM A "
    "GROUP BY srcIP, destIP; CREATE STREAM t AS SELECT destIP, count(*) AS n [RANGE 5 s] FROM B GROUP BY destIP; "
    "SELECT s.window_end, s.srcIP, t.destIP, t.n FROM s, t [RANGE TUMBLING 5 s, WA window_end] WHERE s.n = t.n",
}
