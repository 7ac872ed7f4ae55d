"""Merges panes into windows by the cheapest method: the window-level half of the aggregate (Li 6.2: WLQ).

If windows overlap much, merging each from all of its panes would cost panes times groups per window:

- differential folds keep a running window: entering panes are merged, leaving panes subtracted;
- others keep blocks of 2, 4, 8 … panes: a window is merged from at most two of each size, and a pane is merged into
  one block of each size once;
- a landmark window keeps all that was ever merged.

Empty panes cost nothing: every method iterates over the panes that exist.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Protocol

from highlevel.groups.group_table import GroupTable
from highlevel.groups.layout import Layout
from highlevel.groups.state import SlidingGroups, running_space, tables_space
from highlevel.interface import ONLY, Space, State
from lowmark.query.aggregates.calls import DIFFERENTIAL
from lowmark.query.optimize.window_strategy import MUCH_OVERLAP
from lowmark.query.windows.window import Window, WindowKind

__all__ = ["Assembly", "Panes", "assembly_of"]


class Panes:
    """The panes that hold tuples and have ended, as of a promise; the oldest are dropped."""

    def __init__(self, space: Space[GroupTable], state: State, below: int | None) -> None:
        self._space = space
        self._state = state
        self._gone = 0  # this many of `keys` were dropped
        self.keys: Sequence[int] = state.keys(space, below)

    def within(self, start: int, end: int) -> Sequence[int]:
        """The panes from `start` up to `end`, ascending."""
        first = bisect_left(self.keys, start, self._gone)
        return self.keys[first : bisect_left(self.keys, end, first)]

    def table(self, pane: int) -> GroupTable:
        """The pane's table, read-only."""
        table = self._state.get(self._space, pane)
        if table is None:
            raise LookupError(f"pane {pane} is listed and not in the state")
        return table

    def drop(self, below: int) -> None:
        end = bisect_left(self.keys, below, self._gone)
        for pane in self.keys[self._gone : end]:
            self._state.drop(self._space, pane)
        self._gone = end


class Assembly(Protocol):
    """Merges panes into windows. Windows are requested in ascending order, at least those that hold tuples."""

    def table(self, window: int, panes: Panes, state: State) -> GroupTable:
        """The groups of a window whose panes have ended, read-only."""
        ...

    def leave(self, first: int, panes: Panes, state: State) -> None:
        """Release panes below `first`, which no later window needs."""
        ...


def assembly_of(window: Window, layout: Layout, early: bool = False) -> Assembly:
    """`early`: groups may leave panes before their windows close, so nothing else may hold them."""
    if window.kind is WindowKind.LANDMARK:
        return _Landmark(window, layout)
    if early or window.size < MUCH_OVERLAP * window.slide:
        return _FromPanes(window, layout)
    if all(fold.op in DIFFERENTIAL for fold in layout.folds):
        return _Subtracting(window, layout)
    return _FromBlocks(window, layout)


class _FromPanes:
    def __init__(self, window: Window, layout: Layout) -> None:
        self._window = window
        self._layout = layout

    def table(self, window: int, panes: Panes, state: State) -> GroupTable:
        extent = self._window.extent(window)
        keys = panes.within(extent.start, extent.stop)
        if len(keys) == 1:
            return panes.table(keys[0])
        return _merged(self._layout, (panes.table(pane) for pane in keys))

    def leave(self, first: int, panes: Panes, state: State) -> None:
        panes.drop(first)


class _Subtracting:
    def __init__(self, window: Window, layout: Layout) -> None:
        self._window = window
        self._layout = layout
        self._space = running_space(layout)

    def table(self, window: int, panes: Panes, state: State) -> GroupTable:
        extent = self._window.extent(window)
        running = state.get(self._space, ONLY)
        if running is None or running.end <= extent.start:
            running = SlidingGroups(extent.start, extent.start, GroupTable(self._layout))
        for pane in panes.within(running.end, extent.stop):
            running.table.merge_table(panes.table(pane))
        running.end = extent.stop
        state.put(self._space, ONLY, running)
        return running.table

    def leave(self, first: int, panes: Panes, state: State) -> None:
        running = state.get(self._space, ONLY)
        if running is not None and running.start < first:
            if not panes.within(first, running.end):
                state.drop(self._space, ONLY)
            else:
                for pane in panes.within(running.start, first):
                    running.table.subtract_table(panes.table(pane))
                running.start = first
                state.put(self._space, ONLY, running)
        panes.drop(first)


class _FromBlocks:
    """A block of level l and number j holds panes j·2^l … (j+1)·2^l − 1. It is kept if both halves hold tuples."""

    def __init__(self, window: Window, layout: Layout) -> None:
        self._window = window
        self._layout = layout
        levels = window.size.bit_length() - 1
        self._spaces = tuple(tables_space(f"block{level + 1}", layout) for level in range(levels))

    def table(self, window: int, panes: Panes, state: State) -> GroupTable:
        extent = self._window.extent(window)
        parts = [
            table
            for level, number in _blocks(extent.start, extent.stop)
            if (table := self._block(level, number, panes, state)) is not None
        ]
        return parts[0] if len(parts) == 1 else _merged(self._layout, parts)

    def leave(self, first: int, panes: Panes, state: State) -> None:
        for level, space in enumerate(self._spaces, 1):
            for number in state.keys(space, -(-first >> level)):
                state.drop(space, number)
        panes.drop(first)

    def _block(self, level: int, number: int, panes: Panes, state: State) -> GroupTable | None:
        within = panes.within(number << level, number + 1 << level)
        if not within:
            return None
        if len(within) == 1:
            return panes.table(within[0])
        space = self._spaces[level - 1]
        kept = state.get(space, number)
        if kept is not None:
            return kept
        left, right = (self._block(level - 1, 2 * number + half, panes, state) for half in (0, 1))
        if left is None or right is None:
            return left or right
        block = _merged(self._layout, (left, right))
        state.put(space, number, block)
        return block


class _Landmark:
    def __init__(self, window: Window, layout: Layout) -> None:
        self._window = window
        self._layout = layout
        self._space = tables_space("landmark", layout)

    def table(self, window: int, panes: Panes, state: State) -> GroupTable:
        table = state.get(self._space, ONLY) or GroupTable(self._layout)
        extent = self._window.extent(window)
        for pane in panes.within(extent.start, extent.stop):
            table.merge_table(panes.table(pane))
        state.put(self._space, ONLY, table)
        return table

    def leave(self, first: int, panes: Panes, state: State) -> None:
        panes.drop(first)


def _merged(layout: Layout, tables: Iterator[GroupTable] | Sequence[GroupTable]) -> GroupTable:
    merged = GroupTable(layout)
    merged.merge_tables(tables)
    return merged


def _blocks(start: int, end: int) -> Iterator[tuple[int, int]]:
    """The fewest blocks (level, number) that make up the panes from start up to end."""
    while start < end:
        aligned = (start & -start).bit_length() - 1 if start else end.bit_length()
        level = min(aligned, (end - start).bit_length() - 1)
        yield level, start >> level
        start += 1 << level
