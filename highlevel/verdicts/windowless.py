"""What a query without windows announces: its rows as they come, and the bound up to which they are complete."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, replace

from highlevel.events import Events
from highlevel.graph import Answer
from highlevel.progress.granules import ROW_NUMBER
from highlevel.progress.ledger import Ledger
from highlevel.progress.outputs import Output, ResultRows
from highlevel.progress.place import Place, Witness
from highlevel.row_marks import EVERYWHERE, RowMark
from highlevel.verdicts.loss_propagation import Losses
from highlevel.verdicts.loss_routes import Route
from highlevel.verdicts.marks import EXACT, NOTHING, Finding, Mark, Marks
from highlevel.verdicts.state import Saved
from highlevel.verdicts.window_sequence import WindowRun
from lowmark.query.plan.nodes import Counted, Number, QueryPlan
from lowmark.wire.records.verdicts import Amendment, Complete, OpenCount, Reason, Verdict
from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.values import FOREVER, NEVER, show

__all__ = ["Windowless"]

_NUMBERING = frozenset({Reason.NUMBERING})
_OF_VALUES = frozenset({Reason.OVERFLOW, Reason.TIE})
"""Reasons that do not change the number of rows."""


class Windowless:
    """A query without windows in its bucket; for a query with windows nothing is announced here. `saved`, the query's
    piece of state, holds what was announced. `marks` are on the times before which the answer's rows are complete."""

    def __init__(
        self, plan: QueryPlan, place: Place, answer: Answer, ledgers: Mapping[str, Ledger], routes: Sequence[Route],
        losses: Losses, witness: Callable[[tuple[str, ...]], Witness], saved: Saved,
    ) -> None:  # fmt: skip
        self._plan = plan
        self._place = place
        self._answer = answer
        self._ledgers = ledgers
        self._routes = routes
        self._losses = losses
        self._witness = witness
        self._saved = saved
        self.marks = Marks.of_rows(saved.marks)
        self._counting = [
            number
            for number, plan_of in enumerate(step.plan for step in plan.steps)
            if isinstance(plan_of, Counted) or (isinstance(plan_of, Number) and plan_of.number)
        ]
        self._returning = {node for node in ledgers if plan.exchange(node) is not None}
        windowed = (route for route in routes if route.window is not None and losses.joined(route.step))
        self._carried = {*(node for route in windowed for node in route.nodes), *filter(losses.joined, ledgers)}

    def save(self) -> None:
        self._saved.marks = self.marks.rows()

    def mark(self, marks: Iterable[Mark]) -> None:
        for mark in marks:
            self.marks.add(mark)

    def take(self, marks: Iterable[RowMark]) -> None:
        """Marks on rows of the answer, which are still to be announced."""
        self.mark(
            Mark(*mark.times, mark.verdict)
            for mark in marks
            if mark.times != EVERYWHERE and mark.verdict != EXACT.verdict
        )

    def shift(self) -> None:
        """Tuples were lost: rows counted from now on get wrong numbers."""
        self._saved.shifted |= bool(self._counting)

    def wrong_below(self, step: int) -> None:
        """Rows of this step are wrong, and steps after it may count them."""
        self._saved.shifted |= any(step < counting for counting in self._counting)

    def announce(
        self, events: Events, settled: Mapping[str, Finding], spans: Mapping[int, list[WindowRun]],
        complete_to: int | None, flaws: frozenset[Reason],
    ) -> Iterator[Output]:  # fmt: skip
        """Output the rows, and how far they are complete. A completion needs a moved bound and one of: rows or losses
        since the last one, a change in the open windows of partitions, or the end of all input. `complete_to`: the
        current value of `Completions`. `flaws` concern these rows."""
        saved = self._saved
        for output in ResultRows.together(self._plan.name, events.rows, self._plan.output):
            saved.rows += len(output.rows)
            yield output
        found = self._found(settled, spans, flaws)
        saved.since = found.row()
        bound = self._bound(complete_to)
        moved = bound is not None and (saved.announced is None or bound > saved.announced)
        if not settled or not moved or bound is None:
            return
        ended = complete_to == FOREVER
        found += self.marks.finding(NEVER if saved.announced is None else saved.announced, FOREVER if ended else bound)
        counted = self._answer.open()
        opened = counted is not None and counted != OpenCount(*saved.open)
        if saved.rows or opened or not found.verdict.exact or ended:
            yield self._complete(bound, found, counted)
            saved.announced, saved.rows, saved.since = bound, 0, NOTHING
            saved.open = astuple(counted or OpenCount())
            self.marks.prune(bound)

    def amend(self, times: Sequence[Mark], found: Finding) -> Iterator[Amendment]:
        """Something became known against these times: amend what was announced of them; the next announcement reports
        the rest."""
        saved = self._saved
        self.mark(times)
        start = min((mark.start for mark in times), default=FOREVER)
        stop = max((mark.stop for mark in times), default=FOREVER)
        if saved.announced is None or start >= saved.announced:
            saved.since = (Finding.of_row(saved.since) + replace(found, verdict=EXACT.verdict)).row()
        elif found.verdict.reasons:
            yield self._amendment(start, saved.announced if self._counting else min(stop, saved.announced), found)

    def _amendment(self, start: int, stop: int, found: Finding) -> Amendment:
        _, kind = self._attribute
        reasons = found.verdict.reasons | (_NUMBERING if self._counting else frozenset())
        return Amendment(
            self._plan.name, self._place.generation, self._place.bucket, None,
            None if start == NEVER else show(kind, start), show(kind, stop), found.late, found.dropped, reasons,
        )  # fmt: skip

    @property
    def _attribute(self) -> tuple[str, Kind]:
        """Attribute and kind of the bounds that are announced."""
        attribute = next(iter(self._ledgers.values())).node.reduction.pane.attribute
        return attribute, Kind.INT if attribute == ROW_NUMBER else Kind.TIME

    def _found(
        self, settled: Mapping[str, Finding], spans: Mapping[int, list[WindowRun]], flaws: frozenset[Reason]
    ) -> Finding:  # fmt: skip
        """What is known since the last announced bound."""
        saved = self._saved
        found = Finding.of_row(saved.since)
        for node, finding in settled.items():
            if node in self._returning:
                finding = Finding(finding.verdict)  # it counts rows, and their tuples were counted before
            found += replace(finding, verdict=EXACT.verdict) if node in self._carried else finding
        for route in self._routes:
            for span in () if self._losses.joined(route.step) else spans.get(route.step, ()):
                found += Finding(span.finding.verdict)
        # In a node an overflow may have decided which tuples pass.
        passed = any(Reason.OVERFLOW in finding.verdict.reasons for finding in settled.values())
        saved.shifted |= bool(self._counting) and (passed or bool(found.verdict.reasons - _OF_VALUES))
        found += Finding(Verdict(_NUMBERING)) if saved.shifted else EXACT
        return found + Finding(Verdict(flaws))

    def _complete(self, bound: int, found: Finding, counted: OpenCount | None) -> Complete:
        (attribute, kind), witness = self._attribute, self._witness(self._answer.nodes)
        return Complete(
            self._plan.name, self._place.generation, self._place.bucket, self._place.buckets, None, None, bound,
            attribute, self._saved.rows, found.merged, found.promised, found.dropped, found.late,
            witness.covered_from_ns, witness.rosters, found.verdict, kind, counted,
            missing=witness.missing_from(found.verdict),
        )  # fmt: skip

    def _bound(self, complete_to: int | None) -> int | None:
        """The bound to announce; when all input has ended, the end of the last granule with a tuple or a loss. The
        end also closes windows that wait for tuples: if that bound was announced before, the new one is one granule
        later."""
        if complete_to != FOREVER:
            return complete_to
        reached = [(ledger.node.reduction.pane, ledger.reach()) for ledger in self._ledgers.values()]
        # A loss whose time is unknown begins before all times.
        ends = [(max(pane.start(high + 1), NEVER), pane.width) for pane, high in reached if high is not None]
        high = self.marks.high()
        ends += [(high + 1, reached[0][0].width)] if high is not None and high > NEVER else []
        last = max(ends, default=None)
        if last is None:
            return None
        bound, width = last
        announced, news = self._saved.announced, self._saved.rows or any(self._saved.open)
        return announced + width if news and announced is not None and announced >= bound else bound
