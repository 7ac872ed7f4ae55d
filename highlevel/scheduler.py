"""Chooses which operator does deferred work next, and how many units.

The graph repeats the choice until no step has work left: before it passes on what a promise has closed, and before a
commit. A scheduler therefore decides order and portions, never whether work is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lowmark.query.plan.nodes import StepPlan

__all__ = ["IN_ORDER", "Schedulable", "Scheduler"]

_ALL = 1 << 62


class Schedulable(Protocol):
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
        """Units of work that it reported last; None: it has got input since."""
        ...


class Scheduler(Protocol):
    def turn(self, waiting: Sequence[Schedulable]) -> tuple[int, int]:
        """The place, among these steps, of the one that works now, and its number of units, at least one. Steps are in
        the order of the graph: inputs before their readers."""
        ...


class _InOrder:
    """Each step does all of its work before its readers do theirs."""

    def turn(self, waiting: Sequence[Schedulable]) -> tuple[int, int]:
        return 0, _ALL


IN_ORDER: Scheduler = _InOrder()
