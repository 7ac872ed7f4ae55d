"""The filter that the kernel runs never leaves out a packet that the condition keeps, and does leave out others."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.live.bpf_condition import derived, useful
from ingest.live.bpf_programs import attach
from lowlevel.node import SourceNodes
from lowmark.query.compile import compile_query
from lowmark.query.expr.evaluate import evaluate, holds
from lowmark.query.expr.expressions import Expr
from lowmark.wire.rows.schema import Schema
from lowmark.wire.rows.values import FOREVER
from lowmark.wire.rows.words import Words
from tests.lowlevel.frames import IP_PACKETS, encapsulations
from tests.lowlevel.naive import block

FRAMES = [
    frame
    for packet in IP_PACKETS.values()
    for link, whole in encapsulations(packet).values()
    if link == 1
    for frame in (bytes(whole), bytes(whole)[:40], bytes(whole)[:50])
]


LONG = ", ".join(map(str, range(1, 4_000, 2)))
LONG6 = ", ".join(f"::{number:x}" for number in range(1, 4_000, 2))


def condition(where: str) -> Expr | None:
    """None: it is always true."""
    (node,) = compile_query(f"SELECT ts FROM Main WHERE {where}").stage.nodes
    return node.reduction.where


@pytest.fixture(scope="module")
def packets() -> tuple[Words, Schema]:
    """What a query sees of the frames; `ts` says of which one."""
    text = "SELECT ts, srcIP, destIP, srcPort, destPort, proto, ip_version, tcp_flags, len FROM Main"
    nodes = SourceNodes(compile_query(text).stage.nodes, stream="Main")
    nodes.start()
    frames = block(FRAMES, ts=list(range(len(FRAMES))), low_after=FOREVER)
    (output,) = [output for output in nodes.take(frames) if len(output.rows)]
    return output.rows, compile_query(text).stage.nodes[0].reduction.schema


def kept_by_kernel(keep: Expr | None, frames: Sequence[bytes], snaplen: int = 512) -> list[bool]:
    """A socket's filter is the same whatever the socket is for: here one end of a pair, where nobody needs rights."""
    assert keep is not None
    sender, receiver = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with sender, receiver:
        attach(receiver, derived(keep, snaplen, None))
        receiver.setblocking(False)
        kept = []
        for frame in frames:
            sender.send(frame)
            try:
                receiver.recv(65_536)
            except BlockingIOError:
                kept.append(False)
            else:
                kept.append(True)
        return kept


def udp(source: str = "10.0.0.1", port: int = 53, protocol: int = 17) -> bytes:
    transport = struct.pack(">HHHH", 40_000, port, 8, 0)
    addresses = socket.inet_aton(source) + socket.inet_aton("10.9.9.9")
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(transport), 0, 0, 64, protocol, 0)
    return bytes(12) + b"\x08\x00" + head + addresses + transport


MAPPED = (
    bytes(12) + b"\x86\xdd\x60" + bytes(3) + struct.pack(">HBB", 8, 17, 64) + bytes(10) + b"\xff\xff\x0a\0\0\1"
    + bytes(16) + struct.pack(">HHHH", 40_000, 53, 8, 0)
)  # fmt: skip
"""The packet of `udp`, but from ::ffff:10.0.0.1."""


@pytest.mark.parametrize(
    ("where", "kept", "left"),
    [
        ("proto = 17 AND destPort = 53", udp(), udp(port=54)),
        ("destPort <> 53", udp(port=54), udp()),
        ("NOT (destPort < 100 OR proto = 6)", udp(port=100), udp(port=99)),
        ("destPort BETWEEN 10 AND 20", udp(port=20), udp(port=21)),
        ("1024 > destPort", udp(port=1023), udp(port=1024)),
        ("srcIP IN 10.0.0.0/8 OR destIP = 1.2.3.4", udp("10.255.0.1"), udp("11.0.0.1")),
        ("srcIP <> 10.0.0.1", udp("10.0.0.2"), udp("10.0.0.1")),
        ("destPort IN (53, 5353) AND len > 10", udp(port=5353), udp(port=5354)),
        ("ip_version = 6", bytes(12) + b"\x86\xdd" + bytes(40), udp()),
        ("srcIP IN 2001:db8::/32", bytes(12) + b"\x86\xdd" + bytes(8) + b"\x20\x01\x0d\xb8" + bytes(28), udp()),
        ("srcIP IN 10.0.0.0/8 AND destPort = 53", udp(), MAPPED),
        ("srcIP IN 0.0.0.0/0", udp(), MAPPED),
        ("srcIP = 10.0.0.1", udp(), MAPPED),
        ("srcIP <> 10.0.0.1", MAPPED, udp()),
        ("srcIP NOT IN 10.0.0.0/8", MAPPED, udp()),
        ("srcIP IN ::ffff:10.0.0.0/104", MAPPED, udp()),
        ("srcIP IN ::/0", MAPPED, udp()),
        ("srcIP = ::ffff:10.0.0.1", MAPPED, udp()),
        ("destPort = 0", udp(protocol=47), udp(port=80)),
        ("destPort IN (53, 54, 55, 80)", udp(port=54), udp(port=56)),
        ("destPort NOT IN (53, 54, 55, 80)", udp(port=56), udp(port=54)),
        ("srcIP IN (10.0.0.1, 10.0.0.2, 10.0.0.3, 11.0.0.0/8, ::1)", udp("10.0.0.3"), udp("10.0.0.4")),
        ("srcIP NOT IN (10.0.0.1, 10.0.0.2, 11.0.0.0/8, ::1)", udp("10.0.0.3"), udp("11.255.0.4")),
        (f"destPort IN ({LONG}) AND proto = 17", udp(port=2), udp(port=2, protocol=6)),
    ],
)
def test_what_is_left_out(where: str, kept: bytes, left: bytes) -> None:
    keep = condition(where)
    assert keep is not None
    assert useful(keep)
    assert kept_by_kernel(keep, [kept, left, udp()[:30], bytes(60)]) == [True, False, True, True]


@pytest.mark.parametrize(
    "where",
    [
        f"destPort IN ({LONG})",
        f"srcIP NOT IN ({LONG6})",
        "len > 100",
        "proto = 6 OR tcp_flags & 2 = 2",
        "srcIP < 10.0.0.1",
        "vlan = 7",
    ],
)
def test_conditions_that_leave_nothing_out(where: str) -> None:
    keep = condition(where)
    assert keep is not None
    assert not useful(keep)


@pytest.mark.parametrize("snaplen", [64, 512])
def test_ports_that_are_not_captured(snaplen: int) -> None:
    """They count as 0, and the filter sees the whole frame."""
    keep = condition("destPort = 0")
    options = bytes(12) + b"\x08\x00\x4f" + udp()[15:34] + bytes(40) + struct.pack(">HHHH", 1, 80, 8, 0)
    assert kept_by_kernel(keep, [options], snaplen) == [snaplen == 64]


def test_a_condition_of_any_length() -> None:
    keep = condition("destPort IN (" + ", ".join(str(port) for port in range(1, 400, 2)) + ")")
    assert kept_by_kernel(keep, [udp(port=399), udp(port=400)]) == [True, True]


NUMBERS = st.tuples(
    st.sampled_from(["proto", "srcPort", "destPort", "ip_version", "tcp_flags", "len"]),
    st.sampled_from(["=", "<>", "<", "<=", ">", ">="]),
    st.sampled_from([0, 4, 6, 17, 47, 53, 443, 2905, 5353, 40001, 65535, 70000]),
).map(lambda parts: f"{parts[0]} {parts[1]} {parts[2]}")
ADDRESSES = st.tuples(
    st.sampled_from(["srcIP", "destIP"]),
    st.sampled_from(
        ["= 10.1.2.3", "<> 2.2.2.2", "IN 10.0.0.0/8", "IN 0.0.0.0/0", "IN 2001:db8::/32", "IN ::/0", "= fe80::1:2",
         "IN 1.1.0.0/16", "NOT IN 192.168.0.0/16", "< 10.0.0.1", "= ::ffff:10.0.0.1", "IN ::ffff:10.0.0.0/104",
         "= 10.0.0.1", "IN (10.1.2.3, 10.1.2.4, 10.1.2.5, 2.2.0.0/15, fe80::/10)",
         "NOT IN (10.1.2.3, 1.1.1.1, fe80::1:2, ::ffff:10.0.0.1, 2001:db8::/33)"]
    ),
).map(" ".join)  # fmt: skip
LISTS = st.sampled_from(
    ["proto IN (1, 6, 17, 58)", "destPort NOT IN (0, 53, 54, 443)", "srcPort IN (52, 53, 54, 70000, -1)",
     "ip_version IN (4, 5)", "ip_version NOT IN (4, 9)", "tcp_flags IN (2, 18)"]
)  # fmt: skip
CONDITIONS = st.recursive(
    NUMBERS | ADDRESSES | LISTS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(
            lambda parts: f"({parts[0]}) {parts[1]} ({parts[2]})"
        ),
        inner.map(lambda one: f"NOT ({one})"),
    ),
    max_leaves=6,
)


@given(CONDITIONS)
def test_nothing_is_left_out_that_the_condition_keeps(packets: tuple[Words, Schema], where: str) -> None:
    keep = condition(where)
    if keep is None:
        return
    rows, schema = packets
    times = rows[holds(evaluate(keep, rows, schema)), schema.offset("ts")].tolist()
    by_kernel = kept_by_kernel(keep, FRAMES)
    assert [FRAMES[place].hex() for place in times if not by_kernel[place]] == []
