"""Windows and groups at their edges: small captures whose answers were worked out by hand."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.acceptance.bucketrun import run
from tests.acceptance.command import Row, query
from tests.acceptance.test_golden import NOON, NS, Golden, at, clock, every_golden_of, window, written
from tests.naive.compare import differences
from tests.naive.evaluate import answer
from tests.naive.frames import Spec, frame
from tests.naive.packets import decode_frames


def numbered(start: int | None, end: int, **values: object) -> Row:
    return {"window_start": start, "window_end": end, **values}


BEFORE_1970 = Golden(  # pcap's earliest time: the first windows that hold it begin before 1970.
    "SELECT count(*) [RANGE 1 minute, SLIDE 25 seconds] FROM Main",
    {"Main": [Spec(ts=0), Spec(ts=30 * NS), Spec(ts=61 * NS)]},
    [
        {"window_start": "1969-12-31T23:59:25Z", "window_end": "1970-01-01T00:00:25Z", "count": 1},
        {"window_start": "1969-12-31T23:59:50Z", "window_end": "1970-01-01T00:00:50Z", "count": 2},
        {"window_start": "1970-01-01T00:00:15Z", "window_end": "1970-01-01T00:01:15Z", "count": 2},
        {"window_start": "1970-01-01T00:00:40Z", "window_end": "1970-01-01T00:01:40Z", "count": 1},
    ],
)
NANOSECONDS = Golden(  # Noon is a multiple of 3 ns.
    "SELECT count(*) [RANGE 7 ns, SLIDE 3 ns] FROM Main",
    {"Main": [Spec(ts=NOON * NS + ns) for ns in (0, 2, 7)]},
    [
        window("11:59:59.999999996", "12:00:00.000000003", count=2),
        window("11:59:59.999999999", "12:00:00.000000006", count=2),
        window("12:00:00.000000002", "12:00:00.000000009", count=2),
        window("12:00:00.000000005", "12:00:00.000000012", count=1),
    ],
)
ITSELF = Golden(  # A union is of bags, also with itself; names of streams ignore case.
    "SELECT link, count(*), sum(len), count(distinct len) AS sizes [RANGE 10 s] FROM A UNION B UNION a GROUP BY link",
    {"A": [at(1), at(2, payload=8)], "B": [at(3)]},
    [
        window("12:00:00", "12:00:10", link="A", count=4, sum_len=184, sizes=2),
        window("12:00:00", "12:00:10", link="B", count=1, sum_len=42, sizes=1),
    ],
)
CANCELLED = Golden(  # 200 is 6·10^18, 1 is −5.94·10^18: parts of the sum leave 64 bits, the sum does not.
    "SELECT sum((ttl - 100) * 60000000000000000) AS s [RANGE 10 s] FROM Main",
    {"Main": [at(i / 10, ttl=ttl) for i, ttl in enumerate((200, 200, 200, 1, 1, 1))]},
    [window("12:00:00", "12:00:10", s=3 * 60_000_000_000_000_000)],
)
RANKS = Golden(  # 42 … 141; in doubles 0.07·100, 0.29·100 and 0.57·100 are not whole.
    "SELECT quantile(len, 0.07) AS a, quantile(len, 0.29) AS b, quantile(len, 0.57) AS c, quantile(len, 1) AS d, "
    "quantile(-len, .001) AS e [RANGE 10 s] FROM Main",
    {"Main": [at(i / 20, payload=i * 37 % 100) for i in range(100)]},
    [window("12:00:00", "12:00:10", a=48, b=70, c=98, d=141, e=-141)],
)
DERIVED = Golden(  # Noon is ten 171456480, an even number; packets are in 0, 1, 2 and 4 after it.
    "SELECT count(*), first(len) AS f [RANGE 3, SLIDE 2, WA ts/10] FROM Main",
    {"Main": [at(25), at(1), at(12, payload=3), at(44)]},
    [
        numbered(171456479, 171456482, count=2, f=42),
        numbered(171456481, 171456484, count=2, f=45),
        numbered(171456483, 171456486, count=1, f=42),
    ],
)
MULTIPLIED = Golden(  # Noon's minute has 1714564800 = 30·57152160; half of the panes hold none.
    "SELECT count(*) [RANGE 90, SLIDE 30, WA ts/60*60] FROM Main",
    {"Main": [at(1), at(125), at(59), at(61)]},
    [
        numbered(1714564740, 1714564830, count=2),
        numbered(1714564770, 1714564860, count=2),
        numbered(1714564800, 1714564890, count=3),
        numbered(1714564830, 1714564920, count=1),
        numbered(1714564860, 1714564950, count=2),
        numbered(1714564890, 1714564980, count=1),
        numbered(1714564920, 1714565010, count=1),
    ],
)
UNLIKE = Golden(  # By fours every ten seconds, by twos every five: noon is 685825920 in both, 7·97975131 + 3.
    "SELECT link, count(*) [RANGE 7, WA t] FROM (SELECT ts/10*4 AS t, link FROM A) "
    "UNION (SELECT ts/5*2 AS t, link FROM B) GROUP BY link",
    {"A": [at(1), at(12), at(25)], "B": [at(26), at(4), at(6), at(9.9), at(11)]},
    [
        numbered(685825917, 685825924, link="A", count=1),
        numbered(685825917, 685825924, link="B", count=3),
        numbered(685825924, 685825931, link="A", count=2),
        numbered(685825924, 685825931, link="B", count=2),
    ],
)
LANDMARK_ROWS = Golden(  # By partition: .1 has rows 1 to 5, .2 one. The last slide of each is not full.
    "SELECT srcIP, destPort, count(*) AS n, total(count(*)) AS rows [RANGE ALL, SLIDE 3 rows, WA row_num, PA srcIP] "
    "FROM Main GROUP BY destPort HAVING n * 2 >= total(count(*))",
    {"Main": [at(1), at(2, "10.0.0.2"), at(3), at(4, ports=(1, 53)), at(5, ports=(1, 53)), at(6, ports=(1, 53))]},
    [
        numbered(None, 4, srcIP="10.0.0.1", destPort=80, n=2, rows=3),
        numbered(None, 7, srcIP="10.0.0.1", destPort=53, n=3, rows=5),
        numbered(None, 4, srcIP="10.0.0.2", destPort=80, n=1, rows=1),
    ],
)
RANK = Golden(  # UDP by ts: 1, 2, 2, 4, 9; the second and the fourth end windows. TCP: 3, 3, and one window.
    "SELECT proto, count(*), last(len) AS l [RANGE 3 s, RATTR ts, SLIDE 2 rows, SATTR rank(ts), PA proto] FROM Main",
    {"Main": [at(4), at(2, payload=1), at(3, proto=6), at(1), at(9), at(3, proto=6, payload=5), at(2, payload=2)]},
    [
        window("11:59:59", "12:00:02", proto=17, count=3, l=44),
        window("12:00:01", "12:00:04", proto=17, count=3, l=42),
        window("12:00:00", "12:00:03", proto=6, count=2, l=59),
    ],
)
STAGE_OF_ROWS = Golden(  # Rows 1 to 5 in windows that end before 3, 5 and 7; of these 6 holds the first two.
    "CREATE STREAM pairs AS SELECT max(len) AS m [RANGE 3 rows, SLIDE 2 rows, WA row_num] FROM Main; "
    "SELECT sum(m) AS s, count(*) AS n [RANGE 4, SLIDE 2, WA window_end] FROM pairs",
    {"Main": [at(i, payload=i) for i in range(5)]},
    [numbered(0, 4, s=43, n=1), numbered(2, 6, s=88, n=2), numbered(4, 8, s=91, n=2), numbered(6, 10, s=46, n=1)],
)
ALIASES = Golden(  # GROUP BY means the field destPort; HAVING and ORDER BY the columns.
    "SELECT destPort / 100 AS destPort, max(ttl) AS len [RANGE 10 s] FROM Main GROUP BY destPort HAVING len > 64 "
    "ORDER BY destPort DESC LIMIT 2",
    {"Main": [at(i, ports=(1, port), ttl=ttl)
              for i, (port, ttl) in enumerate(((443, 65), (80, 255), (450, 99), (9999, 64)))]},
    [window("12:00:00", "12:00:10", destPort=4, len=65), window("12:00:00", "12:00:10", destPort=4, len=99)],
    ordered=True,
)  # fmt: skip
DISTINCT_COUNTS = Golden(  # Counts 3, 1, 2, 2: HAVING, then DISTINCT, then LIMIT.
    "SELECT DISTINCT count(*) AS n [RANGE 10 s] FROM Main GROUP BY srcIP HAVING count(*) > 1 ORDER BY n LIMIT 2",
    {"Main": [at(i, f"10.0.0.{host}") for i, host in enumerate((1, 1, 1, 2, 3, 3, 4, 4))]},
    [window("12:00:00", "12:00:10", n=2), window("12:00:00", "12:00:10", n=3)],
    ordered=True,
)
SHARE_BY_PARTITION = Golden(  # Over time PA is one more key: total is of the window, over rows of a partition's own.
    "SELECT proto, srcIP, count(*) AS n, total(count(*)) AS t [RANGE 10 s, PA proto] FROM Main GROUP BY srcIP",
    {"Main": [at(1), at(2), at(3, proto=6), at(4, "10.0.0.2")]},
    [
        window("12:00:00", "12:00:10", proto=17, srcIP="10.0.0.1", n=2, t=4),
        window("12:00:00", "12:00:10", proto=6, srcIP="10.0.0.1", n=1, t=4),
        window("12:00:00", "12:00:10", proto=17, srcIP="10.0.0.2", n=1, t=4),
    ],
)
CHAINED = Golden(  # Seconds, then ten of them every five by their end, then the minute in which those begin.
    "CREATE STREAM s AS SELECT srcIP, count(*) AS n [RANGE 1 s] FROM Main GROUP BY srcIP; "
    "CREATE STREAM t AS SELECT max(n) AS peak, count(*) AS k [RANGE 10 s, SLIDE 5 s, WA window_end] FROM s; "
    "SELECT minute, sum(k) AS k, max(peak) AS peak, min(window_end) AS e FROM t GROUP BY window_start/60 AS minute",
    {"Main": [at(0), at(0.5), at(4, "10.0.0.2"), at(61)]},
    [  # Ends of seconds: 1, 5 and 62. Of tens: [−5, 5), [0, 10), [5, 15); [55, 65), [60, 70).
        {"minute": 28576079, "k": 1, "peak": 2, "e": clock("12:00:05")},
        {"minute": 28576080, "k": 4, "peak": 2, "e": clock("12:00:10")},
        {"minute": 28576081, "k": 1, "peak": 1, "e": clock("12:01:10")},
    ],
)
GOLDEN = {
    "before-1970": BEFORE_1970, "nanoseconds": NANOSECONDS, "itself": ITSELF, "cancelled": CANCELLED, "ranks": RANKS,
    "derived": DERIVED, "multiplied": MULTIPLIED, "unlike": UNLIKE, "landmark-rows": LANDMARK_ROWS, "rank": RANK,
    "stage-of-rows": STAGE_OF_ROWS,
    "aliases": ALIASES, "distinct-counts": DISTINCT_COUNTS, "share-by-partition": SHARE_BY_PARTITION,
    "chained": CHAINED,
}  # fmt: skip
every_golden = every_golden_of(GOLDEN)


@pytest.mark.slow  # each compiles a kernel
@every_golden
def test_golden(golden: Golden, tmp_path: Path) -> None:
    outcome = query(golden.query, written(tmp_path, golden.streams))
    assert outcome.code == 0, outcome.error
    assert not differences(outcome.rows, golden.rows)
    assert not golden.ordered or outcome.rows == golden.rows


@every_golden
def test_naive(golden: Golden, tmp_path: Path) -> None:
    """The oracle of the other tests agrees."""
    assert not differences(answer(golden.query, written(tmp_path, golden.streams)).rows, golden.rows)


@every_golden
@pytest.mark.parametrize("buckets", [1, 3])
def test_buckets(golden: Golden, buckets: int) -> None:
    streams = {name: [decode_frames(name, 0, map(frame, packets))[0]] for name, packets in golden.streams.items()}
    ran = run(golden.query, streams, Random(buckets), buckets)
    assert not differences(ran.rows, golden.rows)
    assert ran.unfinished == 0
