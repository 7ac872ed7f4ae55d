"""The output of a bucket's steps: events for queries, and reports of operators about their windows and rows."""

from __future__ import annotations

from dataclasses import dataclass, field

from highlevel.interface import Words
from highlevel.row_marks import RowMark
from lowmark.wire.records.punctuations import Promise
from lowmark.wire.records.verdicts import Reason

__all__ = ["Closing", "Events", "Reports"]


@dataclass(frozen=True, slots=True)
class Closing:
    """A window of a step that is final, with the tuples merged into it."""

    windows: range
    tuples: int


@dataclass(slots=True)
class Reports:
    """What an operator has reported since the last call."""

    closings: list[Closing] = field(default_factory=list)
    flaws: list[tuple[int, Reason]] = field(default_factory=list)  # by window
    marks: list[tuple[int, RowMark]] = field(default_factory=list)  # by output port, on rows of the port
    given_up: list[tuple[int, RowMark]] = field(default_factory=list)  # by input port, on rows of the port
    late: set[int] = field(default_factory=set)  # input ports of which rows were refused as late

    def __bool__(self) -> bool:
        return bool(self.closings or self.flaws or self.marks or self.given_up or self.late)


@dataclass(slots=True)
class Events:
    """What came out of the steps of a query since the last call. Steps are numbered as in its plan."""

    rows: list[Words] = field(default_factory=list)  # rows of the answer
    sent: list[tuple[int, Words | Promise]] = field(default_factory=list)
    """By step: rows and joint promises that go into its exchange."""
    shed: dict[Reason, int] = field(default_factory=dict)  # number of rows that operators gave up
