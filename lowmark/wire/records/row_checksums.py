"""The checksum by which a completion names its rows: the sum of the CRC-32 of their records' values, modulo 2^32. It is
the same in any order."""

from __future__ import annotations

from zlib import crc32

import numpy as np
import numpy.typing as npt

from lowmark.jit.compiled import compiled

__all__ = ["checksum_of", "checksum_of_values"]

_MODULUS = 1 << 32


def _table() -> npt.NDArray[np.uint32]:
    entries = []
    for entry in range(256):
        for _ in range(8):
            entry = entry >> 1 ^ 0xEDB88320 * (entry & 1)
        entries.append(entry)
    return np.array(entries, np.uint32)


_TABLE = _table()


def checksum_of(value: bytes, before: int = 0) -> int:
    return (before + crc32(value)) % _MODULUS


def checksum_of_values(data: bytes, starts: npt.NDArray[np.int64], before: int = 0) -> int:
    """Of all values from one start to the next."""
    return (before + int(_sum(np.frombuffer(data, np.uint8), starts))) % _MODULUS


@compiled
def _sum(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64]) -> np.uint32:
    total = np.uint32(0)
    for row in range(len(starts) - 1):
        crc = np.uint32(0xFFFFFFFF)
        for at in range(starts[row], starts[row + 1]):
            crc = _TABLE[(crc ^ np.uint32(data[at])) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
        total = total + (crc ^ np.uint32(0xFFFFFFFF))
    return total
