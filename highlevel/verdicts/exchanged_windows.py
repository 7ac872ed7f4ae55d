"""Windows behind an exchange: a step merges windows that an aggregate step has closed in every bucket.

They are the aggregate's own windows. A closed window waits here, with the finding of this bucket's aggregate, until the
exchange has brought the other buckets' rows and losses.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

from highlevel.events import Closing
from highlevel.progress.ledger import Ledger
from highlevel.verdicts.marks import Finding, MarkRow, Marks
from highlevel.verdicts.untellable_values import FlawRow, Flaws
from highlevel.verdicts.window_sequence import WindowRun, WindowRunRow
from lowmark.query.windows.window import Window
from lowmark.wire.records.verdicts import Reason, Verdict
from lowmark.wire.rows.values import NEVER

__all__ = ["FollowedRow", "FollowedSequence"]

FollowedRow = tuple[int | None, int | None, list[MarkRow], list[FlawRow], list[WindowRunRow]]
"""A sequence in state."""


class FollowedSequence:
    """Contiguous, like the sequence that it follows. `ledger`: of the exchange's node. Pane k of the ledger and of
    `marks` is window k."""

    def __init__(self, window: Window, ledger: Ledger) -> None:
        self.window = window
        self.marks = Marks()
        self.first: int | None = None  # the first window of all
        self.next: int | None = None
        self._ledger = ledger
        self._waiting: list[WindowRun] = []
        self.flaws = Flaws()

    def follow(self, step: str, spans: Iterable[WindowRun]) -> None:
        """Take windows that the aggregate has closed."""
        self._waiting += spans

    def close(self, closings: Iterable[Closing], front: int) -> list[WindowRun]:
        """The spans after those already output, given that windows below `front` are complete. A window with rows is a
        span of its own."""
        holding = {closing.windows.start for closing in closings if closing.tuples}
        if holding:
            self._cover(min(holding), max(holding))
        spans: list[WindowRun] = []
        while self._waiting and self._waiting[0].first < front:
            waiting = self._waiting.pop(0)
            stop = min(waiting.to + 1, front)
            if stop <= waiting.to:
                self._waiting.insert(0, replace(waiting, first=stop))
            for first, after in pairwise(self._edges(waiting.first, stop, holding)):
                spans.append(self._span(first, after - 1, waiting))
        if spans:
            self.first = spans[0].first if self.first is None else self.first
            self.next = spans[-1].to + 1
            self.marks.prune(self.next)
        return spans

    def needs(self, front: int) -> int:
        """The first granule of the exchange that a window still to close needs."""
        return min(front, self._waiting[0].first) if self._waiting else front

    @property
    def waiting(self) -> int:
        """Number of windows with tuples that the aggregate has closed and that are not output yet."""
        return sum(span.to + 1 - span.first for span in self._waiting if span.tuples)

    def lost(self, finding: Finding) -> None:
        """Nothing to do: windows already output affect no later window."""

    def closed_with(self, start: int, stop: int) -> range:
        """Which of these windows were already output or will never be. All lie below the exchange's frontier, or the
        aggregate has closed or skipped them."""
        if start == NEVER:
            return range(0) if self.first is None or self.next is None else range(self.first, min(stop, self.next))
        return range(start, min(stop, self._waiting[0].first) if self._waiting else stop)

    def row(self) -> FollowedRow:
        waiting = [span.row() for span in self._waiting]
        return self.first, self.next, self.marks.rows(), self.flaws.rows(), waiting

    def restore(self, row: FollowedRow) -> None:
        self.first, self.next, marks, flaws, waiting = row
        self.marks, self.flaws = Marks.of_rows(marks), Flaws(flaws)
        self._waiting = list(map(WindowRun.of_row, waiting))

    def _cover(self, first: int, to: int) -> None:
        """Mark a gap where other buckets have rows of these windows and this bucket's aggregate has not reported
        them."""
        gap = Finding(Verdict(frozenset({Reason.GAP})))
        begin = first if self.next is None else self.next
        if not self._waiting:
            self._waiting.append(WindowRun(begin, to, 0, gap))
        if first < self._waiting[0].first:
            self._waiting.insert(0, WindowRun(begin, self._waiting[0].first - 1, 0, gap))
        if self._waiting[-1].to < to:
            self._waiting.append(WindowRun(self._waiting[-1].to + 1, to, 0, gap))

    def _edges(self, start: int, stop: int, holding: set[int]) -> list[int]:
        """Cut a run of equal windows where rows, flaws or marks make them differ."""
        edges = {start, stop}
        for window in holding | self.flaws.windows:
            edges |= {window, window + 1}
        for marks in (self.marks, self._ledger.marks):
            for mark in marks.within(start, stop):
                edges |= {mark.start, mark.stop}
        return sorted(edge for edge in edges if start <= edge <= stop)

    def _span(self, first: int, to: int, told: WindowRun) -> WindowRun:
        finding = told.finding + self.marks.finding(first, to + 1)
        verdict = self._ledger.finding(range(first, to + 1)).verdict | self.flaws.take(first, to)
        return WindowRun(first, to, told.tuples, finding + Finding(verdict))
