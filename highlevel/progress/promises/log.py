"""A log of promises about values in the state. Each micro-batch adds a piece, so it writes little more than came in it.

A new piece absorbs the last pieces that are no larger, so there are few pieces, and each promise is written a few times
in all. A piece is dropped once none of its promises excludes anything.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from highlevel.interface import Space, State
from highlevel.progress.promises.values import ValuePromises
from lowmark.wire.records.punctuations import Promise

__all__ = ["Key", "PromiseLog"]

Key = tuple[str | int, ...]
"""Who has made a promise."""

_Piece = dict[Key, ValuePromises]


class PromiseLog:
    """`most`: values kept for each key."""

    def __init__(self, state: State, name: str, most: int) -> None:
        self._state = state
        self._most = most
        self._space: Space[_Piece] = Space(name, _encode, self._decode)
        self._pieces = {key: piece for key in state.keys(self._space) if (piece := state.get(self._space, key))}
        self._added: _Piece = {}

    def entries(self) -> Iterator[tuple[Key, ValuePromises]]:
        """The stored promises in order of arrival."""
        for _, piece in sorted(self._pieces.items()):
            yield from piece.items()

    def add(self, key: Key, promise: Promise) -> None:
        self._added.setdefault(key, ValuePromises(self._most)).take(promise)

    def save(self, silent: Callable[[Key, int], bool], instead: _Piece | None = None) -> None:
        """Store the additions. `silent`: whether no promise of this key up to this bound excludes anything any more.
        `instead`: the promises that replace everything stored."""
        gone = [key for key, piece in self._pieces.items() if _all_silent(piece, silent)]
        added = {of: promises for of, promises in self._added.items() if promises}
        if instead is not None:
            gone, added = [*self._pieces], instead
        for key in gone:
            self._drop(key)
        if added:
            while self._pieces and _size(self._pieces[last := max(self._pieces)]) <= _size(added):
                added = self._merged(self._pieces[last], added)
                self._drop(last)
            key = 1 + max(self._pieces, default=0)
            self._pieces[key] = added
            self._state.put(self._space, key, added)
        self._added = {}

    def _drop(self, key: int) -> None:
        self._state.drop(self._space, key)
        del self._pieces[key]

    @staticmethod
    def _merged(one: _Piece, other: _Piece) -> _Piece:
        for of, promises in other.items():
            one[of] = one[of].joined(promises) if of in one else promises
        return one

    def _decode(self, data: bytes) -> _Piece:
        return {tuple(of): ValuePromises.of_rows(rows, self._most) for of, rows in json.loads(data)}


def _encode(piece: _Piece) -> bytes:
    return json.dumps([(of, promises.rows()) for of, promises in piece.items()], separators=(",", ":")).encode()


def _all_silent(piece: _Piece, silent: Callable[[Key, int], bool]) -> bool:
    return all(silent(of, promises.until) for of, promises in piece.items())


def _size(piece: _Piece) -> int:
    return sum(map(len, piece.values()))
