"""What a query may keep for ever. A module of its own: the command line and configurations need no more of a plan."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DEFAULT_LIMITS", "Limits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Raises ValueError for what cannot be."""

    groups: int = 4_000_000  # of a query in a bucket that no window's end lets go: of landmark windows, values of PA

    def __post_init__(self) -> None:
        if self.groups < 1:
            raise ValueError(f"groups is {self.groups}: it is 1 or more")


DEFAULT_LIMITS = Limits()
