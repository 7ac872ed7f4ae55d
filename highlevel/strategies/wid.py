"""WID (Li 6.1): each partial is merged on arrival into every open window that holds it (figs. 6-2 and 6-4).

`Windows` does the work of Bucket and Aggregate; AdaptWID holds its eager groups in it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from highlevel.groups.group_table import GroupRows
from highlevel.groups.layout import Layout
from highlevel.groups.split import by_pane
from highlevel.interface import Space, State, Words
from highlevel.operators.window_groups import WindowGroups
from highlevel.strategies.holding import Ended
from highlevel.strategies.window_block import WindowBlock
from lowmark.query.expr.evaluate import Ints
from lowmark.query.windows.window import Window

__all__ = ["WidHolding", "Windows"]

_WIDEST = 32
"""Most windows in a piece of state, which is rewritten as long as tuples come for one of them."""


class Windows:
    """Sliding windows in blocks. A block is wide enough that a pane is in few blocks, and narrow enough that it can be
    dropped soon."""

    def __init__(self, window: Window, layout: Layout) -> None:
        self._window = window
        self._layout = layout
        overlapping = -(-window.size // window.slide)
        self._width = width = max(1, min(_WIDEST, overlapping // 2))
        self.space = Space("windows", WindowBlock.encode, lambda data: WindowBlock.decode(layout, width, data))

    def take(self, panes: Ints, rows: Words, state: State) -> None:
        """Take partials, at least one, each with its pane, which some window holds."""
        panes, rows = by_pane(panes, rows)
        for block, some, firsts, stops, base in self._touched(*self._wids(panes), state):
            block.merge(rows[some], firsts, stops, base)

    def enter(self, panes: Ints, groups: GroupRows, least: int, state: State) -> None:
        """Merge groups of panes into the windows from `least` on that hold them."""
        order = np.argsort(panes, kind="stable")
        firsts, stops = self._wids(panes[order])
        order, firsts, stops = (column[stops > least] for column in (order, np.maximum(firsts, least), stops))
        for block, some, of_firsts, of_stops, base in self._touched(firsts, stops, state):
            block.merge_groups(groups.at(order[some]), of_firsts, of_stops, base)

    def _wids(self, panes: Ints) -> tuple[Ints, Ints]:
        """Li's Bucket: the first window that holds each pane, and one after the last."""
        return panes // self._window.slide, (panes + self._window.size) // self._window.slide

    def _touched(self, firsts: Ints, stops: Ints, state: State) -> Iterator[tuple[WindowBlock, slice, Ints, Ints, int]]:
        """Each block, with the block's first window and those of the ascending runs of windows that touch it. A block
        is put when the next one is requested."""
        starts = firsts // self._width
        at, number = 0, int(starts[0]) if len(starts) else 0
        while at < len(firsts):
            number = max(number, int(starts[at]))
            base, following = number * self._width, (number + 1) * self._width
            some = slice(at, int(np.searchsorted(firsts, following)))
            block = self._block(number, state)
            yield block, some, firsts[some], stops[some], base
            state.put(self.space, number, block)
            number += 1
            at = int(np.searchsorted(stops, following, "right"))

    def span(self, below: int | None, state: State) -> range | None:
        """From the first window that holds a tuple to one after the last, in the blocks that begin before `below`
        (None: in all)."""
        keys = self._keys(below, state)
        if not keys:
            return None
        first, last = (np.flatnonzero(self._block(key, state).held) for key in (keys[0], keys[-1]))
        return range(keys[0] * self._width + int(first[0]), keys[-1] * self._width + int(last[-1]) + 1)

    def numbers(self, first: int, end: int, state: State) -> Iterator[int]:
        """The windows from `first` up to `end` that hold a tuple, ascending."""
        for key in self._keys(end, state):
            base = key * self._width
            yield from (
                base + at for at in np.flatnonzero(self._block(key, state).held).tolist() if first <= base + at < end
            )

    def held(self, window: int, state: State) -> WindowGroups | None:
        """The groups of a window; None: it holds no tuple."""
        return next(self.parts(window, window + 1, state), None)

    def parts(self, first: int, end: int, state: State) -> Iterator[WindowGroups]:
        """The groups of the windows from `first` up to `end`, in ascending order."""
        for key in self._keys(end, state):
            if (key + 1) * self._width <= first:
                continue
            base = key * self._width
            start, stop = max(first - base, 0), min(end - base, self._width)
            part = self._block(key, state).part(start, stop, base)
            if part.windows:
                yield part

    def leave(self, first: int, state: State) -> None:
        """Drop the windows before `first`."""
        for key in self._keys(first, state):
            if (key + 1) * self._width <= first:
                state.drop(self.space, key)
                continue
            block = self._block(key, state)
            if not block.leave(first - key * self._width):
                continue
            if block.partials:
                state.put(self.space, key, block)
            else:
                state.drop(self.space, key)

    def _keys(self, below: int | None, state: State) -> list[int]:
        return list(state.keys(self.space, None if below is None else -(-below // self._width)))

    def _block(self, number: int, state: State) -> WindowBlock:
        return state.get(self.space, number) or WindowBlock(self._layout, self._width)


class WidHolding:
    """Sliding windows only."""

    def __init__(self, window: Window, layout: Layout) -> None:
        self._window = window
        self._windows = Windows(window, layout)

    def take(self, panes: Ints, rows: Words, state: State) -> None:
        self._windows.take(panes, rows, state)

    def ended(self, frontier: int | None, state: State) -> Ended:
        below = None if frontier is None else self._window.closed_by(frontier)
        return _EndedWindows(self._windows, below, state)


class _EndedWindows:
    def __init__(self, windows: Windows, below: int | None, state: State) -> None:
        self._windows = windows
        self._below = below
        self._state = state

    @property
    def span(self) -> range | None:
        return self._windows.span(self._below, self._state)

    def parts(self, first: int, end: int) -> Iterator[WindowGroups]:
        return self._windows.parts(first, end, self._state)

    def leave(self, first: int) -> None:
        self._windows.leave(first, self._state)
