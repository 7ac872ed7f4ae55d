"""What a query does with late tuples. A module of its own: the command line needs no more of a plan."""

from __future__ import annotations

from enum import Enum

__all__ = ["Late"]


class Late(Enum):
    """What becomes of tuples that come after their granule has ended, beside their being counted."""

    COUNT = "count"  # nothing: they stay in the capture process
    EMIT = "emit"  # they are sent on, as rows of their own
    CORRECT = "correct"  # what they change in closed windows is told
