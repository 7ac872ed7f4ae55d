"""The rows that a shared join keeps of one port: in bins of time, with one index over all of them.

The bins are the state that is written, in the form of a join of one window (`highlevel.join.kept_rows`), so that joins
of other windows can take them over (`handover`). The index is made from them when it is first needed, and grows with
them. While rows wait, the order in which rows came is written, too, because the bins do not contain it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from highlevel.groups.split import split
from highlevel.interface import ONLY, Space, State, Words
from highlevel.join.bins import Bin, bins_space
from highlevel.join.lookups import Key, keys_of
from highlevel.join.shared.schedule_kernel import link_rows
from lowmark.query.plan.nodes import Join
from lowmark.wire.rows.values import FOREVER

__all__ = ["SEED", "Index", "SharedBuffer", "drop_index"]

Ints = npt.NDArray[np.int64]
Shorts = npt.NDArray[np.int32]  # positions: fewer rows than 2^31 are kept of a port

SEED = np.uint64(secrets.randbits(64))
"""Seed of the hashes, because keys come from the network. The results and their order do not depend on it."""

_LEAST = 64


def _ints() -> Ints:
    return np.empty(0, np.int64)


def _shorts() -> Shorts:
    return np.empty(0, np.int32)


@dataclass(slots=True)
class Index:
    """The kept rows in order of arrival, by key and time. The first `used` entries of each array count."""

    keys: Words
    width: int  # ns of a bin
    used: int = 0
    waited_for: bool = False  # waiting rows of the other port may match these
    unread: Ints | None = None  # as read from the state; the index is still to be made
    stale: bool = False  # as read from the state, which adds nothing to the bins; still to be made
    times: Ints = field(default_factory=_ints)
    numbers: Ints = field(default_factory=_ints)  # numbers of arrival, counted over both ports
    places: Shorts = field(default_factory=_shorts)  # place of each row in its bin
    heads: Shorts = field(default_factory=lambda: np.full(1, -1, np.int32))  # their number is a power of two
    older: Shorts = field(default_factory=_shorts)
    newer: Shorts = field(default_factory=_shorts)

    @property
    def held(self) -> int:
        """Bytes of memory, with room to grow."""
        parts = (self.keys, self.times, self.numbers, self.places, self.heads, self.older, self.newer)
        return sum(part.nbytes for part in parts)

    def take(self, keys: Words, times: Ints, numbers: Ints, places: npt.NDArray[np.signedinteger]) -> int:
        """Add rows; returns the position of the first. Positions of other rows stay as they are."""
        first, end = self.used, self.used + len(times)
        if grown := end > len(self.times):
            self._grow(max(_LEAST, 1 << (end - 1).bit_length()))
        for own, new in ((self.keys, keys), (self.times, times), (self.numbers, numbers), (self.places, places)):
            own[first:end] = new
        self.used = end
        start = 0 if grown else first
        order = start + _by_time(self.times[start:end], self.numbers[start:end])
        link_rows(order, self.keys, self.times, self.heads, self.older, self.newer, SEED)
        return first

    def _grow(self, room: int) -> None:
        for name in ("keys", "times", "numbers", "places"):
            old = getattr(self, name)
            new = np.empty((room, *old.shape[1:]), old.dtype)
            new[: self.used] = old[: self.used]
            setattr(self, name, new)
        self.heads = np.full(room, -1, np.int32)
        self.older, self.newer = np.empty(room, np.int32), np.empty(room, np.int32)


class SharedBuffer:
    """`width`: ns of a bin."""

    def __init__(self, plan: Join, port: int, width: int) -> None:
        self._port = port
        self._schemas = [each.schema for each in plan.inputs]
        self._at = self._schemas[port].offset(plan.inputs[port].attribute)
        tied = plan.tied([0], 1)
        self._columns = tuple(Key(port, own if port else other) for own, _, other in tied)
        self._width = width
        self.space: Space[Bin] = bins_space(f"rows.{port}", self._at)
        self._index = _index_space(port, self._decode)

    def index(self, state: State) -> Index:
        found = state.get(self._index, ONLY)
        if found is None or found.stale or found.unread is not None:
            found = self._made(state, None if found is None else found.unread)
        return found

    def add(self, rows: Words, numbers: Ints, state: State) -> int:
        """Keep rows; returns the position of the first in the index."""
        index = self.index(state)
        places = np.empty(len(rows), np.int32)
        numbered = np.arange(len(rows), dtype=np.uint64)[:, None]
        for key, which in split(self._times(rows) // self._width, numbered):
            chosen = which[:, 0].astype(np.int64)
            piece = state.get(self.space, key)
            begin = 0 if piece is None else len(piece)
            if piece is None:
                piece = Bin(rows[chosen], self._at)
            else:
                piece.append(rows[chosen])
            state.put(self.space, key, piece)
            places[chosen] = begin + np.arange(len(chosen))
        first = index.take(self._keys(rows), self._times(rows), numbers, places)
        index.waited_for = True
        state.put(self._index, ONLY, index)
        return first

    def hold(self, state: State) -> None:
        """Keep positions in this index valid, because a waiting row of the other port refers to them."""
        index = self.index(state)
        if not index.waited_for:
            index.waited_for = True
            state.put(self._index, ONLY, index)

    def rows_at(self, positions: Ints, state: State) -> Words:
        """The rows at these positions of the index."""
        index = self.index(state)
        bins, places = index.times[positions] // self._width, index.places[positions]
        rows = np.empty((len(positions), self._schemas[self._port].words), np.uint64)
        for key in sorted(set(bins.tolist())):
            piece = state.get(self.space, key)
            assert piece is not None, "what is in the index is in a bin"
            which = bins == key
            rows[which] = piece.rows[places[which]]
        return rows

    def settle(self, alive: int, state: State) -> None:
        """Drop the bins that end before this time; call this only while no row waits. Positions in the index change."""
        gone = state.keys(self.space, None if alive == FOREVER else alive // self._width)
        for key in gone:
            state.drop(self.space, key)
        index = state.get(self._index, ONLY)
        if index is None or index.stale:
            return
        if gone:
            kept = np.flatnonzero(index.times[: index.used] // self._width > gone[-1])
            old, index = index, self._empty()
            if len(kept):
                index.take(old.keys[kept], old.times[kept], old.numbers[kept], old.places[kept])
        index.waited_for = False
        state.put(self._index, ONLY, index)

    def _made(self, state: State, unread: Ints | None) -> Index:
        """The index of the rows in the bins. `unread`: the number, bin and place of each row; without it no row waits,
        and all rows came before any later one."""
        pieces = dict(self._pieces(state))
        index = self._empty()
        if pieces:
            parts = [(self._keys(piece.rows), piece.times, np.arange(len(piece))) for piece in pieces.values()]
            keys, times, places = map(np.concatenate, zip(*parts, strict=True))
            numbers = np.full(len(times), -1)
            if unread is not None:
                listed = np.array([*pieces])
                before = np.cumsum([0, *map(len, pieces.values())])[:-1]
                order = before[np.searchsorted(listed, unread[:, 1])] + unread[:, 2]
                keys, times, places, numbers = keys[order], times[order], places[order], unread[:, 0]
            index.take(keys, times, numbers, places)
        index.waited_for = unread is not None
        state.put(self._index, ONLY, index)
        return index

    def _pieces(self, state: State) -> Iterator[tuple[int, Bin]]:
        for key in state.keys(self.space):
            piece = state.get(self.space, key)
            assert piece is not None, "a listed piece is there"
            yield key, piece

    def _decode(self, data: bytes) -> Index:
        index = self._empty()
        index.unread = np.frombuffer(data, "<i8").astype(np.int64).reshape(-1, 3) if data else None
        index.stale = not data
        return index

    def _empty(self) -> Index:
        return Index(self._keys(np.empty((0, self._schemas[self._port].words), np.uint64)), self._width)

    def _keys(self, rows: Words) -> Words:
        return keys_of(self._schemas, {self._port: rows}, self._columns)

    def _times(self, rows: Words) -> Ints:
        times: Ints = rows[:, self._at].view(np.int64)
        return times


def _by_time(times: Ints, numbers: Ints) -> Ints:
    """The order of rows by time, then by arrival."""
    if (numbers[1:] >= numbers[:-1]).all():  # far faster, above all where runs of rows are in order already
        return np.argsort(times, kind="stable")
    return np.lexsort((numbers, times))


def drop_index(state: State) -> None:
    """Forget the indexes of both ports; they are made anew from the bins."""
    for port in (0, 1):
        state.drop(_index_space(port, _unread), ONLY)


def _index_space(port: int, decode: Callable[[bytes], Index]) -> Space[Index]:
    return Space(f"index.{port}", _encode, decode)


def _unread(data: bytes) -> Index:
    raise AssertionError("an index that is dropped is not read")


def _encode(index: Index) -> bytes:
    """The part of the index that the bins do not contain, while rows wait; else nothing."""
    if not index.waited_for:
        return b""
    used = slice(index.used)
    parts = (index.numbers[used], index.times[used] // index.width, index.places[used])
    return np.column_stack(parts).astype("<i8").tobytes()
