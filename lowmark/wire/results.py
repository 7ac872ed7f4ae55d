"""What stands on a result topic beside the rows: completions, verdicts, amendments, corrections."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["Amendment", "Complete", "Reason", "Verdict", "WindowSpan"]


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
    OVERFLOW = "overflow"
    OVERSIZE = "oversize"
    RETENTION = "retention"
    NUMBERING = "numbering"


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


@dataclass(frozen=True, slots=True)
class Amendment:
    """Counts that became known after the window had closed."""

    query: str
    generation: int
    bucket: int
    windows: WindowSpan
    late: int
    dropped: int
    reasons: frozenset[Reason]
