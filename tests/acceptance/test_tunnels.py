"""Whole queries over packets in packets."""

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
)


@pytest.mark.parametrize("text", QUERIES)
def test_tunnels(text: str, tmp_path: Path) -> None:
    path = tmp_path / "A.pcap"
    records = (
        struct.pack("<IIII", place, 0, len(data), len(data)) + data for place, data in enumerate(frames().values())
    )
    path.write_bytes(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1) + b"".join(records))
    captures = [("A", path)]
    outcome = query(text, captures)
    assert outcome.code == 0, outcome.error
    assert not differences(outcome.rows, answer(text, captures).rows)
