"""The operators of one bucket: one graph for all queries of its stage, in which each query is an answer, (step, port).

Steps of several queries that compute the same from the same input are one step, which runs once
(`lowmark.query.plan.fingerprint.step_digests` decides). The digest also names the step's state. So a query that is
added, dropped or renamed leaves the state of the others where it is.

What an operator may rely on, and what the graph relies on:

- a port that reads a node gets `Promise((Bound(PANE, below=p),), last=p == FOREVER)`: panes below p have ended. A port
  that reads another step gets that step's promises as they are made. A port that reads an exchange also gets the joint
  promises of all buckets together. A port of a union gets what holds for all its inputs;
- rows, closings and promises of one advance come out before `work` has nothing left, in any order: a row belongs
  to the window that its column `window_end` names;
- a step that makes windows (an aggregate, or windows merged behind an exchange) reports each window into which tuples
  were merged with `closed`, one window a call, in ascending order. It need not report windows without tuples. Closings
  from other steps are ignored;
- rows that reach several readers are the same array. An operator changes no row of its input.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf
from typing import ParamSpec, TypeVar

import numpy as np

from highlevel.events import Closing, Events, Told
from highlevel.interface import MarkOut, Operator, Out, Space, State, Words
from highlevel.join import JoinOperator, OuterJoinOperator
from highlevel.join.in_order import InOrderJoinOperator
from highlevel.join.oblivious.oblivious_join import ObliviousJoinOperator
from highlevel.join.oblivious.usage import Buffer
from highlevel.join.punctuated import PunctuatedJoinOperator
from highlevel.join.shared import SharedJoinOperator
from highlevel.limits import GroupLimit
from highlevel.operators.aggregate import AggregateOperator
from highlevel.operators.crowded_aggregate import CrowdedAggregateOperator
from highlevel.operators.distinct import DistinctOperator
from highlevel.operators.finish import FinishOperator
from highlevel.operators.gather import GatherOperator, SendOperator, TotalsOperator
from highlevel.operators.incoming import panes_of
from highlevel.operators.number import NumberOperator
from highlevel.operators.partitioned_rows import PartitionedRowsOperator
from highlevel.operators.reduce import ReduceOperator
from highlevel.operators.slide_by_tuple import SlideByTupleOperator
from highlevel.progress.joint_promises import JointPromises, joint_promises
from highlevel.progress.value_promises import ValuePromises, about_values, news, of_all
from highlevel.row_marks import RowMark
from highlevel.scheduler import IN_ORDER, Scheduler
from highlevel.state import ScopedState
from highlevel.views import Viewer
from lowmark.query.options import Strategy
from lowmark.query.parse.syntax import JoinKind
from lowmark.query.plan.fingerprint import step_digests
from lowmark.query.plan.joins import Oblivious, Punctuated
from lowmark.query.plan.nodes import (
    Aggregate,
    Counted,
    Finish,
    Gather,
    Join,
    MakesWindows,
    NodeInput,
    NodeView,
    Number,
    QueryPlan,
    Reduce,
    Send,
    Step,
    StepPlan,
    Totals,
)
from lowmark.query.plan.shared_joins import Share, shares
from lowmark.wire.records.partials import PANE
from lowmark.wire.records.punctuations import Bound, Promise
from lowmark.wire.records.verdicts import OpenCount, Reason, Verdict
from lowmark.wire.rows.values import FOREVER, NEVER

__all__ = ["Answer", "Build", "Graph", "GraphStep", "build"]

P = ParamSpec("P")
R = TypeVar("R")

Build = Callable[[StepPlan, GroupLimit], Operator]


@dataclass(slots=True)
class _Kept:
    """What one input of a union has promised besides panes."""

    joint: JointPromises
    values: ValuePromises

    def encode(self) -> bytes:
        return json.dumps([self.joint.rows(), self.values.rows()]).encode()

    @classmethod
    def decode(cls, piece: bytes) -> _Kept:
        joint, values = json.loads(piece)
        return cls(JointPromises(joint), ValuePromises.of_rows(values))


@dataclass(frozen=True, slots=True)
class _Known:
    """What holds for all inputs of a port: the first pane not ended, joint promises, those about values."""

    ended: int
    joint: list[Promise]
    values: ValuePromises


_KEPT: Space[_Kept] = Space("graph.promised", _Kept.encode, _Kept.decode)
"""By the number of the input."""

_FRONTS: Space[list[int]] = Space("graph.fronts", lambda piece: json.dumps(piece).encode(), json.loads)
"""By input of a step, the first pane not ended at an input that brings panes."""


def build(plan: StepPlan, limit: GroupLimit | None = None) -> Operator:
    """The operator of a step. `limit`: groups that it may keep for ever; None: limited by memory alone."""
    match plan:
        case Aggregate(at_once=True):
            return DistinctOperator(plan)
        case Aggregate():
            in_crowds = plan.crowded and plan.strategy is Strategy.PANED and not plan.closes
            return CrowdedAggregateOperator(plan) if in_crowds else AggregateOperator(plan, limit)
        case Finish():
            return FinishOperator(plan)
        case Gather():
            return GatherOperator(plan)
        case Totals():
            return TotalsOperator(plan)
        case Send():
            return SendOperator()
        case Join(kind=JoinKind.INNER, oblivious=Oblivious()):
            return ObliviousJoinOperator(plan)
        case Join(kind=JoinKind.INNER, in_order=None, punctuated=Punctuated()):
            return PunctuatedJoinOperator(plan)
        case Join(kind=JoinKind.INNER, in_order=None):
            return JoinOperator(plan)
        case Join(kind=JoinKind.INNER):
            return InOrderJoinOperator(plan)
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


class Answer:
    """One query in the graph: where its rows come out, and what came out of the steps that it reads."""

    def __init__(self, plan: QueryPlan, steps: Sequence[GraphStep]) -> None:
        self.plan = plan
        self.port = 0
        self.events = Events()
        self._steps = steps
        self._viewers = {view.node: _viewer(plan, view) for view in plan.views}
        read = (source.node for step in plan.steps for source in step.inputs if isinstance(source, NodeInput))
        self.nodes = tuple(dict.fromkeys(read))
        """The nodes that it reads, in the order of their first reader."""

    @property
    def fronts(self) -> list[list[int]]:
        """By step and input, the first pane not ended at an input that brings panes."""
        return [step.fronts for step in self._steps]

    def viewed(self, node: str, rows: Words) -> Words:
        """Rows of a node as the query's steps read them."""
        viewer = self._viewers.get(node)
        return rows if viewer is None else viewer.of(rows)

    def open(self) -> OpenCount | None:
        """Counts of open windows of partitions that number their rows, over all steps; None: no step has any."""
        steps = ((step.operator, step.state) for step in self._steps)
        found = [operator.open(state) for operator, state in steps if isinstance(operator, PartitionedRowsOperator)]
        return sum(found, OpenCount()) if found else None

    def buffers(self) -> tuple[Buffer, ...]:
        """Those of its joins without windows, input by input."""
        steps = ((step.operator, step.state) for step in self._steps)
        joins = (operator.buffers(state) for operator, state in steps if isinstance(operator, ObliviousJoinOperator))
        return tuple(buffer for of in joins for buffer in of)

    def take_events(self) -> Events:
        events, self.events = self.events, Events()
        return events


class GraphStep:
    """A step of the graph, and the `Out` of its operator."""

    def __init__(self, graph: Graph, digest: str, plan: Step, operator: Operator, state: State) -> None:
        self.digest = digest
        self.plan = plan.plan
        self.operator = operator
        self.ports = tuple(map(plan.port, range(len(plan.inputs))))
        self.state = state
        self.stored = state.get(_FRONTS, 0)
        """`fronts` as they are in the state; None: they are not."""
        self.fronts = [*(self.stored or [NEVER] * len(plan.inputs))]
        self.readers: dict[int, list[_Input]] = {}  # by port
        self.read_by: list[tuple[Answer, int]] = []  # the queries, and the number of the step in the plan of each
        self.answers: list[Answer] = []  # the queries whose rows come out here
        self.told = Told()
        self.left: int | None = None
        """Units of deferred work, as its operator said last; None: not known, since it has got something."""
        self._graph = graph

    @property
    def queries(self) -> tuple[str, ...]:
        """The queries that read it."""
        return tuple(dict.fromkeys(answer.plan.name for answer, _ in self.read_by))

    def rows(self, port: int, rows: Words) -> None:
        for answer in self.answers:
            if answer.port == port:
                answer.events.rows.append(rows)
        if isinstance(self.plan, Send):
            self._send(rows)
        self._graph.pass_rows(self.readers.get(port, ()), rows)

    def promise(self, port: int, promise: Promise) -> None:
        if isinstance(self.plan, Send) and (len(promise.bounds) > 1 or about_values(promise)):
            self._send(promise)
        self._graph.pass_promise(self.readers.get(port, ()), promise)

    def closed(self, port: int, windows: range, tuples: int) -> None:
        if isinstance(self.plan, MakesWindows):
            self.told.closings.append(Closing(windows, tuples))

    def late(self, port: int, rows: Words) -> None:
        self.told.late.add(port)

    def flaw(self, port: int, window: int, reason: Reason) -> None:
        self.told.flaws.append((window, reason))

    def take_told(self) -> Told:
        told, self.told = self.told, Told()
        return told

    def outlet(self, port: int) -> tuple[Sequence[_Input], Sequence[Answer]]:
        """Who reads what comes out of a port: steps, and queries of which it is the answer."""
        return self.readers.get(port, ()), [answer for answer in self.answers if answer.port == port]

    def united(self, number: int, promise: Promise) -> Sequence[Promise]:
        """What the port of this input gets when the input promises this. Inputs of one port are a union: it gets what
        holds for all of them, and was not known before."""
        port, pane = self.ports[number], promise.below(PANE)
        known = self._known(port) if self.ports.count(port) > 1 else None
        if pane is not None:
            self.fronts[number] = max(self.fronts[number], pane)
        if known is None:
            return (promise,)
        kept = self.state.get(_KEPT, number) or _Kept(JointPromises(), ValuePromises())
        if len(promise.bounds) > 1 or about_values(promise):
            kept.joint.take(promise)
            kept.values.take(promise)
            kept.values.prune(self.fronts[number])
            self.state.put(_KEPT, number, kept)
        now = self._known(port)
        ended = [Promise((Bound(PANE, now.ended),), now.ended == FOREVER)] if known.ended < now.ended else []
        joint = [each for each in now.joint if each not in known.joint]
        return (*ended, *joint, *news(known.values, now.values))

    def _known(self, port: int) -> _Known:
        """What holds for all inputs of a port."""
        numbers = [number for number, of in enumerate(self.ports) if of == port]
        fronts = [self.fronts[number] for number in numbers]
        kept = [self.state.get(_KEPT, number) or _Kept(JointPromises(), ValuePromises()) for number in numbers]
        return _Known(
            min(fronts),
            joint_promises([(front, each.joint) for front, each in zip(fronts, kept, strict=True)]),
            of_all([(front, each.values) for front, each in zip(fronts, kept, strict=True)]),
        )

    def shed(self, port: int, rows: Words, reason: Reason) -> None:
        self.told.given_up += ((port, mark) for mark in _given_up(rows, reason))
        for answer, _ in self.read_by:
            answer.events.shed[reason] += len(rows)

    def mark(self, port: int, mark: RowMark) -> None:
        self.told.marks.append((port, mark))

    def _send(self, sent: Words | Promise) -> None:
        for answer, number in self.read_by:
            answer.events.sent.append((number, sent))


_Input = tuple[GraphStep, int]
"""A step that reads, and the number of its input."""


class _SharedStep(GraphStep):
    """A join of several windows. What comes out of a port goes on as if the step of that window had made it."""

    def __init__(self, graph: Graph, share: Share, plan: Step, state: State) -> None:
        super().__init__(graph, _name(share), plan, SharedJoinOperator(share.plan), state)
        self.members: dict[int, GraphStep] = {}  # by port

    def rows(self, port: int, rows: Words) -> None:
        self.members[port].rows(0, rows)

    def promise(self, port: int, promise: Promise) -> None:
        self.members[port].promise(0, promise)

    def outlet(self, port: int) -> tuple[Sequence[_Input], Sequence[Answer]]:
        return self.members[port].outlet(0)


class _Shared:
    """The operator of a step that a shared one does the work of: it gets nothing."""

    def on_batch(self, port: int, rows: Words, state: State, out: Out) -> None:
        raise AssertionError("the shared step reads its inputs")

    def on_promise(self, port: int, promise: Promise, state: State, out: Out) -> None:
        raise AssertionError("the shared step reads its inputs")

    def on_mark(self, port: int, mark: RowMark, state: State, out: MarkOut) -> None:
        raise AssertionError("the shared step reads its inputs")

    def work(self, state: State, out: Out, budget: int) -> int:
        return 0


class Graph:
    """`plans` are the queries, in the order in which they get rows."""

    def __init__(self, plans: Sequence[QueryPlan], build: Build, state: State, scheduler: Scheduler = IN_ORDER) -> None:
        self._scheduler = scheduler
        self.answers: dict[str, Answer] = {}
        self.failed: tuple[str, ...] = ()
        """The queries that read the operator that raised an exception."""
        self._steps: dict[str, GraphStep] = {}  # by digest; inputs come before their readers
        self._readers: dict[str, dict[NodeView | None, list[_Input]]] = {}  # by node, and how it is read
        self._viewers: dict[NodeView, Viewer] = {}
        limits = _limits(plans)
        self._oblivious = _oblivious(plans)
        self._shares = {digest: share for share in shares(plans) for digest in share.members}
        for plan in plans:
            self._add(plan, build, limits, state)

    @property
    def steps(self) -> Sequence[GraphStep]:
        """Inputs come before their readers."""
        return tuple(self._steps.values())

    def readers(self, node: str) -> Mapping[NodeView | None, Sequence[tuple[GraphStep, int]]]:
        """The steps that read a node, with the number of the input, by how they read it."""
        return self._readers.get(node, {})

    def feed(self, node: str, rows: Words) -> None:
        for view, readers in self._readers.get(node, {}).items():
            self.pass_rows(readers, rows if view is None else self._viewers[view].of(rows))

    def promise(self, node: str, frontier: int) -> None:
        """The panes of the node below `frontier` have ended."""
        self.promise_jointly(node, Promise((Bound(PANE, frontier),), frontier == FOREVER))

    def promise_jointly(self, node: str, promise: Promise) -> None:
        """No later row of the node, from any bucket, satisfies all of these bounds."""
        for view, readers in self._readers.get(node, {}).items():
            named = promise if view is None else _viewed(promise, view)
            if named is not None:
                self.pass_promise(readers, named)

    def promise_of(self, query: str, step: int, promise: Promise) -> None:
        """Pass on a promise as if a step of this query had made it on its port 0."""
        self._steps[step_digests(self.answers[query].plan)[step]].promise(0, promise)

    def work(self) -> None:
        """Do all deferred work of all steps: the work of one step may create work for another."""
        while waiting := [step for step in self._steps.values() if step.left != 0]:
            place, budget = self._scheduler.turn(waiting)
            step = waiting[place]
            left = self._attributed(step, step.operator.work, step.state, step, max(1, budget))
            step.left = left

    def save(self) -> None:
        for step in self._steps.values():
            if step.fronts != step.stored:
                step.stored = [*step.fronts]
                step.state.put(_FRONTS, 0, step.stored)

    def pass_rows(self, readers: Iterable[_Input], rows: Words) -> None:
        if len(rows):
            for step, number in readers:
                self._attributed(step, step.operator.on_batch, step.ports[number], rows, step.state, step)

    def pass_promise(self, readers: Iterable[_Input], promise: Promise) -> None:
        for step, number in readers:
            for each in step.united(number, promise):
                self._attributed(step, step.operator.on_promise, step.ports[number], each, step.state, step)

    def _attributed(self, step: GraphStep, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        step.left = None
        try:
            return call(*args, **kwargs)
        except Exception:
            self.failed = self.failed or step.queries  # an operator may run inside the output of another: the inner one
            raise

    def _add(self, plan: QueryPlan, build: Build, limits: Mapping[str, GroupLimit], state: State) -> None:
        digests = step_digests(plan)
        views = {view.node: view for view in plan.views}
        self._viewers |= {view: _viewer(plan, view) for view in plan.views}
        for step, digest in zip(plan.steps, digests, strict=True):
            if digest in self._steps:
                continue
            if digest in self._shares:
                made = self._share(self._shares[digest], digest, step, state)
                if made is None:
                    continue
            else:
                scoped = ScopedState(state, f"step.{digest}.")
                run = step.plan
                if isinstance(run, Join):
                    run = replace(run, oblivious=self._oblivious.get(digest))
                self._steps[digest] = made = GraphStep(self, digest, step, build(run, limits[digest]), scoped)
            for number, source in enumerate(step.inputs):
                if isinstance(source, NodeInput):
                    by_view = self._readers.setdefault(source.node, {})
                    by_view.setdefault(views.get(source.node), []).append((made, number))
                else:
                    below = self._steps[digests[source.step]]
                    below.readers.setdefault(source.port, []).append((made, number))
        steps = [self._steps[digest] for digest in digests]
        self.answers[plan.name] = answer = Answer(plan, steps)
        for number, (at, digest) in enumerate(zip(steps, digests, strict=True)):
            at.read_by.append((answer, number))
            if digest in self._shares:
                self._steps[_name(self._shares[digest])].read_by.append((answer, number))
        steps[-1].answers.append(answer)

    def _share(self, share: Share, digest: str, step: Step, state: State) -> GraphStep | None:
        """Make a step that a shared one does the work of; returns the shared one if it is new."""
        shared = self._steps.get(_name(share))
        new = None
        if not isinstance(shared, _SharedStep):
            shared = _SharedStep(self, share, step, ScopedState(state, f"step.{share.members[-1]}."))
            self._steps[_name(share)] = new = shared
        self._steps[digest] = member = GraphStep(self, digest, step, _Shared(), ScopedState(state, f"step.{digest}."))
        member.fronts = shared.fronts
        shared.members[share.members.index(digest)] = member
        return new


def _viewed(promise: Promise, view: NodeView) -> Promise | None:
    """A promise on rows of a node, for those that read it through a view; None if they do not see its columns."""
    names = dict(zip(view.columns, view.schema.names, strict=True))
    bounds = [bound.renamed(names) for bound in promise.bounds]
    return Promise(tuple(bound for bound in bounds if bound is not None), promise.last) if all(bounds) else None


def _name(share: Share) -> str:
    """The name of its step in the graph; its state is that of its last member."""
    return f"shared {share.members[-1]}"


def _given_up(rows: Words, reason: Reason) -> Iterator[RowMark]:
    """Marks on the panes of rows that were given up."""
    panes, verdict = np.unique(panes_of(rows)), Verdict(frozenset({reason}))
    starts = np.flatnonzero(np.diff(panes, prepend=panes[:1] - 2) != 1).tolist() if len(panes) else []
    for start, stop in pairwise([*starts, len(panes)]):
        yield RowMark(verdict, {PANE: (int(panes[start]), int(panes[stop - 1]) + 1)}, shifts=True)


def _limits(plans: Iterable[QueryPlan]) -> dict[str, GroupLimit]:
    """By step, the least limit of the queries that share it."""
    found: dict[str, GroupLimit] = {}
    for plan in plans:
        for digest in step_digests(plan):
            limit = GroupLimit(plan.name, plan.limits.groups)
            found[digest] = min(found.get(digest, limit), limit, key=lambda limit: limit.most)
    return found


def _oblivious(plans: Iterable[QueryPlan]) -> dict[str, Oblivious]:
    """By step that is a join without windows, how it runs: with the least memory of the queries that share it."""
    found: dict[str, Oblivious] = {}
    for plan in plans:
        for step, digest in zip(plan.steps, step_digests(plan), strict=True):
            if isinstance(step.plan, Join) and (how := step.plan.oblivious) is not None:
                found[digest] = min(found.get(digest, how), how, key=lambda each: each.bound or inf)
    return found


def _viewer(plan: QueryPlan, view: NodeView) -> Viewer:
    return Viewer(view, next(item.reduction.schema for item in plan.stage.nodes if item.name == view.node))
