"""The frontier of a node: the first granule that has not ended for every source that counts."""

from __future__ import annotations

from collections.abc import Callable

from highlevel.rosters.roster import Roster
from lowmark.wire.rows.values import FOREVER, NEVER

__all__ = ["Frontier"]


class Frontier:
    """Never regresses. Every granule below `value` has ended: all its members have promised it or are free in it."""

    def __init__(self, value: int = NEVER) -> None:
        self.value = value
        self._holding: set[str] = set()  # sources whose promise holds the frontier; empty: unknown

    def passed_by(self, source: str, promised: int) -> bool:
        """Whether this source's promise may move the frontier. The sources that hold the frontier are cached from the
        last `closed_by`, so that a promise need not examine every source."""
        if promised > self.value:
            self._holding.discard(source)
        return not self._holding

    def forget(self) -> None:
        """Forget the sources that hold the frontier, because one may have promised less than before, or others count
        now."""
        self._holding.clear()

    def closed_by(self, roster: Roster, streams: tuple[str, ...], promised: Callable[[str], int]) -> int:
        """The frontier once these promises are taken into account, to be passed to `advance`. `promised(source)` is the
        first granule that the source has not promised, NEVER if it has not been seen.

        A source that is excluded until it returns does not count. If all others have ended, or there is no other, it
        does count, because its return must find windows open."""
        bounds: list[tuple[int, str]] = []
        excluded: list[int] = []
        for member in roster.members(streams):
            reached = promised(member.source)
            bound = member.bound(reached)
            if bound == FOREVER and member.open_excluded and reached < FOREVER:
                excluded.append(reached)
            else:
                bounds.append((bound, member.source))
        least = min((bound for bound, _ in bounds), default=FOREVER if excluded else NEVER)
        value = max(self.value, min(excluded) if excluded and least == FOREVER else least)
        self._holding = {source for bound, source in bounds if bound <= value}
        return value

    def advance(self, value: int) -> tuple[int, int] | None:
        """Move to `value`. Returns the granules that this ends (from, up to), or None if it ends none."""
        if value <= self.value:
            return None
        ended = self.value, value
        self.value = value
        return ended

    def is_late(self, granule: int) -> bool:
        """Whether a row of this granule is late now: the granule ended at or before the frontier."""
        return granule < self.value
