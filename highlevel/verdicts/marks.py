"""Losses against granules: marks on runs of them, and findings about the tuples of an extent.

Runs may be unbounded, so nothing here iterates over granules: one packet years ahead costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from lowmark.wire.records.verdicts import Reason, Verdict
from lowmark.wire.rows.values import FOREVER, NEVER

__all__ = ["EXACT", "NOTHING", "Finding", "FindingRow", "Mark", "MarkRow", "Marks"]

MarkRow = tuple[int, int, list[str], bool, int, int]
"""A mark in state."""

FindingRow = tuple[list[str], bool, int, int, int, int]
"""A finding in state."""


_UNMARKED = Verdict()


@dataclass(frozen=True, slots=True)
class Finding:
    """What is known of the tuples of an extent: how many were merged, promised, dropped and late, and the verdict."""

    verdict: Verdict = _UNMARKED
    merged: int = 0
    promised: int = 0
    dropped: int = 0
    late: int = 0

    def __add__(self, other: Finding) -> Finding:
        return Finding(
            self.verdict | other.verdict, self.merged + other.merged, self.promised + other.promised,
            self.dropped + other.dropped, self.late + other.late,
        )  # fmt: skip

    def row(self) -> FindingRow:
        reasons = [reason.value for reason in Reason if reason in self.verdict.reasons]
        return reasons, self.verdict.partial, self.merged, self.promised, self.dropped, self.late

    @classmethod
    def of_row(cls, row: FindingRow) -> Finding:
        reasons, partial, *counts = row
        return cls(Verdict(frozenset(map(Reason, reasons)), partial), *counts)


EXACT = Finding()
NOTHING = EXACT.row()


@dataclass(frozen=True, slots=True)
class Mark:
    """Why the granules from `start` up to `stop` are lossy or partial, and how many tuples it concerns in all."""

    start: int
    stop: int
    verdict: Verdict
    dropped: int = 0
    late: int = 0

    def covers(self, other: Mark) -> bool:
        """Whether the other mark adds nothing to this one."""
        within = self.start <= other.start and other.stop <= self.stop
        return within and not other.dropped and not other.late and self.verdict | other.verdict == self.verdict

    def runs_into(self, other: Mark) -> bool:
        """Whether this mark and a plain other one, which begins in it or directly after it, can be merged into one."""
        plain = not self.dropped and not self.late
        return plain and self.verdict == other.verdict and self.start <= other.start <= self.stop

    def like(self, other: Mark) -> bool:
        """Whether both have the same granules and verdict; their counts may differ."""
        return (self.start, self.stop, self.verdict) == (other.start, other.stop, other.verdict)


class Marks:
    """Marks in the order in which they were made."""

    def __init__(self, marks: Iterable[Mark] = ()) -> None:
        self._marks = list(marks)

    def add(self, mark: Mark) -> None:
        if mark.start >= mark.stop:
            return
        plain = not mark.dropped and not mark.late
        if plain and any(kept.covers(mark) for kept in self._marks):
            return
        if plain and self._marks and self._marks[-1].runs_into(mark):
            last = self._marks.pop()
            mark = Mark(last.start, max(last.stop, mark.stop), mark.verdict)
        elif not plain and self._marks and self._marks[-1].like(mark):
            last = self._marks.pop()
            mark = replace(mark, dropped=last.dropped + mark.dropped, late=last.late + mark.late)
        self._marks.append(mark)

    def within(self, start: int, stop: int) -> Iterator[Mark]:
        """The marks that touch a granule from `start` up to `stop`."""
        return (mark for mark in self._marks if mark.start < stop and start < mark.stop)

    def finding(self, start: int, stop: int) -> Finding:
        found = EXACT
        for mark in self.within(start, stop):
            found += Finding(mark.verdict, dropped=mark.dropped, late=mark.late)
        return found

    def prune(self, below: int) -> bool:
        """Remove marks that touch only granules below; returns whether there were any."""
        kept = [mark for mark in self._marks if mark.stop > below]
        pruned = len(kept) < len(self._marks)
        self._marks = kept
        return pruned

    def low(self) -> int | None:
        """The first granule at which a mark with reasons begins, ignoring marks that reach back to the beginning."""
        starts = (mark.start for mark in self._marks if mark.verdict.reasons)
        return min((start for start in starts if start > NEVER), default=None)

    def unending(self) -> int | None:
        """The granule from which on a mark covers all that is still to come."""
        return max((mark.start for mark in self._marks if mark.stop == FOREVER), default=None)

    def high(self) -> int | None:
        """The last granule at which a mark begins or ends. From there on up to FOREVER nothing changes."""
        ends = [mark.stop - 1 if mark.stop < FOREVER else mark.start for mark in self._marks]
        return max(ends, default=None)

    def __bool__(self) -> bool:
        return bool(self._marks)

    def rows(self) -> list[MarkRow]:
        return [
            (m.start, m.stop, [r.value for r in Reason if r in m.verdict.reasons], m.verdict.partial, m.dropped, m.late)
            for m in self._marks
        ]

    @classmethod
    def of_rows(cls, rows: Iterable[MarkRow]) -> Marks:
        return cls(
            Mark(start, stop, Verdict(frozenset(map(Reason, reasons)), partial), dropped, late)
            for start, stop, reasons, partial, dropped, late in rows
        )
