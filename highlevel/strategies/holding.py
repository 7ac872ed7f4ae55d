"""How an aggregate holds the groups of open windows: the strategies of Li ch. 6. None of them changes a row.

An operator adds rows, and on a promise takes the groups of windows that have ended. The state is in pieces of panes
(Paned-WID), of blocks of windows (WID, in `wid.py`), or both (AdaptWID, in `adaptwid.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from highlevel.groups.group_table import GroupTable
from highlevel.groups.layout import Layout
from highlevel.groups.split import split
from highlevel.groups.state import tables_space
from highlevel.interface import State, Words
from highlevel.operators.window_groups import WindowGroups
from highlevel.strategies.paned import Assembly, Panes, assembly_of
from lowmark.query.expr.evaluate import Ints
from lowmark.query.windows.window import Window, WindowKind

__all__ = ["Ended", "Holding", "PanedHolding", "holding_windows"]


class Ended(Protocol):
    """The groups held at a promise for windows that may have ended."""

    @property
    def span(self) -> range | None:
        """From the first window that holds a tuple to one after the last; None if there is none."""
        ...

    def parts(self, first: int, end: int) -> Iterator[WindowGroups]:
        """The windows from `first` up to `end` that hold a tuple, ascending. The caller releases the windows of a part
        before it takes the next part."""
        ...

    def leave(self, first: int) -> None:
        """Release what only windows before `first` need: none of them will be requested."""
        ...


class Holding(Protocol):
    def take(self, panes: Ints, rows: Words, state: State) -> None:
        """Take partials, at least one, each with its pane, which has not ended and which some window holds."""
        ...

    def ended(self, frontier: int | None, state: State) -> Ended:
        """The groups held now that panes below `frontier` (None: all) have ended."""
        ...


class PanedHolding:
    """Paned-WID: a piece for each pane, and what an `Assembly` keeps from one window to the next. `early`: groups may
    leave panes before their windows close."""

    def __init__(self, window: Window, layout: Layout, early: bool = False) -> None:
        self._window = window
        self._layout = layout
        self._space = tables_space("pane", layout)
        self._assembly = assembly_of(window, layout, early)
        self._room = 0  # groups of the last pane: the next one has about as many

    def take(self, panes: Ints, rows: Words, state: State) -> None:
        for pane, part in split(panes, rows):
            table = state.part(self._space, pane) or GroupTable(self._layout, self._room)
            table.merge(part)
            self._room = len(table) * 9 // 8
            state.add(self._space, pane, table)

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

    def parts(self, first: int, end: int) -> Iterator[WindowGroups]:
        for window in holding_windows(self._window, self._panes, first, end):
            table = self._assembly.table(window, self._panes, self._state)
            yield WindowGroups.of(window, table, self._tuples(window, table))

    def _tuples(self, window: int, table: GroupTable) -> int:
        if self._window.kind is not WindowKind.LANDMARK:
            return table.tuples
        extent = self._window.extent(window)
        return sum(self._panes.table(pane).tuples for pane in self._panes.within(extent.start, extent.stop))

    def leave(self, first: int) -> None:
        self._assembly.leave(self._window.first_needed(first), self._panes, self._state)


def holding_windows(window: Window, panes: Panes, first: int, end: int) -> Iterator[int]:
    """The windows from `first` up to `end` that hold a tuple, ascending. Iterates over panes, not over windows."""
    for pane in panes.keys:
        if first >= end:
            return
        wids = window.wids(pane)
        yield from range(max(first, wids.start), min(end, wids.stop))
        first = max(first, min(end, wids.stop))
