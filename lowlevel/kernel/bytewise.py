"""Loads and copies of the checked build: they go by single bytes and words, so that numba checks each index. The fast
build has `primitives`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["be16", "be32", "be64", "byte", "copy_row"]


def byte(data: npt.NDArray[np.uint8], at: int) -> int:
    return np.int64(data[np.uint64(at)])  # type: ignore[return-value]  # numba's int() would be unsigned


def be16(data: npt.NDArray[np.uint8], at: int) -> int:
    return (byte(data, at) << 8) | byte(data, at + 1)


def be32(data: npt.NDArray[np.uint8], at: int) -> int:
    return (be16(data, at) << 16) | be16(data, at + 2)


def be64(data: npt.NDArray[np.uint8], at: int) -> int:
    return (be32(data, at) << 32) | be32(data, at + 4)


def copy_row(
    target: npt.NDArray[np.int64], to: int, source: npt.NDArray[np.int64], row: int | np.int64, words: int
) -> None:
    for word in range(words):
        target[np.uint64(to), word] = source[np.uint64(row), word]
