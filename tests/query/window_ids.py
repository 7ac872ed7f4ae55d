"""Window semantics (Li 5.1) as pure functions: which windows there are, which tuples each holds, which hold a tuple.

They are the definitions, for any kind of window, over a finite sequence of tuples in order of arrival; operators
compute the same without looking at all tuples. `extent` and `wids` are inverse to each other.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from lowmark.query.bind.relations import Turn
from lowmark.query.windows.window import Window, WindowKind

__all__ = ["Tuple", "WindowId", "Windows", "extent", "wids", "windows"]


@dataclass(frozen=True, slots=True)
class Tuple:
    """`value` is of WA or RATTR; windows over rows do not look at it. `partition` is the value of PA."""

    value: int
    partition: Hashable = None


@dataclass(frozen=True, slots=True)
class WindowId:
    """`number` counts the windows of a partition; of slide-by-tuple windows it is the RATTR that they end at."""

    partition: Hashable
    number: int


@dataclass(frozen=True, slots=True)
class Windows:
    """A window specification. `turn`: what is counted; None: nothing, it goes by the values of an attribute."""

    window: Window
    turn: Turn | None = None


def windows(of: Windows, tuples: Sequence[Tuple]) -> frozenset[WindowId]:
    """Those that have rows: they hold a tuple, landmark windows one in their own slide (eqs. 5.1, 5.4, 5.7, 5.13,
    5.16)."""
    if of.window.kind is not WindowKind.SLIDE_BY_TUPLE:
        panes = _panes(of, tuples)
        return frozenset(
            WindowId(item.partition, number)
            for item, pane in zip(tuples, panes, strict=True)
            for number in of.window.wids(pane)
        )
    order = sorted(range(len(tuples)), key=lambda i: tuples[i].value) if of.turn is Turn.RANK else range(len(tuples))
    counted: dict[Hashable, int] = {}
    ends = set()
    for item in (tuples[i] for i in order):
        counted[item.partition] = counted.get(item.partition, 0) + 1
        if counted[item.partition] % of.window.slide == 0:
            ends.add(WindowId(item.partition, item.value))
    return frozenset(ends)


def extent(of: Windows, window: WindowId, tuples: Sequence[Tuple]) -> frozenset[int]:
    """The positions in `tuples` of those that a window holds (eqs. 5.2, 5.5, 5.8, 5.14, 5.17)."""
    panes = _panes(of, tuples)
    return frozenset(
        i for i, item in enumerate(tuples) if item.partition == window.partition and _holds(of, window, panes[i])
    )


def wids(of: Windows, position: int, tuples: Sequence[Tuple]) -> frozenset[WindowId]:
    """The windows that hold the tuple at a position (eqs. 5.3, 5.6 and 5.9, with floors; 5.15, 5.18)."""
    partition, pane = tuples[position].partition, _panes(of, tuples)[position]
    window = of.window
    if window.kind is WindowKind.SLIDING:
        return frozenset(WindowId(partition, number) for number in window.wids(pane))
    first = pane if window.kind is WindowKind.SLIDE_BY_TUPLE else window.wids(pane).start
    return frozenset(
        item
        for item in windows(of, tuples)
        if item.partition == partition
        and first <= item.number
        and (window.kind is WindowKind.LANDMARK or item.number < pane + window.size)
    )


def _holds(of: Windows, window: WindowId, pane: int) -> bool:
    if of.window.kind is WindowKind.SLIDE_BY_TUPLE:
        return window.number - of.window.size < pane <= window.number
    panes = of.window.extent(window.number)
    return pane < panes.stop if of.window.kind is WindowKind.LANDMARK else pane in panes


def _panes(of: Windows, tuples: Sequence[Tuple]) -> list[int]:
    """Of each tuple the pane of its value, or of its number among the rows of its partition."""
    axis, counted = of.window.axis, dict[Hashable, int]()
    panes = []
    for item in tuples:
        counted[item.partition] = counted.get(item.partition, 0) + 1
        value = counted[item.partition] if of.turn is Turn.ROWS else item.value
        panes.append((value - axis.origin) // axis.unit)
    return panes
