"""A join whose rows come out in order of time (Hammad 2005), and the choice of how."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from lowmark.query.parse.syntax import JoinKind
from lowmark.query.plan.joins import Join

__all__ = ["DEFAULT_COST_NS", "DEFAULT_GAIN", "InOrderJoin", "Release", "load"]

DEFAULT_COST_NS = 100.0
"""Of looking at one row that might match."""

DEFAULT_GAIN = 0.3
"""α of section 6: FILTER from the load on at which it answers about a quarter sooner (α / (1 + α))."""


class Release(Enum):
    """When rows meet their partners. Rows come out in the same order of time whatever it is."""

    SYNC = "sync"  # Sync-Filter: when all inputs have passed them; nothing is kept but rows of the inputs
    FILTER = "filter"  # Filter-Order: at once; what they give is kept until all inputs have passed it
    ADAPTIVE = "adaptive"  # SYNC while it costs little time, else FILTER


@dataclass(frozen=True, slots=True)
class InOrderJoin:
    """The rows of `join` in ascending order of the greatest time in each."""

    join: Join
    release: Release = Release.ADAPTIVE
    cost_ns: float = DEFAULT_COST_NS
    gain: float = DEFAULT_GAIN  # α

    def __post_init__(self) -> None:
        if self.join.kind is not JoinKind.INNER:
            raise ValueError("rows of an outer, semi or anti join have no two times to go by")
        if not 0 <= self.gain < 1:
            raise ValueError(f"a gain is from 0 up to 1, not {self.gain:g}")


def load(plan: InOrderJoin, rates: tuple[float, ...]) -> float:
    """c·|w|·λ1·λ2 (eq. 1), by the rows a second of each input; of several inputs the greatest of any two."""
    seconds = sum(port.size for port in plan.join.inputs) / len(plan.join.inputs) / 1e9
    *_, one, other = sorted(rates)
    return plan.cost_ns / 1e9 * seconds * one * other
