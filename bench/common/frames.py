"""Frames in memory, as a source would hand them to nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lowmark.wire.frames import FrameBlock

__all__ = ["FRAME", "MINUTE_NS", "START_NS", "STRIDE", "Traffic", "blocks_of", "records_of"]

MINUTE_NS = 60_000_000_000
START_NS = 28_575_000 * MINUTE_NS
FRAME = 96  # captured bytes of each frame
STRIDE = 112  # with the header of a pcap record
_LENGTH = 700  # on the wire
_ETHERNET = 1


@dataclass(frozen=True, slots=True)
class Traffic:
    """`groups` are pairs of addresses, all alike or by Zipf's law; `version` is IP's."""

    groups: int
    zipf: bool = False
    version: int = 4

    @property
    def name(self) -> str:
        return f"{self.groups // 1000}k {'Zipf' if self.zipf else 'uniform'} IPv{self.version}"


def records_of(traffic: Traffic, packets: int) -> npt.NDArray[np.uint8]:
    """Packets of UDP, a record each."""
    rng = np.random.default_rng(traffic.groups)
    if traffic.zipf:
        ranks = 1 / np.arange(1, traffic.groups + 1)
        numbers = np.searchsorted(np.cumsum(ranks) / ranks.sum(), rng.random(packets))
    else:
        numbers = rng.integers(0, traffic.groups, packets)
    records = np.zeros((packets, STRIDE), np.uint8)
    made = records[:, STRIDE - FRAME :]
    scattered = (numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).astype(">u8").view(np.uint8).reshape(-1, 8)
    if traffic.version == 4:
        made[:, 12:14], made[:, 14], made[:, 16:18], made[:, 22:24] = (8, 0), 0x45, (0, 82), (64, 17)
        made[:, 26:34] = scattered
        ports = 34
    else:
        made[:, 12:14], made[:, 14], made[:, 18:22] = (0x86, 0xDD), 0x60, (0, 42, 17, 64)
        made[:, 22:24], made[:, 38:40], made[:, 30:38] = (0x20, 1), (0x20, 1), scattered
        made[:, 46:54] = scattered[:, ::-1]
        ports = 54
    made[:, ports : ports + 2] = scattered[:, :2]
    made[:, ports + 3] = 53
    return records


def blocks_of(records: npt.NDArray[np.uint8], ts: npt.NDArray[np.int64], size: int) -> Iterator[FrameBlock]:
    """The records with these times, which are in order, `size` at a time; the low-watermark follows them."""
    data = records.reshape(-1)
    for start in range(0, len(ts), size):
        times = ts[start : start + size]
        count = len(times)
        offset = np.arange(start, start + count, dtype=np.int64) * STRIDE + STRIDE - FRAME
        captured, length = np.full(count, FRAME, np.int64), np.full(count, _LENGTH, np.int64)
        link = np.full(count, _ETHERNET, np.int32)
        yield FrameBlock(data, offset, captured, length, times, link, times, int(times[-1]))
