"""Partitions that are dropped after a time without any tuple (`expire_idle`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lowmark.query.bind.windows import GRANULE
from lowmark.query.plan.nodes import Counted, Number, Step, StepInput

__all__ = ["CannotExpire", "expiring"]


class CannotExpire(Exception):
    """The query does not count tuples for values of PA."""


def expiring(steps: Sequence[Step], idle_ns: int) -> tuple[Step, ...]:
    """The same steps; those that count tuples for values of PA drop values that are idle for longer than `idle_ns`,
    rounded up to whole panes of the tuples."""
    counting = {
        number
        for number, step in enumerate(steps)
        if isinstance(plan := step.plan, Counted) and plan.partition
    }  # fmt: skip
    if not counting:
        raise CannotExpire
    feeding = {source.step for number in counting for source in steps[number].inputs if isinstance(source, StepInput)}
    found = []
    for number, step in enumerate(steps):
        plan = step.plan
        if number in counting and isinstance(plan, Counted):
            plan = replace(plan, expire=-(-idle_ns // GRANULE.width))
        elif number in feeding and isinstance(plan, Number):
            plan = replace(plan, panes=True)
        found.append(replace(step, plan=plan))
    return tuple(found)
