"""When AdaptWID holds a group eagerly (Li cond. 6.9), and the piece of state with the eager groups.

Li estimates what a lazy group buffers from volumes and from the offsets of the sources (eq. 6.7), and the windows that
an eager one keeps a partial for from `wed` (eq. 6.5). Both are counted here: the buffered partials are those of panes
in the state, and the open windows are those from the first not closed to the last for which a pane has come. The
offsets of sources drop out, because partials of a source that lags behind have not come yet. What an eager group would
buffer cannot be counted, so the panes in which it has appeared since the last check are counted instead, by its latest
pane alone (so that several sources count once).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from highlevel.groups.group_table import GroupTable
from highlevel.groups.layout import Layout
from highlevel.interface import Space
from lowmark.jit.compiled import compiled
from lowmark.wire.rows.values import INT64_MIN

__all__ = ["COSTS", "HoldingCosts", "Mode", "mode_space"]

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

_HEADER = struct.Struct(">qBqBqqqI")  # high, first, looked (each after: is it known), kept, since, groups


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldingCosts:
    """Costs of what is kept, in any unit: `aggr` for a window's partial of a group, `tup` for a pane's (rows of the
    same form), and `entry` for the entry of an eager group, its keys again and two counts. A group goes back to lazy at
    `back` percent of the cost that makes it eager, so that it does not oscillate. `least`: partials that may come for
    lazy groups before the first check."""

    aggr: int = 1
    tup: int = 1
    entry: int = 1
    back: int = 75
    least: int = 1024

    def eager(self, buffered: Ints, windows: int) -> Bools:
        """Cond. 6.9: whether `buffered` partials of panes cost more than a partial in each of the open windows."""
        return buffered * self.tup > self._eager(windows)

    def any_eager(self, panes: int, windows: int) -> bool:
        """Whether this can hold for any group at all, when so many panes are kept."""
        return panes * self.tup > self._eager(windows)

    def lazy(self, shown: Ints, of: int, buffered: int, windows: int) -> Bools:
        """Which eager groups would cost clearly less as lazy ones: groups that appeared in `shown` out of `of` panes,
        while `buffered` panes are kept."""
        return shown * (buffered * 100 * self.tup) <= of * self._eager(windows) * self.back

    def _eager(self, windows: int) -> int:
        return windows * self.aggr + self.entry


COSTS = HoldingCosts()


@compiled
def _show(places: Ints, panes: Ints, latest: Ints, shown: Ints) -> None:
    for i in range(places.shape[0]):
        if latest[places[i]] < panes[i]:
            latest[places[i]] = panes[i]
            shown[places[i]] += 1


class Mode:
    """The eager groups; all others are lazy, as every group is at first. `high`: the latest pane with any partial;
    `first`: the first window that is not out; `looked`: the value of `high` at the last check of all groups. `kept`
    partials were buffered at the last check of lazy groups, and at most `since` more have come since."""

    def __init__(self, layout: Layout) -> None:
        """`layout` has keys alone, as `Layout.of_keys`."""
        self.groups = GroupTable(layout)
        self.high = INT64_MIN
        self.first: int | None = None
        self.looked: int | None = None
        self.kept = 0
        self.since = 0
        self.latest: Ints = np.empty(0, np.int64)  # by group, the latest pane in which it appeared
        self.shown: Ints = np.empty(0, np.int64)  # by group, the number of panes in which it appeared since `looked`

    def show(self, places: Ints, panes: Ints) -> None:
        """Note that the groups at these places appear, each in a pane; panes are ascending."""
        _show(places, panes, self.latest, self.shown)

    def enter(self, groups: GroupTable, latest: Ints, shown: Ints) -> None:
        """Make these groups eager, with the counts from their panes. None of them may be eager already."""
        self.groups.merge_table(groups)
        self.latest = np.concatenate((self.latest, latest))
        self.shown = np.concatenate((self.shown, shown))

    def leave(self, chosen: Bools) -> None:
        """Make these groups lazy."""
        self.groups.take(chosen)
        self.latest, self.shown = self.latest[~chosen], self.shown[~chosen]

    def encode(self) -> bytes:
        known = (self.first is not None, self.first or 0, self.looked is not None, self.looked or 0)
        head = _HEADER.pack(self.high, *known, self.kept, self.since, len(self.latest))
        counts = np.concatenate((self.latest, self.shown)).astype("<i8", copy=False)
        return b"".join((head, counts.tobytes(), self.groups.encode()))

    @classmethod
    def decode(cls, layout: Layout, data: bytes) -> Mode:
        mode = cls(layout)
        mode.high, begun, first, known, looked, mode.kept, mode.since, count = _HEADER.unpack_from(data)
        mode.first = first if begun else None
        mode.looked = looked if known else None
        counts = np.frombuffer(data, "<i8", 2 * count, _HEADER.size).astype(np.int64)
        mode.latest, mode.shown = counts[:count].copy(), counts[count:].copy()
        mode.groups = GroupTable.decode(layout, data[_HEADER.size + 16 * count :])
        return mode


def mode_space(layout: Layout) -> Space[Mode]:
    return Space("mode", Mode.encode, lambda data: Mode.decode(layout, data))
