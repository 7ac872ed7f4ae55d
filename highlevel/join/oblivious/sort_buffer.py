"""Rows of one input that wait until they can leave in order of keys (Wu, 4.1): a piece of state."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from highlevel.interface import Space, Words

__all__ = ["SortBuffer", "sort_space"]


@dataclass(slots=True)
class SortBuffer:
    """`rows` are in order. `key`: the word of a row that holds its key."""

    rows: Words
    key: int

    @property
    def held(self) -> int:
        """Bytes of memory."""
        return self.rows.nbytes

    def add(self, rows: Words, hold: int, below: int | None = None) -> Words:
        """Take rows and return, in order, those that leave: all but the last `hold` (the scrambling factor), and all
        with keys smaller than `below`, which are promised to be complete."""
        together = np.concatenate((self.rows, rows))
        keys = together[:, self.key].view(np.int64)
        order = np.argsort(keys, kind="stable")
        end = max(0, len(order) - hold)
        if below is not None:
            end = max(end, int(np.searchsorted(keys[order], below)))
        leaving = together[order[:end]]
        self.rows = together[order[end:]]
        return leaving


def sort_space(name: str, words: int, key: int) -> Space[SortBuffer]:
    def encode(piece: SortBuffer) -> bytes:
        return piece.rows.astype("<u8", copy=False).tobytes()

    def decode(data: bytes) -> SortBuffer:
        return SortBuffer(np.frombuffer(data, "<u8").reshape(-1, words).astype(np.uint64), key)

    return Space(name, encode, decode)
