"""Which connections a source takes for closed, and when; in a table of fixed size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lowlevel.closed_connections import ClosedConnections
from lowmark.query.plan.closings import CONNECTION, TUPLE, closing_packets
from lowmark.query.plan.nodes import ClosePromises
from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.words import Words

FIN, SYN, RST = 1, 2, 4
LINGER = 20


@dataclass(frozen=True)
class Seen:
    """A packet between end a (which has the lesser address) and end b."""

    client: int
    from_a: bool
    flags: int
    ts: int


def closing(fields: tuple[str, ...]) -> ClosePromises:
    return ClosePromises(fields, fields, LINGER, 100, 100, 0)


def rows(fields: tuple[str, ...], packets: Sequence[Seen]) -> Words:
    schema = closing_packets(closing(fields)).schema
    found = np.zeros((len(packets), schema.words), np.uint64)
    for row, packet in zip(found, packets, strict=True):
        a, b = ((4, 0, packet.client), 1000 + packet.client), ((4, 0, 1 << 20), 443)
        source, destination = (a, b) if packet.from_a else (b, a)
        values = {
            "conn.aIP": a[0], "conn.aPort": a[1], "conn.bIP": b[0], "conn.bPort": b[1], "conn.proto": 6,
            "srcIP": source[0], "srcPort": source[1], "destIP": destination[0], "destPort": destination[1], "proto": 6,
            "tcp_flags": packet.flags, "ts": packet.ts, "pane": 0, "tuples": 1,
        }  # fmt: skip
        for column in schema:
            at, value = schema.offset(column.name), values[column.name]
            row[at : at + column.kind.words] = value if column.kind is Kind.IP else (value,)
    return found


def told(closed: ClosedConnections, low: int) -> dict[tuple[int, ...], int]:
    values, times = closed.take_due(low)
    return dict(zip(values.tuples(), times.tolist(), strict=True))


def key_of(fields: tuple[str, ...], packet: Seen) -> tuple[int, ...]:
    a, b = (4 << 128 | packet.client, 1000 + packet.client), (4 << 128 | 1 << 20, 443)
    return (*a, *b, 6) if fields == CONNECTION or packet.from_a else (*b, *a, 6)


SEEN = st.builds(
    Seen,
    st.integers(0, 2),
    st.booleans(),
    st.sampled_from((FIN, FIN, RST, SYN, FIN | 16, RST | 16)),
    st.integers(0, 60),
)


@given(st.sampled_from((CONNECTION, TUPLE)), st.lists(SEEN, max_size=25), st.lists(st.integers(0, 25), max_size=3))
def test_a_connection_has_closed_when_both_ends_have(
    fields: tuple[str, ...], packets: list[Seen], cuts: list[int]
) -> None:  # fmt: skip
    ends: dict[tuple[int, ...], set[bool]] = {}
    times: dict[tuple[int, ...], int] = {}
    for packet in packets:
        key = key_of(fields, packet)
        if packet.flags & SYN:
            ends.pop(key, None)
            times.pop(key, None)
            continue
        whole = packet.flags & RST or fields == TUPLE
        ends.setdefault(key, set()).update((True, False) if whole else (packet.from_a,))
        times[key] = max(packet.ts, times.get(key, 0))
    expected = {key: times[key] for key, seen in ends.items() if len(seen) == 2}
    closed = ClosedConnections(closing(fields))
    edges = sorted({0, len(packets), *(cut for cut in cuts if cut < len(packets))})
    for start, stop in pairwise(edges):
        closed.take(rows(fields, packets[start:stop]))
    soon = {key: time for key, time in expected.items() if time + LINGER <= 50}
    assert closed.due(50) == bool(soon)
    assert told(closed, 50) == soon
    assert told(closed, 1 << 40) == {key: time for key, time in expected.items() if key not in soon}
    assert not closed.due(1 << 60)


def test_memory_is_bounded() -> None:
    """Those that began to close last have room."""
    closed, schema = ClosedConnections(closing(CONNECTION)), closing_packets(closing(CONNECTION)).schema
    many = np.repeat(rows(CONNECTION, [Seen(0, True, RST, 0)]), 200_000, axis=0)
    many[:, schema.offset("conn.aPort")] = many[:, schema.offset("ts")] = np.arange(200_000)
    for start in range(0, 200_000, 20_000):
        closed.take(many[start : start + 20_000])
    found = sorted(told(closed, 1 << 40).values())
    assert 40_000 < len(found) <= 1 << 16
    assert found[-1] == 199_999
