"""What a bucket may keep for ever. Most state goes when its window has closed; this is of what does not."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LimitReached", "Limits"]


class LimitReached(Exception):
    """For people: what is kept, how much of it, and what would be right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Raises ValueError for what cannot be."""

    groups: int = 4_000_000  # of a query in a bucket that no window's end lets go: of landmark windows, values of PA

    def __post_init__(self) -> None:
        if self.groups < 1:
            raise ValueError(f"groups is {self.groups}: it is 1 or more")

    def check_groups(self, count: int, keys: tuple[str, ...]) -> None:
        """LimitReached where more groups of these keys than allowed are kept."""
        if count > self.groups:
            raise LimitReached(
                f"more than {self.groups:,} different ({', '.join(keys)}) in a bucket, and none is ever forgotten: "
                "raise job.limits.groups, use more buckets, or ask for fewer groups"
            )
