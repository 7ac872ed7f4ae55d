"""What comes out of the steps of one query: rows, closed windows, and what is known against them."""

from __future__ import annotations

from dataclasses import dataclass, field

from highlevel.interface import Words
from highlevel.row_marks import RowMark
from lowmark.wire.records.punctuations import Promise
from lowmark.wire.records.verdicts import Reason

__all__ = ["Closing", "Events", "LatePart", "Reached", "Shed"]


@dataclass(frozen=True, slots=True)
class Closing:
    """A window of an aggregate step that is final, with the tuples merged into it."""

    step: int
    windows: range
    tuples: int


@dataclass(frozen=True, slots=True, eq=False)
class LatePart:
    """Rows that an operator refused as late on a port of its input."""

    step: int
    port: int
    rows: Words


@dataclass(frozen=True, slots=True, eq=False)
class Shed:
    """Rows of an input that an operator gave up."""

    step: int
    port: int
    rows: Words
    reason: Reason


@dataclass(slots=True)
class Events:
    """What came out of the steps of a query since the last call. Steps are numbered as in its plan."""

    rows: list[Words] = field(default_factory=list)  # of the answer
    sent: list[tuple[int, Words | Promise]] = field(default_factory=list)
    """By step: rows and joint promises that go into its exchange."""
    closings: list[Closing] = field(default_factory=list)
    flaws: list[tuple[int, int, Reason]] = field(default_factory=list)  # (step, window, reason)
    marks: list[tuple[int, int, RowMark]] = field(default_factory=list)  # (step, port, mark on rows put out there)
    late: list[LatePart] = field(default_factory=list)
    shed: list[Shed] = field(default_factory=list)


@dataclass(slots=True)
class Reached:
    """Where a mark ends: at steps that make windows or send, on the rows of their input; and in the answer."""

    steps: list[tuple[int, RowMark]] = field(default_factory=list)
    shown: list[RowMark] = field(default_factory=list)

    def __iadd__(self, other: Reached) -> Reached:
        self.steps += other.steps
        self.shown += other.shown
        return self
