"""Decides how a window-oblivious join handles the rows of its inputs under a bound of memory (Wu, section 4). Pure: it
knows the inputs' traits and how far each is ahead, but no rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lowmark.query.optimize.buffer_model import Buffering, Lags, Traits, buffers, choose, reserve_for

__all__ = ["Handling", "MemoryPolicy"]

_WORTH_SPILLING = 3
"""An input waits on disk when it leads by this many times the rows that arrive while the disk writes and reads
(4.2)."""

_RELAXES_BELOW = 0.8
"""A strategy with less delay is chosen again when it would need less than this share of the bound."""


@dataclass(frozen=True, slots=True)
class Handling:
    """How the rows of one input are handled. `holds`: rows that wait in its sort buffer; `spills`: its new rows wait on
    disk; `reads`: most rows to read from disk now."""

    holds: int
    spills: bool
    reads: int


@dataclass(frozen=True, slots=True)
class MemoryPolicy:
    """`bound`: bytes of all rows of a join; None: no bound. `forced`: the only strategy. `reserve`: C, rows that are
    read from disk before they are needed; None: just enough that no row on disk has partners in memory. `in_flight`:
    rows of an input that arrive while the disk writes a block and reads one."""

    row_bytes: tuple[int, ...]
    bound: int | None = None
    forced: Buffering | None = None
    reserve: int | None = None
    in_flight: int = 1

    def strategy(self, inputs: Sequence[Traits], lags: Lags, current: Buffering) -> Buffering:
        """The strategy from now on. `lags` and `inputs` describe the inputs as they would be without a strategy,
        including rows on disk. A strategy with more delay is chosen as soon as the buffers would exceed the bound, one
        with less delay when they would be well below it."""
        if self.forced is not None:
            return self.forced
        fitting = self._fitting(inputs, lags, self.bound)
        order = list(Buffering)
        if order.index(fitting) >= order.index(current) or self.bound is None:
            return fitting
        relaxed = self._fitting(inputs, lags, int(self.bound * _RELAXES_BELOW))
        return min(relaxed, current, key=order.index)

    def handling(
        self, strategy: Buffering, inputs: Sequence[Traits], leads: Sequence[int], waiting: Sequence[int]
    ) -> tuple[Handling, ...]:
        """`leads`: rows by which each input, without its rows on disk, is ahead of the one that is furthest behind;
        `waiting`: its rows on disk. Rows never overtake rows that wait before them."""
        sorts = strategy in (Buffering.SORT, Buffering.HYBRID)
        spilling = strategy in (Buffering.DISK, Buffering.HYBRID)
        # Read at least one row: level inputs that all wait on disk would otherwise wait for each other for ever.
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

    def needed(self, strategy: Buffering, inputs: Sequence[Traits], lags: Lags) -> int:
        """Bytes of all buffers, as the model predicts."""
        tuples = buffers(inputs, lags, strategy, self.reserve)
        return sum(n * size for n, size in zip(tuples, self.row_bytes, strict=True))

    def _fitting(self, inputs: Sequence[Traits], lags: Lags, bound: int | None) -> Buffering:
        found = choose(inputs, self.row_bytes, bound, lags, self.reserve)
        # Nothing fits: choose the strategy that needs least.
        return found or min(reversed(Buffering), key=lambda way: self.needed(way, inputs, lags))
