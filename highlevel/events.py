"""What comes out of the steps of a bucket: for queries, and what operators tell of their windows and rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from highlevel.interface import Words
from highlevel.row_marks import RowMark
from lowmark.wire.records.punctuations import Promise
from lowmark.wire.records.verdicts import Reason

__all__ = ["Closing", "Events", "Told"]


@dataclass(frozen=True, slots=True)
class Closing:
    """A window of a step that is final, with the tuples merged into it."""

    windows: range
    tuples: int


@dataclass(slots=True)
class Told:
    """What an operator has told since the last call."""

    closings: list[Closing] = field(default_factory=list)
    flaws: list[tuple[int, Reason]] = field(default_factory=list)  # of windows
    marks: list[tuple[int, RowMark]] = field(default_factory=list)  # by port, on rows put out there
    given_up: list[tuple[int, RowMark]] = field(default_factory=list)  # by port of an input, on rows of it
    late: set[int] = field(default_factory=set)  # ports of inputs of which it has refused rows


@dataclass(slots=True)
class Events:
    """What came out of the steps of a query since the last call. Steps are numbered as in its plan."""

    rows: list[Words] = field(default_factory=list)  # of the answer
    sent: list[tuple[int, Words | Promise]] = field(default_factory=list)
    """By step: rows and joint promises that go into its exchange."""
    shed: Counter[Reason] = field(default_factory=Counter)  # rows that operators gave up
