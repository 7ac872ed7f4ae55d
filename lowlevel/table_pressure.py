"""Detects a table that is too small, by the share of rows that leave it in collisions and the number of groups it would
have to hold. Computed from the rows that leave, without a clock."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from random import Random

import numpy as np
import numpy.typing as npt

from lowmark.query.plan.nodes import Reduction
from lowmark.wire.records.partials import KEYS_WORD, PANE_WORD
from lowmark.wire.rows.words import Words

__all__ = ["Crowded", "Pressure"]

_SPAN = 1 << 20
"""Tuples over which the rate is measured."""

_REMEMBERED = 4096
"""Most groups remembered per pane: a sample by hash that gives their number within about 2%."""

_PANES = 3
"""Most open panes counted at a time; others are not counted."""

_WORTH, _FEWEST = 0.1, 256
"""A larger table pays from this many avoidable rows per tuple, and from this many rows per pane."""

_GLANCE = 16
"""The table has room if fewer than one in this many rows leave by collisions before their pane has ended."""

_MOST_SLOTS = 1 << 31
_RANDOM = Random(83)
_MIXERS = np.array([_RANDOM.getrandbits(64) | 1 for _ in range(64)], np.uint64)

_Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Crowded:
    """A larger table would help."""

    slots: int  # slots of the table
    groups: int  # groups in a pane, approximately
    repeats: float  # rows per tuple that left only because the table had no room for all groups
    wanted: int  # slots with room for all groups

    def __str__(self) -> str:
        return (
            f"the table of {self.slots:,} slots is too small for the groups of a pane, about {self.groups:,}: "
            f"{self.repeats:.2f} rows a packet leave for want of room"
        )


class Pressure:
    """The table pressure of one node. Only the thread that runs the node calls `note`; any thread may call the rest."""

    def __init__(self, reduction: Reduction, slots: int) -> None:
        words = sum(item.expr.kind.words for item in (*reduction.keys, *reduction.details))
        self._keys = slice(KEYS_WORD, KEYS_WORD + words)
        self._mixers = np.resize(_MIXERS, words)
        self.slots = slots
        self.rate = 0.0  # collisions per tuple, in the last span
        self._lock = threading.Lock()
        self._panes: dict[int, _Pane] = {}  # panes that have not ended
        self._open = -(2**63)
        self._settled: Crowded | None = None  # result for the last pane that has ended
        self._began = (0, 0)  # evictions and tuples at the beginning of the current span
        self._evicted = 0
        self._taken = 0

    def note(self, rows: Words, evicted: int, taken: int, open_pane: int) -> None:
        """Take note of rows that leave, of rows evicted and tuples taken so far, and of the first pane that has not
        ended. Rows of ended panes would leave any table."""
        before, since = self._began
        if taken - since >= _SPAN or (since == 0 and taken):
            self.rate = (evicted - before) / (taken - since)
            if taken - since >= _SPAN:
                self._began = evicted, taken
        if open_pane > self._open:
            self._settle(open_pane)
        collided, self._evicted, self._taken = evicted - self._evicted, evicted, taken
        if collided * _GLANCE > len(rows) and (rows[::_GLANCE, PANE_WORD].view(np.int64) >= open_pane).any():
            early = np.flatnonzero(rows[:, PANE_WORD].view(np.int64) >= open_pane)
            with self._lock:
                self._sample(rows if len(early) == len(rows) else rows[early])

    def crowded(self) -> Crowded | None:
        """None: a larger table would not help, as far as is known."""
        with self._lock:
            found = [self._settled, *(self._judged(pane) for pane in self._panes.values())]
        return max((one for one in found if one is not None), key=lambda one: one.wanted, default=None)

    def _settle(self, open_pane: int) -> None:
        with self._lock:
            ended = {pane: self._panes.pop(pane) for pane in list(self._panes) if pane < open_pane}
            self._settled = self._judged(ended[max(ended)]) if ended else None
            self._open = open_pane

    def _sample(self, rows: Words) -> None:
        panes = rows[:, PANE_WORD].view(np.int64)
        hashes = rows[:, self._keys] @ self._mixers
        hashes ^= hashes >> np.uint64(32)
        hashes *= _MIXERS[0]
        first, last = int(panes.min()), int(panes.max())
        for pane in [first] if first == last else np.unique(panes).tolist():
            if pane not in self._panes and len(self._panes) == _PANES:
                continue
            self._panes.setdefault(pane, _Pane(self._taken)).add(hashes if first == last else hashes[panes == pane])

    def _judged(self, pane: _Pane) -> Crowded | None:
        rows, groups = pane.counted()
        tuples = max(rows, self._taken - pane.began)
        wanted = min(_MOST_SLOTS, 1 << (2 * groups - 1).bit_length())  # half full; collisions are many beyond
        repeats = rows - groups
        if wanted <= self.slots or repeats < max(_FEWEST, _WORTH * tuples):
            return None
        return Crowded(self.slots, groups, repeats / tuples, wanted)


class _Pane:
    """Counts the rows that left of one pane, and their groups by a sample: groups whose hash ends in enough zeros."""

    def __init__(self, began: int) -> None:
        """`began`: tuples taken before the pane."""
        self.began = began
        self._zeros = 0
        self._hashes: _Hashes = np.empty(0, np.uint64)
        self._rows = np.empty(0, np.int64)  # number of rows, for each hash
        self._waiting: list[_Hashes] = []
        self._waits = 0

    def add(self, hashes: _Hashes) -> None:
        sampled = self._sampled(hashes)
        self._waiting.append(sampled)
        self._waits += len(sampled)
        if self._waits > 2 * _REMEMBERED:
            self._merge()

    def counted(self) -> tuple[int, int]:
        """Approximate numbers of rows and groups."""
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
