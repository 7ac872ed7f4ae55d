"""The directory of a bucket's pieces and their parts. It is a piece of state itself, of a few hundred bytes.

It stores runs of keys, because keys are mostly consecutive numbers of panes, windows or bins.

A growing piece consists of parts in levels. When a level has three parts, the fourth is merged with them into one part
of the next level. A row is thus rewritten once per level, and a piece after n additions has at most 3 · log4(n) parts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

__all__ = ["Directory", "Parts"]

_SLOTS = 3
"""Most parts of a level. With fewer, rows are rewritten more often; with more, a read has more parts to merge."""


class Parts:
    """The stored parts of one space's pieces, numbered from the lowest level up. A higher level is older than a lower
    one; within a level a smaller number is older."""

    def __init__(self, runs: dict[str, list[int]] | None = None) -> None:
        """`runs`: by part number, the first key and the number of keys of each run."""
        self._keys = {int(part): set(_expanded(of)) for part, of in (runs or {}).items()}
        self.changed = False

    def keys(self) -> list[int]:
        """The keys, ascending."""
        return sorted(set().union(*self._keys.values()))

    def of(self, key: int) -> list[int]:
        """The parts of a piece, the oldest first."""
        held = [part for part, keys in self._keys.items() if key in keys]
        return sorted(held, key=lambda part: (-(part // _SLOTS), part))

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
        keys = self._keys.setdefault(part, set())
        if key not in keys:
            keys.add(key)
            self.changed = True

    def remove(self, key: int, part: int) -> None:
        self._keys[part].remove(key)
        self.changed = True

    def runs(self) -> dict[str, list[int]]:
        return {str(part): _runs(keys) for part, keys in sorted(self._keys.items()) if keys}


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
        return json.dumps(self._runs, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, piece: bytes) -> Directory:
        return cls(json.loads(piece))


def _expanded(runs: list[int]) -> Iterator[int]:
    for first, count in zip(runs[::2], runs[1::2], strict=True):
        yield from range(first, first + count)


def _runs(keys: set[int]) -> list[int]:
    ordered = np.array(sorted(keys), np.int64)
    firsts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1] + 1))
    counts = np.diff(np.append(firsts, len(ordered)))
    runs: list[int] = np.stack((ordered[firsts], counts), axis=1).ravel().tolist()
    return runs
