"""How an aggregate holds the groups of open windows: the strategies of Li ch. 6. None of them changes a row.

An operator puts rows in, and when a promise comes asks for what has ended. The state is in pieces of panes (Paned-WID),
of windows (WID), or both (AdaptWID, in `adaptwid.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from highlevel.aggregate.assembly import Assembly, Panes, assembly_of
from highlevel.aggregate.groups import GroupTable
from highlevel.aggregate.layout import Layout
from highlevel.aggregate.spaces import tables_space
from highlevel.interface import State, Words
from lowmark.query.windows import Window, WindowKind

__all__ = ["Ended", "Holding", "PanedHolding", "WidHolding", "holding_windows"]


class Ended(Protocol):
    """What was held of windows whose end may have come, as it was when a promise came."""

    @property
    def span(self) -> range | None:
        """From the first window that holds a tuple up to behind the last one; None where there is none."""
        ...

    def windows(self, first: int, end: int) -> Iterator[int]:
        """Those from `first` up to `end` that hold a tuple, ascending."""
        ...

    def table(self, window: int) -> GroupTable:
        """The groups of a window that has ended, to be read only. Windows are asked for in ascending order."""
        ...

    def tuples(self, window: int, table: GroupTable) -> int:
        """Of the window's extent (of a landmark window: of its own slide), of which `table` has the groups."""
        ...

    def leave(self, first: int) -> None:
        """No window before `first` will be asked for."""
        ...


class Holding(Protocol):
    def take(self, pane: int, rows: Words, state: State) -> None:
        """Partials of a pane that has not ended, and that some window holds."""
        ...

    def ended(self, frontier: int | None, state: State) -> Ended:
        """When panes below `frontier` (None: all) have ended."""
        ...


class WidHolding:
    """WID: a piece for each window, into which each partial is merged as it comes (figs. 6-2 and 6-4: `wids` is what
    Bucket does)."""

    def __init__(self, window: Window, layout: Layout) -> None:
        self._window = window
        self._layout = layout
        self._space = tables_space("window", layout)

    def take(self, pane: int, rows: Words, state: State) -> None:
        for window in self._window.wids(pane):
            table = state.get(self._space, window) or GroupTable(self._layout)
            table.merge(rows)
            state.put(self._space, window, table)

    def ended(self, frontier: int | None, state: State) -> Ended:
        below = None if frontier is None else self._window.closed_by(frontier)
        return _EndedWindows(Panes(self._space, state, below))


class _EndedWindows:
    def __init__(self, tables: Panes) -> None:
        self._tables = tables  # by window

    @property
    def span(self) -> range | None:
        keys = self._tables.keys
        return range(keys[0], keys[-1] + 1) if keys else None

    def windows(self, first: int, end: int) -> Iterator[int]:
        yield from self._tables.within(first, end)

    def table(self, window: int) -> GroupTable:
        return self._tables.table(window)

    def tuples(self, window: int, table: GroupTable) -> int:
        return table.tuples

    def leave(self, first: int) -> None:
        self._tables.drop(first)


class PanedHolding:
    """Paned-WID: a piece for each pane, and whatever an `Assembly` keeps from one window to the next."""

    def __init__(self, window: Window, layout: Layout) -> None:
        self._window = window
        self._layout = layout
        self._space = tables_space("pane", layout)
        self._assembly = assembly_of(window, layout)

    def take(self, pane: int, rows: Words, state: State) -> None:
        table = state.get(self._space, pane) or GroupTable(self._layout)
        table.merge(rows)
        state.put(self._space, pane, table)

    def ended(self, frontier: int | None, state: State) -> Ended:
        return _EndedPanes(self._window, self._assembly, Panes(self._space, state, frontier), state)


class _EndedPanes:
    def __init__(self, window: Window, assembly: Assembly, panes: Panes, state: State) -> None:
        self._window = window
        self._assembly = assembly
        self._panes = panes
        self._state = state

    @property
    def span(self) -> range | None:
        keys = self._panes.keys
        return range(self._window.wids(keys[0]).start, self._window.wids(keys[-1]).stop) if keys else None

    def windows(self, first: int, end: int) -> Iterator[int]:
        return holding_windows(self._window, self._panes, first, end)

    def table(self, window: int) -> GroupTable:
        return self._assembly.table(window, self._panes, self._state)

    def tuples(self, window: int, table: GroupTable) -> int:
        if self._window.kind is not WindowKind.LANDMARK:
            return table.tuples
        extent = self._window.extent(window)
        return sum(self._panes.table(pane).tuples for pane in self._panes.within(extent.start, extent.stop))

    def leave(self, first: int) -> None:
        self._assembly.leave(self._window.first_needed(first), self._panes, self._state)


def holding_windows(window: Window, panes: Panes, first: int, end: int) -> Iterator[int]:
    """The windows from `first` up to `end` that hold a tuple, ascending: from the panes, not from the windows."""
    for pane in panes.keys:
        wids = window.wids(pane)
        yield from range(max(first, wids.start), min(end, wids.stop))
        first = max(first, min(end, wids.stop))
