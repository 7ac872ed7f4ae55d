"""Where a bucket stands in its job, and who vouches for what it says."""

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
    """The sources that vouch for what a frontier has passed, and from when on the last of them does."""

    covered_by: tuple[str, ...]
    covered_from_ns: int | None
