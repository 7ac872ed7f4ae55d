"""The windows of a join as pure functions of times (DESIGN: join windows; Li 5.2, 7.1): which rows can meet, how long.

For inputs i before j, of sizes x and y: i.a − y ≤ j.a < i.a + x. Tumbling: both rows lie in the same window. Times are
integers in ns; every interval is half-open. A bound b of an input promises that no later row of it has a < b; NEVER: no
promise yet, FOREVER: the input has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lowmark.wire.rows.values import FOREVER, NEVER

__all__ = ["Bands"]


@dataclass(frozen=True, slots=True)
class Bands:
    """`sizes`: window size of each input; in a tumbling join they are all equal."""

    sizes: tuple[int, ...]
    tumbling: bool

    def reach(self, of: int, other: int) -> tuple[int, int]:
        """A row of input `of` at time t meets rows of input `other` from t − before up to t + after (sliding)."""
        if of < other:
            return self.sizes[other], self.sizes[of]
        return self.sizes[other] - 1, self.sizes[of] + 1

    def partners(self, of: int, time: int, other: int) -> tuple[int, int]:
        """The interval of times of `other` whose rows meet a row of input `of` at this time."""
        if self.tumbling:
            start = time // self.sizes[of] * self.sizes[of]
            return start, start + self.sizes[of]
        before, after = self.reach(of, other)
        return time - before, time + after

    def together(self, times: Sequence[int]) -> bool:
        """Whether rows with these times, one of each input, are all in each other's windows."""
        pairs = ((i, j) for i in range(len(times)) for j in range(i))
        return all((p := self.partners(j, times[j], i))[0] <= times[i] < p[1] for i, j in pairs)

    def alive(self, of: int, bounds: Sequence[int]) -> int:
        """The least time at which a row of input `of` can still meet a later row; older rows need not be kept."""
        return min(self._waits(of, other, bound) for other, bound in enumerate(bounds) if other != of)

    def output(self, bounds: Sequence[int]) -> tuple[int, ...]:
        """Bounds of the join's output, one for the time of each input: every later output row holds a later row."""
        return tuple(
            min(bound if other == of else self._earliest(other, bound, of) for other, bound in enumerate(bounds))
            for of in range(len(bounds))
        )

    def earliest(self, bounds: Sequence[int]) -> list[tuple[int, ...]]:
        """The least times in output rows that hold a row at its input's bound or later: one case for each such input,
        with one time for each input."""
        ports = range(len(bounds))
        return [
            tuple(bound if other == of else self._earliest(of, bound, other) for other in ports)
            for of, bound in enumerate(bounds)
        ]

    def _waits(self, of: int, other: int, bound: int) -> int:
        """The least time at which a row of `of` has partners that end after the bound of `other`."""
        if bound in (NEVER, FOREVER):
            return bound
        if self.tumbling:
            return bound // self.sizes[of] * self.sizes[of]
        return max(NEVER, bound - self.reach(of, other)[1] + 1)

    def _earliest(self, of: int, bound: int, other: int) -> int:
        """The least time at which a row of `other` meets a row of `of` at the bound or later."""
        if bound in (NEVER, FOREVER):
            return bound
        return max(NEVER, self.partners(of, bound, other)[0])
