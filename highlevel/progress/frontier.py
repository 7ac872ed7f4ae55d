"""The frontier of a node: the first granule that has not ended for every source that counts."""

from __future__ import annotations

from collections.abc import Callable

from highlevel.progress.roster import Roster
from lowmark.query.plan.nodes import Pane
from lowmark.wire.records.partials import PANE
from lowmark.wire.records.punctuations import Promise
from lowmark.wire.rows.values import FOREVER, NEVER

__all__ = ["Frontier", "granule_of_time", "promised_granule"]


class Frontier:
    """Never regresses. Every granule below `value` has ended: all its members have promised it or are free in it."""

    def __init__(self, value: int = NEVER) -> None:
        self.value = value
        self._holding: set[str] = set()  # sources that have not promised more; empty: not known

    def passed_by(self, source: str, promised: int) -> bool:
        """Whether this source's promise may move the frontier. The other sources that hold it are remembered from the
        last `closed_by`, so that a promise does not have to look at every source."""
        if promised > self.value:
            self._holding.discard(source)
        return not self._holding

    def forget(self) -> None:
        """Forget the sources that hold the frontier: one may have promised less than before, or others count now."""
        self._holding.clear()

    def closed_by(self, roster: Roster, streams: tuple[str, ...], promised: Callable[[str], int]) -> int:
        """The frontier once these promises are taken into account, to be passed to `advance`. `promised(source)` is the
        first granule that the source has not promised, NEVER if it has not been seen."""
        bounds = [(member.bound(promised(member.source)), member.source) for member in roster.members(streams)]
        value = max(self.value, min((bound for bound, _ in bounds), default=NEVER))
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


def promised_granule(promise: Promise, pane: Pane) -> int | None:
    """The first granule that this promise leaves open. None: the promise is joint, or about values or another column,
    and moves no frontier of the pane's attribute."""
    if promise.last:
        return FOREVER
    below = promise.below(PANE)
    if below is not None:
        return below
    value = promise.below(pane.attribute)
    if value is None or value == FOREVER:
        return value
    return pane.index(value)


def granule_of_time(pane: Pane, time: int) -> int:
    """The first granule that begins at this time of the attribute or later."""
    return pane.index(time - 1) + 1
