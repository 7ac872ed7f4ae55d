"""Carries marks through the graph, from granules of nodes, rows and windows of steps to their ends: steps that make
windows, steps that send rows into an exchange, and answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from highlevel.graph import Graph, GraphStep
from highlevel.row_marks import RowMark, on_windows
from lowmark.query.plan.nodes import Finish, MakesWindows, NodeInput, QueryPlan, Send
from lowmark.query.windows.window import WindowKind
from lowmark.wire.records.partials import PANE
from lowmark.wire.records.verdicts import Verdict

__all__ = ["Reached", "Routes", "answer_step"]


@dataclass(slots=True)
class Reached:
    """Marks at their ends. `steps`: by the digest of a step, on rows of its input. `shown`: by query, on rows of its
    answer."""

    steps: list[tuple[str, RowMark]] = field(default_factory=list)
    shown: list[tuple[str, RowMark]] = field(default_factory=list)

    def __iadd__(self, other: Reached) -> Reached:
        self.steps += other.steps
        self.shown += other.shown
        return self


class _Out:
    """The `Out` of an operator that maps a mark."""

    def __init__(self) -> None:
        self.marks: list[tuple[int, RowMark]] = []

    def mark(self, port: int, mark: RowMark) -> None:
        self.marks.append((port, mark))


_Coming = dict[tuple[int, int], RowMark]
"""Marks under way: by the place of a step in the graph and its port."""


class Routes:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._steps = graph.steps
        self._places = {step.digest: place for place, step in enumerate(self._steps)}

    def of_node(self, node: str, mark: RowMark) -> Reached:
        """Carry a mark on rows of a node, whose columns it names as the node does. Steps that make windows of the
        node's granules read them in the ledger."""
        coming: _Coming = {}
        for view, readers in self._graph.readers(node).items():
            seen = mark
            if view is not None:
                names = {PANE: PANE, **dict(zip(view.schema.names, view.columns, strict=True))}
                seen = mark.at({own: mark.extents[name] for own, name in names.items() if name in mark.extents})
            self._meet(coming, (reader for reader in readers if not isinstance(reader[0].plan, MakesWindows)), seen)
        return self._carried(coming, Reached())

    def of_input(self, step: GraphStep, port: int, mark: RowMark) -> Reached:
        """Carry a mark on rows of a step's input."""
        return self._carried({(self._places[step.digest], port): mark}, Reached())

    def of_rows(self, step: GraphStep, port: int, mark: RowMark) -> Reached:
        """Carry a mark on rows that a step puts out on a port."""
        return self._from([(port, mark)], step)

    def of_windows(self, step: GraphStep, windows: range, verdict: Verdict) -> Reached:
        """Carry a mark on windows that a step makes."""
        return self._from(_mapped(step, 0, on_windows(windows, verdict)), step)

    def _from(self, marks: Iterable[tuple[int, RowMark]], step: GraphStep) -> Reached:
        coming, reached = _Coming(), Reached()
        for port, mark in marks:
            self._out(coming, reached, step, port, mark)
        return self._carried(coming, reached)

    def _carried(self, coming: _Coming, reached: Reached) -> Reached:
        while coming:
            place, port = first = min(coming)  # inputs come before their readers
            mark, step = coming.pop(first), self._steps[place]
            if isinstance(step.plan, MakesWindows):
                reached.steps.append((step.digest, mark))
                continue
            for at, made in _mapped(step, port, mark):
                if isinstance(step.plan, Send):
                    reached.steps.append((step.digest, made))
                else:
                    self._out(coming, reached, step, at, made)
        return reached

    def _out(self, coming: _Coming, reached: Reached, step: GraphStep, port: int, mark: RowMark) -> None:
        readers, answers = step.outlet(port)
        reached.shown += ((answer.plan.name, mark) for answer in answers)
        self._meet(coming, readers, mark)

    def _meet(self, coming: _Coming, readers: Iterable[tuple[GraphStep, int]], mark: RowMark) -> None:
        """Merge marks that meet at a port, so that there are no more marks than ports."""
        for step, number in readers:
            at = self._places[step.digest], step.ports[number]
            coming[at] = coming[at] + mark if at in coming else mark


def _mapped(step: GraphStep, port: int, mark: RowMark) -> list[tuple[int, RowMark]]:
    """The marks on a step's output, by port, for one on its input."""
    out = _Out()
    step.operator.on_mark(port, mark, step.state, out)
    return out.marks


def answer_step(plan: QueryPlan) -> int | None:
    """The step whose windows the answer's rows belong to; None: a query without windows."""
    if plan.window is None or plan.window.kind is WindowKind.NONE:
        return None
    step = len(plan.steps) - 1
    while not isinstance(plan.steps[step].plan, MakesWindows):
        source = plan.steps[step].inputs[0]
        if isinstance(source, NodeInput) or not isinstance(plan.steps[step].plan, Finish):
            raise ValueError(f"query {plan.name}: the answer has windows, and no step makes them")
        step = source.step
    if "window_end" not in plan.output.names:
        raise ValueError(f"query {plan.name}: an answer with windows shows window_end")
    return step
