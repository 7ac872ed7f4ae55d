"""Which operator works next on what it has put off, and for how many units.

The graph asks until no step has anything left: before it passes on what a promise has closed, and before a commit. So a
scheduler decides order and portions, and never whether something is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from lowmark.query.plan.nodes import StepPlan

__all__ = ["IN_ORDER", "Scheduler", "Waiting"]

_ALL = 1 << 62


@dataclass(frozen=True, slots=True)
class Waiting:
    """A step that may have deferred work."""

    step: str  # its digest
    plan: StepPlan
    queries: tuple[str, ...]  # that read it
    left: int | None  # units, as it said last; None: it has got something since


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
