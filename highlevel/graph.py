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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ParamSpec, TypeVar

from highlevel.events import Closing, Events, LatePart, Reached, Shed
from highlevel.interface import MarkOut, Operator, Out, Space, State, Words
from highlevel.join import JoinOperator, OuterJoinOperator
from highlevel.join.in_order import InOrderJoinOperator
from highlevel.join.marks import JoinMarks
from highlevel.join.oblivious.oblivious_join import ObliviousJoinOperator
from highlevel.join.oblivious.usage import Buffer
from highlevel.join.output_promises import Promising
from highlevel.join.punctuated import PunctuatedJoinOperator
from highlevel.join.shared import SharedJoinOperator
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
from highlevel.progress.value_promises import ValuePromises, about_values, news, of_all
from highlevel.row_marks import RowMark, on_windows
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

__all__ = ["Answer", "Build", "Graph", "build"]

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


_KEPT: Space[_Kept] = Space("promised", _Kept.encode, _Kept.decode)
"""By the number of the input."""

_FRONTS: Space[list[int]] = Space("fronts", lambda piece: json.dumps(piece).encode(), json.loads)
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

    def __init__(self, plan: QueryPlan, steps: Sequence[_Step]) -> None:
        self.plan = plan
        self.port = 0
        self.events = Events()
        self._steps = steps
        self._viewers = {view.node: _viewer(plan, view) for view in plan.views}
        self._readers: dict[str | tuple[int, int], list[tuple[int, int]]] = {}
        for number, step in enumerate(plan.steps):
            for place, source in enumerate(step.inputs):
                below = source.node if isinstance(source, NodeInput) else (source.step, source.port)
                self._readers.setdefault(below, []).append((number, step.port(place)))
        self.nodes = tuple(name for name in self._readers if isinstance(name, str))
        """The nodes that it reads, in the order of their first reader."""

    @property
    def fronts(self) -> list[list[int]]:
        """By step and input, the first pane not ended at an input that brings panes."""
        return [step.fronts for step in self._steps]

    def viewed(self, node: str, rows: Words) -> Words:
        """Rows of a node as the query's steps read them."""
        viewer = self._viewers.get(node)
        return rows if viewer is None else viewer.of(rows)

    def touch(self, step: int, panes: Iterable[int]) -> None:
        """Tuples came in these panes of a landmark window's input, into any bucket."""
        at = self._steps[step]
        if isinstance(at.operator, AggregateOperator):
            at.operator.touch(panes, at.state)

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

    def of_node(self, node: str, mark: RowMark) -> Reached:
        """Carry a mark on rows of a node."""
        return self._carry(node, [mark])

    def of_input(self, step: int, port: int, mark: RowMark) -> Reached:
        """Carry a mark on rows of a step's input."""
        return self._carry(None, (), {(step, port): mark})

    def of_rows(self, step: int, port: int, mark: RowMark) -> Reached:
        """Carry a mark on rows that a step puts out on a port."""
        return self._carry((step, port), [mark])

    def of_windows(self, step: int, windows: range, verdict: Verdict) -> Reached:
        """Carry a mark on windows that a step makes."""
        made = self._mapped(step, 0, on_windows(windows, verdict))
        return self._carry((step, 0), [mark for _, mark in made])

    def _carry(
        self, source: str | tuple[int, int] | None, marks: Iterable[RowMark],
        inputs: Mapping[tuple[int, int], RowMark] = MappingProxyType({}),
    ) -> Reached:  # fmt: skip
        """Carry marks on rows of a source, and on the inputs of steps, by step and port. Marks that meet at a port go
        on as one, so there are no more than ports."""
        reached, coming = Reached(), dict(inputs)
        pending: list[tuple[str | tuple[int, int] | None, RowMark]] = [(source, mark) for mark in marks]
        while pending or coming:
            for below, mark in pending:
                if below == (len(self._steps) - 1, self.port):
                    reached.shown.append(mark)
                for reader in () if below is None else self._readers.get(below, ()):
                    coming[reader] = coming[reader] + mark if reader in coming else mark
            if not coming:
                break
            step, port = first = min(coming)  # inputs come before their readers
            mark, pending = coming.pop(first), []
            match self._steps[step].plan:
                case Aggregate() | Gather() | Totals():
                    reached.steps.append((step, mark))
                case Send():
                    reached.steps += [(step, made) for _, made in self._mapped(step, port, mark)]
                case _:
                    pending = [((step, at), made) for at, made in self._mapped(step, port, mark)]
        return reached

    def _mapped(self, step: int, port: int, mark: RowMark) -> list[tuple[int, RowMark]]:
        """The marks on a step's output, by port, for one on its input."""
        at, out = self._steps[step], _MarkOut()
        at.operator.on_mark(port, mark, at.state, out)
        return out.marks

    def take_events(self) -> Events:
        events, self.events = self.events, Events()
        return events


class _MarkOut:
    """The `Out` of an operator that maps a mark."""

    def __init__(self) -> None:
        self.marks: list[tuple[int, RowMark]] = []

    def mark(self, port: int, mark: RowMark) -> None:
        self.marks.append((port, mark))


class _Step:
    """A step of the graph, and the `Out` of its operator."""

    def __init__(self, graph: Graph, digest: str, plan: Step, operator: Operator, state: State) -> None:
        self.digest = digest
        self.plan = plan.plan
        self.operator = operator
        self.ports = tuple(map(plan.port, range(len(plan.inputs))))
        self.state = state
        self.fronts = state.get(_FRONTS, 0) or [NEVER] * len(plan.inputs)
        self.readers: dict[int, list[_Input]] = {}  # by port
        self.read_by: list[tuple[Answer, int]] = []  # the queries, and the number of the step in the plan of each
        self.answers: list[Answer] = []  # the queries whose rows come out here
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
        if isinstance(self.plan, Aggregate | Gather | Totals):
            for answer, number in self.read_by:
                answer.events.closings.append(Closing(number, windows, tuples))

    def late(self, port: int, rows: Words) -> None:
        for answer, number in self.read_by:
            answer.events.late.append(LatePart(number, port, rows))

    def flaw(self, port: int, window: int, reason: Reason) -> None:
        for answer, number in self.read_by:
            answer.events.flaws.append((number, window, reason))

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
        for answer, number in self.read_by:
            answer.events.shed.append(Shed(number, port, rows, reason))

    def mark(self, port: int, mark: RowMark) -> None:
        for answer, number in self.read_by:
            answer.events.marks.append((number, port, mark))

    def _send(self, sent: Words | Promise) -> None:
        for answer, number in self.read_by:
            answer.events.sent.append((number, sent))


_Input = tuple[_Step, int]
"""A step that reads, and the number of its input."""


class _SharedStep(_Step):
    """A join of several windows. What comes out of a port goes on as if the step of that window had made it."""

    def __init__(self, graph: Graph, share: Share, plan: Step, state: State) -> None:
        super().__init__(graph, _name(share), plan, SharedJoinOperator(share.plan), state)
        self.members: dict[int, _Step] = {}  # by port

    def rows(self, port: int, rows: Words) -> None:
        self.members[port].rows(0, rows)

    def promise(self, port: int, promise: Promise) -> None:
        self.members[port].promise(0, promise)

    def mark(self, port: int, mark: RowMark) -> None:
        self.members[port].mark(0, mark)


class _Shared:
    """The operator of a step that a shared one does the work of: a join, through which marks pass as if it did it."""

    def __init__(self, join: Join) -> None:
        self._marks = JoinMarks(join, Promising(join))

    def on_batch(self, port: int, rows: Words, state: State, out: Out) -> None:
        raise AssertionError("the shared step reads its inputs")

    def on_promise(self, port: int, promise: Promise, state: State, out: Out) -> None:
        raise AssertionError("the shared step reads its inputs")

    def on_mark(self, port: int, mark: RowMark, state: State, out: MarkOut) -> None:
        out.mark(0, self._marks.of_input(port, mark))

    def work(self, state: State, out: Out, budget: int) -> int:
        return 0


class Graph:
    """`plans` are the queries, in the order in which they get rows."""

    def __init__(self, plans: Sequence[QueryPlan], build: Build, state: State, scheduler: Scheduler = IN_ORDER) -> None:
        self._scheduler = scheduler
        self.answers: dict[str, Answer] = {}
        self.failed: tuple[str, ...] = ()
        """The queries that read the operator that raised an exception."""
        self._steps: dict[str, _Step] = {}  # by digest; inputs come before their readers
        self._readers: dict[str, dict[NodeView | None, list[_Input]]] = {}  # by node, and how it is read
        self._viewers: dict[NodeView, Viewer] = {}
        limits = _limits(plans)
        self._shares = {digest: share for share in shares(plans) for digest in share.members}
        for plan in plans:
            self._add(plan, build, limits, state)

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
            step.state.put(_FRONTS, 0, step.fronts)

    def pass_rows(self, readers: Iterable[_Input], rows: Words) -> None:
        if len(rows):
            for step, number in readers:
                self._attributed(step, step.operator.on_batch, step.ports[number], rows, step.state, step)

    def pass_promise(self, readers: Iterable[_Input], promise: Promise) -> None:
        for step, number in readers:
            for each in step.united(number, promise):
                self._attributed(step, step.operator.on_promise, step.ports[number], each, step.state, step)

    def _attributed(self, step: _Step, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
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
                self._steps[digest] = made = _Step(self, digest, step, build(step.plan, limits[digest]), scoped)
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

    def _share(self, share: Share, digest: str, step: Step, state: State) -> _Step | None:
        """Make a step that a shared one does the work of; returns the shared one if it is new."""
        shared = self._steps.get(_name(share))
        new = None
        if not isinstance(shared, _SharedStep):
            shared = _SharedStep(self, share, step, ScopedState(state, f"step.{share.members[-1]}."))
            self._steps[_name(share)] = new = shared
        port = share.members.index(digest)
        operator = _Shared(share.plan.joins[port])
        self._steps[digest] = member = _Step(self, digest, step, operator, ScopedState(state, f"step.{digest}."))
        member.fronts = shared.fronts
        shared.members[port] = member
        return new


def _viewed(promise: Promise, view: NodeView) -> Promise | None:
    """A promise on rows of a node, for those that read it through a view; None if they do not see its columns."""
    names = dict(zip(view.columns, view.schema.names, strict=True))
    bounds = [bound.renamed(names) for bound in promise.bounds]
    return Promise(tuple(bound for bound in bounds if bound is not None), promise.last) if all(bounds) else None


def _name(share: Share) -> str:
    """The name of its step in the graph; its state is that of its last member."""
    return f"shared {share.members[-1]}"


def _limits(plans: Iterable[QueryPlan]) -> dict[str, GroupLimit]:
    """By step, the least limit of the queries that share it."""
    found: dict[str, GroupLimit] = {}
    for plan in plans:
        for digest in step_digests(plan):
            limit = GroupLimit(plan.name, plan.limits.groups)
            found[digest] = min(found.get(digest, limit), limit, key=lambda limit: limit.most)
    return found


def _viewer(plan: QueryPlan, view: NodeView) -> Viewer:
    return Viewer(view, next(item.reduction.schema for item in plan.stage.nodes if item.name == view.node))
