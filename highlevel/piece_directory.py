"""The directory of a bucket's pieces and their parts. It is a piece of state itself, of a few hundred bytes.

It stores runs of keys, because keys are mostly consecutive numbers of panes, windows or bins.

A growing piece consists of parts in levels. When a level has three parts, the fourth is merged with them into one part
of the next level. A row is thus rewritten once per level, and a piece after n additions has at most 3 · log4(n) parts.
Before all levels, a piece can have a tail: a small part that is read and written again with each addition.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import chain

__all__ = ["TAIL", "Directory", "Parts"]

_SLOTS = 3
"""Most parts of a level. With fewer, rows are rewritten more often; with more, a read has more parts to merge."""


TAIL = -1
"""The number of a piece's tail, which is newer than all other parts."""

_encoded = json.JSONEncoder(separators=(",", ":")).encode


class Parts:
    """The stored parts of one space's pieces, numbered from the lowest level up. A higher level is older than a lower
    one; within a level a smaller number is older."""

    def __init__(self, runs: dict[str, list[int]] | None = None) -> None:
        """`runs`: by part number, the first key and the number of keys of each run."""
        self._bounds = {int(part): _bounds(of) for part, of in (runs or {}).items()}
        self.changed = False

    def keys(self) -> list[int]:
        """The keys, ascending."""
        keys = [key for bounds in self._bounds.values() for key in _keys(bounds)]
        return keys if len(self._bounds) == 1 else sorted(set(keys))

    def of(self, key: int) -> list[int]:
        """The parts of a piece, the oldest first."""
        held = [part for part, bounds in self._bounds.items() if bisect_right(bounds, key) % 2]
        if len(held) > 1:
            held.sort(key=lambda part: (-(part // _SLOTS), part))
        return held

    def place(self, key: int) -> tuple[int, list[int]]:
        """Where the next part of a piece goes, and which parts are merged into it, the oldest first."""
        held, gone, level = set(self.of(key)), list[int](), 0
        while True:
            slots = range(level * _SLOTS, (level + 1) * _SLOTS)
            free = [part for part in slots if part not in held]
            if free:
                return free[0], gone
            gone[:0] = slots
            level += 1

    def add(self, key: int, part: int) -> None:
        bounds = self._bounds.setdefault(part, [])
        if not bisect_right(bounds, key) % 2:
            _toggle(bounds, key)
            self.changed = True

    def remove(self, key: int, part: int) -> None:
        _toggle(self._bounds[part], key)
        self.changed = True

    def runs(self) -> dict[str, list[int]]:
        return {str(part): _runs(bounds) for part, bounds in sorted(self._bounds.items()) if bounds}


class Directory:
    """The parts of all spaces. Those of a space are decoded on first use."""

    def __init__(self, runs: dict[str, dict[str, list[int]]] | None = None) -> None:
        self._runs = runs or {}
        self._parts: dict[str, Parts] = {}

    def parts(self, space: str) -> Parts:
        """The parts of a space. The caller may change them."""
        parts = self._parts.get(space)
        if parts is None:
            parts = self._parts[space] = Parts(self._runs.get(space))
        return parts

    def spaces(self) -> list[str]:
        """Those that had parts when it was read."""
        return list(self._runs)

    @property
    def changed(self) -> bool:
        """Whether parts were added or removed since the directory was read or encoded."""
        return any(parts.changed for parts in self._parts.values())

    def encode(self) -> bytes:
        for space, parts in self._parts.items():
            if parts.changed:
                parts.changed = False
                self._runs[space] = parts.runs()
                if not self._runs[space]:
                    del self._runs[space]
        return _encoded(self._runs).encode()

    @classmethod
    def decode(cls, piece: bytes) -> Directory:
        return cls(json.loads(piece.decode()))


# A set of keys is kept as the bounds of its runs, ascending: a run's first key and the key after its last. A key is in
# the set if an odd number of bounds is at or below it.


def _bounds(runs: list[int]) -> list[int]:
    bounds = list(runs)
    for stop in range(1, len(bounds), 2):
        bounds[stop] += bounds[stop - 1]
    return bounds


def _runs(bounds: list[int]) -> list[int]:
    runs = list(bounds)
    for count in range(1, len(runs), 2):
        runs[count] -= runs[count - 1]
    return runs


def _keys(bounds: list[int]) -> Iterator[int]:
    return chain.from_iterable(map(range, bounds[::2], bounds[1::2]))


def _toggle(bounds: list[int], key: int) -> None:
    """Add a key that is not in the set, or remove one that is."""
    at = bisect_left(bounds, key)
    if bounds[at : at + 2] == [key, key + 1]:
        del bounds[at : at + 2]
    elif bounds[at : at + 1] == [key]:
        bounds[at] = key + 1
    elif bounds[at : at + 1] == [key + 1]:
        bounds[at] = key
    else:
        bounds[at:at] = [key, key + 1]
