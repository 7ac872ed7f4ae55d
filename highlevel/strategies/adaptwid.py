"""AdaptWID (Li 6.3) over panes: each group is held eagerly (in every window) or lazily (in its panes alone).

Every group begins lazily, so a group of one packet costs one partial, however many windows hold it. Groups that take
less space in windows than in panes are eager. All groups are checked twice per window length of panes, before old panes
are dropped. Lazy ones are also checked when the buffered partials have doubled since their last check. If there are no
more panes than open windows, no group can be better off eager, and none is checked:

- lazy to eager: the group's partials are merged from its panes into the open windows, and leave the panes;
- eager to lazy: new partials go into panes. What the group's windows hold stays there until they close (a group in
  transition, fig. 6-18): a window is always merged from both.

A group without an entry in the mode is lazy, so that this state grows only with the dense groups. How a group is held
depends on the rows so far and on where batches were cut; the output does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge

import numpy as np

from highlevel.groups.group_table import GroupRows, GroupTable
from highlevel.groups.layout import Layout
from highlevel.groups.split import by_pane, split
from highlevel.groups.state import tables_space
from highlevel.interface import ONLY, State, Words
from highlevel.operators.window_groups import WindowGroups
from highlevel.strategies.adaptwid_switching import COSTS, HoldingCosts, Mode, mode_space
from highlevel.strategies.holding import Ended, holding_windows
from highlevel.strategies.paned import Panes
from highlevel.strategies.wid import Windows
from lowmark.query.expr.evaluate import Ints
from lowmark.query.windows.window import Window

__all__ = ["AdaptHolding"]


class AdaptHolding:
    """Sliding windows only."""

    def __init__(self, window: Window, layout: Layout, costs: HoldingCosts = COSTS) -> None:
        self.window = window
        self.layout = layout
        self.lazy = tables_space("lazy", layout)
        self.windows = Windows(window, layout)
        self._keys = layout.of_keys
        self._mode = mode_space(self._keys)
        self._costs = costs

    def take(self, panes: Ints, rows: Words, state: State) -> None:
        mode = state.get(self._mode, ONLY) or Mode(self._keys)
        mode.high = max(mode.high, int(panes.max()))
        if len(mode.groups):
            panes, rows = by_pane(panes, rows)
            places = mode.groups.find(rows)
            eager = places >= 0
            if eager.any():
                mode.show(places[eager], panes[eager])
                self.windows.take(panes[eager], rows[eager], state)
                panes, rows = panes[~eager], rows[~eager]
        for pane, part in split(panes, rows):
            table = state.get(self.lazy, pane) or GroupTable(self.layout)
            mode.since -= len(table)
            table.merge(part)
            mode.since += len(table)
            state.put(self.lazy, pane, table)
        if mode.since > max(mode.kept, self._costs.least):
            self._enter(mode, state)
        state.put(self._mode, ONLY, mode)

    def ended(self, frontier: int | None, state: State) -> Ended:
        closed = None if frontier is None else self.window.closed_by(frontier)
        return _EndedParts(self, Panes(self.lazy, state, frontier), closed, state)

    def look(self, first: int, state: State) -> None:
        """Decide anew how groups are held. Windows below `first` were output; their panes are still there."""
        mode = state.get(self._mode, ONLY)
        if mode is None:
            return
        mode.first = first
        state.put(self._mode, ONLY, mode)
        came = None if mode.looked is None else mode.high - mode.looked
        if came is not None and 2 * came < self.window.size:
            return
        if came is not None and len(mode.groups):
            panes = max(1, mode.high - self.window.first_needed(first - 1) + 1)
            mode.leave(self._costs.lazy(mode.shown, came, panes, self._open(mode, first - 1)))
        mode.shown[:] = 0
        mode.looked = mode.high
        self._enter(mode, state, out=1)

    def _open(self, mode: Mode, first: int) -> int:
        """The number of open windows from `first` on."""
        return max(1, self.window.wids(mode.high).stop - first)

    def _enter(self, mode: Mode, state: State, out: int = 0) -> None:
        """Make those groups eager that save space by it. `out`: windows just closed whose panes are still there."""
        panes = state.keys(self.lazy)
        first = mode.first
        if first is None:
            first = self.window.wids(panes[0]).start if panes else 0
        windows = self._open(mode, first - out)
        if not self._costs.any_eager(len(panes), windows):
            mode.kept, mode.since = mode.kept + mode.since, 0
            return
        known = GroupTable(self._keys)
        tables = [(pane, table) for pane in panes if (table := state.get(self.lazy, pane)) is not None]
        places = [known.merge_table(table) for _, table in tables]
        buffered = np.bincount(np.concatenate(places), minlength=len(known))
        mode.kept, mode.since = int(buffered.sum()), 0
        eager = known.take(self._costs.eager(buffered, windows))
        if not len(eager):
            return
        latest, shown = np.zeros(len(eager), np.int64), np.zeros(len(eager), np.int64)
        for pane, table in tables:
            found = eager.find_groups(GroupRows.of((table,)))
            taken = table.take(found >= 0)
            if not len(taken):
                continue
            # Keep the piece even if it is empty: it records which windows hold tuples.
            state.put(self.lazy, pane, table)
            self.windows.enter(np.full(len(taken), pane), GroupRows.of((taken,)), first, state)
            mode.kept -= len(taken)
            found = found[found >= 0]
            latest[found] = pane
            shown[found] += mode.looked is None or pane > mode.looked
        mode.enter(eager, latest, shown)


class _EndedParts:
    def __init__(self, holding: AdaptHolding, panes: Panes, below: int | None, state: State) -> None:
        self._holding = holding
        self._panes = panes
        self._below = below  # windows that have ended
        self._state = state

    @property
    def span(self) -> range | None:
        wids, panes = self._holding.window.wids, self._panes.keys
        spans = [range(wids(panes[0]).start, wids(panes[-1]).stop)] if panes else []
        eager = self._holding.windows.span(self._below, self._state)
        if eager is not None:
            spans.append(eager)
        return range(min(span.start for span in spans), max(span.stop for span in spans)) if spans else None

    def parts(self, first: int, end: int) -> Iterator[WindowGroups]:
        known = first - 1
        lazy = holding_windows(self._holding.window, self._panes, first, end)
        eager = list(self._holding.windows.numbers(first, end, self._state))
        for window in merge(lazy, eager):
            if window > known:
                yield self._part(window)
            known = window

    def _part(self, window: int) -> WindowGroups:
        extent = self._holding.window.extent(window)
        panes = map(self._panes.table, self._panes.within(extent.start, extent.stop))
        lazy = [table for table in panes if len(table)]
        eager = self._holding.windows.held(window, self._state)
        if eager is not None and not lazy:
            return eager
        if eager is None and len(lazy) == 1:
            return WindowGroups.of(window, lazy[0], lazy[0].tuples)
        table = GroupTable(self._holding.layout)
        if eager is not None:
            table.merge_groups(eager.groups)
        table.merge_tables(lazy)
        return WindowGroups.of(window, table, table.tuples)

    def leave(self, first: int) -> None:
        self._holding.look(first, self._state)
        self._panes.drop(self._holding.window.first_needed(first))
        self._holding.windows.leave(first, self._state)
