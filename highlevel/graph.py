"""The operators of one bucket: one graph for all queries of its stage, in which each query is an answer, (step, port).

Steps of several queries that compute the same from the same input are one step, which runs once
(`lowmark.query.plan.fingerprint.step_digests` decides). The digest also names the step's state, so a query that is
added, dropped or renamed leaves the state of the others in place.

What an operator may rely on, and what the graph relies on:

- a port that reads a node gets `Promise((Bound(PANE, below=p),), last=p == FOREVER)`: panes below p have ended. A port
  that reads another step gets that step's promises as they are made. A port that reads an exchange also gets the joint
  promises of all buckets together. A port of a union gets what holds for all its inputs;
- rows, closings and promises of one advance come out in any order, all before `work` has nothing left. A row belongs to
  the window that its column `window_end` names;
- a step that makes windows (an aggregate, or windows merged behind an exchange) reports each window into which tuples
  were merged with `closed`, one window a call, in ascending order. It need not report windows without tuples. Closings
  from other steps are ignored;
- rows that reach several readers are the same array. An operator changes no row of its input.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf

import numpy as np

from highlevel.build import Build
from highlevel.events import Closing, Events, Reports
from highlevel.interface import MarkOut, Operator, Out, Space, State, Words
from highlevel.join.oblivious.oblivious_join import ObliviousJoinOperator
from highlevel.join.oblivious.usage import Buffer
from highlevel.join.punctuated import FreedRows, PunctuatedJoinOperator
from highlevel.join.shared import SharedJoinOperator
from highlevel.join.shared.handover import Handover, hand_over, running, scope
from highlevel.limits import GroupLimit
from highlevel.operators.incoming import panes_of
from highlevel.operators.row_windows.partitioned_rows import PartitionedRowsOperator
from highlevel.progress.promises.joint import JointPromises, joint_promises
from highlevel.progress.promises.values import ValuePromises, about_values, news, of_all
from highlevel.row_marks import RowMark
from highlevel.scheduler import IN_ORDER, Scheduler
from highlevel.views import Viewer
from lowmark.query.plan.fingerprint import step_digests
from lowmark.query.plan.joins import Oblivious
from lowmark.query.plan.nodes import (
    Join,
    MakesWindows,
    NodeInput,
    NodeView,
    QueryPlan,
    Send,
    Step,
)
from lowmark.query.plan.shared_joins import Share, shares
from lowmark.wire.records.partials import PANE
from lowmark.wire.records.punctuations import Bound, Promise
from lowmark.wire.records.verdicts import OpenCount, Reason, Verdict
from lowmark.wire.rows.values import FOREVER, NEVER

__all__ = ["Answer", "Graph", "GraphStep"]


@dataclass(slots=True)
class _Kept:
    """The promises of one input of a union, other than on panes."""

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
    """What all inputs of a port have promised: the first pane not ended, joint promises, promises about values."""

    ended: int
    joint: list[Promise]
    values: ValuePromises


_KEPT: Space[_Kept] = Space("graph.promised", _Kept.encode, _Kept.decode)
"""By the number of the input."""

_FRONTS: Space[list[int]] = Space("graph.fronts", lambda piece: json.dumps(piece).encode(), json.loads)
"""By input of a step, the first pane not ended; NEVER at an input without panes."""


class Answer:
    """One query in the graph: the step that outputs its rows, and the events of its steps."""

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
        """By step and input, the first pane not ended; NEVER at an input without panes."""
        return [step.fronts for step in self._steps]

    def viewed(self, node: str, rows: Words) -> Words:
        """Rows of a node in the form in which the query's steps read them."""
        viewer = self._viewers.get(node)
        return rows if viewer is None else viewer.of(rows)

    def open(self) -> OpenCount | None:
        """Counts of open windows of partitions that number their rows, over all steps; None: no step numbers rows by
        partition."""
        steps = ((step.operator, step.state) for step in self._steps)
        found = [operator.open(state) for operator, state in steps if isinstance(operator, PartitionedRowsOperator)]
        return sum(found, OpenCount()) if found else None

    def buffers(self) -> tuple[Buffer, ...]:
        """The buffers of its joins without windows, input by input."""
        steps = ((step.operator, step.state) for step in self._steps)
        joins = (operator.buffers(state) for operator, state in steps if isinstance(operator, ObliviousJoinOperator))
        return tuple(buffer for of in joins for buffer in of)

    def freed(self) -> tuple[FreedRows, ...]:
        """The rows that its punctuated joins keep and that promises have freed, input by input."""
        steps = ((step.operator, step.state) for step in self._steps)
        joins = (operator.freed(state) for operator, state in steps if isinstance(operator, PunctuatedJoinOperator))
        return tuple(freed for of in joins for freed in of)

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
        """`fronts` as stored in the state; None: not stored."""
        self.fronts = [*(self.stored or [NEVER] * len(plan.inputs))]
        self.readers: dict[int, list[_Input]] = {}  # by port
        self.read_by: list[tuple[Answer, int]] = []  # each query with the step's number in its plan
        self.answers: list[Answer] = []  # the queries whose rows come out here
        self.told = Reports()
        self.left: int | None = None
        """Units of deferred work that its operator reported last; None: unknown, because it has got input since."""
        self._graph = graph

    def tells(self, digests: frozenset[str]) -> bool:
        """Whether it is one of these steps."""
        return self.digest in digests

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

    def take_told(self) -> Reports:
        told, self.told = self.told, Reports()
        return told

    def outlet(self, port: int) -> tuple[Sequence[_Input], Sequence[Answer]]:
        """The readers of an output port: steps, and queries whose answer it is."""
        return self.readers.get(port, ()), [answer for answer in self.answers if answer.port == port]

    def united(self, number: int, promise: Promise) -> Sequence[Promise]:
        """The promises that a port gets when this input makes a promise. Inputs of one port are a union: the port gets
        what newly holds for all of them."""
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
        """What all inputs of a port have promised."""
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
            answer.events.shed[reason] = answer.events.shed.get(reason, 0) + len(rows)

    def mark(self, port: int, mark: RowMark) -> None:
        self.told.marks.append((port, mark))

    def _send(self, sent: Words | Promise) -> None:
        for answer, number in self.read_by:
            answer.events.sent.append((number, sent))


_Input = tuple[GraphStep, int]
"""A step that reads, and the number of its input."""


class _SharedStep(GraphStep):
    """A join of several windows. The output of a port passes on as if the step of that window had made it."""

    def __init__(self, graph: Graph, share: Share, plan: Step, state: State) -> None:
        super().__init__(graph, _name(share), plan, SharedJoinOperator(share.plan), state)
        self.members: dict[int, GraphStep] = {}  # by port

    def tells(self, digests: frozenset[str]) -> bool:
        return all(member.digest in digests for member in self.members.values())

    def rows(self, port: int, rows: Words) -> None:
        self.members[port].rows(0, rows)

    def promise(self, port: int, promise: Promise) -> None:
        self.members[port].promise(0, promise)

    def outlet(self, port: int) -> tuple[Sequence[_Input], Sequence[Answer]]:
        return self.members[port].outlet(0)


class _Shared:
    """The operator of a step whose work a shared step does: it gets no input."""

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

    def __init__(
        self, plans: Sequence[QueryPlan], build: Build, state: State, scheduler: Scheduler = IN_ORDER,
        seen: int = NEVER,
    ) -> None:  # fmt: skip
        """`seen`: all rows that have come so far lie before this time."""
        self._scheduler = scheduler
        self.answers: dict[str, Answer] = {}
        self._running: GraphStep | None = None
        """The step whose operator runs; of nested ones, the innermost. It stays set when its operator raises an
        exception."""
        self._steps: dict[str, GraphStep] = {}  # by digest; inputs come before their readers
        self._readers: dict[str, dict[NodeView | None, list[_Input]]] = {}  # by node and view
        self._viewers: dict[NodeView, Viewer] = {}
        limits = _limits(plans)
        self._oblivious = _oblivious(plans)
        self._shares = {digest: share for share in shares(plans) for digest in share.members}
        joins = running(plans, self._shares)
        self.handed_over = frozenset(digest for join in joins for digest in join.members)
        """The steps that say themselves which rows they have missed."""
        changed = hand_over(joins, state, seen)
        _hand_over(changed, state)
        for plan in plans:
            self._add(plan, build, limits, state)
        for digest, marks in changed.marks.items():
            for mark in marks:
                self._steps[digest].mark(0, mark)

    @property
    def failed(self) -> tuple[str, ...]:
        """The queries that read the operator that has raised an exception."""
        return () if self._running is None else self._running.queries

    @property
    def steps(self) -> Sequence[GraphStep]:
        """The steps; inputs come before their readers."""
        return tuple(self._steps.values())

    def readers(self, node: str) -> Mapping[NodeView | None, Sequence[tuple[GraphStep, int]]]:
        """The steps that read a node, each with the number of its input, by the view through which they read it."""
        return self._readers.get(node, {})

    def feed(self, node: str, rows: Words) -> None:
        for view, readers in self._readers.get(node, {}).items():
            self.pass_rows(readers, rows if view is None else self._viewers[view].of(rows))

    def promise(self, node: str, frontier: int, steps: frozenset[str] | None = None) -> None:
        """Promise that the panes of the node below `frontier` have ended. `steps`: only these are told."""
        self.promise_jointly(node, Promise((Bound(PANE, frontier),), frontier == FOREVER), steps)

    def promise_jointly(self, node: str, promise: Promise, steps: frozenset[str] | None = None) -> None:
        """Promise that no later row of the node, from any bucket, satisfies all of these bounds. `steps`: only these
        are told."""
        for view, readers in self._readers.get(node, {}).items():
            named = promise if view is None else _viewed(promise, view)
            if named is not None:
                told = readers if steps is None else [each for each in readers if each[0].tells(steps)]
                self.pass_promise(told, named)

    def promise_of(self, query: str, step: int, promise: Promise) -> None:
        """Pass on a promise as if this step of the query had made it on its port 0."""
        self._steps[step_digests(self.answers[query].plan)[step]].promise(0, promise)

    def work(self) -> None:
        """Do all deferred work of all steps: the work of one step may create work for another."""
        while waiting := [step for step in self._steps.values() if step.left != 0]:
            place, budget = self._scheduler.turn(waiting)
            step = waiting[place]
            step.left, self._running = None, step
            left = step.operator.work(step.state, step, max(1, budget))
            step.left, self._running = left, None

    def save(self) -> None:
        for step in self._steps.values():
            if step.fronts != step.stored:
                step.stored = [*step.fronts]
                step.state.put(_FRONTS, 0, step.stored)

    def pass_rows(self, readers: Iterable[_Input], rows: Words) -> None:
        if len(rows):
            outer = self._running
            for step, number in readers:
                step.left, self._running = None, step
                step.operator.on_batch(step.ports[number], rows, step.state, step)
            self._running = outer

    def pass_promise(self, readers: Iterable[_Input], promise: Promise) -> None:
        outer = self._running
        for step, number in readers:
            for each in step.united(number, promise):
                step.left, self._running = None, step
                step.operator.on_promise(step.ports[number], each, step.state, step)
        self._running = outer

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
                scoped = scope(state, digest)
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
        """Make a step whose work a shared step does. Returns the shared step if it is new."""
        shared = self._steps.get(_name(share))
        new = None
        if not isinstance(shared, _SharedStep):
            shared = _SharedStep(self, share, step, scope(state, share.members[-1]))
            self._steps[_name(share)] = new = shared
        self._steps[digest] = member = GraphStep(self, digest, step, _Shared(), scope(state, digest))
        member.fronts = shared.fronts
        shared.members[share.members.index(digest)] = member
        return new


def _viewed(promise: Promise, view: NodeView) -> Promise | None:
    """A promise on rows of a node as seen through a view; None if the view lacks one of its columns."""
    names = dict(zip(view.columns, view.schema.names, strict=True))
    bounds = [bound.renamed(names) for bound in promise.bounds]
    return Promise(tuple(bound for bound in bounds if bound is not None), promise.last) if all(bounds) else None


def _name(share: Share) -> str:
    """The name of a shared step in the graph. Its state is that of its last member."""
    return f"shared {share.members[-1]}"


def _hand_over(changed: Handover, state: State) -> None:
    """Hand over what the graph keeps for the inputs of joins that begin or have ended."""
    taken: dict[str, tuple[list[list[int]], dict[int, _Kept]]] = {}
    for name, before in changed.heirs.items():
        states = [scope(state, each) for each in before]
        fronts = [found for each in states if (found := each.get(_FRONTS, 0)) is not None]
        kept = {key: piece for each in states for key in each.keys(_KEPT) if (piece := each.get(_KEPT, key))}
        taken[name] = fronts, kept
    for name in changed.ended:
        scope(state, name).drop(_FRONTS, 0)
        for key in scope(state, name).keys(_KEPT):
            scope(state, name).drop(_KEPT, key)
    for name, (fronts, kept) in taken.items():
        if fronts:
            scope(state, name).put(_FRONTS, 0, [max(each) for each in zip(*fronts, strict=True)])
        for key, piece in kept.items():
            scope(state, name).put(_KEPT, key, piece)


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
    """How each join without windows runs, by step: with the least memory of the queries that share it."""
    found: dict[str, Oblivious] = {}
    for plan in plans:
        for step, digest in zip(plan.steps, step_digests(plan), strict=True):
            if isinstance(step.plan, Join) and (how := step.plan.oblivious) is not None:
                found[digest] = min(found.get(digest, how), how, key=lambda each: each.bound or inf)
    return found


def _viewer(plan: QueryPlan, view: NodeView) -> Viewer:
    return Viewer(view, next(item.reduction.schema for item in plan.stage.nodes if item.name == view.node))
