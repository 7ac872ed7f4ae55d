"""The announcements of a query without windows: its rows as they come, and the bound up to which they are complete."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace

from highlevel.graph import Answer
from highlevel.interface import Space, State, Words
from highlevel.progress.bucket_identity import BucketIdentity, Witness
from highlevel.progress.granules import ROW_NUMBER
from highlevel.progress.ledger import Ledger
from highlevel.progress.outputs import Output, ResultRows
from highlevel.row_marks import EVERYWHERE, RowMark
from highlevel.verdicts.marks import EXACT, NOTHING, Finding, FindingRow, Mark, MarkRow, Marks
from lowmark.wire.records.verdicts import Amendment, Complete, OpenCount, Reason, Verdict
from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.values import FOREVER, NEVER, show

__all__ = ["Windowless"]

_NUMBERING = frozenset({Reason.NUMBERING})


@dataclass(slots=True)
class _SavedAnswer:
    """A query's piece of state."""

    announced: int | None = None  # the bound announced last
    rows: int = 0  # … rows since then
    since: FindingRow = NOTHING  # … findings since then
    shifted: bool = False  # tuples were lost that would have been counted: all later numbers are wrong
    marks: list[MarkRow] = field(default_factory=list)  # on times not yet announced
    open: tuple[int, int] = (0, 0)  # the last announced counts of partitions that number their rows

    def encode(self) -> bytes:
        return json.dumps(astuple(self), separators=(",", ":")).encode()

    @classmethod
    def decode(cls, piece: bytes) -> _SavedAnswer:
        return cls(*json.loads(piece))


class Windowless:
    """A query without windows in its bucket. A loss is announced by the times of its tuples, with the first bound
    beyond the earliest of them."""

    def __init__(
        self, answer: Answer, ledgers: Mapping[str, Ledger], place: BucketIdentity, state: State,
        witness: Callable[[tuple[str, ...]], Witness],
    ) -> None:  # fmt: skip
        self._plan = plan = answer.plan
        self._place = place
        self._answer = answer
        self._ledgers = ledgers
        self._witness = witness
        self._state = state
        self._space: Space[_SavedAnswer] = Space(f"query.{plan.name}", _SavedAnswer.encode, _SavedAnswer.decode)
        self._saved = state.get(self._space, 0) or _SavedAnswer()
        self._marks = Marks.of_rows(self._saved.marks)
        self._returning = {node for node in ledgers if plan.exchange(node) is not None}

    def save(self) -> None:
        self._saved.marks = self._marks.rows()
        self._state.put(self._space, 0, self._saved)

    def take(self, marks: Iterable[RowMark]) -> None:
        """Marks on rows that are still to be announced."""
        announced = self._saved.announced
        for mark in marks:
            told_next = mark.times == EVERYWHERE or (announced is not None and mark.times[1] <= announced)
            self._keep(mark, told_next)

    def _keep(self, mark: RowMark, told_next: bool) -> None:
        """Keep a mark. A loss where rows are counted also makes all later numbers wrong."""
        saved, reasons = self._saved, mark.verdict.reasons
        saved.shifted |= Reason.NUMBERING in reasons
        verdict = replace(mark.verdict, reasons=reasons - _NUMBERING)
        if told_next:
            saved.since = (Finding.of_row(saved.since) + Finding(verdict)).row()
        elif verdict != EXACT.verdict:
            self._marks.add(Mark(*mark.times, verdict))

    def announce(
        self, rows: Sequence[Words], settled: Mapping[str, Finding], complete_to: int | None
    ) -> Iterator[Output]:  # fmt: skip
        """Output the rows and the bound up to which they are complete. A completion needs a moved bound and one of:
        rows or losses since the last one, a change in the open windows of partitions, or the end of all input.
        `complete_to`: the current value of `Completions`."""
        saved = self._saved
        for output in ResultRows.together(self._plan.name, rows, self._plan.output):
            saved.rows += len(output.rows)
            yield output
        found = self._found(settled)
        saved.since = found.row()
        bound = self._bound(complete_to)
        moved = bound is not None and (saved.announced is None or bound > saved.announced)
        if not settled or not moved or bound is None:
            return
        ended = complete_to == FOREVER
        found += self._marks.finding(NEVER if saved.announced is None else saved.announced, FOREVER if ended else bound)
        counted = self._answer.open()
        opened = counted is not None and counted != OpenCount(*saved.open)
        if saved.rows or opened or not found.verdict.exact or ended:
            yield self._complete(bound, found, counted)
            saved.announced, saved.rows, saved.since = bound, 0, NOTHING
            saved.open = astuple(counted or OpenCount())
            self._marks.prune(bound)

    def amend(self, marks: Sequence[RowMark], found: Finding) -> Iterator[Amendment]:
        """Amend what was announced of the rows of these marks; the next announcement reports the rest."""
        saved, announced = self._saved, self._saved.announced
        start = min((mark.times[0] for mark in marks), default=FOREVER)
        if announced is None or start >= announced:
            saved.since = (Finding.of_row(saved.since) + replace(found, verdict=EXACT.verdict)).row()
        elif found.verdict.reasons:
            reasons = found.verdict.reasons.union(*(mark.verdict.reasons for mark in marks))
            stop = announced if Reason.NUMBERING in reasons else min(announced, max(mark.times[1] for mark in marks))
            yield self._amendment(start, stop, replace(found, verdict=Verdict(reasons)))
        for mark in marks:
            self._keep(mark, mark.times == EVERYWHERE)

    def _amendment(self, start: int, stop: int, found: Finding) -> Amendment:
        _, kind = self._attribute
        return Amendment(
            self._plan.name, self._place.generation, self._place.bucket, None,
            None if start == NEVER else show(kind, start), show(kind, stop), found.late, found.dropped,
            found.verdict.reasons,
        )  # fmt: skip

    @property
    def _attribute(self) -> tuple[str, Kind]:
        """Attribute and kind of the bounds that are announced."""
        attribute = next(iter(self._ledgers.values())).node.reduction.pane.attribute
        return attribute, Kind.INT if attribute == ROW_NUMBER else Kind.TIME

    def _found(self, settled: Mapping[str, Finding]) -> Finding:
        """The finding since the last announced bound, without marks on times: counts of tuples, each once."""
        found = Finding.of_row(self._saved.since)
        for node, finding in settled.items():
            if node not in self._returning:  # an exchange's node counts rows; their tuples were counted before
                found += replace(finding, verdict=EXACT.verdict)
        return found + (Finding(Verdict(_NUMBERING)) if self._saved.shifted else EXACT)

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
        # A loss at an unknown time begins before all times, so its granule's start is cut to NEVER.
        ends = [(max(pane.start(high + 1), NEVER), pane.width) for pane, high in reached if high is not None]
        high = self._marks.high()
        ends += [(high + 1, reached[0][0].width)] if high is not None and high > NEVER else []
        last = max(ends, default=None)
        if last is None:
            return None
        bound, width = last
        announced, news = self._saved.announced, self._saved.rows or any(self._saved.open)
        return announced + width if news and announced is not None and announced >= bound else bound
