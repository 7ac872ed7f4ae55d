"""What a new generation leaves out, because the one before has written it already.

A new generation takes the records of a bucket in the same order as the one before, and gives the same results. Until it
reaches the last old completion, all it has to say about completed windows over time is old. After that, results that
are already in Kafka are left out once, and all else is new. Results of other queries are old as long as they follow
from records that the generation before had read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from highlevel.interface import ONLY, Space, State
from highlevel.progress.outputs import Output, ResultRows
from highlevel.spark.checkpoint.checkpoint import Completed
from lowmark.query.windows.window import Window
from lowmark.wire.records.codec import encode
from lowmark.wire.records.verdicts import Amendment, Complete, Correction, LateRow, Reason, Verdict, WindowSpan
from lowmark.wire.rows.values import NEVER, show

__all__ = ["Suppression", "digest"]


_NOT_COVERED = Verdict(frozenset({Reason.NOT_COVERED}))


def digest(told: Amendment | Correction) -> str:
    """Equal for equal outputs, whatever their generation."""
    record = encode(replace(told, generation=0))
    return hashlib.sha256(f"{type(told).__name__} ".encode() + record.value).hexdigest()[:16]


@dataclass(slots=True)
class _News:
    """State of a query: whether its last old completion was reached, and old results after it to leave out."""

    begun: bool
    old: list[str]

    def encode(self) -> bytes:
        return json.dumps([self.begun, self.old]).encode()

    @classmethod
    def decode(cls, piece: bytes) -> _News:
        return cls(*json.loads(piece))


class Suppression:
    """Suppression in one bucket. `completed`: by query, what former generations have announced. How far that has been
    reached again is kept in the bucket's state.

    `exchanged`: by query whose rows go through an exchange, the time before which gaps are no news, because the records
    were not read again. A window of such a query closes after a round trip, so its verdict may include what came late
    only now. The verdict is told as an amendment, which the former generation may have told, too.

    `told`: the offset of the bucket's partials up to which all results were written, for each query whose results no
    window over time identifies.

    Late rows of windows over time that were written after the last completion are written again, because they are in a
    topic of their own.
    """

    def __init__(
        self, windows: Mapping[str, Window], completed: Mapping[str, Completed], told: Mapping[str, int],
        state: State, exchanged: Mapping[str, int] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        self._windows = windows
        self._completed = completed
        self._told = told
        self._state = state
        self._exchanged = exchanged

    def ends_between(self, read: int, offset: int) -> bool:
        """Whether the record at this offset gives new results, while records before `read` (the offset after the last
        record read) give old ones. If so, the old ones must be output before the record is taken."""
        return any(read <= upto <= offset for upto in self._told.values())

    def __call__(self, output: Output, read: int) -> Iterator[Output]:
        """The output, or what is left of it; nothing if it is old. It follows from the partials before `read`. Windows
        between the last old completion and the first new one are told before it, as `not-covered`."""
        if isinstance(output, Complete):
            yield from self._gap(output)
            yield from self._verdict_of_old(output)
        if (left := self._left(output, read)) is not None:
            yield left

    def of(self, outputs: Iterable[Output], read: int) -> list[tuple[Output, bool]]:
        """The outputs of a flush, or what is left of them, each with whether it is new. What is told before a
        completion stands before its rows, too."""
        told: list[tuple[Output, bool]] = []
        for output in outputs:
            left = [*self(output, read)]
            if isinstance(output, Complete) and len(left) > 1:
                at = _begin_of_rows([each for each, _ in told], output.query)
                told[at:at] = [(each, True) for each in left[:-1]]
                left = left[-1:]
            told += [(each, True) for each in left] or [(output, False)]
        return told

    def _gap(self, complete: Complete) -> Iterator[Complete]:
        completed = self._completed.get(complete.query)
        if completed is None or complete.query in self._told or self._news(complete.query, completed).begun:
            return
        assert complete.windows is not None, "what has no windows is not known by them"
        window = self._windows[complete.query]
        first, stop = window.first_after(completed.bound), complete.windows.first
        if first < stop:
            yield replace(
                complete, windows=WindowSpan(first, stop - 1), start=window.start(first), end=window.end(stop - 1),
                rows=0, merged=0, promised=0, dropped=0, late=0, verdict=_NOT_COVERED, missing=(),
            )  # fmt: skip

    def _verdict_of_old(self, complete: Complete) -> Iterator[Amendment]:
        completed, needed_ns = self._completed.get(complete.query), self._exchanged.get(complete.query)
        if completed is None or needed_ns is None or complete.windows is None:
            return
        window, first = self._windows[complete.query], complete.windows.first
        last = min(complete.windows.to, window.first_after(completed.bound) - 1)
        kind, start = window.axis.kind, window.start(first)
        reasons = complete.verdict.reasons - ({Reason.GAP} if start is not None and start < needed_ns else set())
        if reasons and first <= last:
            yield Amendment(
                complete.query, complete.generation, complete.bucket, WindowSpan(first, last),
                None if start is None else show(kind, start), show(kind, window.end(last)),
                complete.late, complete.dropped, reasons,
            )  # fmt: skip

    def _left(self, output: Output, read: int) -> Output | None:
        if not isinstance(output, ResultRows | Complete | Amendment | Correction | LateRow):
            return output
        if (upto := self._told.get(output.query)) is not None:
            return None if read <= upto else output
        completed = self._completed.get(output.query)
        if completed is None:
            return output
        window, bound = self._windows[output.query], completed.bound
        match output:
            case ResultRows(window=number):
                known = number is not None and window.end(number) <= bound
                return None if known else output
            case Complete():
                self._note(output, completed)
                return _rest(output, window, bound)
            case Amendment() | Correction():
                return self._rest_of_news(output, window, completed)
            case LateRow(windows=span):
                old = span is not None and window.end(span.to) <= bound
                return None if old and not self._news(output.query, completed).begun else output

    def _space(self, query: str) -> Space[_News]:
        return Space(f"suppressed.{query}", _News.encode, _News.decode)

    def _news(self, query: str, completed: Completed) -> _News:
        fresh = _News(completed.bound == NEVER, list(completed.since))
        return self._state.get(self._space(query), ONLY) or fresh

    def _note(self, complete: Complete, completed: Completed) -> None:
        news = self._news(complete.query, completed)
        if not news.begun and complete.end >= completed.bound:
            news.begun = True
            self._state.put(self._space(complete.query), ONLY, news)

    def _rest_of_news(
        self, told: Amendment | Correction, window: Window, completed: Completed
    ) -> Amendment | Correction | None:
        news = self._news(told.query, completed)
        if news.begun:
            if (known := digest(told)) not in news.old:
                return told
            news.old.remove(known)
            self._state.put(self._space(told.query), ONLY, news)
            return None
        if isinstance(told, Correction):
            return _rest_of_correction(told, window, completed.bound)
        assert told.windows is not None, "what has no windows is not known by them"
        return told if told.query in self._exchanged or window.end(told.windows.to) > completed.bound else None


def _begin_of_rows(told: Sequence[Output], query: str) -> int:
    """Where the rows of a query begin that no completion follows yet."""
    begin = len(told)
    for at in range(len(told) - 1, -1, -1):
        match told[at]:
            case Complete(query=other) if other == query:
                break
            case ResultRows(query=other) if other == query:
                begin = at
    return begin


def _rest(complete: Complete, window: Window, bound: int) -> Complete | None:
    if complete.end <= bound:
        return None
    assert complete.windows is not None, "what has no windows is not known by them"
    first = max(complete.windows.first, window.first_after(bound))
    if first == complete.windows.first:
        return complete
    return replace(complete, windows=WindowSpan(first, complete.windows.to), start=window.start(first))


def _rest_of_correction(correction: Correction, window: Window, bound: int) -> Correction | None:
    first = max(correction.windows.first, window.first_after(bound))
    if first > correction.windows.to:
        return None
    start = window.start(first)
    assert start is not None, "landmark windows are not corrected"
    span = WindowSpan(first, correction.windows.to)
    return replace(correction, windows=span, start=show(window.axis.kind, start))
