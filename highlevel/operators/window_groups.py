"""The result of one or several windows that have ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from highlevel.groups.group_table import GroupRows, GroupTable

__all__ = ["WindowGroups"]


@dataclass(frozen=True, slots=True, eq=False)
class WindowGroups:
    """Ascending windows with at least one tuple each. `tuples`: the number of tuples in each window's extent (of a
    landmark window: in its own slide). `groups`: read-only; the groups of each window one after the other, as many as
    `counts` says. With several windows, no group has zero tuples."""

    windows: list[int]
    tuples: list[int]
    counts: list[int]
    groups: GroupRows

    @classmethod
    def of(cls, window: int, table: GroupTable, tuples: int) -> WindowGroups:
        return cls([window], [tuples], [len(table)], GroupRows.of((table,)))

    def apart(self) -> Iterator[WindowGroups]:
        """Those of each window by itself."""
        start = 0
        for window, tuples, count in zip(self.windows, self.tuples, self.counts, strict=True):
            end = start + count
            carries = {
                (group - start, fold): lacks
                for (group, fold), lacks in self.groups.carries.items()
                if start <= group < end
            }
            yield WindowGroups([window], [tuples], [count], GroupRows(self.groups.rows[start:end], carries))
            start = end
