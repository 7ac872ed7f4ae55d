"""Which operator works next on what it has put off, and for how many units.

The graph asks until no step has anything left: before it passes on what a promise has closed, and before a commit. So a
scheduler decides order and portions, and never whether something is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lowmark.query.plan.nodes import StepPlan

__all__ = ["IN_ORDER", "Scheduler", "Waiting"]

_ALL = 1 << 62


class Waiting(Protocol):
    """A step that may have deferred work."""

    @property
    def digest(self) -> str: ...
    @property
    def plan(self) -> StepPlan: ...
    @property
    def queries(self) -> tuple[str, ...]:
        """The queries that read it."""
        ...

    @property
    def left(self) -> int | None:
        """Units of work, as it said last; None: it has got something since."""
        ...


class Scheduler(Protocol):
    def turn(self, waiting: Sequence[Waiting]) -> tuple[int, int]:
        """The place, among these steps, of the one that works now, and for how many units, at least one. They stand in
        the order of the graph: inputs before their readers."""
        ...


class _InOrder:
    """Each step does all of its work before its readers do theirs."""

    def turn(self, waiting: Sequence[Waiting]) -> tuple[int, int]:
        return 0, _ALL


IN_ORDER: Scheduler = _InOrder()
