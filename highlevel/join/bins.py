"""The rows of one port of a join within one interval of time: a piece of state, with an index for each way to probe it.

Only the rows are written. An index is made when first probed and grows with the rows.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from highlevel.interface import Space, Words
from highlevel.join.probe_kernel import START, chain_rows, probe_rows
from lowmark.wire.rows.values import INT64_MAX, INT64_MIN

__all__ = ["Bin", "KeysOf", "bins_space"]

Ints = npt.NDArray[np.int64]
Shorts = npt.NDArray[np.int32]  # positions: a bin has fewer rows than 2^31

KeysOf = Callable[[Words], Words]
"""The words of each row that must be equal."""

_PAIRS = 1 << 15
"""Most pairs found at a time. Their combinations must fit into memory, however skewed the keys are."""

_LEAST = 64
_GROWTH = 8
"""A full bin grows by an eighth of its rows. A row is then copied eight times on average, which costs little compared
with finding its partners. With twice the room, a third of a join's memory would be spare."""

_HEADER = struct.Struct(">I")  # words of a row

# Keys come from the network. Neither the rows found nor their order depend on the seed.
_SEED = np.uint64(secrets.randbits(64))


@dataclass(slots=True)
class _Index:
    """An index of the first `rows` rows of the bin; `first` and `last` are their least and greatest time. `keys`: the
    words to compare, if the rows do not hold them unchanged."""

    keys: Words | None
    heads: Shorts
    following: Shorts
    rows: int = 0
    first: int = INT64_MAX
    last: int = INT64_MIN


class Bin:
    def __init__(self, rows: Words, times: int) -> None:
        """`times`: the word of a row that holds its time."""
        self._rows = rows
        self._used = len(rows)
        self._at = times
        self._told: int | None = 0  # first rows that `news` returned or the state has; None: they changed
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
        parts = [(i.keys, i.heads, i.following) for i in self._indexes.values()]
        return self._rows.nbytes + sum(part.nbytes for index in parts for part in index if part is not None)

    @property
    def times(self) -> Ints:
        times: Ints = self.rows[:, self._at].view(np.int64)
        return times

    def append(self, rows: Words) -> None:
        end = self._used + len(rows)
        if end > len(self._rows):
            room = max(_LEAST, len(self._rows) + len(self._rows) // _GROWTH, end)
            larger = np.empty((room, rows.shape[1]), np.uint64)
            larger[: self._used] = self.rows
            self._rows = larger
        self._rows[self._used : end] = rows
        self._used = end

    def news(self) -> Bin | None:
        """The rows appended since the last call, or since the bin was read; None: rows were also removed or changed."""
        told, self._told = self._told, self._used
        return None if told is None else Bin(self.rows[told:], self._at)

    def alter(self) -> None:
        """Note that rows were changed in place."""
        self._told = None

    def take_before(self, time: int) -> Words:
        """Remove the rows before this time and return them."""
        return self.take(self.times < time)

    def take(self, which: npt.NDArray[np.bool_]) -> Words:
        """Remove these rows and return them."""
        gone = self.rows[which]
        if len(gone):
            self._rows = self.rows[~which]
            self._used = len(self._rows)
            self._told = None
            self._indexes.clear()
        return gone

    def probe(
        self, way: int, keys_of: KeysOf, places: Ints | None, keys: Words, low: Ints, high: Ints
    ) -> Iterator[tuple[Ints, Ints]]:  # fmt: skip
        """Pairs of a probing row and a row of this bin, in runs: those with equal keys and a time from the probing
        row's `low` up to its `high`. `way` names the columns that `keys_of` takes. `places`: the words of a row that
        hold these keys unchanged; None: none do."""
        if not self._used:
            return
        index = self._ready(way, keys_of, places)
        times = self._rows[:, self._at].view(np.int64)
        stored = self._rows if index.keys is None else index.keys
        at_places = np.arange(keys.shape[1]) if places is None else places
        row, at = 0, START
        while row < len(keys):
            found, matched = np.empty(_PAIRS, np.int64), np.empty(_PAIRS, np.int64)
            row, at, count = probe_rows(
                keys, low, high, row, at, stored, at_places, times, index.first, index.last, index.heads,
                index.following, _SEED, found, matched,
            )  # fmt: skip
            if count:
                yield found[:count], matched[:count]

    def _ready(self, way: int, keys_of: KeysOf, places: Ints | None) -> _Index:
        index = self._indexes.get(way)
        if index is not None and index.rows == self._used:
            return index
        if index is None or self._used > len(index.following):
            room = max(_LEAST, 1 << (self._used - 1).bit_length())
            keys = np.empty((room, keys_of(self._rows[:0]).shape[1]), np.uint64) if places is None else None
            index = _Index(keys, np.full(room, -1, np.int32), np.empty(room, np.int32))
            self._indexes[way] = index
        new = slice(index.rows, self._used)
        times = self.times[new]
        index.first = min(index.first, int(times.min()))
        index.last = max(index.last, int(times.max()))
        stored, at_places = self._rows, places
        if index.keys is not None:
            index.keys[new] = keys_of(self.rows[new])
            stored, at_places = index.keys, np.arange(index.keys.shape[1])
        assert at_places is not None, "rows that have their keys word for word have them at places"
        chain_rows(stored, at_places, index.rows, self._used, index.heads, index.following, _SEED)
        index.rows = self._used
        return index


def bins_space(name: str, times: int) -> Space[Bin]:
    def encode(piece: Bin) -> bytes:
        return _HEADER.pack(piece.rows.shape[1]) + piece.rows.astype("<u8", copy=False).tobytes()

    def decode(data: bytes) -> Bin:
        (words,) = _HEADER.unpack_from(data)
        rows = np.frombuffer(data, "<u8", offset=_HEADER.size).reshape(-1, words)
        return read(rows.astype(np.uint64))

    def merge(parts: Sequence[Bin]) -> Bin:
        return read(np.concatenate([part.rows for part in parts]))

    def read(rows: Words) -> Bin:
        found = Bin(rows, times)
        found.news()
        return found

    return Space(name, encode, decode, merge, Bin.news)
