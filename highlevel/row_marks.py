"""Marks on rows: a verdict against all rows within some extents. Marks travel through operators as promises do.

A mark is a box, like a joint promise: the rows that it concerns, whether present, wrong or missing, have values within
its extents. An operator maps the extents of its input's columns to those of its output's by the functions by which it
maps bounds. Losses of a bucket begin as marks on panes of nodes and on windows, and end at steps that make windows, at
exchanges and in the answer (`highlevel.verdicts`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lowmark.query.windows.panes import Pane
from lowmark.query.windows.progressing import Progress
from lowmark.query.windows.window import Window
from lowmark.wire.records.verdicts import Reason, Verdict
from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.values import FOREVER, NEVER

__all__ = [
    "EVERYWHERE", "WINDOW", "Extent", "RowMark", "carried", "counted_anew", "in_panes", "of_panes", "on_windows",
    "shown_windows", "through", "windows_shown",
]  # fmt: skip

Extent = tuple[int, int]
"""An extent: values from the first up to the second."""

EVERYWHERE: Extent = (NEVER, FOREVER)

WINDOW = "window"
"""The column of a window's number, in marks on windows for the step that makes them."""


@dataclass(frozen=True, slots=True)
class RowMark:
    """`extents`: by column; a column that is not named is unlimited. `times` are those of the tuples that the rows are
    made from, in values of the nodes' attribute."""

    verdict: Verdict
    extents: Mapping[str, Extent]
    times: Extent = EVERYWHERE
    shifts: bool = False  # rows are missing or wrong, so a later count of rows gives wrong numbers
    joined: bool = False  # the mark has passed a join, which may hold rows back

    def at(self, extents: Mapping[str, Extent]) -> RowMark:
        return replace(self, extents=extents)

    def __add__(self, other: RowMark) -> RowMark:
        """One mark that covers both."""
        both = self.extents.keys() & other.extents.keys()
        return RowMark(
            self.verdict | other.verdict, {name: _hull(self.extents[name], other.extents[name]) for name in both},
            _hull(self.times, other.times), self.shifts or other.shifts, self.joined or other.joined,
        )  # fmt: skip


def _hull(one: Extent, other: Extent) -> Extent:
    return min(one[0], other[0]), max(one[1], other[1])


def through(extent: Extent, way: Progress) -> Extent:
    """The extent of an expression over the column's extent; `way`: how it progresses with the column."""
    start, stop = extent
    return start if start == NEVER else way.value(start), stop if stop == FOREVER else way.value(stop - 1) + 1


def carried(mark: RowMark, columns: Mapping[str, Iterable[tuple[str, Progress]]]) -> dict[str, Extent]:
    """The extents of an output's columns. `columns`: by input column, the output columns that progress with it."""
    return {
        name: through(extent, way) for column, extent in mark.extents.items() for name, way in columns.get(column, ())
    }


def in_panes(extent: Extent, pane: Pane) -> Extent:
    """The panes in which values within the extent lie."""
    start, stop = extent
    return start if start == NEVER else pane.index(start), stop if stop == FOREVER else pane.index(stop - 1) + 1


def of_panes(extent: Extent, pane: Pane) -> Extent:
    """The values in these panes."""
    start, stop = (each if each in EVERYWHERE else pane.start(each) for each in extent)
    return start, stop


def counted_anew(mark: RowMark, names: Sequence[str], since: Mapping[str, int] | None = None) -> RowMark:
    """The mark on the output of a step that counts rows: a loss changes the numbers of all later rows, wherever they
    lie; in the columns of `since`, only from those values on."""
    if not mark.verdict.reasons and not mark.shifts:
        return mark.at(dict.fromkeys(names, EVERYWHERE))
    verdict = mark.verdict | Verdict(frozenset({Reason.NUMBERING}))
    extents = {name: ((since or {}).get(name, NEVER), FOREVER) for name in names}
    return replace(mark, verdict=verdict, extents=extents)


def on_windows(windows: range, verdict: Verdict) -> RowMark:
    """A mark on windows, for the step that makes them."""
    return RowMark(verdict, {WINDOW: (windows.start, windows.stop)}, shifts=bool(verdict.reasons))


def shown_windows(window: Window, mark: RowMark) -> RowMark:
    """Convert a mark on windows into one on the rows that show them."""
    first, stop = mark.extents[WINDOW]
    last = stop - 1
    start, begins = window.start(first), window.start(last)
    extents = {"window_end": (window.end(first), window.end(last) + 1)}
    if start is not None and begins is not None:
        extents["window_start"] = (start, begins + 1)
    times = (NEVER if start is None else start, window.end(last)) if window.axis.kind is Kind.TIME else EVERYWHERE
    return replace(mark, extents=extents, times=times)


def windows_shown(window: Window, mark: RowMark) -> range:
    """Convert a mark on rows that show windows into one on these windows."""
    start, stop = mark.extents.get("window_end", EVERYWHERE)
    length, origin = window.axis.unit * window.slide, window.axis.origin
    return range(-(-(start - origin) // length) - 1, (stop - 1 - origin) // length)
