"""IPv4 addresses, IPv4-mapped IPv6 ones and those of IPv6 alone in one capture: three hosts, whatever their bits."""

from __future__ import annotations

import operator
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from random import Random

import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowlevel.kernel.codegen.assemble import Build
from lowlevel.node import SourceNodes
from lowmark.query.compile import compile_query
from lowmark.query.plan.nodes import Node
from lowmark.wire.rows.schema import Schema
from lowmark.wire.rows.text import text_column
from lowmark.wire.rows.words import Words
from tests.acceptance.bucketrun import matrix, reduced, run
from tests.acceptance.command import lowmark, query
from tests.acceptance.test_golden import Golden, at, clock, window, written
from tests.lowlevel.naive import block
from tests.naive.compare import differences
from tests.naive.evaluate import answer
from tests.naive.frames import Spec, frame
from tests.naive.packets import decode_frames
from tests.naive.values import Address

FOUR, MAPPED, SIX = "10.0.0.1", "::ffff:10.0.0.1", "2001:db8::1"
COMPATIBLE = "::10.0.0.1"
"""Deprecated, and its text is that of any other address of IPv6."""

TRAFFIC = [
    at(1, FOUR, destination="10.0.0.9"),
    at(2, MAPPED, destination="::ffff:10.0.0.9", proto=6),
    at(3, SIX),
    at(4, MAPPED, destination="::ffff:10.0.0.9"),
    at(5, COMPATIBLE, destination="2001:db8::9"),
    at(6, "10.0.0.9", destination=FOUR, ports=(80, 40000)),
    at(7, "::ffff:10.0.0.9", destination=MAPPED, ports=(80, 40000)),
]


def minute(**values: object) -> dict[str, object]:
    return window("12:00:00", "12:01:00", **values)


GROUPED = Golden(  # IPv4 before IPv6, each numerically.
    "SELECT srcIP, count(*) [RANGE 1 minute] FROM Main GROUP BY srcIP ORDER BY srcIP LIMIT 10",
    {"Main": TRAFFIC},
    [
        minute(srcIP=host, count=count)
        for host, count in (
            (FOUR, 1), ("10.0.0.9", 1), ("::a00:1", 1), (MAPPED, 2), ("::ffff:10.0.0.9", 1), (SIX, 1),
        )
    ],
    ordered=True,
)  # fmt: skip
EQUAL = Golden(
    "SELECT ts, srcIP = 10.0.0.1 AS four, srcIP = '::ffff:10.0.0.1' AS mapped, srcIP IN (10.0.0.1, 2001:db8::1) AS "
    "listed, srcIP IN 10.0.0.0/8 AS eight, srcIP IN ::ffff:10.0.0.0/104 AS there, srcIP IN ::/0 AS six "
    "FROM Main WHERE ts < '2024-05-01T12:00:04Z'",
    {"Main": TRAFFIC},
    [
        {"ts": clock("12:00:01"), "four": True, "mapped": False, "listed": True, "eight": True, "there": False,
         "six": False},
        {"ts": clock("12:00:02"), "four": False, "mapped": True, "listed": False, "eight": False, "there": True,
         "six": True},
        {"ts": clock("12:00:03"), "four": False, "mapped": False, "listed": True, "eight": False, "there": False,
         "six": True},
    ],
)  # fmt: skip
LEFT_OUT = Golden(
    "SELECT srcIP, ts FROM Main WHERE srcIP IN 10.0.0.0/8 OR srcIP > ::fffe:ffff:ffff AND srcIP < 2001::",
    {"Main": TRAFFIC},
    [
        {"srcIP": FOUR, "ts": clock("12:00:01")},
        {"srcIP": MAPPED, "ts": clock("12:00:02")},
        {"srcIP": MAPPED, "ts": clock("12:00:04")},
        {"srcIP": "10.0.0.9", "ts": clock("12:00:06")},
        {"srcIP": "::ffff:10.0.0.9", "ts": clock("12:00:07")},
    ],
)
AGGREGATED = Golden(
    "SELECT min(srcIP) AS low, max(srcIP) AS high, first(srcIP) AS f, last(srcIP) AS l, count(distinct srcIP) AS n, "
    "approx_count_distinct(srcIP) AS about [RANGE 1 minute] FROM Main WHERE destPort = 80",
    {"Main": TRAFFIC},
    [minute(low=FOUR, high=SIX, f=FOUR, l="::a00:1", n=4, about=4)],
)
BY_PROTOCOL = Golden(  # Of the mapped ones alone in the one group, of all in the other.
    "SELECT proto, min(srcIP) AS low, max(destIP) AS high [RANGE 1 minute] FROM Main GROUP BY proto",
    {"Main": TRAFFIC},
    [minute(proto=6, low=MAPPED, high="::ffff:10.0.0.9"), minute(proto=17, low=FOUR, high="2001:db8::9")],
)
NETWORKS = Golden(
    "SELECT prefix(srcIP, 8, 104) AS net, count(*) [RANGE 1 minute] FROM Main GROUP BY prefix(srcIP, 8, 104)",
    {"Main": TRAFFIC},
    [
        minute(net="10.0.0.0", count=2), minute(net="::ffff:10.0.0.0", count=3), minute(net="::a00:0", count=1),
        minute(net="2001:db8::", count=1),
    ],
)  # fmt: skip
NO_NETWORK = Golden(  # All bits are 0, and still there are two.
    "SELECT prefix(srcIP, 0) AS none, count(*) [RANGE 1 minute] FROM Main GROUP BY prefix(srcIP, 0)",
    {"Main": TRAFFIC},
    [minute(none="0.0.0.0", count=2), minute(none="::", count=5)],
)
CONNECTIONS = Golden(
    "SELECT conn, count(*) [RANGE 1 minute] FROM Main WHERE proto = 17 AND srcIP <> 2001:db8::1 AND srcIP <> ::a00:1 "
    "GROUP BY conn",
    {"Main": TRAFFIC},
    [
        minute(**{"conn.aIP": FOUR, "conn.aPort": 40000, "conn.bIP": "10.0.0.9", "conn.bPort": 80, "conn.proto": 17},
               count=2),
        minute(**{"conn.aIP": MAPPED, "conn.aPort": 40000, "conn.bIP": "::ffff:10.0.0.9", "conn.bPort": 80,
                  "conn.proto": 17}, count=2),
    ],
)  # fmt: skip
ANSWERED = Golden(  # The answer to each comes from an address of its own version.
    "SELECT a.ts, a.srcIP, b.ts FROM Main AS a [RANGE 1 minute], Main AS b [RANGE 1 minute] "
    "WHERE a.srcIP = b.destIP AND a.destPort = 80",
    {"Main": TRAFFIC},
    [
        {"a.ts": clock("12:00:01"), "a.srcIP": FOUR, "b.ts": clock("12:00:06")},
        {"a.ts": clock("12:00:02"), "a.srcIP": MAPPED, "b.ts": clock("12:00:07")},
        {"a.ts": clock("12:00:04"), "a.srcIP": MAPPED, "b.ts": clock("12:00:07")},
    ],
)
UNANSWERED = Golden(
    "SELECT a.ts, a.srcIP FROM Main AS a [RANGE 1 minute] ANTI JOIN Other AS b [RANGE 1 minute] ON a.srcIP = b.srcIP",
    {"Main": [at(1, FOUR), at(2, MAPPED), at(3, SIX)], "Other": [at(1, MAPPED), at(2, SIX)]},
    [{"a.ts": clock("12:00:01"), "a.srcIP": FOUR}],
)
STAGES = Golden(  # An address goes on to a second stage and to another bucket as what it is.
    "CREATE STREAM hosts AS SELECT srcIP, destIP, count(*) AS n [RANGE 10 s] FROM Main GROUP BY srcIP, destIP; "
    "SELECT destIP, sum(n) AS n, max(srcIP) AS who [RANGE 1 minute, WA window_end] FROM hosts GROUP BY destIP",
    {"Main": TRAFFIC},
    [
        minute(destIP="10.0.0.9", n=1, who=FOUR), minute(destIP="::ffff:10.0.0.9", n=2, who=MAPPED),
        minute(destIP="2001:db8::9", n=2, who=SIX), minute(destIP=FOUR, n=1, who="10.0.0.9"),
        minute(destIP=MAPPED, n=1, who="::ffff:10.0.0.9"),
    ],
)  # fmt: skip

GOLDENS = {name.lower(): value for name, value in list(globals().items()) if isinstance(value, Golden)}
every_golden = pytest.mark.parametrize("golden", [pytest.param(value, id=name) for name, value in GOLDENS.items()])


@every_golden
def test_the_whole_command(golden: Golden, tmp_path: Path) -> None:
    outcome = query(golden.query, written(tmp_path, golden.streams), "--table", "8")
    assert outcome.code == 0, outcome.error
    assert not differences(outcome.rows, golden.rows)
    if golden.ordered:
        assert outcome.rows == golden.rows


@every_golden
def test_buckets_with_stored_state(golden: Golden) -> None:
    if "conn" in golden.query:
        pytest.skip("packets are read without a kernel here, and have no connection")
    streams = {name: [decode_frames(name, 0, map(frame, packets))[0]] for name, packets in golden.streams.items()}
    for seed in range(6):
        ran = run(golden.query, streams, Random(seed), buckets=3)
        assert not differences(ran.rows, golden.rows)


@every_golden
def test_naive(golden: Golden, tmp_path: Path) -> None:
    """The oracle of the other tests agrees."""
    assert not differences(answer(golden.query, written(tmp_path, golden.streams)).rows, golden.rows)


def test_files_for_others_hold_the_text_of_each(tmp_path: Path) -> None:
    ((_, path),) = written(tmp_path, {"Main": TRAFFIC[:3]})
    text = "SELECT srcIP, destIP FROM Main"
    plain = lowmark("query", "-r", f"Main={path}", "--format", "csv", text).out
    assert plain == (
        "srcIP,destIP\n10.0.0.1,10.0.0.9\n::ffff:10.0.0.1,::ffff:10.0.0.9\n2001:db8::1,2001:db8::9\n"
    )  # fmt: skip
    for form, read in (("parquet", pyarrow.parquet.read_table), ("arrow", _read_arrow)):
        out = tmp_path / f"rows.{form}"
        assert lowmark("query", "-r", f"Main={path}", "--format", form, "-o", str(out), text).code == 0
        assert read(out)["srcIP"].to_pylist() == [FOUR, MAPPED, SIX]


def _read_arrow(path: Path) -> pyarrow.Table:
    with pyarrow.ipc.open_stream(path) as reader:
        return reader.read_all()


_OF_32_BITS = st.sampled_from([0, 1, 0x0A000001, 0x0A0000FF, 0x0B000001, 2**32 - 1]) | st.integers(0, 2**32 - 1)
_SIXES = st.one_of(
    _OF_32_BITS,
    _OF_32_BITS.map(lambda number: 0xFFFF << 32 | number),
    _OF_32_BITS.map(lambda number: 0x20010DB8 << 96 | number),
    st.integers(0, 2**128 - 1),
)
PACKETS = st.one_of(
    st.tuples(_OF_32_BITS, _OF_32_BITS).map(lambda ends: tuple(map(IPv4Address, ends))),
    st.tuples(_SIXES, _SIXES).map(lambda ends: tuple(map(IPv6Address, ends))),
)
PREFIXES = ("0.0.0.0/0", "10.0.0.0/8", "10.0.0.0/31", "10.0.0.1/32", "::/0", "::/96", "::ffff:0:0/95", "::ffff:0:0/96",
            "::ffff:10.0.0.0/104", "2001:db8::/32", "2001:db8::a00:1/128")  # fmt: skip
SOUGHT = [ip_network(text, strict=False) for text in PREFIXES]
BOUNDS = ("10.0.0.1", "255.255.255.255", "::", "::ffff:10.0.0.1", "2001:db8::")
ORDERS = {"<": operator.lt, "<=": operator.le, "=": operator.eq, "<>": operator.ne, ">=": operator.ge, ">": operator.gt}
LENGTHS = ((0, 0), (8, 32), (31, 96), (32, 104), (32, 128))
TESTS = [
    *(f"srcIP IN {prefix}" for prefix in PREFIXES),
    *(f"srcIP {sign} {other}" for sign in ORDERS for other in (*BOUNDS, "destIP")),
    *(f"prefix(srcIP, {four}, {six})" for four, six in LENGTHS),
]


def expected(source: Address, destination: Address) -> list[bool | Address]:
    """By Python's own addresses, which compare within a version only."""
    ends = [*map(ip_address, BOUNDS), destination]
    length = [four if source.version == 4 else six for four, six in LENGTHS]
    return [
        *(source.version == net.version and source in net for net in SOUGHT),
        *(
            order(source, other) if source.version == other.version else order(source.version, other.version)
            for order in ORDERS.values()
            for other in ends
        ),
        *(ip_network((source, bits), strict=False).network_address for bits in length),
    ]


def found(rows: Words, schema: Schema) -> list[list[object]]:
    columns = [text_column(schema, rows, name).to_pylist() for name in NAMES]
    read = {"true": True, "false": False}
    return [[read[text] if text in read else ip_address(text) for text in row] for row in zip(*columns, strict=True)]


NAMES = [f"x{place}" for place in range(len(TESTS))]


@pytest.fixture(scope="module")
def node() -> Node:
    """It computes all the tests of a packet."""
    texts = ", ".join(f"{test} AS {name}" for test, name in zip(TESTS, NAMES, strict=True))
    (made,) = compile_query(f"SELECT {texts} FROM Main").stage.nodes
    return made


@pytest.fixture(scope="module")
def kernels(node: Node) -> list[SourceNodes]:
    """Of both builds."""
    made = [SourceNodes([node], stream="Main", build=build) for build in Build]
    for nodes in made:
        nodes.start()
    return made


@given(st.lists(PACKETS, min_size=1, max_size=60))
@settings(deadline=None)
def test_order_and_prefixes_are_those_of_pythons_addresses(
    node: Node, kernels: list[SourceNodes], packets: list[tuple[Address, Address]]
) -> None:
    schema = node.reduction.schema
    frames = [frame(Spec(ts=0, source=str(source), destination=str(dest))) for source, dest in packets]
    wanted = [expected(source, dest) for source, dest in packets]
    for nodes in kernels:
        block_of = block([one.data for one in frames], ts=[0] * len(frames))
        rows = [output.rows for output in (*nodes.take(block_of), *nodes.heartbeat(0))]
        assert [row for part in rows for row in found(part, schema)] == wanted
    read, _ = decode_frames("Main", 0, frames)
    assert found(reduced(node, matrix(read, 0, node.reduction.strings))[0], schema) == wanted
