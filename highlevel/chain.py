"""A query's steps inside one bucket: which operator each step is, and how rows and promises pass between them.

What an operator may rely on, and what the chain relies on:

- a port that reads a node gets `Promise((Bound(PANE, below=p),), last=p == FOREVER)`: panes below p have ended. A port
  that reads another step gets that step's promises as they are made. A port that reads an exchange also gets the joint
  promises of all buckets together. A port of a union gets what holds for all its inputs;
- rows, closings and promises of one advance come out before `work` has nothing left, in any order: a row belongs
  to the window that its column `window_end` names;
- a step that makes windows (an aggregate, or windows merged behind an exchange) reports each window into which tuples
  were merged with `closed`, one window a call, in ascending order. It need not report windows without tuples. Closings
  from other steps are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from highlevel.interface import Operator, Space, State, Words
from highlevel.join import JoinOperator, OuterJoinOperator
from highlevel.limits import GroupLimit
from highlevel.operators.aggregate import AggregateOperator
from highlevel.operators.crowded_aggregate import CrowdedAggregateOperator
from highlevel.operators.distinct import DistinctOperator
from highlevel.operators.finish import FinishOperator
from highlevel.operators.gather import GatherOperator, SendOperator, TotalsOperator
from highlevel.operators.number import NumberOperator
from highlevel.operators.partitioned_rows import PartitionedRowsOperator
from highlevel.operators.reduce import ReduceOperator
from highlevel.operators.slide_by_tuple import SlideByTupleOperator
from highlevel.progress.joint_promises import JointPromises, joint_promises
from highlevel.state import ScopedState
from highlevel.views import Viewer
from lowmark.query.options import Strategy
from lowmark.query.parse.syntax import JoinKind
from lowmark.query.plan.nodes import (
    Aggregate,
    Counted,
    Finish,
    Gather,
    Join,
    NodeInput,
    Number,
    QueryPlan,
    Reduce,
    Send,
    StepPlan,
    Totals,
)
from lowmark.wire.records.partials import PANE
from lowmark.wire.records.punctuations import Bound, Promise
from lowmark.wire.records.verdicts import OpenCount, Reason
from lowmark.wire.rows.schema import Schema
from lowmark.wire.rows.values import FOREVER

__all__ = ["Build", "Chain", "Closing", "Events", "LatePart", "build"]

Build = Callable[[StepPlan, GroupLimit], Operator]

_JOINT: Space[JointPromises] = Space(
    "joint", lambda piece: json.dumps(piece.rows()).encode(), lambda piece: JointPromises(json.loads(piece))
)
"""The joint promises of a step, by the number of the input."""

_WORK = 1 << 16
"""Units of deferred work requested at a time; only that it is positive matters."""


@dataclass(frozen=True, slots=True)
class Closing:
    """A window of an aggregate step that is final, with the tuples merged into it."""

    step: int
    windows: range
    tuples: int


@dataclass(frozen=True, slots=True, eq=False)
class LatePart:
    """Rows that an operator refused as late."""

    step: int
    rows: Words


@dataclass(slots=True)
class Events:
    """What came out of a chain since the last call."""

    rows: list[Words] = field(default_factory=list)  # of the answer
    sent: list[tuple[int, Words | Promise]] = field(default_factory=list)
    """By step: rows and joint promises that go into its exchange."""
    closings: list[Closing] = field(default_factory=list)
    flaws: list[tuple[int, int, Reason]] = field(default_factory=list)  # (step, window, reason)
    late: list[LatePart] = field(default_factory=list)


def build(plan: StepPlan, limit: GroupLimit | None = None) -> Operator:
    """The operator of a step. `limit`: groups that it may keep for ever; None: limited by memory alone."""
    match plan:
        case Aggregate(at_once=True):
            return DistinctOperator(plan)
        case Aggregate():
            in_crowds = plan.crowded and plan.strategy is Strategy.PANED
            return CrowdedAggregateOperator(plan) if in_crowds else AggregateOperator(plan, limit)
        case Finish():
            return FinishOperator(plan)
        case Gather():
            return GatherOperator(plan)
        case Totals():
            return TotalsOperator(plan)
        case Send():
            return SendOperator()
        case Join(kind=JoinKind.INNER):
            return JoinOperator(plan)
        case Join():
            return OuterJoinOperator(plan)
        case Number():
            return NumberOperator(plan)
        case Reduce():
            return ReduceOperator(plan)
        case Counted(slides=None):
            return PartitionedRowsOperator(plan, limit)
        case Counted():
            return SlideByTupleOperator(plan, limit)


class Chain:
    """`fronts[step][input]` is the first pane not ended at an input that brings panes; the caller stores it."""

    def __init__(self, plan: QueryPlan, build: Build, state: State, fronts: list[list[int]]) -> None:
        limit = GroupLimit(plan.name, plan.limits.groups)
        self.operators = tuple(build(step.plan, limit) for step in plan.steps)
        self.fronts = fronts
        self._plans = tuple(step.plan for step in plan.steps)
        self._ports = tuple(tuple(map(step.port, range(len(step.inputs)))) for step in plan.steps)
        self._states = tuple(ScopedState(state, f"{plan.name}.{index}.") for index in range(len(plan.steps)))
        self._outs = tuple(_StepOut(self, index) for index in range(len(plan.steps)))
        self._readers: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self._node_readers: dict[str, list[tuple[int, int]]] = {}
        self._viewers = {view.node: Viewer(view, _schema_of(plan, view.node)) for view in plan.views}
        for index, step in enumerate(plan.steps):
            for number, source in enumerate(step.inputs):
                if isinstance(source, NodeInput):
                    self._node_readers.setdefault(source.node, []).append((index, number))
                else:
                    self._readers.setdefault((source.step, source.port), []).append((index, number))
        self.events = Events()

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that it reads, in the order of their first reader."""
        return tuple(self._node_readers)

    def feed(self, node: str, rows: Words) -> None:
        self._rows(self._node_readers.get(node, []), self.viewed(node, rows))

    def viewed(self, node: str, rows: Words) -> Words:
        """Rows of a node as the query's steps read them."""
        viewer = self._viewers.get(node)
        return rows if viewer is None else viewer.of(rows)

    def promise(self, node: str, frontier: int) -> None:
        """The panes of the node below `frontier` have ended."""
        self._promise(self._node_readers.get(node, []), Promise((Bound(PANE, frontier),), frontier == FOREVER))

    def promise_jointly(self, node: str, promise: Promise) -> None:
        """No later row of the node, from any bucket, satisfies all of these bounds."""
        self._promise(self._node_readers.get(node, []), promise)

    def touch(self, step: int, panes: Iterable[int]) -> None:
        """Tuples came in these panes of a landmark window's input, into any bucket."""
        operator = self.operators[step]
        if isinstance(operator, AggregateOperator):
            operator.touch(panes, self._states[step])

    def open(self) -> OpenCount | None:
        """Counts of open windows of partitions that number their rows, over all steps; None: no step has any."""
        found = [
            operator.open(state)
            for operator, state in zip(self.operators, self._states, strict=True)
            if isinstance(operator, PartitionedRowsOperator)
        ]
        return sum(found, OpenCount()) if found else None

    def work(self) -> None:
        """Do all deferred work of all steps: the work of one step may create work for another."""
        parts = tuple(zip(self.operators, self._states, self._outs, strict=True))
        while sum(operator.work(state, out, _WORK) for operator, state, out in parts):
            pass

    def take_events(self) -> Events:
        events, self.events = self.events, Events()
        return events

    def emitted(self, step: int, port: int, rows: Words) -> None:
        if isinstance(self._plans[step], Send):
            self.events.sent.append((step, rows))
        elif step == len(self.operators) - 1 and port == 0:
            self.events.rows.append(rows)
        self._rows(self._readers.get((step, port), []), rows)

    def promised(self, step: int, port: int, promise: Promise) -> None:
        if isinstance(self._plans[step], Send) and len(promise.bounds) > 1:
            self.events.sent.append((step, promise))
        self._promise(self._readers.get((step, port), []), promise)

    def closed(self, step: int, windows: range, tuples: int) -> None:
        if isinstance(self._plans[step], Aggregate | Gather | Totals):
            self.events.closings.append(Closing(step, windows, tuples))

    def _rows(self, readers: list[tuple[int, int]], rows: Words) -> None:
        if len(rows):
            for step, number in readers:
                port = self._ports[step][number]
                self.operators[step].on_batch(port, rows, self._states[step], self._outs[step])

    def _promise(self, readers: list[tuple[int, int]], promise: Promise) -> None:
        pane = promise.below(PANE)
        for step, number in readers:
            port, fronts = self._ports[step][number], self.fronts[step]
            union = self._ports[step].count(port) > 1
            before, known = self._ended(step, port), self._together(step, port) if union else []
            if pane is not None:
                fronts[number] = max(fronts[number], pane)
            if not union:
                made = [promise]
            else:
                self._keep(step, number, promise)
                ended = self._ended(step, port)
                made = [Promise((Bound(PANE, ended),), ended == FOREVER)] if before < ended else []
                made += (joint for joint in self._together(step, port) if joint not in known)
            for each in made:
                self.operators[step].on_promise(port, each, self._states[step], self._outs[step])

    def _ended(self, step: int, port: int) -> int:
        """Inputs of one port are a union: a pane has ended there once it has ended in all of them."""
        return min(front for front, of in zip(self.fronts[step], self._ports[step], strict=True) if of == port)

    def _keep(self, step: int, number: int, promise: Promise) -> None:
        """Keep what one input of a union promises jointly."""
        if len(promise.bounds) > 1:
            joint = self._states[step].get(_JOINT, number) or JointPromises()
            joint.take(promise)
            self._states[step].put(_JOINT, number, joint)

    def _together(self, step: int, port: int) -> list[Promise]:
        """What all inputs of a union promise jointly."""
        state, fronts = self._states[step], self.fronts[step]
        numbers = [number for number, of in enumerate(self._ports[step]) if of == port]
        return joint_promises([(fronts[number], state.get(_JOINT, number) or JointPromises()) for number in numbers])


def _schema_of(plan: QueryPlan, node: str) -> Schema:
    return next(item.reduction.schema for item in plan.stage.nodes if item.name == node)


class _StepOut:
    """The `Out` of one step."""

    def __init__(self, chain: Chain, step: int) -> None:
        self._chain = chain
        self._step = step

    def rows(self, port: int, rows: Words) -> None:
        self._chain.emitted(self._step, port, rows)

    def promise(self, port: int, promise: Promise) -> None:
        self._chain.promised(self._step, port, promise)

    def closed(self, port: int, windows: range, tuples: int) -> None:
        self._chain.closed(self._step, windows, tuples)

    def late(self, port: int, rows: Words) -> None:
        self._chain.events.late.append(LatePart(self._step, rows))

    def flaw(self, port: int, window: int, reason: Reason) -> None:
        self._chain.events.flaws.append((self._step, window, reason))
