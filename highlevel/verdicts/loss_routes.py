"""The steps of a plan at which marks end: those that make windows, and those that send rows into an exchange."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from lowmark.query.plan.nodes import (
    Aggregate,
    Finish,
    Gather,
    NodeInput,
    QueryPlan,
    Send,
    StepInput,
    StepPlan,
    Totals,
)
from lowmark.query.windows.window import Window, WindowKind

__all__ = ["Route", "answer_step", "routes"]


@dataclass(frozen=True, slots=True)
class Route:
    """The input of a step that makes windows, or that sends rows into an exchange."""

    step: int
    window: Window | None  # None: it makes none, but sends
    nodes: tuple[str, ...]  # it reads their panes
    finishes: tuple[int, ...]  # steps that pass the rows of its windows on
    follows: tuple[int, ...]
    """Steps whose windows it merges: one step, for those of all buckets behind an exchange; without a node, the members
    of a union."""


_Windowed = Aggregate | Gather | Totals


def routes(plan: QueryPlan) -> tuple[Route, ...]:
    """The routes of all steps that make windows or send, in the order of the steps: a step's inputs stand before it."""
    return tuple(
        _route(plan, step, at.plan) for step, at in enumerate(plan.steps) if isinstance(at.plan, _Windowed | Send)
    )


def answer_step(plan: QueryPlan) -> int | None:
    """The step whose windows the answer's rows belong to; None: a query without windows."""
    if plan.window is None or plan.window.kind is WindowKind.NONE:
        return None
    step = len(plan.steps) - 1
    while not isinstance(plan.steps[step].plan, _Windowed):
        source = plan.steps[step].inputs[0]
        if isinstance(source, NodeInput) or not isinstance(plan.steps[step].plan, Finish):
            raise ValueError(f"query {plan.name}: the answer has windows, and no step makes them")
        step = source.step
    if "window_end" not in plan.output.names:
        raise ValueError(f"query {plan.name}: an answer with windows shows window_end")
    return step


def _route(plan: QueryPlan, step: int, sink: StepPlan) -> Route:
    window = sink.window if isinstance(sink, _Windowed) else None
    nodes = tuple(source.node for source in plan.steps[step].inputs if isinstance(source, NodeInput))
    follows: tuple[int, ...] = ()
    if isinstance(sink, Gather | Totals):
        members = (source.step for source in plan.steps[step].inputs if isinstance(source, StepInput))
        behind = map(partial(_sender, plan), nodes) if nodes else members
        follows = tuple(dict.fromkeys(_windowed_below(plan, at) for at in behind))
    return Route(step, window, nodes, _finishes(plan, step), follows)


def _sender(plan: QueryPlan, node: str) -> int:
    """The step that sends into the exchange of this node."""
    return next(at for at, item in enumerate(plan.steps) if isinstance(item.plan, Send) and item.plan.node == node)


def _windowed_below(plan: QueryPlan, step: int) -> int:
    """The step whose windows' rows this step passes on."""
    while not isinstance(plan.steps[step].plan, _Windowed):
        source = plan.steps[step].inputs[0]
        if isinstance(source, NodeInput):
            raise ValueError(f"query {plan.name}: step {step} passes no windows on")
        step = source.step
    return step


def _finishes(plan: QueryPlan, step: int) -> tuple[int, ...]:
    found: list[int] = []
    for index, at in enumerate(plan.steps):
        reads = [source.step for source in at.inputs if not isinstance(source, NodeInput)]
        if isinstance(at.plan, Finish) and any(source == step or source in found for source in reads):
            found.append(index)
    return tuple(found)
