"""What completions and amendments say about a query's answer, in one generation of its results."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from lowmark.app.local.lossy_windows import LossyWindows
from lowmark.wire.records.verdicts import Amendment, Complete, OpenCount, Reason
from lowmark.wire.rows import values

__all__ = ["CompletionsSeen"]


@dataclass(slots=True)
class CompletionsSeen:
    generation: int = -1
    last: dict[int, Complete] = field(default_factory=dict)  # by bucket
    rows: int = 0
    tuples: int = 0
    _early: Counter[tuple[int, int]] = field(default_factory=Counter)  # rows of open windows, by bucket and window
    _windows: LossyWindows = field(default_factory=LossyWindows)
    _late: Counter[int] = field(default_factory=Counter)  # by bucket: each reports those of the whole stream
    _dropped: Counter[int] = field(default_factory=Counter)

    def complete(self, record: Complete) -> None:
        self.last[record.bucket] = record
        if record.windows is not None:
            self._early.pop((record.bucket, record.windows.first), None)
        self.rows += record.rows
        self.tuples += record.merged
        self._count(record, record.verdict.reasons)

    def left_early(self, bucket: int, window: int, rows: int) -> None:
        """Rows of a window have left that the bucket has not completed."""
        self._early[bucket, window] += rows

    def early(self, window: int) -> int:
        """Rows of a window in the buckets that have not completed it."""
        return sum(rows for (_, of), rows in self._early.items() if of == window)

    def amended(self, record: Amendment) -> None:
        """A complete window becomes lossy."""
        self._count(record, record.reasons)

    @property
    def lossy(self) -> int:
        """Number of lossy windows, each counted once for all buckets; a lower bound. Without windows: number of lossy
        completion bounds."""
        return self._windows.count

    @property
    def late(self) -> int:
        return max(self._late.values(), default=0)

    @property
    def dropped(self) -> int:
        return max(self._dropped.values(), default=0)

    @property
    def open(self) -> OpenCount | None:
        """Open windows of partitions over all buckets; None: no bucket has reported any. A silent one counts as 0."""
        told = [last.open for last in self.last.values() if last.open is not None]
        return sum(told, OpenCount()) if told else None

    def complete_to(self, buckets: int) -> int | None:
        """The bound up to which all `buckets` buckets are complete; None: a bucket has reported nothing."""
        return min(last.end for last in self.last.values()) if len(self.last) == buckets else None

    def _count(self, record: Complete | Amendment, reasons: frozenset[Reason]) -> None:
        if reasons and record.windows is not None:
            self._windows.add(record.windows.first, record.windows.to, reasons)
        elif reasons:
            bound = values.parse_time(record.end) if isinstance(record.end, str) else int(record.end)
            self._windows.add(bound, bound, reasons)
        self._late[record.bucket] += record.late
        self._dropped[record.bucket] += record.dropped
