"""The announcements of one query: rows of closed windows, completions with their verdicts, and amendments. `windowless`
makes those of a query without windows."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from highlevel.graph import Answer
from highlevel.interface import Space, State, Words
from highlevel.progress.bucket_identity import BucketIdentity, Witness
from highlevel.progress.exchange_channel import channels
from highlevel.progress.ledger import Ledger
from highlevel.progress.outputs import Output, ResultRows
from highlevel.progress.promises.complete_rows import step_bounds
from highlevel.row_marks import windows_shown
from highlevel.verdicts.late_rows import LateRows
from highlevel.verdicts.loss_propagation import Known, Learned, Losses
from highlevel.verdicts.marks import EXACT, Finding, Mark, MarkRow, Marks
from highlevel.verdicts.window_sequence import WindowRun, rows_by_window
from highlevel.verdicts.windowless import Windowless
from lowmark.query.plan.nodes import Aggregate
from lowmark.wire.records.verdicts import Amendment, Complete, OpenCount, Reason, WindowSpan
from lowmark.wire.rows.values import FOREVER, NEVER, show

__all__ = ["Completions"]


@dataclass(slots=True)
class _Saved:
    """The piece of state of a query with windows."""

    early: dict[str, int] = field(default_factory=dict)  # by window: rows that left before it closed
    marks: list[MarkRow] = field(default_factory=list)  # marks on windows that are still to close

    def encode(self) -> bytes:
        return json.dumps([self.early, self.marks], separators=(",", ":")).encode()

    @classmethod
    def decode(cls, piece: bytes) -> _Saved:
        return cls(*json.loads(piece))


class Completions:
    """One query in its bucket: what it has announced about its windows, and the losses that concern them."""

    def __init__(
        self, answer: Answer, losses: Losses, ledgers: Mapping[str, Ledger], place: BucketIdentity, state: State,
        witness: Callable[[tuple[str, ...]], Witness],
    ) -> None:  # fmt: skip
        self.plan = plan = answer.plan
        self.answer = answer
        self._losses = losses
        self._place = place
        self._ledgers = {node: ledgers[node] for node in answer.nodes}
        self._witness = witness
        self._channels = channels(plan, place, state)
        self._windows = losses.windows_of(plan)
        self._windowless = Windowless(answer, self._ledgers, place, state, witness) if self._windows is None else None
        self._state = state
        self._space: Space[_Saved] = Space(f"query.{plan.name}.windows", _Saved.encode, _Saved.decode)
        self._saved = state.get(self._space, 0) or _Saved()
        self._marks = Marks.of_rows(self._saved.marks)
        self._lets_go = any(isinstance(step.plan, Aggregate) and step.plan.closes for step in plan.steps)
        self._lateness = LateRows(plan, place, state)
        self.shed: dict[Reason, int] = {}
        """Rows that operators gave up since the caller last cleared it."""

    def save(self) -> None:
        if self._windowless is not None:
            self._windowless.save()
        elif self._lets_go:
            self._saved.marks = self._marks.rows()
            self._state.put(self._space, 0, self._saved)

    def ended(self, node: str, start: int, stop: int) -> list[Output]:
        """Announce what follows when the node's frontier has passed the granules from `start` up to `stop`. They are
        settled, and the graph has processed the promise."""
        return self._collect({node: self._ledgers[node].finding(range(start, stop))})

    def collect(self) -> list[Output]:
        """Announce what the operators output without an advance."""
        return self._collect({})

    def forward(self) -> Iterator[Output]:
        """The records for exchanges at the end of a micro-batch."""
        for step, channel in self._channels.items():
            yield from channel.flush(min(self.answer.fronts[step]))

    def amend(self, learned: Learned, finding: Finding) -> list[Output]:
        """Amend what was announced after losses became known in granules that have ended."""
        if self._windowless is not None:
            return list(self._windowless.amend(learned.shown.get(self.plan.name, ()), finding))
        told = learned.windows_of(self.plan)
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

    def late(self, node: str, source: str, partials: Words) -> Iterable[Output]:
        """Take partials of the node that are merged into no window."""
        open_from = None if self._windows is None else self._windows.next
        return self._lateness.take(node, source, self.answer.viewed(node, partials), open_from)

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
        return (self.answer.open() or OpenCount()).windows + self._losses.open(self.plan)

    def _collect(self, settled: Mapping[str, Finding]) -> list[Output]:
        events, known = self.answer.take_events(), self._losses.take(self.plan.name)
        for step, sent in events.sent:
            self._channels[step].take(sent)
        for step, mark in known.sent:
            self._channels[step].marks.add(mark)
        for reason, rows in events.shed.items():
            self.shed[reason] = self.shed.get(reason, 0) + rows
        if self._windowless is not None:
            self._windowless.take(known.marks)
            return list(self._windowless.announce(events.rows, settled, self.complete_to()))
        spans = list(self._marked(known))
        first = None if self._windows is None else self._windows.first
        return [*self._windowed(events.rows, spans), *self._lateness.closed(spans, first)]

    def _marked(self, known: Known) -> Iterator[WindowRun]:
        """The final windows, with the marks that steps between them and the answer made on their rows. Pane k of the
        marks is window k."""
        assert self.plan.window is not None
        for mark in known.marks:
            windows = windows_shown(self.plan.window, mark)
            self._marks.add(Mark(windows.start, windows.stop, mark.verdict))
        for span in known.windows:
            found = self._marks.finding(span.first, span.to + 1)
            yield span if found == EXACT else replace(span, finding=span.finding + found)
        if self._windows is not None and self._windows.next is not None:
            self._marks.prune(self._windows.next)

    def _windowed(self, rows: list[Words], spans: list[WindowRun]) -> Iterator[Output]:
        assert self.plan.window is not None
        waiting = deque(sorted(rows_by_window(rows, self.plan.window, self.plan.output).items()))
        early = self._saved.early
        witness = self._witness(self.answer.nodes) if spans else None  # costly: examines every excluded source
        for span in spans:
            count = early.pop(str(span.first), 0)
            while waiting and waiting[0][0] <= span.to:
                window, parts = waiting.popleft()
                if not span.first == window == span.to:
                    raise ValueError(f"query {self.plan.name}: rows of window {window}, which holds no tuple")
                for part in parts:
                    count += len(part)
                    yield ResultRows(self.plan.name, window, part, self.plan.output)
            assert witness is not None
            yield self._complete(span, count, witness)
        for window, parts in waiting:
            if not self._lets_go:
                raise ValueError(f"query {self.plan.name}: rows of window {window}, which has not closed")
            early[str(window)] = early.get(str(window), 0) + sum(map(len, parts))
            for part in parts:
                yield ResultRows(self.plan.name, window, part, self.plan.output, early=True)

    def _complete(self, span: WindowRun, rows: int, witness: Witness) -> Complete:
        window, finding = self.plan.window, span.finding
        assert window is not None
        return Complete(
            self.plan.name, self._place.generation, self._place.bucket, self._place.buckets,
            WindowSpan(span.first, span.to), window.start(span.first), window.end(span.to), window.axis.attribute,
            rows, span.tuples, finding.promised, finding.dropped, finding.late,
            witness.covered_from_ns, witness.rosters, finding.verdict, window.axis.kind,
            missing=witness.missing_from(finding.verdict),
        )  # fmt: skip
