"""Whether a node's table is too small: how much leaves it because of collisions, and how many groups it would have to
hold. Known from what leaves, without a clock."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lowmark.query.plan import Reduction
from lowmark.wire.rows import Words

__all__ = ["Crowded", "Pressure"]

_SPAN = 1 << 20
"""Tuples over which the rate is measured."""

_REMEMBERED = 4096
"""Groups of a pane that are remembered, at most: a sample by hash, from which their number is known within some 2%."""

_PANES = 3
"""Panes of which rows may leave side by side, and are told apart."""

_WORTH, _FEWEST = 0.1, 256
"""Rows a tuple, and rows of a pane, from which on it pays to save them."""

_MOST_SLOTS = 1 << 31
_MIXERS = np.random.default_rng(83).integers(1, 2**63, 64, np.uint64) * np.uint64(2) + np.uint64(1)

_Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Crowded:
    """A larger table would pay."""

    slots: int  # of the table
    groups: int  # of a pane, about
    repeats: float  # rows a tuple that left for no other reason than that the table had no room for all groups
    wanted: int  # slots that have room for them

    def __str__(self) -> str:
        return (
            f"the table of {self.slots:,} slots is too small for the groups of a pane, about {self.groups:,}: "
            f"{self.repeats:.2f} rows a packet leave for want of room"
        )


class Pressure:
    """Of one node. `note` is for the thread that runs the node, everything else for any."""

    def __init__(self, reduction: Reduction, slots: int) -> None:
        words = sum(item.expr.kind.words for item in (*reduction.keys, *reduction.details))
        self._keys = slice(3, 3 + words)
        self._mixers = np.resize(_MIXERS, words)
        self.slots = slots
        self._lock = threading.Lock()
        self._panes: dict[int, _Pane] = {}
        self._settled: Crowded | None = None  # of the last pane of which no more is expected
        self._began = (0, 0)  # evictions and tuples when the present span did
        self._evicted = 0
        self.rate = 0.0  # collisions a tuple, of the last span

    def note(self, rows: Words, evicted: int, taken: int) -> None:
        """Rows that leave; rows evicted and tuples taken so far."""
        before, since = self._began
        if taken - since >= _SPAN or (since == 0 and taken):
            self.rate = (evicted - before) / (taken - since)
            if taken - since >= _SPAN:
                self._began = evicted, taken
        if evicted == self._evicted:
            return  # what the table had room for
        self._evicted = evicted
        if not len(rows):
            return
        with self._lock:
            self._sample(rows)

    def crowded(self) -> Crowded | None:
        """None: a larger table would not pay, as far as is known."""
        with self._lock:
            found = [self._settled, *(self._judged(pane) for pane in self._panes.values())]
        return max((one for one in found if one is not None), key=lambda one: one.wanted, default=None)

    def _sample(self, rows: Words) -> None:
        panes = rows[:, 1].view(np.int64)
        hashes = rows[:, self._keys] @ self._mixers
        hashes ^= hashes >> np.uint64(32)
        hashes *= _MIXERS[0]
        first, last = int(panes.min()), int(panes.max())
        for pane in [first] if first == last else np.unique(panes).tolist():
            of = slice(None) if first == last else panes == pane
            self._panes.setdefault(pane, _Pane()).add(hashes[of], int(rows[of, 2].sum()))
        for pane in sorted(self._panes)[:-_PANES]:
            self._settled = self._judged(self._panes.pop(pane))

    def _judged(self, pane: _Pane) -> Crowded | None:
        rows, groups = pane.counted()
        wanted = min(_MOST_SLOTS, 1 << (2 * groups - 1).bit_length())  # half full, or collisions are many
        repeats = rows - groups
        if wanted <= self.slots or repeats < max(_FEWEST, _WORTH * pane.tuples):
            return None
        return Crowded(self.slots, groups, repeats / pane.tuples, wanted)


class _Pane:
    """Rows that left of one pane, and by a sample whose hashes end in so many zeros how many groups they are of."""

    def __init__(self) -> None:
        self.tuples = 0
        self._zeros = 0
        self._hashes: _Hashes = np.empty(0, np.uint64)
        self._rows = np.empty(0, np.int64)  # of each of them
        self._waiting: list[_Hashes] = []
        self._waits = 0

    def add(self, hashes: _Hashes, tuples: int) -> None:
        self.tuples += tuples
        sampled = self._sampled(hashes)
        self._waiting.append(sampled)
        self._waits += len(sampled)
        if self._waits > 2 * _REMEMBERED:
            self._merge()

    def counted(self) -> tuple[int, int]:
        """Rows and groups, about."""
        self._merge()
        return int(self._rows.sum()) << self._zeros, len(self._hashes) << self._zeros

    def _sampled(self, hashes: _Hashes) -> _Hashes:
        return hashes[hashes & np.uint64((1 << self._zeros) - 1) == 0] if self._zeros else hashes

    def _merge(self) -> None:
        found, counts = np.unique(np.concatenate([np.empty(0, np.uint64), *self._waiting]), return_counts=True)
        self._waiting, self._waits = [], 0
        self._hashes, places = np.unique(np.concatenate([self._hashes, found]), return_inverse=True)
        weights = np.concatenate([self._rows, counts])
        self._rows = np.bincount(places, weights, len(self._hashes)).astype(np.int64)
        while len(self._hashes) > _REMEMBERED:
            self._zeros += 1
            kept = self._hashes & np.uint64((1 << self._zeros) - 1) == 0
            self._hashes, self._rows = self._hashes[kept], self._rows[kept]
