"""Counts the lossy windows of an answer: each once, however often and however late it is reported."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import islice

from lowmark.wire.records.verdicts import Reason

__all__ = ["LossyWindows"]

_RUNS = 1 << 16
"""Most runs of neighbouring windows that are remembered; beyond that the oldest are only counted."""

_FIRST = 10
"""Number of windows whose reasons are remembered."""


class LossyWindows:
    """Takes memory by the number of runs of lossy windows, up to a limit. A report about windows older than the
    remembered runs may be a repetition and is not counted: then `count` is a lower bound (`at_least`)."""

    def __init__(self, runs: int = _RUNS) -> None:
        self.count = 0
        self.at_least = False
        self._most = runs
        self._starts: list[int] = []  # first windows of the runs, ascending; runs do not touch
        self._stops: list[int] = []  # the window after the last one of each run
        self._counted_below: int | None = None  # windows below this one are only counted
        self._first: dict[int, frozenset[Reason]] = {}

    @property
    def first(self) -> list[tuple[int, frozenset[Reason]]]:
        """The first lossy windows, ten at most, each with all its reasons."""
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
        """Merges the new run with all runs that it touches."""
        low, high = bisect_left(self._stops, start), bisect_right(self._starts, stop)
        known = sum(self._stops[at] - self._starts[at] for at in range(low, high))
        if low < high:
            start, stop = min(start, self._starts[low]), max(stop, self._stops[high - 1])
        self._starts[low:high], self._stops[low:high] = [start], [stop]
        self.count += stop - start - known

    def _name(self, first: int, to: int, reasons: frozenset[Reason]) -> None:
        """A window pushed out by ten smaller ones cannot come back, so the named windows keep all their reasons."""
        for window in self._first:
            if first <= window <= to:
                self._first[window] |= reasons
        for window in islice(range(first, to + 1), _FIRST):
            self._first.setdefault(window, reasons)
        for window in sorted(self._first)[_FIRST:]:
            del self._first[window]
