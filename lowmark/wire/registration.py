"""Registrations of sources, and the control records by which rosters change."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["Control", "Exclusion", "Registration", "Retirement", "Return", "RosterChange", "SourceKind"]


class SourceKind(Enum):
    LIVE = "live"
    FINITE = "finite"


@dataclass(frozen=True, slots=True)
class Registration:
    """One life of a source begins. The offset of this record in the topic `sources` is its epoch."""

    source: str
    stream: str
    kind: SourceKind
    run: str | None  # identifies one reading of a finite source
    start_ns: int | None  # covered from, ns since 1970; None: from whatever the first tuple is (finite sources)
    disorder: str  # as declared: `ordered`, `within 2 s`, …
    roster_version: int
    process: str  # host and process id, so that a person can find it


@dataclass(frozen=True, slots=True)
class RosterChange:
    """From `granule` on, the sources of the stream are these."""

    stream: str
    version: int
    granule: int
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Exclusion:
    """From `granule` on nobody waits for the source; the windows it is missing from are `lossy: excluded`."""

    stream: str
    source: str
    granule: int


@dataclass(frozen=True, slots=True)
class Return:
    """From `granule` on the source counts again."""

    stream: str
    source: str
    granule: int


@dataclass(frozen=True, slots=True)
class Retirement:
    """No query reads the stage any more; its state is dropped."""

    stage: str


Control = RosterChange | Exclusion | Return | Retirement
