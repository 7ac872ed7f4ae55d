"""A bucket's position in its job, and the sources that vouch for its output."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Place", "Witness"]


@dataclass(frozen=True, slots=True)
class Place:
    """Which bucket of how many, in which generation of the job."""

    bucket: int
    buckets: int
    generation: int


@dataclass(frozen=True, slots=True)
class Witness:
    """The sources that have promised everything below a frontier, and the time from which all of them cover it."""

    covered_by: tuple[str, ...]
    covered_from_ns: int | None
