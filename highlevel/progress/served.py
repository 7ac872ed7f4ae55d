"""The queries that a bucket has served until now: which of them go on, which have left, and which are new.

A query goes on if its plan and its life are the same. A life is the generation in which a job has begun the query. What
others have stored leaves with the first micro-batch without them. A query that joins a bucket whose stage has been read
before begins at the frontier: its windows are `partial` until they lie behind all granules of which tuples have come.

But a step that was served until now, and that the query has, too, goes on with its state. A query that differs from the
one before in its name, HAVING, ORDER BY or LIMIT alone so tells the windows that are open whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from highlevel.interface import ONLY, Space, State
from highlevel.join.shared.handover import listed_steps
from highlevel.state import PiecewiseState
from lowmark.query.options import Late
from lowmark.query.plan.fingerprint import plan_digest, step_digests
from lowmark.query.plan.nodes import Aggregate, Join, NodeInput, QueryPlan, Stage

__all__ = ["SERVED", "Served", "joining_steps", "served", "sweep"]


_OWNED = (
    "step.", "query.", "late.", "suppressed.", "checksums.", "ledger.", "frontier.", "values.", "sent.",
)  # fmt: skip
"""How the names of spaces begin that belong to a query, a step or a node. All others are the bucket's."""


@dataclass(frozen=True, slots=True)
class Served:
    """`queries`: by name, its plan's digest and its life. `steps`: digests of the steps that others may go on with."""

    queries: Mapping[str, str]
    steps: frozenset[str] = frozenset()

    def encode(self) -> bytes:
        return json.dumps({"queries": self.queries, "steps": sorted(self.steps)}, sort_keys=True).encode()

    @classmethod
    def decode(cls, piece: bytes) -> Served:
        stored = json.loads(piece)
        return cls(stored["queries"], frozenset(stored["steps"]))


SERVED: Space[Served] = Space(
    "served", Served.encode, Served.decode, version=2, before=lambda piece: Served(json.loads(piece))
)


def served(plans: Sequence[QueryPlan], life: Callable[[str], int]) -> Served:
    steps = (digest for plan in plans for digest in _lasting(plan))
    return Served({plan.name: f"{plan_digest(plan)} {life(plan.name)}" for plan in plans}, frozenset(steps))


def _lasting(plan: QueryPlan) -> Iterator[str]:
    """The steps whose state says all of their past. Joins hand rows over by themselves. What comes through an exchange
    belongs to a life. Of windows that groups have left early, the rest alone is in the state. Corrections that wait for
    their windows are a query's own."""
    if plan.late is Late.CORRECT:
        return
    lasts: list[bool] = []
    for step, digest in zip(plan.steps, step_digests(plan), strict=True):
        inputs = (plan.exchanges is None if isinstance(at, NodeInput) else lasts[at.step] for at in step.inputs)
        early = isinstance(step.plan, Aggregate) and step.plan.closes
        lasts.append(not isinstance(step.plan, Join) and not early and all(inputs))
        if lasts[-1]:
            yield digest


def joining_steps(state: State, plans: Sequence[QueryPlan], now: Served) -> tuple[frozenset[str], frozenset[str]]:
    """The queries that join the bucket, and the digests of their steps that do not go on. None, if nothing has been
    served before."""
    before = state.get(SERVED, ONLY)
    if before is None or before == now:
        return frozenset(), frozenset()
    staying = _staying(plans, before, now)
    kept = {digest for plan in staying for digest in step_digests(plan)}
    joining = [plan for plan in plans if plan not in staying]
    steps = {digest for plan in joining for digest in step_digests(plan)}
    return frozenset(plan.name for plan in joining), frozenset(steps - kept - (before.steps & now.steps))


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
    begin += tuple(f"step.{digest}." for digest in before.steps & now.steps)
    begin += tuple(f"step.{digest}." for digest in listed_steps(state))
    begin += tuple(f"late.{plan.name}." for plan in staying)
    for space in state.spaces():
        if space.startswith(_OWNED) and space not in names and not space.startswith(begin):
            state.forget(space)
    return True


def _staying(plans: Sequence[QueryPlan], before: Served, now: Served) -> list[QueryPlan]:
    return [plan for plan in plans if before.queries.get(plan.name) == now.queries[plan.name]]
