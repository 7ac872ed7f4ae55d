"""The rows of one port of a join in one run of time: a piece of state, with an index for each way to probe it.

Only the rows are written. An index is made when first probed and grows with the rows.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from highlevel.interface import Space, Words
from highlevel.join.probe_kernel import START, chain_rows, probe_rows
from lowmark.wire.rows.values import INT64_MAX, INT64_MIN

__all__ = ["Bin", "KeysOf", "bins_space"]

Ints = npt.NDArray[np.int64]

KeysOf = Callable[[Words], Words]
"""The words of each row that must be equal."""

_PAIRS = 1 << 15
"""Pairs found at a time: their combinations must fit into memory, however skewed the keys are."""

_LEAST = 64
_HEADER = struct.Struct(">I")  # words of a row

# Keys come from the network. Neither the rows found nor their order depend on the seed.
_SEED = np.uint64(secrets.randbits(64))


@dataclass(slots=True)
class _Index:
    """An index of the first `rows` rows of the bin; `first` and `last` are the extremes of their times."""

    keys: Words
    times: Ints
    heads: Ints
    following: Ints
    rows: int = 0
    first: int = INT64_MAX
    last: int = INT64_MIN


class Bin:
    def __init__(self, rows: Words, times: int) -> None:
        """`times`: the word of a row that holds its time."""
        self._rows = rows
        self._used = len(rows)
        self._at = times
        self._indexes: dict[int, _Index] = {}

    def __len__(self) -> int:
        return self._used

    @property
    def rows(self) -> Words:
        """A view that the next `append` may change."""
        return self._rows[: self._used]

    @property
    def held(self) -> int:
        """Bytes of memory, including indexes and room to grow."""
        parts = [(i.keys, i.times, i.heads, i.following) for i in self._indexes.values()]
        return self._rows.nbytes + sum(part.nbytes for index in parts for part in index)

    @property
    def times(self) -> Ints:
        times: Ints = self.rows[:, self._at].view(np.int64)
        return times

    def append(self, rows: Words) -> None:
        end = self._used + len(rows)
        if end > len(self._rows):
            larger = np.empty((max(_LEAST, 2 * len(self._rows), end), rows.shape[1]), np.uint64)
            larger[: self._used] = self.rows
            self._rows = larger
        self._rows[self._used : end] = rows
        self._used = end

    def take_before(self, time: int) -> Words:
        """Remove the rows before this time and return them."""
        return self.take(self.times < time)

    def take(self, which: npt.NDArray[np.bool_]) -> Words:
        """Remove these rows and return them."""
        gone = self.rows[which]
        if len(gone):
            self._rows = self.rows[~which]
            self._used = len(self._rows)
            self._indexes.clear()
        return gone

    def probe(self, way: int, keys_of: KeysOf, keys: Words, low: Ints, high: Ints) -> Iterator[tuple[Ints, Ints]]:
        """Pairs of a probing row and a row of this bin, in runs: those with equal keys and a time from the probing
        row's `low` up to its `high`. `way` names the columns that `keys_of` takes."""
        if not self._used:
            return
        index = self._ready(way, keys_of)
        row, at = 0, START
        while row < len(keys):
            found, matched = np.empty(_PAIRS, np.int64), np.empty(_PAIRS, np.int64)
            row, at, count = probe_rows(
                keys, low, high, row, at, index.keys, index.times, index.first, index.last, index.heads,
                index.following, _SEED, found, matched,
            )  # fmt: skip
            if count:
                yield found[:count], matched[:count]

    def _ready(self, way: int, keys_of: KeysOf) -> _Index:
        index = self._indexes.get(way)
        if index is not None and index.rows == self._used:
            return index
        if index is None or self._used > len(index.following):
            room = max(_LEAST, 1 << (self._used - 1).bit_length())
            keys = np.empty((room, keys_of(self._rows[:0]).shape[1]), np.uint64)
            index = _Index(keys, np.empty(room, np.int64), np.full(room, -1), np.empty(room, np.int64))
            self._indexes[way] = index
        new = slice(index.rows, self._used)
        index.keys[new] = keys_of(self.rows[new])
        index.times[new] = self.times[new]
        index.first = min(index.first, int(index.times[new].min()))
        index.last = max(index.last, int(index.times[new].max()))
        chain_rows(index.keys, index.rows, self._used, index.heads, index.following, _SEED)
        index.rows = self._used
        return index


def bins_space(name: str, times: int) -> Space[Bin]:
    def encode(piece: Bin) -> bytes:
        return _HEADER.pack(piece.rows.shape[1]) + piece.rows.astype("<u8", copy=False).tobytes()

    def decode(data: bytes) -> Bin:
        (words,) = _HEADER.unpack_from(data)
        rows = np.frombuffer(data, "<u8", offset=_HEADER.size).reshape(-1, words)
        return Bin(rows.astype(np.uint64), times)

    return Space(name, encode, decode)
