"""Records on a result topic beside the rows: completions, verdicts, amendments, corrections.

People read them with kcat, so times are RFC 3339 if the attribute is a time, and fields have the names of the rows'
columns. `announcements` defines how they are written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from lowmark.wire.rows.schema import Kind

__all__ = [
    "Amendment", "Complete", "Correction", "LateRow", "Merge", "OpenCount", "Reason", "Scalar", "Verdict", "WindowSpan",
]  # fmt: skip

Scalar = None | bool | int | float | str
"""A value in a flat JSON row."""


class Reason(Enum):
    """Why a window is lossy: a closed list, in the order in which reasons are shown."""

    GAP = "gap"
    DROPPED = "dropped"
    GIVEN_UP = "given-up"
    LATE = "late"
    REPLAYED = "replayed"
    NOT_COVERED = "not-covered"
    EXCLUDED = "excluded"
    FUTURE = "future"
    CLOCK = "clock"
    DAMAGED = "damaged"
    OVERFLOW = "overflow"
    OVERSIZE = "oversize"
    RETENTION = "retention"
    NUMBERING = "numbering"
    TIE = "tie"
    WINDOW_OBLIVIOUS = "window-oblivious"
    PUNCTUATED = "punctuated"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`exact` if there is no reason against it; `partial` if the window began before its sources did."""

    reasons: frozenset[Reason] = frozenset()
    partial: bool = False

    @property
    def exact(self) -> bool:
        return not self.reasons

    def __or__(self, other: Verdict) -> Verdict:
        """The worse of two verdicts, with the reasons of both."""
        return Verdict(self.reasons | other.reasons, self.partial or other.partial)


@dataclass(frozen=True, slots=True)
class WindowSpan:
    """A run of windows by id, `to` included."""

    first: int
    to: int


@dataclass(frozen=True, slots=True)
class OpenCount:
    """For windows over rows that each partition (PA) numbers for itself: the number of windows that hold a row and are
    not closed, and of the partitions that they belong to."""

    windows: int = 0
    partitions: int = 0

    def __add__(self, other: OpenCount) -> OpenCount:
        return OpenCount(self.windows + other.windows, self.partitions + other.partitions)

    def __sub__(self, other: OpenCount) -> OpenCount:
        return OpenCount(self.windows - other.windows, self.partitions - other.partitions)


@dataclass(frozen=True, slots=True)
class Complete:
    """These windows of this bucket are final. Runs have no gaps: first = the previous `to` + 1. A run is one window, or
    only empty windows. A query without windows sends `windows = None` and the bound up to which it is complete."""

    query: str
    generation: int
    bucket: int
    buckets: int
    windows: WindowSpan | None
    start: int | None  # window_start of the first window, as the attribute's integer; None: landmark
    end: int  # window_end of the last window (or the bound of a query without windows), as the attribute's integer
    attribute: str
    rows: int
    merged: int  # tuples merged …
    promised: int  # … of tuples promised
    dropped: int
    late: int
    covered_from_ns: int | None
    rosters: tuple[tuple[str, int], ...]  # the version of each stream's roster that applies
    verdict: Verdict
    kind: Kind = Kind.TIME  # of the attribute
    open: OpenCount | None = None  # counts in this bucket; None: the query has no such windows
    missing: tuple[str, ...] = ()  # listed sources that the windows did not wait for
    checksum: int | None = None  # of the values of its rows' records (`row_checksums`); None: not on a topic


@dataclass(frozen=True, slots=True)
class Amendment:
    """New reasons against windows that are complete already, or that lie before the first window: each of them is
    lossy. In a query without windows: against rows from `start` up to `end`, values of the completions' attribute."""

    query: str
    generation: int
    bucket: int
    windows: WindowSpan | None
    start: int | str | None  # window_start of the first window, as rows show it; None: landmark, or from the beginning
    end: int | str  # window_end of the last window
    late: int
    dropped: int
    reasons: frozenset[Reason]  # at least one


class Merge(Enum):
    """How the change of an aggregate combines with its value."""

    ADD = "add"
    LEAST = "least"
    GREATEST = "greatest"
    AND = "and"
    OR = "or"


@dataclass(frozen=True, slots=True)
class Correction:
    """What late tuples change in closed windows, the same in each: one row for each affected group, with its fields and
    each aggregate's value over the late tuples alone. `merge` says how that combines with the window's value. All
    corrections of one window add up."""

    query: str
    generation: int
    bucket: int
    windows: WindowSpan
    start: int | str  # window_start of the first window, as rows show it
    end: int | str  # window_end of the last window
    tuples: int  # late tuples in the correction
    merge: Mapping[str, Merge]  # by name of an aggregate's column
    deltas: tuple[Mapping[str, Scalar], ...]

    def renamed(self, names: Mapping[str, str]) -> Correction:
        """The same, with these names of columns."""
        merge = {names.get(column, column): how for column, how in self.merge.items()}
        return replace(self, merge=merge, deltas=tuple(_renamed(delta, names) for delta in self.deltas))


@dataclass(frozen=True, slots=True)
class LateRow:
    """Late tuples of one source and granule, as a row of their own. A group's row has its fields and its aggregates
    over these tuples alone, before HAVING. `windows`: those that the tuples missed; None: a query without windows."""

    query: str
    generation: int
    bucket: int
    source: str
    windows: WindowSpan | None
    start: int | str | None  # window_start of the first window, as rows show it
    end: int | str | None  # window_end of the last window
    tuples: int
    row: Mapping[str, Scalar]

    def renamed(self, names: Mapping[str, str]) -> LateRow:
        """The same, with these names of columns."""
        return replace(self, row=_renamed(self.row, names))


def _renamed(row: Mapping[str, Scalar], names: Mapping[str, str]) -> Mapping[str, Scalar]:
    return {names.get(column, column): value for column, value in row.items()}
