"""Which windows of an answer are lossy: each counted once, however often it is said and however late."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import islice

from lowmark.wire.records.verdicts import Reason

__all__ = ["LossyWindows"]

_RUNS = 1 << 16
"""Of neighbouring windows, that are remembered: beyond that the oldest are only counted."""

_FIRST = 10
"""Windows whose reasons are remembered."""


class LossyWindows:
    """Takes as much room as there are runs of lossy windows, up to a limit. What is said of windows older than the runs
    that are remembered may have been said before, and is not counted: then there are `count` at least."""

    def __init__(self, runs: int = _RUNS) -> None:
        self.count = 0
        self.at_least = False
        self._most = runs
        self._starts: list[int] = []  # of runs in ascending order, between which windows lie …
        self._stops: list[int] = []  # … and the windows behind them
        self._counted_below: int | None = None  # windows below this one are only counted
        self._first: dict[int, frozenset[Reason]] = {}

    @property
    def first(self) -> list[tuple[int, frozenset[Reason]]]:
        """The least of them, ten at most, with all reasons that were said."""
        return sorted(self._first.items())

    def add(self, first: int, to: int, reasons: frozenset[Reason]) -> None:
        """The windows from `first` to `to` (included) are lossy."""
        self._name(first, to, reasons)
        start, stop = first, to + 1
        if self._counted_below is not None and start < self._counted_below:
            self.at_least = True
            start = self._counted_below
        if start < stop:
            self._join(start, stop)
        if len(self._starts) > self._most:
            self._counted_below = self._stops[0]
            del self._starts[0], self._stops[0]

    def _join(self, start: int, stop: int) -> None:
        """With the runs that it touches it becomes one."""
        low, high = bisect_left(self._stops, start), bisect_right(self._starts, stop)
        known = sum(self._stops[at] - self._starts[at] for at in range(low, high))
        if low < high:
            start, stop = min(start, self._starts[low]), max(stop, self._stops[high - 1])
        self._starts[low:high], self._stops[low:high] = [start], [stop]
        self.count += stop - start - known

    def _name(self, first: int, to: int, reasons: frozenset[Reason]) -> None:
        """What ten smaller windows have pushed out does not come back: of those that are named nothing is forgotten."""
        for window in self._first:
            if first <= window <= to:
                self._first[window] |= reasons
        for window in islice(range(first, to + 1), _FIRST):
            self._first.setdefault(window, reasons)
        for window in sorted(self._first)[_FIRST:]:
            del self._first[window]
