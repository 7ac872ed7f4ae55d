"""What one query announces: rows of closed windows, completions with their verdicts, and amendments. For a query
without windows, `windowless` announces it."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise

import numpy as np

from highlevel.events import Events, Reached, Shed
from highlevel.graph import Answer
from highlevel.interface import Space, State, Words
from highlevel.operators.incoming import panes_of
from highlevel.progress.complete_rows import step_bounds
from highlevel.progress.exchange_channel import channels
from highlevel.progress.ledger import Ledger
from highlevel.progress.outputs import Output, ResultRows
from highlevel.progress.place import Place, Witness
from highlevel.row_marks import EVERYWHERE, RowMark
from highlevel.verdicts.exchanged_windows import FollowedSequence
from highlevel.verdicts.late_rows import LateRows
from highlevel.verdicts.loss_propagation import Losses, Sequences, sequence_of
from highlevel.verdicts.loss_routes import Route, answer_step, routes
from highlevel.verdicts.marks import EXACT, Finding, Mark
from highlevel.verdicts.state import Saved
from highlevel.verdicts.unions import MeldedSequence
from highlevel.verdicts.window_sequence import WindowRun, WindowSequence, rows_by_window
from highlevel.verdicts.windowless import Windowless
from lowmark.query.plan.nodes import Counted, Finish
from lowmark.query.windows.window import WindowKind
from lowmark.wire.records.partials import PANE
from lowmark.wire.records.verdicts import Amendment, Complete, OpenCount, Reason, Verdict, WindowSpan
from lowmark.wire.rows.values import FOREVER, NEVER, show

__all__ = ["Completions"]

_NUMBERING = frozenset({Reason.NUMBERING})


class Completions:
    """One query in its bucket: what it has announced about its windows, and what is known against them."""

    def __init__(
        self, answer: Answer, ledgers: Mapping[str, Ledger], place: Place, state: State,
        witness: Callable[[tuple[str, ...]], Witness],
    ) -> None:  # fmt: skip
        self.plan = plan = answer.plan
        self.answer = answer
        self._place = place
        self._state = state
        self._space: Space[Saved] = Space(f"query.{plan.name}", Saved.encode, Saved.decode)
        self._saved = state.get(self._space, 0) or Saved()
        self._ledgers = {node: ledgers[node] for node in answer.nodes}
        self._witness = witness
        self._routes = routes(plan)
        self._windowed_by = answer_step(plan)
        self._sequences: Sequences = {
            route.step: sequence_of(route, route.window, ledgers) for route in self._routes if route.window is not None
        }
        self._channels = channels(plan, place, state)
        self._landmarks = [
            route
            for route in self._routes
            if route.window is not None and route.window.kind is WindowKind.LANDMARK and not route.follows
        ]
        self._losses = Losses(answer, self._routes, self._sequences, self._channels, self._ledgers)
        self._windowless = Windowless(plan, place, answer, self._ledgers, witness, self._saved)
        for sequence, row in zip(self._sequences.values(), self._saved.sequences, strict=False):
            sequence.restore(row)  # type: ignore[arg-type]  # rows stand in the order of the sequences
        self._lateness = LateRows(plan, place, state)
        self._before: dict[int, int] = {}
        self._ending = Reached()
        self.shed: Counter[Reason] = Counter()
        """Rows that operators gave up since the caller last cleared it."""
        self._known = {step for route in self._routes for step in (route.step, *route.finishes)}

    def _route(self, step: int) -> Route:
        return next(route for route in self._routes if route.step == step)

    def save(self) -> None:
        self._saved.sequences = [sequence.row() for sequence in self._sequences.values()]
        self._windowless.save()
        self._state.put(self._space, 0, self._saved)

    def ending(self, node: str, start: int, stop: int) -> None:
        """The node's frontier has passed the granules from `start` up to `stop`, which are settled. The graph gets the
        promise next."""
        self._before = self._fronts()
        self._ending = self._note(node, start, stop)
        for route in self._landmarks:
            if node in route.nodes:
                self.answer.touch(route.step, self._ledgers[node].held(start, stop))

    def ended(self, node: str, start: int, stop: int) -> list[Output]:
        """The graph has got the promise about these granules, and has done its work."""
        ending, self._ending = self._ending, Reached()
        return self._collect(self._before, {node: self._ledgers[node].finding(range(start, stop))}, ending)

    def collect(self) -> list[Output]:
        """What the operators put out without an advance."""
        return self._collect(self._fronts(), {}, Reached())

    def forward(self) -> Iterator[Output]:
        """The records for exchanges at the end of a micro-batch."""
        for step, channel in self._channels.items():
            yield from channel.flush(self._front(step))

    def amend(self, node: str, start: int, stop: int, finding: Finding) -> list[Output]:
        """Losses became known in granules that have ended. The ledger has marked windows still open already."""
        learned = self._losses.learn(node, start, stop, finding, self._fronts())
        if self._windowed_by is None:
            return list(self._windowless.amend(learned.shown, finding))
        told = learned.told.get(self._windowed_by, ())
        return [self._amendment(windows, finding, verdict.reasons) for windows, verdict in told if verdict.reasons]

    def _amendment(self, windows: range, finding: Finding, reasons: frozenset[Reason]) -> Amendment:
        place, window, last = self._place, self.plan.window, windows.stop - 1
        assert window is not None
        start, kind = window.start(windows.start), window.axis.kind
        return Amendment(
            self.plan.name, place.generation, place.bucket, WindowSpan(windows.start, last),
            None if start is None else show(kind, start), show(kind, window.end(last)),
            finding.late, finding.dropped, reasons,
        )  # fmt: skip

    def shift(self, node: str) -> None:
        """Tuples of the node were lost: rows counted from now on get wrong numbers."""
        shown = self._losses.lost_before(node, self._ledgers[node].frontier.value, self._fronts())
        self._windowless.take(shown)

    def late(self, node: str, source: str, partials: Words) -> Iterable[Output]:
        """Take partials of the node that are merged into no window."""
        open_from = None if self._windowed_by is None else self._sequences[self._windowed_by].next
        return self._lateness.take(node, source, self.answer.viewed(node, partials), open_from)

    def needs(self, node: str) -> int:
        """The first granule of the node that a later announcement needs."""
        reading = (route.step for route in self._routes if node in route.nodes)
        sequences = [self._sequences[step] for step in reading if step in self._sequences]
        front = self._ledgers[node].frontier.value
        return min((sequence.needs(front) for sequence in sequences), default=front)

    def complete_to(self) -> int | None:
        """The value of the nodes' attribute below which all rows are out; FOREVER: all rows; None: nothing is known."""
        bounds = []
        for ledger in self._ledgers.values():
            front = ledger.frontier.value
            bounds.append(front if front in (NEVER, FOREVER) else ledger.node.reduction.pane.start(front))
        bound = min(*bounds, *step_bounds(self.plan, self.answer.fronts), FOREVER)
        return None if bound == NEVER else bound

    def open_windows(self) -> int:
        """Upper limit of the windows that hold tuples and are not closed."""
        counted = self.answer.open() or OpenCount()
        return counted.windows + (0 if self._windowed_by is None else self._open(self._windowed_by))

    def _open(self, step: int) -> int:
        sequence, total, reached = self._sequences[step], 0, NEVER
        if isinstance(sequence, FollowedSequence | MeldedSequence):
            return sequence.waiting + sum(map(self._open, self._route(step).follows))
        for panes in self._content(step):
            wids = range(sequence.window.wids(panes.start).start, sequence.window.wids(panes.stop - 1).stop)
            start = max(wids.start, reached, NEVER if sequence.next is None else sequence.next)
            total += max(0, wids.stop - start)
            reached = max(reached, wids.stop)
        return total

    def _content(self, step: int) -> Iterator[range]:
        for node in self._route(step).nodes:
            ledger = self._ledgers[node]
            if ledger.high is not None:
                yield from ledger.content(ledger.high + 1)

    def _note(self, node: str, start: int, stop: int) -> Reached:
        """Carry the marks against granules of a node that have ended."""
        noted = Reached()
        for mark in self._ledgers[node].marks.within(start, stop):
            within = Mark(max(mark.start, start), min(mark.stop, stop), mark.verdict)
            noted += self._losses.of_node(node, within)
        return noted

    def _front(self, step: int) -> int:
        return min(self.answer.fronts[step])

    def _fronts(self) -> dict[int, int]:
        return {route.step: self._front(route.step) for route in self._routes}

    def _collect(self, before: Mapping[int, int], settled: Mapping[str, Finding], ending: Reached) -> list[Output]:
        events = self.answer.take_events()
        spans: dict[int, list[WindowRun]] = {}
        for step, rows in events.sent:
            self._channels[step].take(rows)
        coming = self._rows_told(events)
        late = [part.step for part in events.late]
        self._losses.spread()
        for route in self._routes:
            step, front = route.step, self._front(route.step)
            ended = min(front, FOREVER - 1) + 1
            marks = [mark for at, mark in ending.steps if at == step]
            self._losses.take(step, marks, before[step], ended)
            self._losses.take(step, coming.pop(step, ()), before[step], FOREVER)
            if any(at <= step for at in late):
                self._losses.marks_of(step).add(Mark(NEVER, ended, Verdict(frozenset({Reason.LATE}))))
            sequence = self._sequences.get(step)
            if sequence is None or route.window is None:
                continue
            if isinstance(sequence, FollowedSequence | MeldedSequence):
                for member in route.follows:
                    sequence.follow(member, spans[member])
            for at, window, reason in events.flaws:
                if at == step or at in route.finishes:
                    sequence.flaws.add(window, reason)
            told = [closing for closing in events.closings if closing.step == step]
            # Without an advance nothing has ended; closing windows now would make the result depend on where batches
            # are cut.
            spans[step] = sequence.close(told, front) if told or settled else []
            for windows, verdict in self._to_carry(step, sequence, spans[step]):
                ending += self._losses.of_windows(step, windows, verdict)
        self._windowless.take(ending.shown)
        if self._windowed_by is not None:
            given = spans[self._windowed_by]
            return [
                *self._windowed(events.rows, given),
                *self._lateness.closed(given, self._sequences[self._windowed_by].first),
            ]
        return list(self._windowless.announce(events.rows, settled, self.complete_to()))

    def _to_carry(
        self, step: int, sequence: WindowSequence | FollowedSequence | MeldedSequence, spans: Iterable[WindowRun]
    ) -> Iterator[tuple[range, Verdict]]:
        """The windows against which something is known; and, where a later step has to know in which panes rows can
        lie, all that have closed. It has to at its first window and at its last."""
        leads_on = self._losses.leads_on(step)
        if leads_on and sequence.first is not None and sequence.next is not None and self._losses.opens_or_ends():
            yield range(sequence.first, sequence.next), EXACT.verdict
        for span in spans if leads_on or self._windowed_by is None else ():
            if span.finding.verdict != EXACT.verdict:
                yield span.windows, span.finding.verdict

    def _rows_told(self, events: Events) -> dict[int, list[RowMark]]:
        """What operators said against rows that lie in no window of a route: by step, the marks that reach it."""
        coming: dict[int, list[RowMark]] = {}
        reached = Reached()
        for shed in events.shed:
            self.shed[shed.reason] += len(shed.rows)
            for mark in _given_up(shed):
                reached += self.answer.of_input(shed.step, shed.port, mark)
        known = self._known
        flaws = ((step, 0, self._flawed(step, at, why)) for step, at, why in events.flaws if step not in known)
        for step, port, mark in (*events.marks, *flaws):
            reached += self.answer.of_rows(step, port, mark)
        for at, each in reached.steps:
            coming.setdefault(at, []).append(each)
        self._windowless.take(reached.shown)
        return coming

    def _flawed(self, step: int, number: int, reason: Reason) -> RowMark:
        """A mark on the rows that show a window of a step whose windows are no sequence."""
        verdict, plan = Verdict(frozenset({reason})), self.plan.steps[step].plan
        assert isinstance(plan, Counted | Finish)
        if reason is Reason.NUMBERING:
            return RowMark(verdict, dict.fromkeys(plan.output.names, EVERYWHERE), shifts=True)
        if plan.window is None or plan.window.kind is not WindowKind.SLIDE_BY_TUPLE:
            return RowMark(verdict, {}, shifts=True)
        times = number - plan.window.size, number + 1
        return RowMark(
            verdict, {"window_start": (times[0], times[0] + 1), "window_end": (number, times[1])}, times, True
        )

    def _windowed(self, rows: list[Words], spans: list[WindowRun]) -> Iterator[Output]:
        assert self.plan.window is not None
        waiting = deque(sorted(rows_by_window(rows, self.plan.window, self.plan.output).items()))
        for span in spans:
            count = 0
            while waiting and waiting[0][0] <= span.to:
                window, parts = waiting.popleft()
                if not span.first == window == span.to:
                    raise ValueError(f"query {self.plan.name}: rows of window {window}, which holds no tuple")
                for part in parts:
                    count += len(part)
                    yield ResultRows(self.plan.name, window, part, self.plan.output)
            yield self._complete(span, count)
        if waiting:
            raise ValueError(f"query {self.plan.name}: rows of window {waiting[0][0]}, which has not closed")

    def _complete(self, span: WindowRun, rows: int) -> Complete:
        window = self.plan.window
        assert window is not None
        witness, finding = self._witness(self.answer.nodes), span.finding
        return Complete(
            self.plan.name, self._place.generation, self._place.bucket, self._place.buckets,
            WindowSpan(span.first, span.to), window.start(span.first), window.end(span.to), window.axis.attribute,
            rows, span.tuples, finding.promised, finding.dropped, finding.late,
            witness.covered_from_ns, witness.rosters, finding.verdict, window.axis.kind,
            missing=witness.missing_from(finding.verdict),
        )  # fmt: skip


def _given_up(shed: Shed) -> Iterator[RowMark]:
    """Marks on the panes of rows that were given up."""
    panes, verdict = np.unique(panes_of(shed.rows)), Verdict(frozenset({shed.reason}))
    starts = np.flatnonzero(np.diff(panes, prepend=panes[:1] - 2) != 1).tolist() if len(panes) else []
    for start, stop in pairwise([*starts, len(panes)]):
        yield RowMark(verdict, {PANE: (int(panes[start]), int(panes[stop - 1]) + 1)}, shifts=True)
