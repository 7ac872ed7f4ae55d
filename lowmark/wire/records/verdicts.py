"""What stands on a result topic beside the rows: completions, verdicts, amendments, corrections.

Their values are for people too, who read them with kcat: times are RFC 3339 where the attribute is a time, and fields
are called as the rows' columns are. How they are written is in `announcements`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from lowmark.wire.rows.schema import Kind

__all__ = [
    "Amendment", "Complete", "Correction", "LateRow", "Merge", "OpenCount", "Reason", "Scalar", "Verdict", "WindowSpan",
]  # fmt: skip

Scalar = None | bool | int | float | str
"""A value of a flat JSON row."""


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


@dataclass(frozen=True, slots=True)
class Verdict:
    """`exact` when there is no reason against it; `partial` when the window began before its sources did."""

    reasons: frozenset[Reason] = frozenset()
    partial: bool = False

    @property
    def exact(self) -> bool:
        return not self.reasons

    def __or__(self, other: Verdict) -> Verdict:
        """The worse of the two, with the reasons of both."""
        return Verdict(self.reasons | other.reasons, self.partial or other.partial)


@dataclass(frozen=True, slots=True)
class WindowSpan:
    """A run of windows by id, `to` included."""

    first: int
    to: int


@dataclass(frozen=True, slots=True)
class OpenCount:
    """Of windows over rows that partitions (PA) number for themselves: how many hold a row and are not closed, and of
    how many partitions they are."""

    windows: int = 0
    partitions: int = 0

    def __add__(self, other: OpenCount) -> OpenCount:
        return OpenCount(self.windows + other.windows, self.partitions + other.partitions)

    def __sub__(self, other: OpenCount) -> OpenCount:
        return OpenCount(self.windows - other.windows, self.partitions - other.partitions)


@dataclass(frozen=True, slots=True)
class Complete:
    """These windows of this bucket are final. Contiguous: first = the `to` before + 1. A run is of empty windows, or
    one window; a query without windows announces `windows = None` and the bound it is complete up to."""

    query: str
    generation: int
    bucket: int
    buckets: int
    windows: WindowSpan | None
    start: int | None  # window_start of the first, as the attribute's integer; None: landmark
    end: int  # window_end of the last (or the bound of a query without windows), as the attribute's integer
    attribute: str
    rows: int
    merged: int  # tuples merged …
    promised: int  # … of tuples promised
    dropped: int
    late: int
    covered_from_ns: int | None
    covered_by: tuple[str, ...]  # sources that vouch for it
    verdict: Verdict
    kind: Kind = Kind.TIME  # of the attribute
    open: OpenCount | None = None  # in this bucket; None: of a query that has no such windows


@dataclass(frozen=True, slots=True)
class Amendment:
    """What became known of windows after they had been completed, or passed over as being before the first: each of
    them is lossy. Without windows: of the rows from `start` up to `end`, values of the completions' attribute."""

    query: str
    generation: int
    bucket: int
    windows: WindowSpan | None
    start: int | str | None  # window_start of the first window, as rows show it; None: landmark, or from the beginning
    end: int | str  # window_end of the last one
    late: int
    dropped: int
    reasons: frozenset[Reason]  # one at least


class Merge(Enum):
    """How the change to an aggregate goes together with its value."""

    ADD = "add"
    LEAST = "least"
    GREATEST = "greatest"
    AND = "and"
    OR = "or"


@dataclass(frozen=True, slots=True)
class Correction:
    """What late tuples change in windows that have closed, in each of them the same: for each group they touch a row of
    the group's fields and of each aggregate's value over the late tuples alone. `merge` says how that goes together
    with what the window said. Corrections of one window follow each other: all of them count."""

    query: str
    generation: int
    bucket: int
    windows: WindowSpan
    start: int | str  # window_start of the first window, as rows show it
    end: int | str  # window_end of the last one
    tuples: int  # late tuples that the deltas hold
    merge: Mapping[str, Merge]  # by column that is an aggregate's
    deltas: tuple[Mapping[str, Scalar], ...]


@dataclass(frozen=True, slots=True)
class LateRow:
    """What late tuples of one source and granule would have made, as a row of their own. Of a group: its fields and its
    aggregates over these tuples alone, before HAVING. `windows` would have held them: None, of a query without."""

    query: str
    generation: int
    bucket: int
    source: str
    windows: WindowSpan | None
    start: int | str | None  # window_start of the first window, as rows show it
    end: int | str | None  # window_end of the last one
    tuples: int
    row: Mapping[str, Scalar]
