"""Propagates the losses of a bucket to the rows and windows of all its queries.

The driver starts marks, on granules of nodes; operators start them, on their windows and rows. The graph's operators
map them (`loss_routes`). Here they end at the steps that make windows, and continue as marks on these windows. Each
such step has the sequence of its windows, stored with the step's state. Inputs come before their readers, so one pass
over the steps settles everything. Marks on answers and exchanges wait until the queries take them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from highlevel.events import Closing
from highlevel.graph import Answer, Graph, GraphStep
from highlevel.operators.aggregate import AggregateOperator
from highlevel.progress.ledger import Ledger
from highlevel.row_marks import EVERYWHERE, Extent, RowMark, of_panes, on_windows, shown_windows, through
from highlevel.verdicts.exchanged_windows import FollowedSequence
from highlevel.verdicts.loss_routes import Reached, Routes, answer_step
from highlevel.verdicts.mark_ends import End, StepWindows
from highlevel.verdicts.marks import EXACT, Finding, Mark
from highlevel.verdicts.unions import MeldedSequence
from highlevel.verdicts.window_sequence import WindowRun, WindowSequence
from lowmark.query.plan.fingerprint import step_digests
from lowmark.query.plan.nodes import (
    Counted,
    Finish,
    Join,
    MakesWindows,
    QueryPlan,
    Reduction,
    Send,
    StepInput,
    StepPlan,
)
from lowmark.query.windows.progressing import Progress, progress
from lowmark.query.windows.window import Window, WindowKind
from lowmark.wire.records.partials import PANE
from lowmark.wire.records.verdicts import Reason, Verdict
from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.values import FOREVER, NEVER

__all__ = ["Known", "Learned", "Losses"]

_LATE = Verdict(frozenset({Reason.LATE}))
_PARTIAL = Verdict(partial=True)


@dataclass(slots=True)
class Known:
    """What a query has to announce: its final windows, marks on rows of its answer, and marks on panes of its
    exchanges, by step."""

    windows: list[WindowRun] = field(default_factory=list)
    marks: list[RowMark] = field(default_factory=list)
    sent: list[tuple[int, Mark]] = field(default_factory=list)


@dataclass(slots=True)
class Learned:
    """What a finding about ended granules affects. `told`: by the digest of a step, windows already output or skipped,
    each with its verdict. `shown`: by query, marks on rows of its answer."""

    told: dict[str, list[tuple[range, Verdict]]] = field(default_factory=dict)
    shown: dict[str, list[RowMark]] = field(default_factory=dict)

    def windows_of(self, plan: QueryPlan) -> Sequence[tuple[range, Verdict]]:
        """The affected windows of a query's answer."""
        step = answer_step(plan)
        return () if step is None else self.told.get(step_digests(plan)[step], ())


class Losses:
    """`ledgers` are of all nodes of the bucket."""

    def __init__(self, graph: Graph, ledgers: Mapping[str, Ledger]) -> None:
        self._graph = graph
        self._routes = Routes(graph)
        self._ledgers = ledgers
        self._ends: dict[str, End] = {}  # inputs come before their readers
        self._finished: dict[str, Window] = {}  # by step that passes on rows of windows: these windows
        self._known = {name: Known() for name in graph.answers}
        self._reading: dict[str, list[GraphStep]] = {}
        for answer in graph.answers.values():
            self._add(answer)
        for node in ledgers:
            names = {name for name, answer in graph.answers.items() if node in answer.nodes}
            self._reading[node] = [step for step in graph.steps if names.intersection(step.queries)]
        self._columns = {name: dict(_progressing(of.node.reduction)) for name, of in ledgers.items()}
        for digest, end in self._ends.items():
            if end.sequence is not None:
                reached = self._of_windows(digest, range(1), EXACT.verdict)
                end.leads_to = tuple(at for at, _ in reached.steps)
                end.leads_on = bool(reached.steps)
                end.shown = any(answer_step(graph.answers[name].plan) is None for name, _ in reached.shown)
        self._spread: dict[str, Extent] = {}  # the panes of each node that were passed to `spread`
        self._joined = [name for name in ledgers if _passes_joins(self._of_granules(name, Mark(0, 1, EXACT.verdict)))]
        self._alone = not any(end.leads_to or end.follows for end in self._ends.values())
        """No step's windows reach another step, so without new reports nothing changes."""
        self._before: dict[str, int] = {}
        self._ending = Reached()

    def save(self) -> None:
        for end in self._ends.values():
            end.save()

    def join(self, queries: frozenset[str], steps: frozenset[str], whole: Mapping[str, int]) -> None:
        """These queries begin now, with these steps: of granules of a node below the one in `whole` they do not get all
        tuples. Windows that ended before are not theirs."""
        for node, granule in whole.items():
            mark = Mark(NEVER, granule, _PARTIAL)
            if granule == NEVER:
                continue
            for digest in steps & self._ends.keys():
                end = self._ends[digest]
                if node in end.nodes and end.sequence is not None and not end.follows:
                    end.sequence.marks.add(mark)
            reached = self._of_granules(node, mark)
            told = self._telling(queries)
            for digest, each in reached.steps:
                if digest in steps and not (each.joined and digest in told):
                    start, stop = each.extents.get(PANE, (NEVER, granule))
                    self._mark(self._ends[digest], Mark(start, stop, each.verdict))
            shown = ((query, each) for query, each in reached.shown if query in queries)
            self._show((query, each) for query, each in shown if not (each.joined and query in told))
        pane = {name: of.node.reduction.pane for name, of in self._ledgers.items()}
        fronts, told = {name: self._ledgers[name].frontier.value for name in whole}, self._telling(queries)
        if all(NEVER < front < FOREVER for front in fronts.values()):
            ended = min((pane[name].start(front) for name, front in fronts.items()), default=NEVER)
            for digest in steps & self._ends.keys():
                sequence = self._ends[digest].sequence
                if isinstance(sequence, WindowSequence) and sequence.window.axis.kind is Kind.TIME:
                    first = begin = sequence.window.first_after(ended)
                    if digest in told:
                        begin = min([first, *self._first_reached(digest, sequence.window, fronts)])
                    if begin < first:  # the join has told rows of these windows to other queries
                        low, high = (sequence.window.extent(window).start for window in (begin, first))
                        sequence.marks.add(Mark(low, high, _PARTIAL))
                    sequence.first = sequence.next = begin
        for digest in self._ends:
            self._mark_skipped(digest, steps)

    def _first_reached(self, digest: str, window: Window, fronts: Mapping[str, int]) -> Iterator[int]:
        """The first window of a step that later rows of each node can reach. Through a join they reach windows that end
        before they come: those of the kept rows that they match."""
        for node, front in fronts.items():
            for at, mark in self._of_granules(node, Mark(front, FOREVER, _PARTIAL)).steps:
                start, _ = mark.extents.get(PANE, (NEVER, FOREVER))
                if at == digest and start > NEVER:
                    yield window.wids(start).start

    def _mark_skipped(self, digest: str, steps: frozenset[str]) -> None:
        """Windows of a step that have left before these steps read it lack its rows there: buckets that are behind tell
        them still."""
        sequence = self._ends[digest].sequence
        low = min((of.low for of in self._ledgers.values() if of.low is not None), default=None)
        if sequence is None or sequence.next is None or low is None:
            return
        start = sequence.next if sequence.first is None else sequence.first
        if isinstance(sequence, WindowSequence):
            start = min(start, sequence.window.wids(low).start)
        if start == sequence.next:
            return
        for at, each in self._of_windows(digest, range(start, sequence.next), _PARTIAL).steps:
            if at in steps:
                first, stop = each.extents.get(PANE, (NEVER, FOREVER))
                self._mark(self._ends[at], Mark(first, stop, each.verdict))

    def _telling(self, queries: frozenset[str]) -> set[str]:
        """Those of the queries, and their steps, all of whose joins say themselves which rows they have missed."""
        found: set[str] = set()
        for answer in (self._graph.answers[name] for name in queries):
            digests = step_digests(answer.plan)
            joins = {digest for at, digest in zip(answer.plan.steps, digests, strict=True) if isinstance(at.plan, Join)}
            if joins <= self._graph.handed_over:
                found |= {answer.plan.name, *digests}
        return found

    def windows_of(self, plan: QueryPlan) -> StepWindows | None:
        """The windows of a query's answer."""
        step = answer_step(plan)
        return None if step is None else self._ends[step_digests(plan)[step]].sequence

    def take(self, query: str) -> Known:
        """Take what has become known since the last call."""
        known, self._known[query] = self._known[query], Known()
        return known

    def ending(self, node: str, start: int, stop: int) -> None:
        """Prepare for the end of the granules from `start` up to `stop`, which are settled. The graph gets the promise
        next."""
        ledger = self._ledgers[node]
        self._before = {digest: end.front for digest, end in self._ends.items()}
        for mark in ledger.marks.within(start, stop):
            self._ending += self._of_granules(node, Mark(max(mark.start, start), min(mark.stop, stop), mark.verdict))
        held = None
        for end in self._ends.values():
            operator = end.step.operator
            if end.landmark and node in end.nodes and not end.follows and isinstance(operator, AggregateOperator):
                held = ledger.held(start, stop) if held is None else held
                operator.touch(held, end.step.state)  # panes with tuples in any bucket

    def ended(self, node: str) -> None:
        """Settle the granules passed to `ending`, after the graph has processed the promise."""
        ending, self._ending = self._ending, Reached()
        self._settle(self._reading[node], self._before, ending, True)

    def collect(self) -> None:
        """Take what the operators output without an advance."""
        if self._alone and not any(step.told for step in self._graph.steps):
            self._spread_joined()
            return
        fronts = {digest: end.front for digest, end in self._ends.items()}
        self._settle(self._graph.steps, fronts, Reached(), False)

    def learn(self, node: str, start: int, stop: int, found: Finding) -> Learned:
        """Propagate a finding about ended granules of a node, from `start` up to `stop`; the ledger already has it.
        Mark all later panes and windows that get rows of these granules. Where windows are merged, pane k is window k
        of the steps below."""
        mark, learned = Mark(start, stop, found.verdict), Learned()
        coming: dict[str, list[RowMark]] = {}

        def deliver(reached: Reached) -> None:
            for at, each in reached.steps:
                coming.setdefault(at, []).append(each)
            for query, each in reached.shown:
                learned.shown.setdefault(query, []).append(each)

        deliver(self._of_granules(node, mark))
        for digest, end in self._reading_ends(node):
            shown = min(end.front, FOREVER - 1) + 1
            marks = [Mark(*each.extents.get(PANE, (NEVER, shown)), each.verdict) for each in coming.get(digest, ())]
            for windows, verdict in (each for member in end.follows for each in learned.told[member]):
                marks.append(Mark(windows.start, windows.stop, verdict, found.dropped, found.late))
            for each in marks:
                self._mark(end, each)
            if (sequence := end.sequence) is None:
                continue
            marks += [mark] if node in end.nodes else []
            told = [(sequence.closed_with(each.start, each.stop), each.verdict) for each in marks]
            learned.told[digest] = [(windows, verdict) for windows, verdict in told if windows]
            if learned.told[digest]:
                sequence.lost(found)
            for windows, verdict in learned.told[digest]:
                deliver(self._of_windows(digest, windows, verdict))
        return learned

    def lost_before(self, node: str) -> None:
        """Note lost tuples of granules that had not ended: rows counted from now on get wrong numbers."""
        front = self._ledgers[node].frontier.value
        reached = self._of_granules(node, Mark(front, FOREVER, EXACT.verdict), shifts=True)
        for digest, mark in reached.steps:
            end = self._ends[digest]
            if mark.verdict.reasons:
                self._mark(end, Mark(end.since(end.front), FOREVER, mark.verdict))
        self._show(reached.shown)

    def needs(self, node: str) -> int:
        """The first granule of the node that a later window needs."""
        front = self._ledgers[node].frontier.value
        reading = (end.sequence for end in self._ends.values() if end.sequence is not None and node in end.nodes)
        return min((sequence.needs(front) for sequence in reading), default=front)

    def open(self, plan: QueryPlan) -> int:
        """Upper limit of the windows of the answer that hold tuples and are not closed."""
        step = answer_step(plan)
        return 0 if step is None else self._open(self._ends[step_digests(plan)[step]])

    def _open(self, end: End) -> int:
        sequence, total, reached = end.sequence, 0, NEVER
        assert sequence is not None, "it makes windows"
        if isinstance(sequence, FollowedSequence | MeldedSequence):
            return sequence.waiting + sum(self._open(self._ends[member]) for member in end.follows)
        for ledger in (self._ledgers[node] for node in end.nodes):
            for panes in () if ledger.high is None else ledger.content(ledger.high + 1):
                wids = range(sequence.window.wids(panes.start).start, sequence.window.wids(panes.stop - 1).stop)
                start = max(wids.start, reached, NEVER if sequence.next is None else sequence.next)
                total += max(0, wids.stop - start)
                reached = max(reached, wids.stop)
        return total

    def _settle(
        self, steps: Sequence[GraphStep], before: Mapping[str, int], ending: Reached, advanced: bool
    ) -> None:  # fmt: skip
        """End the marks at these steps, and close windows. `before`: the first pane of each end that had not ended.
        `ending`: marks on rows that came out since then."""
        self._spread_joined()
        closings: dict[str, list[Closing]] = {}
        coming = self._told(steps, closings, ending)
        spans: dict[str, list[WindowRun]] = {}
        settled = {step.digest: self._ends[step.digest] for step in steps if step.digest in self._ends}
        for digest, end in settled.items():
            self._end_here(digest, before[digest], ending, coming)
            if (sequence := end.sequence) is None:
                continue
            if isinstance(sequence, FollowedSequence | MeldedSequence):
                for member in end.follows:
                    sequence.follow(member, spans[member])
            told = closings.get(digest, ())
            # Without an advance no pane has ended. Closing windows now would make the result depend on where batches
            # are cut.
            spans[digest] = sequence.close(told, end.front) if told or advanced else []
            for windows, verdict in self._to_carry(end, spans[digest]):
                ending += self._of_windows(digest, windows, verdict)
            for query in end.shown_by:
                self._known[query].windows += spans[digest]
        # A step that queries share also leads to ends of queries that do not read the node.
        for digest, end in ((at, end) for at, end in self._ends.items() if at not in settled):
            self._end_here(digest, before[digest], ending, coming)
            if isinstance(end.sequence, FollowedSequence | MeldedSequence):
                for member in end.follows:
                    end.sequence.follow(member, spans.get(member, ()))
        self._show(ending.shown)
        self._show(coming.shown)

    def _told(self, steps: Iterable[GraphStep], closings: dict[str, list[Closing]], ending: Reached) -> Reached:
        """Take the operators' reports on rows and windows. Flaws of windows go to their sequences; all else is carried
        on as marks."""
        coming = Reached()
        for step in steps:
            told = step.take_told()
            closings[step.digest] = told.closings
            for port in told.late:
                ending += self._routes.of_input(step, port, RowMark(_LATE, {}))
            for port, mark in told.given_up:
                coming += self._routes.of_input(step, port, mark)
            for port, mark in told.marks:
                coming += self._routes.of_rows(step, port, mark)
            for number, reason in told.flaws:
                verdict = Verdict(frozenset({reason}))
                if isinstance(step.plan, MakesWindows):
                    sequence = self._ends[step.digest].sequence
                    assert sequence is not None, "it makes windows"
                    sequence.flaws.add(number, reason)
                elif (window := self._finished.get(step.digest)) is not None:
                    shown = shown_windows(window, on_windows(range(number, number + 1), verdict))
                    coming += self._routes.of_input(step, 0, shown)
                else:
                    coming += self._routes.of_rows(step, 0, _flawed(step.plan, number, verdict))
        return coming

    def _to_carry(self, end: End, spans: Iterable[WindowRun]) -> Iterator[tuple[range, Verdict]]:
        """The windows with a verdict that is not exact. Also all windows closed so far, if a later step is at its first
        or last window, where it must know in which panes rows can lie."""
        assert end.sequence is not None
        first, stop = end.sequence.first, end.sequence.next
        if first is not None and stop is not None and any(map(self._opens_or_ends, end.leads_to)):
            yield range(first, stop), EXACT.verdict
        for span in spans if end.leads_on or end.shown else ():
            if span.finding.verdict != EXACT.verdict:
                yield span.windows, span.finding.verdict

    def _opens_or_ends(self, digest: str) -> bool:
        """Whether a step is still before its first window, or all its rows have come."""
        end = self._ends[digest]
        opens = isinstance(end.sequence, WindowSequence) and end.sequence.next is None
        return opens or (end.sequence is not None and end.front == FOREVER)

    def _end_here(self, digest: str, before: int, ending: Reached, coming: Reached) -> None:
        """End the marks that have reached this step."""
        end = self._ends[digest]
        if ending.steps:
            self._take(end, (mark for at, mark in ending.steps if at == digest), before, _after(end.front))
        if coming.steps:
            self._take(end, (mark for at, mark in coming.steps if at == digest), before, FOREVER)

    def _take(self, end: End, marks: Iterable[RowMark], before: int, unknown: int) -> None:
        """Take marks on rows that come out while panes of the step from `before` on end. Rows whose pane is unknown lie
        below `unknown`."""
        since = end.since(before)
        for mark in marks:
            start, stop = mark.extents.get(PANE, (since, unknown))
            if isinstance(end.sequence, WindowSequence) and NEVER < start < stop < FOREVER and PANE in mark.extents:
                end.sequence.spread(start, stop - 1)
            if mark.verdict != EXACT.verdict:
                self._mark(end, Mark(max(start, since), stop, mark.verdict))

    def _mark(self, end: End, mark: Mark) -> None:
        """Mark panes of a step that makes windows or sends."""
        if end.sequence is not None:
            end.sequence.marks.add(mark)
        elif end.sends is not None:
            query, number = end.sends
            self._known[query].sent.append((number, mark))

    def _show(self, shown: Iterable[tuple[str, RowMark]]) -> None:
        for query, mark in shown:
            self._known[query].marks.append(mark)

    def _spread_joined(self) -> None:
        """Note, at the steps with windows, in which panes rows of nodes can lie after joins."""
        for node in self._joined:
            ledger = self._ledgers[node]
            if ledger.low is None or ledger.high is None or self._spread.get(node) == (ledger.low, ledger.high):
                continue
            self._spread[node] = ledger.low, ledger.high
            for digest, mark in self._of_granules(node, Mark(ledger.low, ledger.high + 1, EXACT.verdict)).steps:
                if mark.joined:
                    self._take(self._ends[digest], (mark,), NEVER, FOREVER)

    def _of_granules(self, node: str, mark: Mark, shifts: bool = False) -> Reached:
        """Carry a mark on granules of a node."""
        panes = mark.start, mark.stop
        times = of_panes(panes, self._ledgers[node].node.reduction.pane)
        extents = {PANE: panes, **{name: through(times, way) for name, way in self._columns[node].items()}}
        return self._routes.of_node(node, RowMark(mark.verdict, extents, times, shifts or bool(mark.verdict.reasons)))

    def _of_windows(self, digest: str, windows: range, verdict: Verdict) -> Reached:
        """Carry a verdict against windows that a step makes. Steps that merge these windows are left out, because they
        follow them anyway."""
        reached = self._routes.of_windows(self._ends[digest].step, windows, verdict)
        reached.steps = [(at, mark) for at, mark in reached.steps if digest not in self._ends[at].follows]
        return reached

    def _reading_ends(self, node: str) -> Iterator[tuple[str, End]]:
        return ((step.digest, self._ends[step.digest]) for step in self._reading[node] if step.digest in self._ends)

    def _add(self, answer: Answer) -> None:
        """Add the ends of a query's steps."""
        plan, digests = answer.plan, step_digests(answer.plan)
        steps = {step.digest: step for step in self._graph.steps}
        shown = answer_step(plan)
        for number, (at, digest) in enumerate(zip(plan.steps, digests, strict=True)):
            if isinstance(at.plan, Finish) and isinstance(source := at.inputs[0], StepInput):
                below = plan.steps[source.step].plan
                window = below.window if isinstance(below, MakesWindows) else self._finished.get(digests[source.step])
                if window is not None:
                    self._finished[digest] = window
            if digest not in self._ends and isinstance(at.plan, MakesWindows | Send):
                self._ends[digest] = End.of(plan, number, steps[digest], self._ledgers)
            if number == shown:
                self._ends[digest].shown_by.append(plan.name)


def _flawed(plan: StepPlan, number: int, verdict: Verdict) -> RowMark:
    """A mark on the rows that show a window of a step whose windows are no sequence."""
    assert isinstance(plan, Counted | Finish)
    if Reason.NUMBERING in verdict.reasons:
        return RowMark(verdict, dict.fromkeys(plan.output.names, EVERYWHERE), shifts=True)
    if plan.window is None or plan.window.kind is not WindowKind.SLIDE_BY_TUPLE:
        return RowMark(verdict, {}, shifts=True)
    times = number - plan.window.size, number + 1
    return RowMark(verdict, {"window_start": (times[0], times[0] + 1), "window_end": (number, times[1])}, times, True)


def _progressing(reduction: Reduction) -> Iterator[tuple[str, Progress]]:
    """The columns of a node's rows that progress with its panes."""
    for item in (*reduction.keys, *reduction.details):
        if (way := progress(item.expr, (reduction.pane.attribute,))) is not None:
            yield item.name, way


def _passes_joins(reached: Reached) -> bool:
    return any(mark.joined for _, mark in (*reached.shown, *reached.steps))


def _after(front: int) -> int:
    return min(front, FOREVER - 1) + 1
