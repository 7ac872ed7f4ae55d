"""Losses of one query in one bucket: from granules of nodes and windows of steps to the panes and windows that
they concern.

The graph carries a mark through the operators. Here marks begin, on granules and windows, and end, at the steps that
make windows or send.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from highlevel.events import Reached
from highlevel.graph import Answer
from highlevel.progress.exchange_channel import Channel
from highlevel.progress.granules import ROW_NUMBER
from highlevel.progress.ledger import Ledger
from highlevel.row_marks import Extent, RowMark, of_panes, through
from highlevel.verdicts.exchanged_windows import FollowedSequence
from highlevel.verdicts.loss_routes import Route
from highlevel.verdicts.marks import EXACT, Finding, Mark, Marks
from highlevel.verdicts.unions import MeldedSequence
from highlevel.verdicts.window_sequence import WindowSequence
from lowmark.query.plan.nodes import QueryPlan
from lowmark.query.windows.progressing import Progress, progress
from lowmark.query.windows.window import Window
from lowmark.wire.records.partials import PANE
from lowmark.wire.records.verdicts import Reason, Verdict
from lowmark.wire.rows.values import FOREVER, NEVER

__all__ = ["Learned", "Losses", "Sequences", "sequence_of"]

_NUMBERING = frozenset({Reason.NUMBERING})

Sequences = Mapping[int, WindowSequence | FollowedSequence | MeldedSequence]
"""The steps that make windows."""


def sequence_of(
    route: Route, window: Window, ledgers: Mapping[str, Ledger]
) -> WindowSequence | FollowedSequence | MeldedSequence:
    """The sequence for a step that makes these windows."""
    own = [ledgers[node] for node in route.nodes]
    if not route.follows:
        return WindowSequence(window, own, not own)
    return FollowedSequence(window, *own) if own else MeldedSequence(window, route.follows)


Told = tuple[range, Verdict]
"""Windows that were already output or skipped, and the verdict against them."""


@dataclass(slots=True)
class Learned:
    """What a finding about ended granules affects."""

    told: dict[int, list[Told]] = field(default_factory=dict)  # by step
    shown: list[RowMark] = field(default_factory=list)  # in the answer


class Losses:
    """`ledgers` are of the nodes that the query reads."""

    def __init__(
        self, answer: Answer, routes: Sequence[Route], sequences: Sequences, channels: Mapping[int, Channel],
        ledgers: Mapping[str, Ledger],
    ) -> None:  # fmt: skip
        self._answer = answer
        self._routes = {route.step: route for route in routes}
        self._sequences = sequences
        self._channels = channels
        self._ledgers = ledgers
        self._columns = {name: tuple(_progressing(answer.plan, ledger)) for name, ledger in ledgers.items()}
        self._spread: dict[str, Extent] = {}  # the panes of each node whose rows are known to `spread`
        self._leading: dict[int, bool] = {}
        self._joined = {name for name in ledgers if self._passes_joins(self.of_node(name, Mark(0, 1, EXACT.verdict)))}

    def marks_of(self, step: int) -> Marks:
        """The marks on the panes of a step that makes windows or sends."""
        return (self._sequences[step] if step in self._sequences else self._channels[step]).marks

    def of_node(self, node: str, mark: Mark, shifts: bool = False) -> Reached:
        """Carry a mark on granules of a node. Steps that make windows of these granules read them in the ledger."""
        panes = mark.start, mark.stop
        times = of_panes(panes, self._ledgers[node].node.reduction.pane)
        extents = {PANE: panes, **{name: through(times, way) for name, way in self._columns[node]}}
        shifts |= bool(mark.verdict.reasons)
        reached = self._answer.of_node(node, RowMark(mark.verdict, extents, times, shifts))
        reached.steps = [
            (at, made)
            for at, made in reached.steps
            if node not in self._routes[at].nodes or made.extents.get(PANE) != panes
        ]
        return reached

    def leads_on(self, step: int) -> bool:
        """Whether rows of a step that makes windows reach another such step, or one that sends."""
        if step not in self._leading:
            self._leading[step] = bool(self.of_windows(step, range(1), EXACT.verdict).steps)
        return self._leading[step]

    def opens_or_ends(self) -> bool:
        """Whether a step has not had its first window, or all rows of one have come."""
        made = (sequence for sequence in self._sequences.values() if isinstance(sequence, WindowSequence))
        return any(sequence.next is None for sequence in made) or any(
            min(self._answer.fronts[step]) == FOREVER for step in self._sequences
        )

    def of_windows(self, step: int, windows: range, verdict: Verdict) -> Reached:
        """Carry a verdict against windows that a step makes. Steps that merge these windows follow them anyway."""
        reached = self._answer.of_windows(step, windows, verdict)
        reached.steps = [(at, mark) for at, mark in reached.steps if step not in self._routes[at].follows]
        return reached

    def lost_before(self, node: str, front: int, fronts: Mapping[int, int]) -> list[RowMark]:
        """Tuples of the node were lost that had not ended: rows counted from now on get wrong numbers. Returns what
        concerns the answer."""
        reached = self.of_node(node, Mark(front, FOREVER, EXACT.verdict), shifts=True)
        for step, mark in reached.steps:
            if mark.verdict.reasons:
                since = _since(self._routes[step], fronts[step])
                self.marks_of(step).add(Mark(since, FOREVER, mark.verdict))
        return reached.shown

    def take(self, step: int, marks: Iterable[RowMark], before: int, unknown: int) -> None:
        """Marks against rows that come out while panes of the step from `before` on end. Rows of which no pane is known
        lie below `unknown`."""
        sequence, since = self._sequences.get(step), _since(self._routes[step], before)
        for mark in marks:
            start, stop = mark.extents.get(PANE, (since, unknown))
            if isinstance(sequence, WindowSequence) and NEVER < start < stop < FOREVER and PANE in mark.extents:
                sequence.spread(start, stop - 1)
            if mark.verdict != EXACT.verdict:
                self.marks_of(step).add(Mark(max(start, since), stop, mark.verdict))

    def spread(self) -> None:
        """Tell the steps with windows in which panes rows of nodes can lie after joins."""
        for node in self._joined:
            ledger = self._ledgers[node]
            if ledger.low is None or ledger.high is None or self._spread.get(node) == (ledger.low, ledger.high):
                continue
            self._spread[node] = ledger.low, ledger.high
            for step, mark in self.of_node(node, Mark(ledger.low, ledger.high + 1, EXACT.verdict)).steps:
                if mark.joined:
                    self.take(step, (mark,), NEVER, FOREVER)

    def learn(self, node: str, start: int, stop: int, found: Finding, fronts: Mapping[int, int]) -> Learned:
        """Something became known of the granules of a node from `start` up to `stop`, which have ended; its ledger has
        it. Mark all panes and windows still to come that their rows go into."""
        mark, learned = Mark(start, stop, found.verdict), Learned()
        coming: dict[int, list[RowMark]] = {}
        reached = self.of_node(node, mark)
        for route in self._routes.values():
            _deliver(reached, coming, learned)
            reached = Reached()
            step, sequence = route.step, self._sequences.get(route.step)
            shown = min(fronts[step], FOREVER - 1) + 1
            panes = [(*each.extents.get(PANE, (NEVER, shown)), each.verdict) for each in coming.get(step, ())]
            marks = [Mark(*extent) for extent in panes]
            for each in marks:
                self.marks_of(step).add(each)
            if sequence is None:
                continue
            marks += [mark] if node in route.nodes else []
            told = [(sequence.closed_with(each.start, each.stop), each.verdict) for each in marks]
            if isinstance(sequence, FollowedSequence | MeldedSequence):
                for member in route.follows:
                    for windows, verdict in learned.told.get(member, ()):
                        told.append((sequence.learn(member, windows, replace(found, verdict=verdict)), verdict))
            elif any(windows for windows, _ in told):
                sequence.lost(found)
            for windows, verdict in told:
                if windows:
                    learned.told.setdefault(step, []).append((windows, verdict))
                    reached += self.of_windows(step, windows, verdict)
        _deliver(reached, coming, learned)
        return learned

    @staticmethod
    def _passes_joins(reached: Reached) -> bool:
        return any(mark.joined for mark in (*reached.shown, *(mark for _, mark in reached.steps)))


def _deliver(reached: Reached, coming: dict[int, list[RowMark]], learned: Learned) -> None:
    for step, mark in reached.steps:
        coming.setdefault(step, []).append(mark)
    learned.shown += reached.shown


def _progressing(plan: QueryPlan, ledger: Ledger) -> Iterator[tuple[str, Progress]]:
    """The columns of a node's rows, as the query reads them, that progress with its panes."""
    reduction = ledger.node.reduction
    ways = {
        item.name: way
        for item in (*reduction.keys, *reduction.details)
        if (way := progress(item.expr, (reduction.pane.attribute,))) is not None
    }
    view = next((view for view in plan.views if view.node == ledger.node.name), None)
    names = zip(view.columns, view.schema.names, strict=True) if view is not None else ((name, name) for name in ways)
    return ((own, ways[name]) for name, own in names if name in ways)


def _since(route: Route, front: int) -> int:
    """The first pane that has not ended. For row numbers it is that of the first row, as long as none has ended."""
    rows = route.window is not None and route.window.axis.attribute == ROW_NUMBER
    return 0 if rows and front == NEVER else front
