"""What buckets have told of a query's answer, in one generation of its results."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from lowmark.wire.results import Amendment, Complete, OpenCount

__all__ = ["CompletionsSeen"]


@dataclass(slots=True)
class CompletionsSeen:
    generation: int = -1
    last: dict[int, Complete] = field(default_factory=dict)  # by bucket
    rows: int = 0
    tuples: int = 0
    lossy: int = 0
    _late: Counter[int] = field(default_factory=Counter)  # by bucket: each tells those of the whole stream
    _dropped: Counter[int] = field(default_factory=Counter)

    def complete(self, record: Complete) -> None:
        self.last[record.bucket] = record
        self.rows += record.rows
        self.tuples += record.merged
        self._count(record)
        if not record.verdict.exact:
            self.lossy += 1 if record.windows is None else record.windows.to - record.windows.first + 1

    def amended(self, record: Amendment) -> None:
        self._count(record)

    @property
    def late(self) -> int:
        return max(self._late.values(), default=0)

    @property
    def dropped(self) -> int:
        return max(self._dropped.values(), default=0)

    @property
    def open(self) -> OpenCount | None:
        """Of partitions in all buckets: one that has told nothing has none. None: no bucket has told of such."""
        told = [last.open for last in self.last.values() if last.open is not None]
        return sum(told, OpenCount()) if told else None

    def complete_to(self, buckets: int) -> int | None:
        """Up to where all of so many buckets are; None: one has told nothing."""
        return min(last.end for last in self.last.values()) if len(self.last) == buckets else None

    def _count(self, record: Complete | Amendment) -> None:
        self._late[record.bucket] += record.late
        self._dropped[record.bucket] += record.dropped
