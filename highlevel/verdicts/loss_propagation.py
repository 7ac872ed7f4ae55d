"""How losses against granules and windows propagate through a query's steps: to the panes of aggregates, into
exchanges, to windows that have closed already, and to the times of an answer without windows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from highlevel.progress.exchange_channel import Channel
from highlevel.progress.granules import ROW_NUMBER
from highlevel.progress.ledger import Ledger
from highlevel.verdicts.exchanged_windows import FollowedSequence
from highlevel.verdicts.joins import LossReach
from highlevel.verdicts.loss_routes import Route, Upstream
from highlevel.verdicts.marks import EXACT, Finding, Mark, Marks
from highlevel.verdicts.unions import MeldedSequence
from highlevel.verdicts.window_sequence import WindowRun, WindowSequence
from lowmark.query.windows.window import Window
from lowmark.wire.records.verdicts import Reason, Verdict
from lowmark.wire.rows.schema import Kind
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
    times: list[Mark] = field(default_factory=list)  # in an answer without windows


class Losses:
    """Losses of one query in one bucket."""

    def __init__(
        self, routes: Sequence[Route], sequences: Sequences, channels: Mapping[int, Channel], reach: LossReach
    ) -> None:
        self._routes = routes
        self._sequences = sequences
        self._channels = channels
        self._reach = reach

    def marks_of(self, step: int) -> Marks:
        """The marks on the panes of a step that makes windows or sends."""
        return (self._sequences[step] if step in self._sequences else self._channels[step]).marks

    def accuse(self, route: Route, mark: Mark) -> None:
        """Add a mark against a step's input. If the step counts rows, wrong rows make all later numbers wrong."""
        if route.numbered:
            mark = Mark(_since(route, mark.start), FOREVER, mark.verdict | Verdict(_NUMBERING))
        self.marks_of(route.step).add(mark)

    def shift(self, node: str, fronts: Mapping[int, int], reasons: frozenset[Reason] = frozenset()) -> None:
        """Tuples of the node were lost: rows counted from now on get wrong numbers."""
        for route in self._routes:
            if route.numbered and node in route.selections:
                since = _since(route, fronts[route.step])
                self.marks_of(route.step).add(Mark(since, FOREVER, Verdict(_NUMBERING | reasons)))

    def renumbered(self, flaws: Iterable[tuple[int, int, Reason]], fronts: Mapping[int, int]) -> bool:
        """Mark everything downstream of steps that restart their count, which `flaws` reports as (step, window,
        reason): from now on their rows have other numbers. Returns whether there were any."""
        steps = {step for step, _, reason in flaws if reason is Reason.NUMBERING}
        for route in self._routes:
            if steps & {*route.counted}:
                self.marks_of(route.step).add(Mark(fronts[route.step], FOREVER, Verdict(_NUMBERING)))
        return bool(steps)

    def derive(
        self, route: Route, before: int, front: int, against: Mapping[str, Finding],
        spans: Mapping[int, Sequence[WindowRun]], late: Iterable[int],
    ) -> None:  # fmt: skip
        """While panes of a step from `before` up to `front` end, mark those in which it reads rows made from something
        lossy: nodes (`against`), windows of other steps, or rows that the steps `late` refused."""
        marks, before = self.marks_of(route.step), _since(route, before)
        stop = FOREVER if route.numbered else min(front, FOREVER - 1) + 1
        numbering = _NUMBERING if route.numbered else frozenset()
        for node in route.selections:
            if node in against and not self._reach.reaches(route.step, node):
                reasons, partial = against[node].verdict.reasons, against[node].verdict.partial
                marks.add(Mark(before, stop, Verdict(reasons | numbering if reasons else reasons, partial)))
        sequence = self._sequences.get(route.step)
        if isinstance(sequence, WindowSequence):
            for low, high in self._reach.panes(route.step):
                sequence.spread(low, high)
        for upstream in route.upstream:
            for span in spans[upstream.step]:
                first, last = before, stop - 1
                if upstream.pane is not None:
                    first, last = self._panes(upstream, range(span.first, span.to + 1), before)
                    if isinstance(sequence, WindowSequence):
                        sequence.spread(first, last)
                if span.finding.verdict != EXACT.verdict and not self._reach.reaches(route.step, upstream.step):
                    marks.add(Mark(first, last + 1, span.finding.verdict))
        if any(step <= route.step for step in late):
            marks.add(Mark(NEVER, min(front, FOREVER - 1) + 1, Verdict(frozenset({Reason.LATE}))))

    def learn(self, node: str, start: int, stop: int, found: Finding, fronts: Mapping[int, int]) -> Learned:
        """Something became known of the granules of a node from `start` up to `stop`, which have ended; its ledger has
        it. Mark all panes and windows still to come that their rows go into."""
        mark, learned = Mark(start, stop, found.verdict), Learned()
        carried = list(self._reach.of_node(node, mark))
        learned.times += self._reach.beside(node, mark)
        for route in self._routes:
            step, sequence = route.step, self._sequences.get(route.step)
            marks = [each for of, each in carried if of == step]
            marks += self._marks_through(route, node, found.verdict, learned.told, fronts)
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
                    carried += self._reach.of_windows(step, sequence.window, windows, verdict)
                    learned.times += self._reach.beside_windows(step, sequence.window, windows, verdict)
                    if sequence.window.axis.kind is not Kind.TIME and not self._reach.carries(step):
                        learned.times.append(Mark(NEVER, FOREVER, verdict))  # nobody knows their times
        learned.times += (each for of, each in carried if of is None)
        return learned

    def _marks_through(
        self, route: Route, node: str, verdict: Verdict, told: Mapping[int, Sequence[Told]], fronts: Mapping[int, int]
    ) -> Iterator[Mark]:
        """The marks on the panes of a step: for rows of ended granules of a node that it reads without joins between,
        and for rows of windows below it that were already output."""
        shown = min(fronts[route.step], FOREVER - 1) + 1
        if node in route.selections and not route.arrival and not self._reach.reaches(route.step, node):
            reasons = verdict.reasons | _NUMBERING if route.numbered and verdict.reasons else verdict.reasons
            yield Mark(NEVER, shown, Verdict(reasons, verdict.partial))
        for upstream in route.upstream:
            for windows, against in told.get(upstream.step, ()):
                if self._reach.reaches(route.step, upstream.step):
                    continue
                first, last = NEVER, shown - 1
                if upstream.pane is not None:
                    first, last = self._panes(upstream, windows, NEVER)
                yield Mark(first, last + 1, against)

    def _panes(self, upstream: Upstream, windows: range, unknown: int) -> tuple[int, int]:
        """The first and the last pane in which rows of these windows lie; `unknown` where a landmark window starts."""
        assert upstream.pane is not None
        window: Window = self._sequences[upstream.step].window
        of = window.end if upstream.at_end else window.start
        ends = of(windows.start), of(windows.stop - 1)
        first, last = (unknown if end is None else upstream.pane.index(end) for end in ends)
        return first, last


def _since(route: Route, front: int) -> int:
    """The first pane that has not ended. For row numbers it is that of the first row, as long as none has ended."""
    rows = route.window is not None and route.window.axis.attribute == ROW_NUMBER
    return 0 if rows and front == NEVER else front
