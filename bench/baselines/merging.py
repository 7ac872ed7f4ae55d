"""The union that keeps order (Li 8.1): tuples of inputs that are ahead wait in buffers for those that lag behind."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import numpy as np

from highlevel.interface import Words
from lowmark.query.expr.evaluate import Ints

__all__ = ["Merge"]


class Merge:
    """Inputs in order of time; out come all of them in order. `at`: the word of a row that holds its time."""

    def __init__(self, inputs: int, at: int) -> None:
        self._at = at
        self._buffers: list[deque[Words]] = [deque() for _ in range(inputs)]
        self._bounds: list[int] = [-(2**63)] * inputs

    @property
    def held(self) -> int:
        """Bytes of the tuples that wait."""
        return sum(part.nbytes for buffer in self._buffers for part in buffer)

    @property
    def bound(self) -> int:
        """No tuple before it comes any more."""
        return min(self._bounds)

    def take(self, number: int, rows: Words, bound: int) -> Words:
        """Tuples of an input, none of which is before its bound of up to now, and its bound from now on; the tuples
        that leave."""
        if len(rows):
            self._buffers[number].append(rows)
        self._bounds[number] = bound
        ready = list(self._ready(self.bound))
        if not ready:
            return rows[:0]
        merged = np.concatenate(ready)
        return merged[np.argsort(self._times(merged), kind="stable")]

    def _ready(self, bound: int) -> Iterable[Words]:
        for buffer in self._buffers:
            while buffer:
                rows = buffer.popleft()
                end = int(np.searchsorted(self._times(rows), bound))
                if end:
                    yield rows[:end]
                if end < len(rows):
                    buffer.appendleft(rows[end:].copy())
                    break

    def _times(self, rows: Words) -> Ints:
        times: Ints = rows[:, self._at].view(np.int64)
        return times
