"""Every field, in every encapsulation, of whole frames and of frames that are cut or broken anywhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import dpkt
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowlevel.kernel.codegen.assemble import Build
from lowlevel.node import SourceNodes
from lowmark.wire.frames import BAD_TIME, NO_TIME, UNKNOWN_INTERFACE, FrameBlock
from lowmark.wire.rows.schema import Kind, Schema
from tests.lowlevel.frames import IP_PACKETS, damaged_frames, encapsulations
from tests.lowlevel.naive import Skip, block, decode
from tests.lowlevel.plans import ALL_FIELDS, selection

NODE = selection(*ALL_FIELDS)
SCHEMA = NODE.reduction.schema


def values(schema: Schema, row: npt.NDArray[np.uint64]) -> dict[str, int]:
    found = {}
    for column in schema:
        words = row[schema.offset(column.name) :][: column.kind.words]
        if column.kind is Kind.IP:
            version, high, low = map(int, words)
            found[column.name] = version << 128 | high << 64 | low
        else:
            found[column.name] = int(words[0].astype(np.int64))
    return found


def run(frames: FrameBlock, build: Build) -> tuple[npt.NDArray[np.uint64], dict[str, int]]:
    nodes = SourceNodes([NODE], stream="Main", build=build)
    nodes.start()
    outputs = [*nodes.take(frames), *nodes.finish()]
    skipped = {reason.name: count for reason, count in nodes.skipped.items() if count}
    assert nodes.received == len(frames) == nodes.decoded + sum(skipped.values())
    return np.concatenate([output.rows for output in outputs]), skipped


def check(frames: Sequence[tuple[int, bytes]], vlan: Sequence[int] | None = None) -> None:
    """Both builds see what the definitions say."""
    links, data = [link for link, _ in frames], [frame for _, frame in frames]
    tested = block(data, link=links, extra=5, vlan=vlan)
    fast, skipped = run(tested, Build.FAST)
    checked, checked_skipped = run(tested, Build.CHECKED)
    assert np.array_equal(fast, checked)
    assert skipped == checked_skipped
    expected, reasons = [], Counter[str]()
    for place, (link, frame) in enumerate(frames):
        try:
            fields = decode(frame, len(frame) + 5, link, -1 if vlan is None else vlan[place])
        except Skip as skip:
            reasons[skip.args[0]] += 1
            continue
        expected.append(fields | {"pane": 0, "tuples": 1, "ts": place, "arrival_ts": place, "link": 0})
        expected[-1]["row_num"] = len(expected)
    assert [values(SCHEMA, row) for row in fast] == expected
    assert skipped == dict(reasons)


@pytest.mark.parametrize("name", IP_PACKETS)
def test_fields_of_whole_frames_and_of_frames_cut_anywhere(name: str) -> None:
    whole = list(encapsulations(IP_PACKETS[name]).values())
    check(whole + [(link, frame[:size]) for link, frame in whole for size in range(len(frame))])


@given(st.lists(damaged_frames(), max_size=150))
@settings(deadline=None, max_examples=100)
def test_fields_of_any_bytes(frames: list[tuple[int, bytes]]) -> None:
    check(frames)


def test_frames_without_a_time_are_skipped_whatever_is_in_them() -> None:
    _, frame = encapsulations(IP_PACKETS["tcp"])["ethernet"]
    check([(link, data) for link in (BAD_TIME, NO_TIME, UNKNOWN_INTERFACE, 1) for data in (frame, b"")])


def test_a_tag_that_the_kernel_took_out_is_the_outermost() -> None:
    tagged, plain = (encapsulations(IP_PACKETS["tcp"])[name] for name in ("vlan", "ethernet"))
    check([tagged, plain, tagged, plain], vlan=[4001, 4002, -1, -1])


@pytest.mark.parametrize("name", ["tcp", "udp", "icmp", "options", "tcp6", "udp6"])
@pytest.mark.parametrize("encapsulation", ["ethernet", "vlan", "qinq"])
def test_dpkt_agrees(name: str, encapsulation: str) -> None:
    _, frame = encapsulations(IP_PACKETS[name])[encapsulation]
    rows, _ = run(block([frame]), Build.FAST)
    fields = values(SCHEMA, rows[0])
    parsed = dpkt.ethernet.Ethernet(frame)
    ip = parsed.data
    assert int.from_bytes(parsed.src, "big") == fields["srcMAC"]
    assert int.from_bytes(ip.src, "big") == fields["srcIP"] - (fields["ip_version"] << 128)
    assert fields["proto"] == ip.p
    if name.startswith(("tcp", "udp", "options")):
        assert (fields["srcPort"], fields["destPort"]) == (ip.data.sport, ip.data.dport)
        assert fields["payload_len"] == len(ip.data.data)
    if encapsulation != "ethernet":
        assert fields["vlan"] == parsed.vlan_tags[0].id


def test_times_a_minute_ahead_of_the_clock_are_skipped() -> None:
    frames = block(
        [bytes(encapsulations(IP_PACKETS["tcp"])["ethernet"][1])] * 3, ts=[0, 60 * 10**9 + 5, 60 * 10**9 + 6]
    )
    nodes = SourceNodes([NODE], stream="Main")
    nodes.start()
    list(nodes.take(replace(frames, taken_ns=5)))
    assert {reason.name: count for reason, count in nodes.skipped.items() if count} == {"FUTURE": 1}
    assert nodes.decoded == 2


def test_a_frame_outside_of_the_data_is_refused() -> None:
    frames = block([b"\0" * 60])
    frames.captured[0] = 61
    nodes = SourceNodes([NODE], stream="Main")
    nodes.start()
    with pytest.raises(ValueError, match="outside of its data"):
        list(nodes.take(frames))
