"""Fields that are made of others: the ends of a connection, and the packet inside a tunnel."""

from __future__ import annotations

import random
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.inet6 import IPv6

from lowlevel.kernel.codegen.assemble import Build
from lowlevel.node import SourceNodes
from lowmark.query.catalog import DERIVED_FIELDS
from lowmark.wire.rows.words import Words
from tests.lowlevel.frames import IP_PACKETS, MACS, encapsulations
from tests.lowlevel.naive import block
from tests.lowlevel.plans import selection
from tests.lowlevel.tshark import NEEDED, inner
from tests.lowlevel.tunnelled import frames as tunnel_frames
from tests.lowlevel.tunnelled import loop, tunnels
from tests.naive.packets import Skipped, decode
from tests.naive.values import CommunityId

NODE = selection(*(field.name for field in DERIVED_FIELDS))
SCHEMA = NODE.reduction.schema
V4 = 4 << 128

Row = dict[str, int | None]


def run(frames: Sequence[bytes], build: Build = Build.FAST) -> tuple[list[Row], Words]:
    nodes = SourceNodes([NODE], stream="Main", build=build)
    nodes.start()
    outputs = [*nodes.take(block(list(frames))), *nodes.finish()]
    words = np.concatenate([output.rows for output in outputs])
    return [_row(words[place]) for place in range(len(words))], words


def _row(words: Words) -> Row:
    found: Row = {}
    for index, column in enumerate(SCHEMA):
        at = SCHEMA.offset(column.name)
        value = int(words[at])
        for word in words[at + 1 : at + column.kind.words]:
            value = value << 64 | int(word)
        null = int(words[0]) >> index & 1
        assert not null or value == 0
        found[column.name] = None if null else value
    return {field.name: found[field.name] for field in DERIVED_FIELDS}


def expected(frames: Sequence[bytes]) -> list[Row]:
    rows = []
    for frame in frames:
        try:
            fields = decode(1, frame, len(frame))
        except Skipped:
            continue
        rows.append({field.name: _number(fields[field.name]) for field in DERIVED_FIELDS})
    return rows


def _number(value: object) -> int | None:
    if isinstance(value, IPv4Address | IPv6Address):
        return value.version << 128 | int(value)
    if isinstance(value, CommunityId):
        return int.from_bytes(value.digest)
    assert value is None or isinstance(value, int)
    return value


def check(frames: Sequence[bytes]) -> None:
    rows, fast = run(frames)
    _, checked = run(frames, Build.CHECKED)
    assert np.array_equal(fast, checked)
    assert rows == expected(frames)


def test_whole_frames_and_frames_cut_anywhere() -> None:
    whole = [*tunnel_frames().values(), *(loop(count) for count in (0, 1, 8, 9))]
    whole += [encapsulations(packet)["ethernet"][1] for packet in IP_PACKETS.values()]
    chosen = random.Random(1)
    check([*whole, *(frame[:size] for frame in whole for size in chosen.sample(range(14, len(frame)), 25))])


def test_every_tunnel_is_seen_through() -> None:
    rows, _ = run(list(tunnels().values()))
    assert [name for name, row in zip(tunnels(), rows, strict=True) if row["inner.srcIP"] is None] == []


@pytest.mark.slow
@given(st.data())
@settings(deadline=None, max_examples=30)
def test_any_bytes(data: st.DataObject) -> None:
    frames = []
    whole = [*tunnel_frames().values(), loop(3)]
    for _ in range(30):
        changed = bytearray(data.draw(st.sampled_from(whole)))
        for place, value in data.draw(st.lists(st.tuples(st.integers(14, 120), st.integers(0, 255)), max_size=3)):
            if place < len(changed):
                changed[place] = value
        frames.append(bytes(changed[: data.draw(st.integers(14, len(changed)))]))
    check(frames)


@NEEDED
def test_tshark_sees_the_same_inside(tmp_path: Path) -> None:
    frames = tunnels()
    rows, _ = run(list(frames.values()))
    said = inner(tmp_path, list(frames.values()))
    wrong = [
        (name, field, row[field], value)
        for name, row, fields in zip(frames, rows, said, strict=True)
        for field, value in fields.items()
        if row[field] != value
    ]
    assert not wrong


@pytest.mark.parametrize("proto", [6, 17, 33, 132, 136, 47])
def test_both_directions_are_one_connection(proto: int) -> None:
    ports = b"\x01\x00\x02\x00" + bytes(20)
    back = ports[2:4] + ports[:2] + ports[4:]
    there = MACS / IP(src="10.0.0.9", dst="10.0.0.1", proto=proto) / ports
    answer = MACS / IP(src="10.0.0.1", dst="10.0.0.9", proto=proto) / back
    rows, _ = run([bytes(there), bytes(answer)])
    assert rows[0] == rows[1]
    assert rows[0]["conn.aIP"] == V4 | 0x0A000001
    six = [
        bytes(MACS / IPv6(src=src, dst=dst, nh=17) / UDP(sport=sport, dport=dport))
        for src, dst, sport, dport in (("::2", "::2", 9, 8), ("::2", "::2", 8, 9))
    ]
    rows, _ = run(six)
    assert rows[0] == rows[1]
    assert rows[0]["conn.aPort"] == 8


def test_an_echo_and_its_reply_are_one_connection_and_an_unreachable_is_its_own() -> None:
    frames = [
        MACS / IP(src="10.0.0.2", dst="10.0.0.1") / ICMP(type=8),
        MACS / IP(src="10.0.0.1", dst="10.0.0.2") / ICMP(type=0),
        MACS / IP(src="10.0.0.2", dst="10.0.0.1") / ICMP(type=3, code=1),
    ]
    rows, _ = run([bytes(frame) for frame in frames])
    assert rows[0] == rows[1]
    assert (rows[2]["conn.aIP"], rows[2]["conn.aPort"], rows[2]["conn.bPort"]) == (V4 | 0x0A000002, 3, 1)
