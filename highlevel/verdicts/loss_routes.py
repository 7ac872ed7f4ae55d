"""How losses travel through a plan: which nodes and aggregates report to each aggregate step, and on which panes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from lowmark.query.expr.expressions import Field
from lowmark.query.plan.nodes import (
    Aggregate,
    Counted,
    Finish,
    Gather,
    NodeInput,
    Number,
    Pane,
    QueryPlan,
    Reduce,
    Send,
    StepInput,
    StepPlan,
    Totals,
)
from lowmark.query.windows.window import Window, WindowKind

__all__ = ["Route", "Upstream", "answer_step", "routes"]


@dataclass(frozen=True, slots=True)
class Upstream:
    """A step with windows whose rows another step reads. With a `pane`, the rows of a window lie in the pane of its end
    (or its start); without one, all that is known is that they lie in a pane that was open when the window closed."""

    step: int
    pane: Pane | None
    at_end: bool


@dataclass(frozen=True, slots=True)
class Route:
    """The input of a step that makes windows, or that sends rows into an exchange."""

    step: int
    window: Window | None  # None: it makes none, but sends
    nodes: tuple[str, ...]  # it reads their panes
    upstream: tuple[Upstream, ...]  # aggregates read through steps that keep or reduce their rows
    selections: tuple[str, ...]  # nodes read through such steps
    numbered: bool  # rows are counted on the way: a loss shifts all later numbers
    counted: tuple[int, ...]  # steps on the way that count tuples by partitions
    arrival: bool  # its windows are over numbers in order of arrival: a loss shifts later ones only
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
    if isinstance(sink, Gather | Totals):
        back = tuple(source.node for source in plan.steps[step].inputs if isinstance(source, NodeInput))
        members = (source.step for source in plan.steps[step].inputs if isinstance(source, StepInput))
        behind = map(partial(_sender, plan), back) if back else members
        follows = tuple(dict.fromkeys(_windowed_below(plan, at) for at in behind))
        return Route(step, window, back, (), (), False, (), False, _finishes(plan, step), follows)
    nodes, selections, numbered, counted = [], [], False, []
    numbers: list[StepPlan] = []
    pending = []
    for source in plan.steps[step].inputs:
        if isinstance(source, NodeInput):
            nodes.append(source.node)
        else:
            pending.append(source.step)
    seen = set(pending)
    while pending:
        at = pending.pop(0)
        between = plan.steps[at].plan
        if isinstance(between, _Windowed):
            continue
        numbered |= isinstance(between, Number | Counted)
        numbers += [between] if isinstance(between, Number | Counted) else []
        counted += [at] if isinstance(between, Counted) else []
        for source in plan.steps[at].inputs:
            if isinstance(source, NodeInput):
                selections.append(source.node)
            elif source.step not in seen:
                seen.add(source.step)
                pending.append(source.step)
    return Route(
        step, window, tuple(nodes), _upstream(plan, step), tuple(dict.fromkeys(selections)), numbered,
        tuple(counted), _by_arrival(plan, step, numbers), _finishes(plan, step), (),
    )  # fmt: skip


def _by_arrival(plan: QueryPlan, step: int, numbers: list[StepPlan]) -> bool:
    """Whether the panes of the step are runs of numbers that a single source's tuples get in order of arrival."""
    below = [plan.steps[source.step].plan for source in plan.steps[step].inputs if isinstance(source, StepInput)]
    panes = {below.reduction.pane.attribute for below in below if isinstance(below, Reduce)}
    return bool(numbers) and all(
        isinstance(each, Number) and not each.order and panes == {each.number} for each in numbers
    )


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


def _upstream(plan: QueryPlan, step: int) -> tuple[Upstream, ...]:
    """Follow the paned column from the step back to the aggregates above, each way separately, through columns that are
    passed unchanged."""
    found: dict[Upstream, None] = {}
    pending: list[tuple[int, Pane | None, str | None]] = [(step, None, None)]
    seen = set(pending)
    while pending:
        at, pane, column = pending.pop(0)
        between = plan.steps[at].plan
        if at != step and isinstance(between, _Windowed):
            known = column in ("window_start", "window_end")
            found[Upstream(at, pane if known else None, column == "window_end")] = None
            continue
        if isinstance(between, Reduce) and pane is None:
            pane = between.reduction.pane
            column = pane.attribute
        elif isinstance(between, Finish) and column is not None:
            passed = {named.name: named.expr for named in between.columns}.get(column)
            column = passed.name if isinstance(passed, Field) else None
        elif at != step:
            column = None
        below = ((source.step, pane, column) for source in plan.steps[at].inputs if isinstance(source, StepInput))
        new = [entry for entry in dict.fromkeys(below) if entry not in seen]
        seen.update(new)
        pending += new
    return tuple(found)
