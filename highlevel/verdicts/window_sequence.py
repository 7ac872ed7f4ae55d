"""The windows of one aggregate step as a contiguous run: the closed ones, each with its verdict.

Windows without tuples form one span as long as their marks are the same; no code iterates over them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from highlevel.events import Closing
from highlevel.interface import Words
from highlevel.progress.ledger import Ledger
from highlevel.verdicts.marks import EXACT, Finding, FindingRow, MarkRow, Marks
from highlevel.verdicts.untellable_values import FlawRow, Flaws
from lowmark.query.windows.window import Window, WindowKind
from lowmark.wire.rows.schema import Schema
from lowmark.wire.rows.values import FOREVER, NEVER

__all__ = ["SequenceRow", "WindowRun", "WindowRunRow", "WindowSequence", "rows_by_window"]

SequenceRow = tuple[int | None, int | None, list[MarkRow], list[FlawRow], FindingRow, int | None, int | None]
"""A sequence in state."""

WindowRunRow = tuple[int, int, int, FindingRow]
"""A span in state."""


@dataclass(frozen=True, slots=True)
class WindowRun:
    """Windows `first` to `to` (included) are final, with `tuples` merged into them."""

    first: int
    to: int
    tuples: int
    finding: Finding

    def row(self) -> WindowRunRow:
        return self.first, self.to, self.tuples, self.finding.row()

    @property
    def windows(self) -> range:
        return range(self.first, self.to + 1)

    @classmethod
    def of_row(cls, row: WindowRunRow) -> WindowRun:
        first, to, tuples, found = row
        return cls(first, to, tuples, Finding.of_row(found))


def rows_by_window(parts: Iterable[Words], window: Window, schema: Schema) -> dict[int, list[Words]]:
    """Rows by the window that they show; rows of one window stay in order of arrival."""
    length, origin = window.axis.unit * window.slide, window.axis.origin
    found: dict[int, list[Words]] = {}
    for part in parts:
        windows = (part[:, schema.offset("window_end")].view(np.int64) - origin) // length - 1
        cuts = [0, *(np.flatnonzero(np.diff(windows)) + 1).tolist(), len(part)]
        for start, stop in pairwise(cuts):
            if start < stop:
                found.setdefault(int(windows[start]), []).append(part[start:stop])
    return found


class WindowSequence:
    """`ledgers` are of the nodes whose panes make up the windows; `marks` are on the panes of other inputs."""

    def __init__(self, window: Window, ledgers: Sequence[Ledger], derived: bool) -> None:
        self.window = window
        self.marks = Marks()
        self.first: int | None = None  # the first window of all
        self.next: int | None = None
        self._ledgers = ledgers
        self._derived = derived
        self.flaws = Flaws()  # flaws of windows not yet closed
        self._past = EXACT  # a landmark window's finding about the tuples before its own slide
        self._low: int | None = None  # the first pane in which rows of other inputs can lie, in any bucket
        self._high: int | None = None  # … and the last

    def spread(self, low: int, high: int) -> None:
        """Note that rows of other inputs can lie in the panes from `low` to `high` (included), in this bucket or
        another."""
        self._low = low if self._low is None else min(self._low, low)
        self._high = high if self._high is None else max(self._high, high)

    def close(self, closings: Iterable[Closing], front: int) -> list[WindowRun]:
        """The spans after those already output, given that the step has reported these closings and every pane below
        `front` has ended."""
        closings = list(closings)
        if self.next is None:
            self.first = self.next = self._begin(closings, front)
        spans: list[WindowRun] = []
        for closing in closings:
            windows = closing.windows
            if self.next is None or windows.start < self.next:
                raise ValueError(f"window {windows.start} has closed twice, or out of order")
            # A landmark window has rows even if the tuples of its own slide went to other buckets.
            if not closing.tuples and (self.window.kind is not WindowKind.LANDMARK or len(windows) > 1):
                continue
            spans += self._empty(self.next, windows.start)
            spans.append(self._span(windows.start, windows.stop - 1, closing.tuples))
            self.next = windows.stop
        if self.next is not None:
            end = self._end(front)
            spans += self._empty(self.next, end)
            self.next = max(self.next, end)
            self.marks.prune(self.needs(front))
        return spans

    def needs(self, front: int) -> int:
        """The first pane that a window still to close needs; before the first promise of all inputs, any pane."""
        if self.next is None:
            return NEVER
        if self.window.kind is WindowKind.LANDMARK and self.next == self.first:
            return NEVER  # the first window holds everything before it
        return min(front, self.window.first_needed(self.next))

    def closed_with(self, start: int, stop: int) -> range:
        """The windows with panes from `start` up to `stop` that were already output, or skipped because they are before
        the first (if `start` is NEVER, skipped windows are left out). A landmark's pane is in all later windows too."""
        if self.first is None or self.next is None:
            return range(0)
        first = self.first if start == NEVER else self.window.wids(start).start
        landmark = self.window.kind is WindowKind.LANDMARK
        return range(first, self.next if landmark else min(self.window.wids(stop - 1).stop, self.next))

    def lost(self, finding: Finding) -> None:
        """Take a finding about panes that only closed windows have as their own. Landmark windows keep it."""
        if self.window.kind is WindowKind.LANDMARK:
            self._past += finding

    def row(self) -> SequenceRow:
        past = self._past.row()
        return self.first, self.next, self.marks.rows(), self.flaws.rows(), past, self._low, self._high

    def restore(self, row: SequenceRow) -> None:
        self.first, self.next, marks, flaws, past, self._low, self._high = row
        self.marks, self.flaws, self._past = Marks.of_rows(marks), Flaws(flaws), Finding.of_row(past)

    def _begin(self, closings: Sequence[Closing], front: int) -> int | None:
        """The first window of all: the first that ends after the first frontier, or an earlier one that holds a tuple
        or a loss from before it."""
        begins = [closing.windows.start for closing in closings if closing.tuples]
        lows = [self._low, self.marks.low()]
        lows += [low for ledger in self._ledgers for low in (ledger.low, ledger.marks.low())]
        begins += [self.window.wids(low).start for low in lows if low is not None]
        starts = [ledger.begins(front) for ledger in self._ledgers] or [front]
        begins += [self.window.closed_by(start) for start in starts if NEVER < start < FOREVER]
        return min(begins, default=None) if front > NEVER else None

    def _end(self, front: int) -> int:
        """Windows below this one are final. When all inputs have ended, windows after the last tuple or loss are not
        announced. Exceptions: those that another bucket may have announced already, and one into which lost tuples may
        have come."""
        if front < FOREVER:
            return self.window.closed_by(front) if front > NEVER else NEVER
        highs = [self._high, self.marks.high(), *(ledger.reach() for ledger in self._ledgers)]
        ends = [self.window.wids(high).stop for high in highs if high is not None]
        ends += [self.window.closed_by(ledger.told) for ledger in self._ledgers if ledger.told > NEVER]
        lost = [marks.unending() for marks in (self.marks, *(ledger.marks for ledger in self._ledgers))]
        ends += [self.window.closed_by(start) + 1 for start in lost if start is not None and start > NEVER]
        return max(ends, default=NEVER)

    def _empty(self, start: int, stop: int) -> Iterator[WindowRun]:
        """Spans of windows without tuples; all windows of a span have the same marks."""
        if start >= stop:
            return
        panes = range(self.window.extent(start).start, self.window.extent(stop - 1).stop)
        edges = {start, stop}
        for mark in self._marks_within(panes):
            edges.add(self.window.wids(max(mark[0], panes.start)).start)
            edges.add(self.window.wids(min(mark[1], panes.stop) - 1).stop)
        for window in self.flaws.windows:
            edges |= {window, window + 1}
        bounds = sorted(edge for edge in edges if start <= edge <= stop)
        for first, after in pairwise(bounds):
            yield self._span(first, after - 1, 0)

    def _marks_within(self, panes: range) -> Iterator[tuple[int, int]]:
        for marks in (self.marks, *(ledger.marks for ledger in self._ledgers)):
            for mark in marks.within(panes.start, panes.stop):
                yield mark.start, mark.stop

    def _span(self, first: int, to: int, tuples: int) -> WindowRun:
        landmark = self.window.kind is WindowKind.LANDMARK
        start = NEVER if landmark and first == self.first else self.window.extent(first).start
        panes = range(start, self.window.extent(to).stop)
        finding = self.marks.finding(panes.start, panes.stop)
        for ledger in self._ledgers:
            finding += ledger.finding(panes, self._in_a_window)
        finding += Finding(self.flaws.take(first, to))
        if landmark:
            finding = self._past = self._past + finding
            tuples = finding.merged if not self._derived else tuples
        if self._derived:
            finding = Finding(finding.verdict, tuples, tuples, finding.dropped, finding.late)
        return WindowRun(first, to, tuples, finding)

    def _in_a_window(self, pane: int) -> bool:
        """Whether a window holds the pane; a pane can lie between windows whose SLIDE is longer than their RANGE."""
        return len(self.window.wids(pane)) > 0
