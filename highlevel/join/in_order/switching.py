"""The choice between Sync-Filter and Filter-Order by the rates of the inputs (Hammad 2005, 6): a piece of state.

Rates are counted in the data, so a replay makes the same decisions: rows by the bin of their time, over the last window
before the time that all inputs have passed. Counts vary by chance, so a load just at the limit would be above and below
it in turn. A join therefore returns to SYNC only when the load is further below the limit than chance explains.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import sqrt

import numpy as np
import numpy.typing as npt

from highlevel.interface import Space
from lowmark.query.plan.joins import InOrder, Release

__all__ = ["Switching", "started", "switching_space"]

_BINS = 16
"""Bins of a window over which rates are counted."""

_SURE = 3
"""A load is below the limit for certain only if it is lower by this many standard deviations of a random count."""


@dataclass(slots=True)
class Switching:
    """`counts`: for each input, the rows of each bin; `width`: ns of a bin."""

    width: int
    counts: list[dict[int, int]]
    filters: bool  # whether rows are matched at once
    first: int | None = None  # the first bin with rows: these need not cover all of it
    switches: int = field(default=0)

    def count(self, port: int, times: npt.NDArray[np.int64]) -> None:
        bins, numbers = np.unique(times // self.width, return_counts=True)
        mine = self.counts[port]
        for at, number in zip(bins.tolist(), numbers.tolist(), strict=True):
            mine[at] = mine.get(at, 0) + number
        least = int(bins[0])
        self.first = least if self.first is None else min(self.first, least)

    def decide(self, choice: InOrder, sizes: Sequence[int], passed: int) -> None:
        """Count again now that all inputs have passed this time, and forget counts older than a window. `sizes`: ns of
        the inputs' windows."""
        now = passed // self.width
        since = now - _BINS
        self.counts = [{at: count for at, count in each.items() if at >= since} for each in self.counts]
        if self.first is None or now <= self.first + 1:
            return
        seconds = (now - max(since, self.first + 1)) * self.width / 1e9
        first = max(since, self.first + 1)
        rows = [sum(n for at, n in each.items() if first <= at < now) for each in self.counts]
        load = choice.load(sizes, [count / seconds for count in rows])
        chance = _SURE * sqrt(sum(1 / max(1, count) for count in rows)) if self.filters else 0.0
        filters = load * (1 + chance) >= choice.gain
        self.switches += filters is not self.filters
        self.filters = filters


def switching_space() -> Space[Switching]:
    def encode(piece: Switching) -> bytes:
        counts = [sorted(each.items()) for each in piece.counts]
        return json.dumps([piece.width, counts, piece.filters, piece.first, piece.switches]).encode()

    def decode(data: bytes) -> Switching:
        width, counts, filters, first, switches = json.loads(data)
        return Switching(width, [dict(map(tuple, each)) for each in counts], filters, first, switches)

    return Space("switching", encode, decode)


def started(choice: InOrder, sizes: Sequence[int]) -> Switching:
    """Adaptive joins begin with SYNC, as in the paper."""
    return Switching(max(1, max(sizes) // _BINS), [{} for _ in sizes], choice.release is Release.FILTER)
