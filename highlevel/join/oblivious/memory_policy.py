"""What a window-oblivious join does with the rows of its inputs under a bound of memory (Wu, section 4). Pure: it knows
the inputs' traits and how far each is ahead, and no rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lowmark.query.optimize.buffer_model import Lags, Strategy, Traits, buffers, choose, reserve_for

__all__ = ["Handling", "MemoryPolicy"]

_WORTH_SPILLING = 3
"""An input waits on disk from a lead of so many times what arrives while the disk writes and reads (4.2)."""

_RELAXES_BELOW = 0.8
"""Of the bound: a strategy with less delay is taken again when it would need less than this share."""


@dataclass(frozen=True, slots=True)
class Handling:
    """Of one input. `holds`: rows that wait in its sort buffer; `spills`: its new rows wait on disk; `reads`: rows that
    are to be read from there, if there are so many."""

    holds: int
    spills: bool
    reads: int


@dataclass(frozen=True, slots=True)
class MemoryPolicy:
    """`bound`: bytes of all rows of a join; None: no bound. `forced`: the only strategy. `reserve`: C, rows that are
    read from disk before they are needed; None: as many as keep a row on disk from having partners in memory.
    `in_flight`: rows of an input that arrive while the disk writes a block and reads one."""

    row_bytes: tuple[int, ...]
    bound: int | None = None
    forced: Strategy | None = None
    reserve: int | None = None
    in_flight: int = 1

    def strategy(self, inputs: Sequence[Traits], lags: Lags, current: Strategy) -> Strategy:
        """The strategy from now on. Rows on disk and unsorted inputs count: `lags` and `inputs` are what they would be
        without a strategy. One with more delay is taken as soon as the buffers would exceed the bound; one with
        less when they would be well below."""
        if self.forced is not None:
            return self.forced
        fitting = self._fitting(inputs, lags, self.bound)
        order = list(Strategy)
        if order.index(fitting) >= order.index(current) or self.bound is None:
            return fitting
        relaxed = self._fitting(inputs, lags, int(self.bound * _RELAXES_BELOW))
        return min(relaxed, current, key=order.index)

    def handling(
        self, strategy: Strategy, inputs: Sequence[Traits], leads: Sequence[int], waiting: Sequence[int]
    ) -> tuple[Handling, ...]:
        """`leads`: rows by which each input, without those that wait on disk, is ahead of the one that is furthest
        behind; `waiting`: its rows on disk. Rows never pass those that wait before them."""
        sorts = strategy in (Strategy.SORT, Strategy.HYBRID)
        spilling = strategy in (Strategy.DISK, Strategy.HYBRID)
        # At least one row: inputs that are level and all wait on disk would wait there for each other.
        ahead = max(1, reserve_for(inputs, strategy) if self.reserve is None else self.reserve)
        from_ = ahead + _WORTH_SPILLING * self.in_flight
        return tuple(
            Handling(
                one.scrambling if sorts else 0,
                spills=waits > 0 or (spilling and lead >= from_),
                reads=min(waits, max(0, ahead - lead)) if spilling else waits,
            )
            for one, lead, waits in zip(inputs, leads, waiting, strict=True)
        )

    def needed(self, strategy: Strategy, inputs: Sequence[Traits], lags: Lags) -> int:
        """Bytes of all buffers, as the model predicts."""
        tuples = buffers(inputs, lags, strategy, self.reserve)
        return sum(n * size for n, size in zip(tuples, self.row_bytes, strict=True))

    def _fitting(self, inputs: Sequence[Traits], lags: Lags, bound: int | None) -> Strategy:
        found = choose(inputs, self.row_bytes, bound, lags, self.reserve)
        # Nothing fits: the least.
        return found or min(reversed(Strategy), key=lambda way: self.needed(way, inputs, lags))
