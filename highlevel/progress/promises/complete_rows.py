"""Computes how far the rows of a query with joins are complete.

A row of a join has a time for each input. It is *before* t when one of its times is. All rows before the least bound of
the join's output are out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lowmark.query.plan.nodes import (
    Aggregate,
    Join,
    NodeInput,
    Number,
    Pane,
    QueryPlan,
    Reduce,
    Send,
    StepInput,
)
from lowmark.query.windows.window import WindowKind
from lowmark.wire.rows.values import FOREVER, NEVER

__all__ = ["step_bounds"]


def step_bounds(plan: QueryPlan, fronts: Sequence[Sequence[int]]) -> Iterator[int]:
    """For a query with joins: the times before which all rows are out, for each step at which rows wait for others.
    `fronts` are those of the graph."""
    if not any(isinstance(step.plan, Join) for step in plan.steps):
        return
    earliest = _Earliest(plan)
    for at, step in enumerate(plan.steps):
        match step.plan:
            case Join() as join:
                bounds = [FOREVER] * len(join.inputs)
                for number, front in enumerate(fronts[at]):
                    port = step.port(number)
                    bounds[port] = min(bounds[port], _scaled(front, join.inputs[port].unit))
                output = join.bands.output(bounds)
                yield min(earliest.of(source, output[step.port(number)]) for number, source in enumerate(step.inputs))
            case Number() if (pane := _pane_of(plan, at)) is not None:
                waiting = _start(pane, min(fronts[at]))
                yield min(earliest.of(source, waiting) for source in step.inputs)
            case Aggregate(window=window) if window.kind is WindowKind.NONE:
                if (pane := _pane_of(plan, at)) is not None:
                    yield _start(pane, min(fronts[at]))


class _Earliest:
    """The least time of any input in rows whose own time is at a bound or later. A join's row waits by one of its
    times; its other times may be earlier, even after an exchange. Results are cached, so each step is evaluated once
    per bound, however many paths lead to it."""

    def __init__(self, plan: QueryPlan) -> None:
        self._plan = plan
        self._known: dict[tuple[NodeInput | StepInput, int], int] = {}

    def of(self, source: NodeInput | StepInput, bound: int) -> int:
        """The least time in a row from this source."""
        if bound in (NEVER, FOREVER):
            return bound
        if (source, bound) not in self._known:
            self._known[source, bound] = self._of(source, bound)
        return self._known[source, bound]

    def _of(self, source: NodeInput | StepInput, bound: int) -> int:
        steps = self._plan.steps
        if isinstance(source, NodeInput):
            sending = (step for step in steps if isinstance(step.plan, Send) and step.plan.node == source.node)
            return min((self.of(below, bound) for step in sending for below in step.inputs), default=bound)
        step = steps[source.step]
        least = bound
        if isinstance(step.plan, Join):
            bands, ports = step.plan.bands, range(len(step.plan.inputs))
            least = min(bands.partners(of, bound, other)[0] for of in ports for other in ports if of != other)
        elif not isinstance(step.plan, Reduce):
            return bound
        return min(bound, *(self.of(below, min(bound, least)) for below in step.inputs))


def _pane_of(plan: QueryPlan, step: int) -> Pane | None:
    """The panes in which an aggregate step reads rows of other steps."""
    for source in plan.steps[step].inputs:
        if not isinstance(source, NodeInput) and isinstance(reduce := plan.steps[source.step].plan, Reduce):
            return reduce.reduction.pane
    return None


def _scaled(front: int, unit: int) -> int:
    return front if front in (NEVER, FOREVER) else front * unit


def _start(pane: Pane, granule: int) -> int:
    return granule if granule in (NEVER, FOREVER) else pane.start(granule)
