"""Joins the buckets of a result topic: finds windows that are complete in all of them, with their rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_

from lowmark.wire.records.result_rows import ResultRow
from lowmark.wire.records.row_checksums import checksum_of
from lowmark.wire.records.verdicts import Amendment, Complete, Verdict, WindowSpan

__all__ = ["FinishedWindow", "WindowBoard"]


@dataclass(frozen=True, slots=True)
class FinishedWindow:
    """A window that every bucket has completed. `window` None: the query has no windows, and this holds a bucket's rows
    from `start`, its former bound, up to `end`."""

    window: int | None
    start: int | None  # values of the attribute
    end: int
    rows: tuple[bytes, ...]
    merged: int  # tuples, over all buckets
    promised: int
    dropped: int
    late: int
    verdict: Verdict
    missing: tuple[str, ...]  # sources that it did not wait for
    of: Complete  # one bucket's completion of it, for what all buckets agree on
    torn: bool = False  # the rows are not those that a completion names


@dataclass(slots=True)
class _Bucket:
    pending: list[bytes] = field(default_factory=list)  # rows since the last completion
    early: dict[int, list[bytes]] = field(default_factory=dict)  # rows of windows that have yet to close, by window
    done: dict[int, tuple[Complete, tuple[bytes, ...]]] = field(default_factory=dict)  # single windows, by id
    reached: int | None = None  # the last window that is complete
    end: int | None = None  # up to where it is complete
    whole_from: int | None = None  # the first window all of whose rows were read
    sums: dict[int | None, int] = field(default_factory=dict)  # checksums of waiting rows, by the window of early ones
    torn: set[int] = field(default_factory=set)  # windows that wait for other buckets


class WindowBoard:
    """Feed it the records of one query in the order of each partition. It ignores records of older generations. Unless
    `from_beginning`, it also ignores windows of which some bucket may have written rows before reading began."""

    def __init__(self, buckets: int, from_beginning: bool = True) -> None:
        self._buckets = [_Bucket() for _ in range(buckets)]
        self._generation = -1
        self._from_beginning = from_beginning
        self._amended: list[tuple[WindowSpan, Verdict]] = []  # of windows that some bucket has yet to complete

    def rows(self, bucket: int, rows: Iterable[ResultRow]) -> None:
        for row in rows:
            if self._current(row.generation):
                of = self._buckets[bucket]
                (of.pending if row.early is None else of.early.setdefault(row.early, [])).append(row.row)

    def checked(self, bucket: int, generation: int, early: int | None, value: bytes) -> None:
        """The value of a record of rows."""
        if self._current(generation):
            sums = self._buckets[bucket].sums
            sums[early] = checksum_of(value, sums.get(early, 0))

    def complete(self, complete: Complete) -> Iterator[FinishedWindow]:
        """The windows that this completion makes complete in all buckets, in order. A window without rows is left out,
        unless it is lossy."""
        if not self._current(complete.generation):
            return
        bucket = self._buckets[complete.bucket]
        early = () if complete.windows is None else bucket.early.pop(complete.windows.first, ())
        rows, before, bucket.end = (*early, *bucket.pending), bucket.end, complete.end
        bucket.pending.clear()
        found = bucket.sums.pop(None, 0)
        if complete.windows is None:
            if rows:
                yield replace(_finished(None, [(complete, rows)]), start=before)
            return
        found += bucket.sums.pop(complete.windows.first, 0)
        known = before is not None and complete.checksum is not None  # of the first, the beginning may be gone
        if known and (len(rows) != complete.rows or found % (1 << 32) != complete.checksum):
            bucket.torn.add(complete.windows.first)
        whole = self._from_beginning or len(rows) == complete.rows
        if not whole:
            bucket.whole_from = complete.windows.to + 1
        elif bucket.whole_from is None:
            bucket.whole_from = complete.windows.first
        if rows or not complete.verdict.exact or complete.merged:
            bucket.done[complete.windows.first] = complete, rows
        bucket.reached = complete.windows.to
        yield from self._ready()

    @property
    def complete_to(self) -> int | None:
        """The bound up to which all buckets are complete; None: one has reported nothing."""
        ends = [bucket.end for bucket in self._buckets]
        return None if None in ends else min(end for end in ends if end is not None)

    def amend(self, amendment: Amendment) -> None:
        """Makes a window that has yet to be shown lossy."""
        if self._current(amendment.generation) and amendment.windows is not None:
            self._amended.append((amendment.windows, Verdict(amendment.reasons)))
            self._forget_amended()

    def _forget_amended(self) -> None:
        complete = [bucket.reached for bucket in self._buckets if bucket.reached is not None]
        shown = min(complete) if len(complete) == len(self._buckets) else None
        self._amended = [each for each in self._amended if shown is None or each[0].to > shown]

    def _current(self, generation: int) -> bool:
        if generation > self._generation:
            self._from_beginning |= self._generation >= 0  # a later generation is read from its beginning
            self._generation = generation
            self._buckets = [_Bucket() for _ in self._buckets]
            self._amended = []
        return generation == self._generation

    def _ready(self) -> Iterator[FinishedWindow]:
        reached = [bucket.reached for bucket in self._buckets]
        if any(window is None for window in reached):
            return
        up_to = min(window for window in reached if window is not None)
        begun = [bucket.whole_from for bucket in self._buckets]
        since = max(window for window in begun if window is not None)
        windows = sorted({window for bucket in self._buckets for window in bucket.done if window <= up_to})
        for window in windows:
            parts = [bucket.done.pop(window) for bucket in self._buckets if window in bucket.done]
            if not self._from_beginning and window < since:
                continue
            if any(rows for _, rows in parts) or not all(complete.verdict.exact for complete, _ in parts):
                found = [verdict for span, verdict in self._amended if span.first <= window <= span.to]
                torn = any(window in bucket.torn for bucket in self._buckets)
                yield replace(_finished(window, parts, found), torn=torn)
            for bucket in self._buckets:
                bucket.torn.discard(window)
        self._forget_amended()


def _finished(
    window: int | None, parts: list[tuple[Complete, tuple[bytes, ...]]], amended: Iterable[Verdict] = ()
) -> FinishedWindow:
    verdict = reduce(or_, [*(complete.verdict for complete, _ in parts), *amended])
    first = parts[0][0]
    return FinishedWindow(
        window=window,
        start=first.start,
        end=first.end,
        rows=tuple(row for _, rows in parts for row in rows),
        merged=sum(complete.merged for complete, _ in parts),
        promised=sum(complete.promised for complete, _ in parts),
        dropped=max(complete.dropped for complete, _ in parts),
        late=max(complete.late for complete, _ in parts),
        verdict=verdict,
        missing=tuple(sorted({source for complete, _ in parts for source in complete.missing})),
        of=first,
    )
