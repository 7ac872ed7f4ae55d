"""A capture of which every number is known beforehand, and what the metrics of its way must therefore say."""

from __future__ import annotations

from pathlib import Path

from tests.acceptance.test_golden import at
from tests.naive.frames import frame, write_pcap
from tests.naive.readers import Frame

QUERY = "metered"
STREAM = "Metered"
SOURCE = "meter"

WINDOWS = 5
HOSTS = 4
SQL = f"SELECT srcIP, count(*) AS n, max(ts) AS latest [RANGE 10 s] FROM {STREAM} WHERE proto = 17 GROUP BY srcIP"
DISORDER = "ordered"

COUNTED = WINDOWS * sum(range(1, HOSTS + 1))
"""Host h has h packets in each window."""
FILTERED = 2 * WINDOWS
LATE = 6
SKIPPED = {"not_ip": 3, "truncated": 2, "malformed": 1, "link_type": 0}

DECODED = COUNTED + FILTERED + LATE
RECEIVED = DECODED + sum(SKIPPED.values())
ROWS = WINDOWS * HOSTS

LATE_WINDOWS = 2
"""The first so many have late packets each: 4 in window 0, 2 in window 1."""


def write(path: Path) -> Path:
    """In order, but for the late packets at its end, which come when all windows but the last have ended."""
    frames: list[Frame] = []
    for window in range(WINDOWS):
        start = 10 * window
        for host in range(1, HOSTS + 1):
            frames += [frame(at(start + host + i / 10, f"10.0.0.{host}")) for i in range(host)]
        frames += [frame(at(start + 6 + i, proto=6)) for i in range(2)]
    end = 10 * (WINDOWS - 1) + 9
    frames += [frame(at(end, junk=True))] * SKIPPED["not_ip"]
    packet = frame(at(end))
    frames += [packet._replace(data=packet.data[:30])] * SKIPPED["truncated"]
    frames += [packet._replace(data=packet.data[:14] + b"\x55" + packet.data[15:])] * SKIPPED["malformed"]
    frames += [frame(at(5, "10.0.0.1"))] * 4
    frames += [frame(at(15, "10.0.0.9"))] * 2
    assert len(frames) == RECEIVED
    return write_pcap(path, frames)
