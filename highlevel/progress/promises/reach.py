"""Computes how far promises alone take an answer. The query's own steps compute this, without rows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping

from highlevel.build import build
from highlevel.graph import Answer, Graph
from highlevel.progress.promises.complete_rows import step_bounds
from highlevel.state import MemoryState
from highlevel.verdicts.loss_routes import answer_step
from lowmark.query.plan.nodes import Gather, Number, QueryPlan, Send, Totals
from lowmark.wire.records.punctuations import Bound, Promise
from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.values import FOREVER, NEVER

__all__ = ["Reach"]

_LEAST, _MOST = -(2**61), 2**62
"""The range of the search for times, in ns, and numbers of rows."""


class Reach:
    """The progress of an answer: with windows, its first open window; without, the bound up to which it is complete, in
    ns. Granules are panes of the nodes, including those of exchanges."""

    def __init__(self, plan: QueryPlan) -> None:
        self._plan = plan
        self._answer = answer_step(plan)
        self.window = None if self._answer is None else plan.window  # the answer's window
        self._number = numbering(plan)
        self._follows = self._answer is not None and isinstance(plan.steps[self._answer].plan, Gather | Totals)
        self._senders = {step.plan.node: at for at, step in enumerate(plan.steps) if isinstance(step.plan, Send)}
        read = self._graph()[1].nodes
        self.nodes = tuple(node for node in plan.stage.nodes if node.name in read)
        exchanges = () if plan.exchanges is None else plan.exchanges.each
        self._panes = {node.name: node.reduction.pane for node in (*self.nodes, *(e.node for e in exchanges))}
        self._needed: dict[tuple[str | None, int], int] = {}

    @property
    def numbers_rows(self) -> bool:
        """Whether windows are of rows numbered in one sequence; promises alone close no such window."""
        return self._number is not None

    def of(self, granules: Mapping[str, int]) -> int:
        """The progress when the granules below these have ended in their nodes, and all granules in the other nodes. An
        exchange that is not among the nodes counts as having returned everything sent into it."""
        (graph, answer), fronts = self._graph(), {node.name: granules.get(node.name, FOREVER) for node in self.nodes}
        for node, front in fronts.items():
            _promise(graph, node, front)
        for node, sender in self._senders.items():
            fronts[node] = granules.get(node, min(answer.fronts[sender]))
            _promise(graph, node, fronts[node])
        if self._answer is not None:
            return self._first_open(answer)
        starts = (at if at in (NEVER, FOREVER) else self._panes[node].start(at) for node, at in fronts.items())
        return min(*starts, *step_bounds(self._plan, answer.fronts), FOREVER)

    def of_rows(self, rows: int) -> int:
        """The progress when this many rows have been numbered and more may come."""
        assert self._number is not None
        (graph, answer), (step, name) = self._graph(), self._number
        graph.promise_of(self._plan.name, step, Promise((Bound(name, rows + 1),)))
        graph.work()
        return self._first_open(answer)

    def needed(self, node: str, goal: int) -> int:
        """The least time in ns up to which a node must be promised for the answer to reach `goal`; FOREVER: the node
        must end."""
        pane = self._panes[node]
        first, last = pane.index(_LEAST), pane.index(_MOST)
        found = self._least(node, goal, range(first, last), lambda granule: self.of({node: granule}))
        return FOREVER if found == last else pane.start(found)

    def needed_rows(self, goal: int) -> int:
        """How many rows must have been numbered for the answer to reach `goal`."""
        return self._least(None, goal, range(_MOST), self.of_rows)

    def _least(self, node: str | None, goal: int, among: range, of: Callable[[int], int]) -> int:
        if (node, goal) not in self._needed:
            place = bisect_left(among, True, 0, among.stop - among.start, key=lambda value: of(value) >= goal)
            self._needed[node, goal] = among.start + place
        return self._needed[node, goal]

    def forget(self, goal: int) -> None:
        """Drop cached results for goals below this one, which are never requested again."""
        self._needed = {asked: value for asked, value in self._needed.items() if asked[1] >= goal}

    def _graph(self) -> tuple[Graph, Answer]:
        graph = Graph((self._plan,), build, MemoryState())
        return graph, graph.answers[self._plan.name]

    def _first_open(self, answer: Answer) -> int:
        assert self._answer is not None
        assert self.window is not None
        front = min(answer.fronts[self._answer])
        return front if self._follows or front in (NEVER, FOREVER) else self.window.closed_by(front)


def _promise(graph: Graph, node: str, granule: int) -> None:
    if granule > NEVER:
        graph.promise(node, granule)
        graph.work()


def numbering(plan: QueryPlan) -> tuple[int, str] | None:
    """The step that numbers the rows of the answer's windows, and the column of the numbers."""
    if plan.window is None or plan.window.axis.kind is not Kind.INT:
        return None
    found = ((at, step.plan.number) for at, step in enumerate(plan.steps) if isinstance(step.plan, Number))
    return next(((at, name) for at, name in found if name is not None), None)
