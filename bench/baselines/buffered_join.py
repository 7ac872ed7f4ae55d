"""The join that Wu et al. compare with: each input keeps its last tuples, as many as a window says (W-Join).

A tuple meets those that the other inputs keep (MJoin), then takes its place in its own buffer, first in, first out.
Windows may be changed while it runs: `bench.oblivious.runs` measures the join without windows so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

__all__ = ["BufferedJoin", "Places"]

Places = tuple[Sequence[int], ...]
"""For each input the tuples of one key, by their places in order of arrival: each combination of them is a result."""


class BufferedJoin:
    """An equijoin of several inputs. `windows`: tuples that each keeps; None: all."""

    def __init__(self, inputs: int, windows: Sequence[int | None] | None = None) -> None:
        self._windows = list(windows or [None] * inputs)
        self._kept: list[deque[int]] = [deque() for _ in range(inputs)]  # keys, in order of arrival
        self._places: list[dict[int, deque[int]]] = [{} for _ in range(inputs)]
        self.arrived = [0] * inputs

    def kept(self, port: int) -> int:
        """Tuples."""
        return len(self._kept[port])

    def add(self, port: int, key: int) -> Places | None:
        """Take a tuple; its results, if it has any."""
        own, place = self._places[port].get(key), self.arrived[port]
        found: list[Sequence[int]] = []
        for of, places in enumerate(self._places):
            partners = (place,) if of == port else places.get(key)
            if partners is not None:
                found.append(tuple(partners))
        self.arrived[port] = place + 1
        self._kept[port].append(key)
        if own is None:
            self._places[port][key] = deque((place,))
        else:
            own.append(place)
        window = self._windows[port]
        if window is not None:
            self.keep(port, window)
        return tuple(found) if len(found) == len(self._places) else None

    def keep(self, port: int, tuples: int) -> None:
        """Drop all but the last tuples of an input."""
        kept, places = self._kept[port], self._places[port]
        while len(kept) > tuples:
            key = kept.popleft()
            same = places[key]
            if len(same) == 1:
                del places[key]
            else:
                same.popleft()
