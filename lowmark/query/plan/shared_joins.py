"""One join for several queries that join the same inputs on the same condition over windows of their own (Hammad
2003): what it answers, and the order in which it works."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from lowmark.query.parse.syntax import JoinKind
from lowmark.query.plan.joins import Join

__all__ = ["Scheduling", "SharedJoin", "nested", "width"]


class Scheduling(Enum):
    """Which waiting row a shared join serves next, and with which window. No order changes a row of the answer."""

    LWO = "lwo"  # largest window only: each row meets all its partners before the next one begins
    SWF = "swf"  # smallest window first: a row meets a larger window only while none waits for a smaller one
    MQT = "mqt"  # maximum query throughput: the row and window that serve most queries for the least work


@dataclass(frozen=True, slots=True)
class SharedJoin:
    """Joins of the same two inputs, the one with the shortest windows first; each has an output port of its own.

    Each window lies inside the next (`nested`), so the rows of the last join contain those of the others."""

    joins: tuple[Join, ...]
    readers: tuple[int, ...]  # of each join, the queries that read it
    scheduling: Scheduling = Scheduling.MQT

    def __post_init__(self) -> None:
        if not nested(self.joins):
            raise ValueError("the windows of a shared join lie in each other")
        if len(self.readers) != len(self.joins):
            raise ValueError(f"{len(self.readers)} numbers of readers for {len(self.joins)} joins")

    @property
    def largest(self) -> Join:
        return self.joins[-1]


def nested(joins: Sequence[Join]) -> bool:
    """Whether each join's windows lie inside those of the next one, and are not the same."""
    return all(
        a.kind is b.kind is JoinKind.INNER
        and len(a.inputs) == len(b.inputs) == 2
        and a.tumbling == b.tumbling
        and _inside(a, b)
        for a, b in pairwise(joins)
    )


def _inside(a: Join, b: Join) -> bool:
    small, large = a.bands.sizes, b.bands.sizes
    if small == large:
        return False
    if a.tumbling:
        return large[0] % small[0] == 0
    return all(x <= y for x, y in zip(small, large, strict=True))


def width(plan: Join) -> int:
    """The time in which partners of a row lie, in ns."""
    return plan.inputs[0].size if plan.tumbling else sum(port.size for port in plan.inputs)
