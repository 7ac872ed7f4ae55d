"""The rows that a shared join keeps of one port: in bins of time, with one index over all of them.

The bins are the state that is written. The index is made from them when it is first needed, and grows with them.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, fields

import numpy as np
import numpy.typing as npt

from highlevel.groups.split import split
from highlevel.interface import Space, State, Words
from highlevel.join.bins import Bin, bins_space
from highlevel.join.bounds import ONLY
from highlevel.join.lookups import Key, keys_of
from highlevel.join.shared.schedule_kernel import link_rows
from lowmark.query.plan.nodes import Join
from lowmark.wire.rows.values import FOREVER

__all__ = ["SEED", "Buffer", "Index"]

Ints = npt.NDArray[np.int64]

SEED = np.uint64(secrets.randbits(64))
"""Of the hashes: keys come from the network. What is found, and its order, do not depend on it."""

_LEAST = 64


def _ints() -> Ints:
    return np.empty(0, np.int64)


@dataclass(slots=True)
class Index:
    """The kept rows in order of arrival, by key and time. The first `used` entries of each array count."""

    keys: Words
    used: int = 0
    times: Ints = field(default_factory=_ints)
    numbers: Ints = field(default_factory=_ints)  # of arrival, counted over both ports
    bins: Ints = field(default_factory=_ints)  # the bin of each row, and its place there
    places: Ints = field(default_factory=_ints)
    heads: Ints = field(default_factory=lambda: np.full(1, -1))  # as many as a power of two
    older: Ints = field(default_factory=_ints)
    newer: Ints = field(default_factory=_ints)

    @property
    def held(self) -> int:
        """Bytes of memory, with room to grow."""
        return sum(getattr(self, each.name).nbytes for each in fields(self) if each.name != "used")

    def take(self, keys: Words, times: Ints, numbers: Ints, bins: Ints, places: Ints) -> int:
        """Add rows; returns the position of the first. Positions of other rows stay as they are."""
        first, end = self.used, self.used + len(times)
        if grown := end > len(self.times):
            self._grow(max(_LEAST, 1 << (end - 1).bit_length()))
        for own, new in (
            (self.keys, keys), (self.times, times), (self.numbers, numbers), (self.bins, bins), (self.places, places)
        ):  # fmt: skip
            own[first:end] = new
        self.used = end
        start = 0 if grown else first
        order = start + np.lexsort((self.numbers[start:end], self.times[start:end]))
        link_rows(order, self.keys, self.times, self.heads, self.older, self.newer, SEED)
        return first

    def _grow(self, room: int) -> None:
        for name in ("keys", "times", "numbers", "bins", "places"):
            old = getattr(self, name)
            new = np.empty((room, *old.shape[1:]), old.dtype)
            new[: self.used] = old[: self.used]
            setattr(self, name, new)
        self.heads, self.older, self.newer = np.full(room, -1), np.empty(room, np.int64), np.empty(room, np.int64)


class Buffer:
    """`width`: ns of a bin. A stored row has one word more than a row of the port: its number of arrival."""

    def __init__(self, plan: Join, port: int, width: int) -> None:
        self._port = port
        self._schemas = [each.schema for each in plan.inputs]
        self._at = self._schemas[port].offset(plan.inputs[port].attribute)
        tied = plan.tied([0], 1)
        self._columns = tuple(Key(port, own if port else other) for own, _, other in tied)
        self._width = width
        self.space: Space[Bin] = bins_space(f"rows.{port}", self._at)
        self._index: Space[Index | None] = Space(f"index.{port}", lambda _: b"", lambda _: None)

    def index(self, state: State) -> Index:
        found = state.get(self._index, ONLY)
        return self._made(state) if found is None else found

    def add(self, rows: Words, numbers: Ints, state: State) -> int:
        """Keep rows; returns the position of the first in the index. Positions follow the order of arrival among the
        rows that are kept: they are the same when the index is made again."""
        index = self.index(state)
        bins = self._times(rows) // self._width
        places = np.empty(len(rows), np.int64)
        stored = np.column_stack((rows, numbers.view(np.uint64)))
        for key, which in split(bins, np.arange(len(rows), dtype=np.uint64)[:, None]):
            chosen = which[:, 0].astype(np.int64)
            piece = state.get(self.space, key)
            begin = 0 if piece is None else len(piece)
            if piece is None:
                piece = Bin(stored[chosen], self._at)
            else:
                piece.append(stored[chosen])
            state.put(self.space, key, piece)
            places[chosen] = begin + np.arange(len(chosen))
        return index.take(self._keys(rows), self._times(rows), numbers, bins, places)

    def rows_at(self, positions: Ints, state: State) -> Words:
        """The rows at these positions of the index."""
        index = self.index(state)
        bins, places = index.bins[positions], index.places[positions]
        rows = np.empty((len(positions), self._schemas[self._port].words), np.uint64)
        for key in sorted(set(bins.tolist())):
            piece = state.get(self.space, key)
            assert piece is not None, "what is in the index is in a bin"
            which = bins == key
            rows[which] = piece.rows[places[which], :-1]
        return rows

    def let_go(self, alive: int, state: State) -> None:
        """Drop the bins that end before this time. Positions in the index change."""
        gone = state.keys(self.space, None if alive == FOREVER else alive // self._width)
        if not gone:
            return
        for key in gone:
            state.drop(self.space, key)
        index = self.index(state)
        kept = np.flatnonzero(index.bins[: index.used] > gone[-1])
        new = self._empty()
        if len(kept):
            times, numbers, bins, places = (
                each[kept] for each in (index.times, index.numbers, index.bins, index.places)
            )  # fmt: skip
            new.take(index.keys[kept], times, numbers, bins, places)
        state.put(self._index, ONLY, new)

    def _made(self, state: State) -> Index:
        index = self._empty()
        found = [(key, state.get(self.space, key)) for key in state.keys(self.space)]
        pieces = [(key, piece) for key, piece in found if piece is not None]
        if pieces:
            stored = np.concatenate([piece.rows for _, piece in pieces])
            bins = np.repeat([key for key, _ in pieces], [len(piece) for _, piece in pieces])
            places = np.concatenate([np.arange(len(piece)) for _, piece in pieces])
            order = np.argsort(stored[:, -1].view(np.int64))
            rows = np.ascontiguousarray(stored[order, :-1])
            numbers = stored[order, -1].view(np.int64)
            index.take(self._keys(rows), self._times(rows), numbers, bins[order], places[order])
        state.put(self._index, ONLY, index)
        return index

    def _empty(self) -> Index:
        return Index(self._keys(np.empty((0, self._schemas[self._port].words), np.uint64)))

    def _keys(self, rows: Words) -> Words:
        return keys_of(self._schemas, {self._port: rows}, self._columns)

    def _times(self, rows: Words) -> Ints:
        times: Ints = rows[:, self._at].view(np.int64)
        return times
