"""The queries that a bucket has served until now: which of them go on, which have left, and which are new.

A query goes on if its plan and its life are the same. A life is the generation in which a job has begun the query. What
others have stored leaves with the first micro-batch without them. A query that joins a bucket whose stage has been read
before begins at the frontier: its windows are `partial` until they lie behind all granules of which tuples have come.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from highlevel.interface import ONLY, Space, State
from highlevel.join.shared.handover import listed_steps
from highlevel.state import PiecewiseState
from lowmark.query.plan.fingerprint import plan_digest, step_digests
from lowmark.query.plan.nodes import QueryPlan, Stage

__all__ = ["SERVED", "Served", "joining_steps", "served", "sweep"]


_OWNED = (
    "step.", "query.", "late.", "suppressed.", "checksums.", "ledger.", "frontier.", "values.", "sent.",
)  # fmt: skip
"""How the names of spaces begin that belong to a query, a step or a node. All others are the bucket's."""


@dataclass(frozen=True, slots=True)
class Served:
    """By query: its plan's digest and its life."""

    queries: Mapping[str, str]

    def encode(self) -> bytes:
        return json.dumps(self.queries, sort_keys=True).encode()

    @classmethod
    def decode(cls, piece: bytes) -> Served:
        return cls(json.loads(piece))


SERVED: Space[Served] = Space("served", Served.encode, Served.decode)


def served(plans: Iterable[QueryPlan], life: Callable[[str], int]) -> Served:
    return Served({plan.name: f"{plan_digest(plan)} {life(plan.name)}" for plan in plans})


def joining_steps(state: State, plans: Sequence[QueryPlan], now: Served) -> tuple[frozenset[str], frozenset[str]]:
    """The queries that join the bucket, and the digests of the steps that no other query has served until now. None,
    if nothing has been served before."""
    before = state.get(SERVED, ONLY)
    if before is None or before == now:
        return frozenset(), frozenset()
    staying = _staying(plans, before, now)
    kept = {digest for plan in staying for digest in step_digests(plan)}
    joining = [plan for plan in plans if plan not in staying]
    steps = {digest for plan in joining for digest in step_digests(plan)}
    return frozenset(plan.name for plan in joining), frozenset(steps - kept)


def sweep(state: PiecewiseState, stage: Stage, plans: Sequence[QueryPlan], now: Served) -> bool:
    """Delete what queries have stored that do not go on. Returns whether there were any."""
    before = state.get(SERVED, ONLY)
    if before is None or before == now:
        return False
    staying = _staying(plans, before, now)
    nodes = [node.name for node in stage.nodes]
    nodes += [each.node.name for plan in staying if plan.exchanges is not None for each in plan.exchanges.each]
    names = set[str]()
    for plan in staying:
        names |= {f"query.{plan.name}", f"query.{plan.name}.windows"}
        names |= {f"suppressed.{plan.name}", f"checksums.{plan.name}"}
    for node in nodes:
        names |= {f"ledger.{node}", f"frontier.{node}", f"values.{node}", f"sent.{node}"}
    begin = tuple(f"step.{digest}." for plan in staying for digest in step_digests(plan))
    begin += tuple(f"step.{digest}." for digest in listed_steps(state))
    begin += tuple(f"late.{plan.name}." for plan in staying)
    for space in state.spaces():
        if space.startswith(_OWNED) and space not in names and not space.startswith(begin):
            state.forget(space)
    return True


def _staying(plans: Sequence[QueryPlan], before: Served, now: Served) -> list[QueryPlan]:
    return [plan for plan in plans if before.queries.get(plan.name) == now.queries[plan.name]]
