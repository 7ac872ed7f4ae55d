"""One join for several queries that join the same inputs on the same condition over different windows (Hammad 2003):
the joins that it replaces, and the order in which it works."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from lowmark.query.parse.syntax import JoinKind
from lowmark.query.plan.fingerprint import share_names, step_digests
from lowmark.query.plan.joins import Join, Scheduling
from lowmark.query.plan.nodes import QueryPlan

__all__ = ["SCHEDULES", "Share", "SharedJoin", "nested", "shares", "width"]

SCHEDULES = (Scheduling.LWO, Scheduling.SWF, Scheduling.MQT)

_LEAST = 3
_WORTH = 2.0
"""One shared join replaces at least `_LEAST` joins, if all their windows together are at least `_WORTH` times the
largest: each of its rows takes more memory than in a join of one window (`python -m bench.shared_joins saved`)."""


@dataclass(frozen=True, slots=True)
class SharedJoin:
    """Joins of the same two inputs, the one with the shortest windows first; each has an output port of its own.

    Each window lies inside the next (`nested`), so the rows of the last join contain those of the others."""

    joins: tuple[Join, ...]
    readers: tuple[int, ...]  # for each join, the number of queries that read it
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
    """Whether each join's windows lie inside those of the next one."""
    return all(
        a.kind is b.kind is JoinKind.INNER
        and len(a.inputs) == len(b.inputs) == 2
        and a.tumbling == b.tumbling
        and _inside(a, b)
        for a, b in pairwise(joins)
    )


def _inside(a: Join, b: Join) -> bool:
    small, large = a.bands.sizes, b.bands.sizes
    if a.tumbling:
        return large[0] % small[0] == 0
    return all(x <= y for x, y in zip(small, large, strict=True))


def width(plan: Join) -> int:
    """The time in which partners of a row lie, in ns."""
    return plan.inputs[0].size if plan.tumbling else sum(port.size for port in plan.inputs)


@dataclass(frozen=True, slots=True)
class Share:
    """Joins that run as one. `members`: the digests of their steps, in the order of `plan.joins`. The last one, with
    the largest window, names the state."""

    plan: SharedJoin
    members: tuple[str, ...]
    queries: tuple[tuple[str, ...], ...]  # the queries that read each join


def shares(plans: Sequence[QueryPlan]) -> tuple[Share, ...]:
    """The joins of queries of one stage that run as one: inner joins of the same two inputs on the same equalities,
    whose windows lie inside each other. Sharing must pay, or a hint must ask for it; a hint can also exclude a join."""
    joins: dict[str, Join] = {}  # by digest
    queries: dict[str, list[str]] = {}
    alike: dict[str, dict[str, None]] = {}  # digests by what they share
    for plan in plans:
        for step, digest, name in zip(plan.steps, step_digests(plan), share_names(plan), strict=True):
            if name is not None and isinstance(step.plan, Join):
                known = joins.setdefault(digest, step.plan)
                if known.scheduling is None:
                    joins[digest] = step.plan  # another query of the same step may have a hint
                queries.setdefault(digest, []).append(plan.name)
                alike.setdefault(name, {})[digest] = None
    return tuple(share for _, digests in sorted(alike.items()) for share in _share(list(digests), joins, queries))


def _share(
    digests: list[str], joins: dict[str, Join], queries: dict[str, list[str]]
) -> Iterator[Share]:  # fmt: skip
    wanting = [digest for digest in digests if joins[digest].scheduling is not Scheduling.ALONE]
    chain: list[str] = []
    for digest in sorted(wanting, key=lambda digest: (-width(joins[digest]), digest)):
        if not chain or nested([joins[digest], joins[chain[0]]]):
            chain.insert(0, digest)
    members = tuple(chain)
    each = tuple(joins[digest] for digest in members)
    asked = [join.scheduling for join in each if join.scheduling is not None]
    worth = len(members) >= _LEAST and sum(map(width, each)) >= _WORTH * width(each[-1])
    if len(members) < 2 or not (worth or asked):
        return
    readers = tuple(len(set(queries[digest])) for digest in members)
    shared = SharedJoin(each, readers, asked[0] if asked else Scheduling.MQT)
    named = tuple(tuple(dict.fromkeys(queries[digest])) for digest in members)
    yield Share(shared, members, named)
