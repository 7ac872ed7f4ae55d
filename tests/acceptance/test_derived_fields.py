"""Whole queries over fields that are made of others: packets in packets, flows."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.acceptance.command import query
from tests.lowlevel.tunnelled import frames
from tests.naive.compare import differences
from tests.naive.evaluate import answer

QUERIES = (
    "SELECT ts, srcIP, inner.srcIP, inner.dport + 1 AS p FROM A WHERE inner.proto <> 6 OR inner.ip_version IS NULL",
    (
        "SELECT inner.src, prefix(inner.destIP, 24, 64) AS net, count(*), count(inner.ttl), sum(inner.ip_len) AS b "
        "[RANGE 1 minute] FROM A GROUP BY inner.src, prefix(inner.destIP, 24, 64)"
    ),
    (
        "SELECT ts, srcPort FROM A WHERE community_id = '1:LQU9qZlK+B5F3KDmev6m5PMibrg=' "
        "OR community_id > '1:wA+B5F3KDmev6m5PMibrgLQU9qY='"
    ),
    (
        "SELECT community_id, count(*), first(srcIP) AS opener [RANGE 1 minute] FROM A GROUP BY community_id "
        "ORDER BY community_id LIMIT 9"
    ),
    (
        "SELECT proto, min(community_id) AS least, max(community_id) AS most, last(community_id) AS latest, "
        "count(distinct community_id) AS flows [RANGE 1 minute] FROM A GROUP BY proto"
    ),
    (
        "SELECT one.ts, other.ts AS answered, one.conn FROM A AS one [RANGE 30 s] JOIN A AS other [RANGE 30 s] "
        "ON one.conn = other.conn WHERE one.srcIP = other.destIP AND one.inner.srcIP <> other.inner.destIP"
    ),
    "SELECT x.ts, y.ts AS t FROM A AS x [RANGE 9 s], A AS y [RANGE 9 s] WHERE x.conn <> y.CONN AND x.proto = y.proto",
    (
        "SELECT ts, conn FROM A AS one [RANGE 30 s] WHERE len > 60 AND NOT EXISTS "
        "(SELECT ts FROM A AS other [RANGE 30 s] WHERE one.conn = conn AND len <> one.len AND srcIP = one.destIP)"
    ),
    (
        "SELECT one.community_id, one.len, other.inner.src, one.conn "
        "FROM A AS one [RANGE 30 s], A AS other [RANGE 30 s] "
        "WHERE one.community_id = other.community_id AND one.ts < other.ts AND other.inner.proto <> one.INNER.proto"
    ),
)


@pytest.mark.parametrize("text", QUERIES)
def test_derived_fields(text: str, tmp_path: Path) -> None:
    path = tmp_path / "A.pcap"
    records = (
        struct.pack("<IIII", place, 0, len(data), len(data)) + data for place, data in enumerate(frames().values())
    )
    path.write_bytes(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1) + b"".join(records))
    captures = [("A", path)]
    outcome = query(text, captures)
    assert outcome.code == 0, outcome.error
    assert not differences(outcome.rows, answer(text, captures).rows)
