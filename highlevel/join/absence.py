"""Drops kept rows of joins of three or more inputs that can match no row of one other input, kept or later.

A row is of no use once one other input has no kept row that it could match and promises to send no such row. This is
decided per bin, from the keys of bins alone: a bin is dropped when it reaches no kept bin of such an input. Each drop
can make bins of other inputs useless, too.

Limits: a bin that reaches a kept one keeps all its rows, whatever their times and keys are; and only pairs of inputs
are checked, not whether rows of several others also lie in each other's windows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from highlevel.interface import Space, State
from highlevel.join.bins import Bin
from lowmark.query.windows.join_bands import Bands
from lowmark.wire.rows.values import FOREVER, NEVER

__all__ = ["Absence"]

BinKey = tuple[int, int]
"""A port, and the key of one of its bins."""


class Absence:
    """`width`: ns of a bin; `spaces`: where the bins are kept, by port."""

    def __init__(self, bands: Bands, width: int, spaces: Sequence[Space[Bin]]) -> None:
        self._bands = bands
        self._width = width
        self._spaces = spaces

    def excluded(self, port: int, before: int, bound: int, state: State) -> list[BinKey]:
        """The bins of other inputs that can match no later row of this port now that its bound has moved from
        `before`."""
        found = []
        for other, space in enumerate(self._spaces):
            if other != port:
                keys = state.keys(space, self._first_open(other, port, bound))
                since = bisect_left(keys, self._first_open(other, port, before))
                found += [(other, key) for key in keys[since:]]
        return found

    def around(self, port: int, gone: Iterable[int], state: State) -> list[BinKey]:
        """The bins of other inputs that reach one of these bins."""
        found: dict[BinKey, None] = {}
        for key in gone:
            for other, space in enumerate(self._spaces):
                if other != port:
                    first, last = self._reached(port, key, other)
                    keys = state.keys(space, last + 1)
                    found |= dict.fromkeys((other, at) for at in keys[bisect_left(keys, first) :])
        return list(found)

    def let_go(self, bins: Iterable[BinKey], bounds: Sequence[int], state: State) -> None:
        """Drop those of these bins that are useless, then the bins that become useless by that."""
        looked_at, gone = list(bins), set()
        while looked_at:
            port, key = found = looked_at.pop()
            if found not in gone and self._in_vain(port, key, bounds, state):
                state.drop(self._spaces[port], key)
                gone.add(found)
                looked_at += self.around(port, (key,), state)

    def _in_vain(self, port: int, key: int, bounds: Sequence[int], state: State) -> bool:
        for other, bound in enumerate(bounds):
            if other == port or key >= self._first_open(port, other, bound):
                continue
            first, last = self._reached(port, key, other)
            keys = state.keys(self._spaces[other], last + 1)
            if not keys or keys[-1] < first:
                return True
        return False

    def _first_open(self, port: int, other: int, bound: int) -> int:
        """The first bin of a port with rows whose partners on the other port may be at the bound or later."""
        if bound in (NEVER, FOREVER):
            return bound
        after = 0 if self._bands.tumbling else self._bands.reach(port, other)[1] - 1
        return (bound - after) // self._width

    def _reached(self, port: int, key: int, other: int) -> tuple[int, int]:
        """The first and the last bin of the other input that can hold partners of rows in this bin."""
        start = key * self._width
        low, _ = self._bands.partners(port, start, other)
        _, high = self._bands.partners(port, start + self._width - 1, other)
        return low // self._width, (high - 1) // self._width
