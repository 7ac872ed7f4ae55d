"""Small captures whose answers were worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.acceptance.command import Outcome, Row, lowmark, query
from tests.naive.compare import differences
from tests.naive.evaluate import answer
from tests.naive.frames import Spec, frame, write_pcap

NOON = 1_714_564_800  # 2024-05-01T12:00:00Z
NS = 10**9


def at(seconds: float, source: str = "10.0.0.1", **fields: object) -> Spec:
    """A packet so many seconds after noon: UDP, 42 bytes and its payload."""
    destination = "2001:db8::9" if ":" in source else "10.0.0.9"
    return Spec(ts=NOON * NS + round(seconds * NS), source=source, **{"destination": destination} | fields)  # type: ignore[arg-type]


def clock(time: str) -> str:
    return f"2024-05-01T{time}Z"


def window(start: str, end: str, **values: object) -> Row:
    return {"window_start": clock(start), "window_end": clock(end), **values}


def written(folder: Path, streams: dict[str, Sequence[Spec]]) -> list[tuple[str, Path]]:
    """A file each; NAME-2 is a second source of NAME."""
    return [
        (name.partition("-")[0], write_pcap(folder / f"{name}.pcap", map(frame, packets)))
        for name, packets in streams.items()
    ]


@dataclass(frozen=True)
class Golden:
    query: str
    streams: dict[str, Sequence[Spec]]
    rows: list[Row]
    ordered: bool = False  # the rows come in this order
    options: tuple[str, ...] = field(default=())


BORDER = Golden(
    "SELECT count(*), min(ts) AS t [RANGE 10 seconds, SLIDE 10 seconds, WA ts] FROM Main",
    {"Main": [at(9.999999999), at(10), at(10.000000001), at(20)]},
    [
        window("12:00:00", "12:00:10", count=1, t=clock("12:00:09.999999999")),
        window("12:00:10", "12:00:20", count=2, t=clock("12:00:10")),
        window("12:00:20", "12:00:30", count=1, t=clock("12:00:20")),
    ],
)
FIRST_WINDOWS = Golden(  # They begin before the first packet, and end with the last window that holds one.
    "SELECT srcIP, count(*) [RANGE 3 s, SLIDE 1 s] FROM Main GROUP BY srcIP",
    {"Main": [at(1.5), at(2.25, "10.0.0.2"), at(2.75)]},
    [
        window("11:59:59", "12:00:02", srcIP="10.0.0.1", count=1),
        window("12:00:00", "12:00:03", srcIP="10.0.0.1", count=2),
        window("12:00:00", "12:00:03", srcIP="10.0.0.2", count=1),
        window("12:00:01", "12:00:04", srcIP="10.0.0.1", count=2),
        window("12:00:01", "12:00:04", srcIP="10.0.0.2", count=1),
        window("12:00:02", "12:00:05", srcIP="10.0.0.1", count=1),
        window("12:00:02", "12:00:05", srcIP="10.0.0.2", count=1),
    ],
)
SAMPLED = Golden(  # SLIDE is longer than RANGE: what is between the windows is in none.
    "SELECT count(*), sum(len) [RANGE 2 s, SLIDE 10 s] FROM Main",
    {"Main": [at(1), at(7.999), at(8, payload=8), at(9.5), at(10)]},
    [window("12:00:08", "12:00:10", count=2, sum_len=92)],
)
LANDMARK = Golden(  # A group stays once it was there; a slide without packets has no rows.
    "SELECT srcIP, count(*) [RANGE ALL, SLIDE 1 minute, WA ts] FROM Main GROUP BY srcIP",
    {"Main": [at(5), at(70, "10.0.0.2"), at(200)]},
    [
        {"window_start": None, "window_end": clock("12:01:00"), "srcIP": "10.0.0.1", "count": 1},
        {"window_start": None, "window_end": clock("12:02:00"), "srcIP": "10.0.0.1", "count": 1},
        {"window_start": None, "window_end": clock("12:02:00"), "srcIP": "10.0.0.2", "count": 1},
        {"window_start": None, "window_end": clock("12:04:00"), "srcIP": "10.0.0.1", "count": 2},
        {"window_start": None, "window_end": clock("12:04:00"), "srcIP": "10.0.0.2", "count": 1},
    ],
)
SKEWED_UNION = Golden(  # One source is an hour behind in the file order, and B is empty.
    "SELECT link, count(*), first(len), last(len) [RANGE 1 minute] FROM A UNION B UNION C GROUP BY link",
    {"A": [at(30, payload=1), at(10, payload=2), at(10, payload=3)], "B": [], "C": [at(3599), at(3601), at(59)],
     "A-2": [at(10, payload=4), at(29.5)]},
    [
        window("12:00:00", "12:01:00", link="A", count=5, first_len=44, last_len=43),
        window("12:00:00", "12:01:00", link="C", count=1, first_len=42, last_len=42),
        window("12:59:00", "13:00:00", link="C", count=1, first_len=42, last_len=42),
        window("13:00:00", "13:01:00", link="C", count=1, first_len=42, last_len=42),
    ],
)  # fmt: skip
TOP = Golden(  # .2 and .3 tie: the lesser key comes first. The share is of all groups, those under HAVING too.
    "SELECT srcIP, count(*) AS n, 100.0 * count(*) / total(count(*)) AS share [RANGE 10 s, SLIDE 10 s] FROM Main "
    "GROUP BY srcIP HAVING n > 1 ORDER BY n DESC LIMIT 2",
    {"Main": [at(i / 10, f"10.0.0.{host}") for i, host in enumerate((3, 2, 1, 3, 2, 4, 4, 4))]},
    [
        window("12:00:00", "12:00:10", srcIP="10.0.0.4", n=3, share=37.5),
        window("12:00:00", "12:00:10", srcIP="10.0.0.2", n=2, share=25.0),
    ],
    ordered=True,
)
UNGATED = Golden(  # 1714564800 / 60 = 28576080. HAVING is of the group, the first packet of 12:01 is alone in its own.
    "SELECT minute, destPort, count(*), max(len) - min(len) AS spread FROM Main WHERE proto = 17 "
    "GROUP BY ts/60 AS minute, destPort HAVING count(*) >= 2",
    {"Main": [at(1), at(59.999999999, payload=10), at(60), at(2, ports=(1, 53)), at(3, ports=(2, 53), payload=5),
              at(4, proto=6)]},
    [
        {"minute": 28576080, "destPort": 80, "count": 2, "spread": 10},
        {"minute": 28576080, "destPort": 53, "count": 2, "spread": 5},
    ],
)  # fmt: skip
NULLS = Golden(  # len / 0 is null; aggregates skip nulls, and are null of nothing else.
    "SELECT srcIP, count(len / (destPort - 80)) AS n, sum(len / (destPort - 80)) AS s, "
    "avg(len % (destPort - 80)) AS a, count(*) [RANGE TUMBLING 10 s] FROM Main GROUP BY srcIP",
    {"Main": [at(1), at(2, ports=(1, 81)), at(3, ports=(1, 70)), at(4, "10.0.0.2")]},
    [
        window("12:00:00", "12:00:10", srcIP="10.0.0.1", n=2, s=37, a=-4.0, count=3),  # 42 + ⌊42 / −10⌋; 0 and −8
        window("12:00:00", "12:00:10", srcIP="10.0.0.2", n=0, s=None, a=None, count=1),
    ],
)
ADDRESSES = Golden(  # IPv4 sorts before IPv6, each numerically; ::ffff:10.0.0.10 is not 10.0.0.10.
    "SELECT min(srcIP) AS low, max(srcIP) AS high, count(distinct srcIP), count(distinct ip_version) AS versions "
    "[RANGE 1 minute] FROM Main",
    {"Main": [at(1, "2001:db8::1"), at(2, "10.0.0.10"), at(3, "9.255.0.1"), at(4, "::ffff:10.0.0.10"), at(5, "::2")]},
    [window("12:00:00", "12:01:00", low="9.255.0.1", high="2001:db8::1", count_distinct_srcIP=5, versions=2)],
)
QUANTILES = Golden(  # Of 42, 43, 44, 52: ranks max(1, ⌈q·4⌉); the median of an even number is between the middle two.
    "SELECT median(len), quantile(len, 0), quantile(len, 0.75) AS q3, quantile(len, 0.751) AS q4, variance(len), "
    "stddev(len) [RANGE 1 minute] FROM Main",
    {"Main": [at(i, payload=size) for i, size in enumerate((10, 1, 0, 2))]},
    [window("12:00:00", "12:01:00", median_len=43.5, quantile_len_0=42, q3=44, q4=52, variance_len=15.6875,
            stddev_len=3.960744879438715)],
)  # fmt: skip
STAGES = Golden(  # The second minute has one second with packets, of two sources.
    "CREATE STREAM seconds AS SELECT srcIP, count(*) AS n [RANGE 1 s] FROM Main GROUP BY srcIP; "
    "SELECT max(n) AS peak, count(*) AS active [RANGE 1 minute, WA window_end] FROM seconds",
    {"Main": [at(0), at(0.5), at(0.999999999), at(1), at(60.5), at(60.6, "10.0.0.2"), at(60.7, "10.0.0.2")]},
    [
        window("12:00:00", "12:01:00", peak=3, active=2),
        window("12:01:00", "12:02:00", peak=2, active=2),
    ],
)
SELECTED = Golden(  # A fragment but the first has no ports; ARP is no packet; a tag and its 4 bytes.
    "SELECT row_num, ts + 1.5 AS later, srcPort, proto, len, payload_len, fragment, vlan, srcMAC, "
    "srcIP IN 10.0.0.0/31 AS near FROM Main WHERE ts >= '2024-05-01T14:00:00+02:00'",
    {"Main": [at(-1), at(0, payload=7), at(1, junk=True), at(2, "10.0.0.2", proto=6, offset=3, payload=16, vlan=7),
              at(2.000001, proto=6, flags=2)]},
    [
        {"row_num": 2, "later": clock("12:00:01.500"), "srcPort": 40000, "proto": 17, "len": 49, "payload_len": 7,
         "fragment": 0, "vlan": 0, "srcMAC": "02:00:00:00:00:01", "near": True},
        {"row_num": 3, "later": clock("12:00:03.500"), "srcPort": 0, "proto": 6, "len": 54, "payload_len": 16,
         "fragment": 1, "vlan": 7, "srcMAC": "02:00:00:00:00:01", "near": False},
        {"row_num": 4, "later": clock("12:00:03.500001"), "srcPort": 40000, "proto": 6, "len": 54, "payload_len": 0,
         "fragment": 0, "vlan": 0, "srcMAC": "02:00:00:00:00:01", "near": True},
    ],
)  # fmt: skip
DISTINCT = Golden(
    "SELECT DISTINCT srcIP, destPort [RANGE 20 s, SLIDE 10 s] FROM "
    "(SELECT ts, src, dport FROM Main WHERE len < 60) AS small",
    {"Main": [at(1), at(2), at(12, payload=40), at(13, ports=(9, 9))]},
    [
        window("11:59:50", "12:00:10", srcIP="10.0.0.1", destPort=80),
        window("12:00:00", "12:00:20", srcIP="10.0.0.1", destPort=80),
        window("12:00:00", "12:00:20", srcIP="10.0.0.1", destPort=9),
        window("12:00:10", "12:00:30", srcIP="10.0.0.1", destPort=9),
    ],
)
GOLDEN = {
    "border": BORDER, "first-windows": FIRST_WINDOWS, "sampled": SAMPLED, "landmark": LANDMARK, "top": TOP,
    "skewed-union": SKEWED_UNION, "ungated": UNGATED, "nulls": NULLS, "addresses": ADDRESSES, "quantiles": QUANTILES,
    "stages": STAGES, "selected": SELECTED, "distinct": DISTINCT,
}  # fmt: skip


def every_golden_of(cases: Mapping[str, Golden]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("golden", [pytest.param(golden, id=name) for name, golden in cases.items()])


every_golden = every_golden_of(GOLDEN)


QUICK = ("border", "nulls", "addresses", "top", "ungated")
"""Each compiles a kernel."""


@pytest.mark.parametrize(
    "golden",
    [pytest.param(GOLDEN[name], id=name, marks=() if name in QUICK else pytest.mark.slow) for name in GOLDEN],
)
def test_golden(golden: Golden, tmp_path: Path) -> None:
    outcome = query(golden.query, written(tmp_path, golden.streams), *golden.options)
    assert outcome.code == 0, outcome.error
    assert not differences(outcome.rows, golden.rows)
    if golden.ordered:
        assert outcome.rows == golden.rows


@every_golden
def test_naive(golden: Golden, tmp_path: Path) -> None:
    """The oracle of the other tests agrees."""
    assert not differences(answer(golden.query, written(tmp_path, golden.streams)).rows, golden.rows)


COUNT = "SELECT count(*) [RANGE 10 s] FROM Main"


def _count(tmp_path: Path, packets: Sequence[Spec], *options: str) -> Outcome:
    return query(COUNT, written(tmp_path, {"Main": packets}), *options)


def test_late_packet_makes_its_window_lossy(tmp_path: Path) -> None:
    """Declared as ordered, the capture breaks its promise: the packet is late, and the window says that it lacks it."""
    packets = [at(1), at(15), at(2), at(16)]
    outcome = _count(tmp_path, packets, "--disorder", "ordered")
    assert outcome.code == 4
    assert outcome.rows == [window("12:00:00", "12:00:10", count=1), window("12:00:10", "12:00:20", count=2)]
    assert "late" in outcome.error
    assert _count(tmp_path, packets, "--disorder", "within 13 s").code == 0


def test_damaged_capture(tmp_path: Path) -> None:
    ((_, path),) = written(tmp_path, {"Main": [at(1), at(2), at(3)]})
    path.write_bytes(path.read_bytes()[:-1])
    outcome = query(COUNT, [("Main", path)])
    assert outcome.code == 3
    assert outcome.rows == [window("12:00:00", "12:00:10", count=2)]
    assert str(path) in outcome.error


def test_no_capture_at_all(tmp_path: Path) -> None:
    (tmp_path / "text.pcap").write_text("this is no capture, but a text that somebody wrote")
    for name in ("missing.pcap", "text.pcap"):
        outcome = query(COUNT, [("Main", tmp_path / name)])
        assert (outcome.code, outcome.out) == (3, "")
        assert name in outcome.error
        assert "Traceback" not in outcome.error


def test_unnamed_capture_is_every_stream(tmp_path: Path) -> None:
    ((_, path),) = written(tmp_path, {"Main": [at(1), at(2)]})
    outcome = lowmark(
        "query", "-r", str(path), "--format", "jsonl", "SELECT count(*) [RANGE 10 s] FROM Some UNION Other"
    )
    assert outcome.rows == [window("12:00:00", "12:00:10", count=4)]


def test_csv(tmp_path: Path) -> None:
    ((_, path),) = written(tmp_path, {"Main": [at(0.25), at(1, "2001:db8::1")]})
    text = "SELECT ts, srcIP, len / 4.0 AS q, len / 0 AS nothing, proto = 17 AS udp, link FROM Main"
    outcome = lowmark("query", "-r", f"Main={path}", "--format", "csv", text)
    assert outcome.out == (
        "ts,srcIP,q,nothing,udp,link\n"
        "2024-05-01T12:00:00.250Z,10.0.0.1,10.5,,true,Main\n"
        "2024-05-01T12:00:01Z,2001:db8::1,15.5,,true,Main\n"
    )


def test_stream_without_a_capture(tmp_path: Path) -> None:
    captures = written(tmp_path, {"Main": [at(1)], "Other": [at(2)]})
    outcome = query("SELECT srcIP FROM Mian", captures)
    assert (outcome.code, outcome.out) == (2, "")
    assert "Mian" in outcome.error
    assert "Main" in outcome.error


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SELECT srcIPP FROM Main", ("srcIPP", "srcIP")),
        ("SELECT count(*) FROM Main", ("count",)),
        ("SELECT srcIP, count(*) [RANGE 1 minute] FROM Main", ("srcIP", "GROUP BY")),
        ("SELECT count(*) [RANGE 1 minute, WA len] FROM Main", ("len",)),
        ("SELECT len, len FROM Main", ("len",)),
        ("SELECT ts FROM Main WHERE srcIP = 10.0.0.0/8", ("IN",)),
        ("SELECT sum(srcIP) [RANGE 1 minute] FROM Main", ("sum",)),
        ("SELECT count(*) [RANGE 1 minute] FROM Main LIMIT 3", ("ORDER BY",)),
        ("SELECT ts FRM Main", ("FROM",)),
    ],
)
def test_refused(text: str, words: Sequence[str], tmp_path: Path) -> None:
    outcome = query(text, written(tmp_path, {"Main": [at(1)]}))
    assert (outcome.code, outcome.out) == (2, "")
    assert "Traceback" not in outcome.error
    for word in words:
        assert word in outcome.error


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--table", "3", ("3", "power of two")),
        ("--table", "0", ("no size of a table",)),
        ("--flush", "never", ("never", "lazy")),
        ("--disorder", "within", ("within", "within 2 s")),
        ("-r", "Main", ("Main",)),
    ],
)
def test_bad_option(option: str, value: str, words: Sequence[str], tmp_path: Path) -> None:
    outcome = query(COUNT, written(tmp_path, {"Main": [at(1)]}), option, value)
    assert (outcome.code, outcome.out) == (2, "")
    for word in words:
        assert word in outcome.error
