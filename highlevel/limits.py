"""Limits on what a bucket keeps for ever. Most state is dropped when its window has closed; these limits bound the
rest."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GroupLimit", "LimitReached"]


class LimitReached(Exception):
    """An error for people: which query keeps too much, of what, how much, and what would be right."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class GroupLimit:
    """The most groups of this query that a bucket keeps although no window's end releases them."""

    query: str
    most: int

    def check(self, count: int, keys: tuple[str, ...]) -> None:
        """Raise LimitReached if more groups of these keys than allowed are kept."""
        if count > self.most:
            raise LimitReached(
                f"query {self.query}: more than {self.most:,} different ({', '.join(keys)}) in a bucket, and no "
                f"window's end lets them go: this is its limits.groups. Raise it ([queries.{self.query}.limits] or "
                "[job.limits] in the configuration, --limit-groups of lowmark query), use more buckets, ask for fewer "
                "groups or coarser values, or, where they are values of PA, let idle ones go (expire_idle)"
            )
