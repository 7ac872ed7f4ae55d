"""The windows of a union: those that all of its members have closed, with the worst verdict of any.

All members count their windows alike, and each reports its own as a contiguous run. A window waits here until the last
member has reported it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from highlevel.events import Closing
from highlevel.verdicts.marks import EXACT, Finding, MarkRow, Marks
from highlevel.verdicts.untellable_values import FlawRow, Flaws
from highlevel.verdicts.window_sequence import WindowRun, WindowRunRow
from lowmark.query.windows.window import Window
from lowmark.wire.rows.values import NEVER

__all__ = ["MeldedRow", "MeldedSequence"]

MeldedRow = tuple[int | None, int | None, list[MarkRow], list[FlawRow], list[list[WindowRunRow]]]
"""A sequence in state."""


class MeldedSequence:
    """Contiguous, like the members' sequences, from the first window that a member reports. A tuple counts once for
    each member that merged it. Pane k of `marks` is window k."""

    def __init__(self, window: Window, members: Sequence[str]) -> None:
        self.window = window
        self.marks = Marks()
        self.flaws = Flaws()
        self.first: int | None = None  # the first window of all
        self.next: int | None = None
        self._runs: dict[str, list[WindowRun]] = {member: [] for member in members}

    def follow(self, member: str, spans: Iterable[WindowRun]) -> None:
        """Take windows that a member has closed."""
        self._runs[member] += spans

    def close(self, closings: Iterable[Closing], front: int) -> list[WindowRun]:
        """The spans after those already output, given that all members have closed the windows below `front`. A window
        with rows is a span of its own."""
        runs = [span for spans in self._runs.values() for span in spans]
        if front == NEVER or not runs:
            return []
        start = self._begin(runs) if self.next is None else self.next
        stop = min(front, max(span.to for span in runs) + 1)
        edges = {start, stop}
        for span in runs:
            edges |= {span.first, span.to + 1}
        for closing in closings:
            edges |= {closing.windows.start, closing.windows.stop}
        for mark in self.marks.within(start, stop):
            edges |= {mark.start, mark.stop}
        bounds = sorted(edge for edge in edges if start <= edge <= stop)
        if len(bounds) < 2:
            return []
        self.first, self.next = start if self.first is None else self.first, stop
        self._runs = {member: _behind(spans, stop) for member, spans in self._runs.items()}
        given = _together(runs, bounds)
        given = [replace(span, finding=span.finding + self.marks.finding(span.first, span.to + 1)) for span in given]
        self.marks.prune(stop)
        return given

    def _begin(self, runs: Sequence[WindowRun]) -> int:
        """The first window that a member reports, or an earlier window that it has skipped and that had a loss
        since."""
        low = self.marks.low()
        first = min(span.first for span in runs)
        return first if low is None else min(first, low)

    def needs(self, front: int) -> int:
        """Nothing below `front`: the members keep what they need."""
        return front

    @property
    def waiting(self) -> int:
        """Number of windows with tuples that members have closed and that are not output yet."""
        holding = (span for spans in self._runs.values() for span in spans if span.tuples)
        return len({window for span in holding for window in range(span.first, span.to + 1)})

    def lost(self, finding: Finding) -> None:
        """Nothing to do: windows already output affect no later window."""

    def closed_with(self, start: int, stop: int) -> range:
        """Which of these windows were already output, or skipped because they are before the first."""
        if self.first is None or self.next is None:
            return range(0)
        return range(self.first if start == NEVER else start, min(stop, self.next))

    def row(self) -> MeldedRow:
        runs = [[span.row() for span in spans] for spans in self._runs.values()]
        return self.first, self.next, self.marks.rows(), self.flaws.rows(), runs

    def restore(self, row: MeldedRow) -> None:
        self.first, self.next, marks, flaws, runs = row
        self.marks, self.flaws = Marks.of_rows(marks), Flaws(flaws)
        self._runs = {member: list(map(WindowRun.of_row, rows)) for member, rows in zip(self._runs, runs, strict=True)}


def _together(runs: Iterable[WindowRun], bounds: Sequence[int]) -> list[WindowRun]:
    """One span between each two bounds: what all members have reported of it. Windows that a member has not reported
    are outside the range of windows it holds."""
    given = [WindowRun(first, after - 1, 0, EXACT) for first, after in pairwise(bounds)]
    for span in runs:
        for at in range(bisect_left(bounds, span.first), min(bisect_left(bounds, span.to + 1), len(given))):
            one = given[at]
            given[at] = WindowRun(one.first, one.to, one.tuples + span.tuples, one.finding + span.finding)
    return given


def _behind(spans: Iterable[WindowRun], stop: int) -> list[WindowRun]:
    """The part of the spans from this window on."""
    return [replace(span, first=max(span.first, stop)) for span in spans if span.to >= stop]
