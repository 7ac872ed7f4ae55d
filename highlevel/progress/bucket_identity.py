"""A bucket's position in its job, and the sources that vouch for its output."""

from __future__ import annotations

from dataclasses import dataclass

from lowmark.wire.records.verdicts import Reason, Verdict

__all__ = ["BucketIdentity", "Witness"]


@dataclass(frozen=True, slots=True)
class BucketIdentity:
    """Which bucket of how many, in which generation of a query; `source` is the bucket's name in the query's
    exchanges."""

    bucket: int
    buckets: int
    generation: int
    source: str


@dataclass(frozen=True, slots=True)
class Witness:
    """The sources that vouch for everything below a frontier. `rosters`: the version of each stream's roster.
    `missing`: their sources that were not waited for. `covered_from_ns`: the time from which all others cover their
    traffic."""

    rosters: tuple[tuple[str, int], ...]
    missing: tuple[str, ...]
    covered_from_ns: int | None

    def missing_from(self, verdict: Verdict) -> tuple[str, ...]:
        """The sources that a window with this verdict did not wait for."""
        return self.missing if Reason.EXCLUDED in verdict.reasons else ()
