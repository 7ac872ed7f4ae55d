"""Which windows of an answer are open at a time, where its windows follow the times that sources promise."""

from __future__ import annotations

from dataclasses import dataclass

from lowmark.query.plan import Aggregate, Finish, Gather, Pane, QueryPlan, Reduce, Send, Step, Totals
from lowmark.query.windows import Window, WindowKind
from lowmark.wire.schema import Kind

__all__ = ["OpenTimes"]

_IN_TIME = (Aggregate, Finish, Gather, Reduce, Send, Totals)
"""Steps whose rows are of the times of what they were made of. A join's are of several, those that count of none."""


@dataclass(frozen=True, slots=True)
class OpenTimes:
    """Times are those of sources, in ns."""

    window: Window
    grid: Pane  # the panes of the window, in time

    @classmethod
    def of(cls, plan: QueryPlan) -> OpenTimes | None:
        """None where no time says when a window of the answer closes."""
        window = plan.window
        if window is None or window.kind in (WindowKind.NONE, WindowKind.SLIDE_BY_TUPLE):
            return None
        if not all(isinstance(step.plan, _IN_TIME) for step in plan.steps):
            return None
        if _is_of_nodes(plan.steps, window):
            return cls(window, plan.stage.nodes[0].reduction.pane)
        return cls(window, Pane(window.axis.unit, window.axis.origin)) if window.axis.kind is Kind.TIME else None

    def begun(self, ns: int) -> int:
        """The first window that holds nothing before this time."""
        return self.window.wids(self.grid.index(ns)).stop

    def open(self, ns: int) -> int:
        """The first window that is open when all sources have promised this time."""
        return self.window.closed_by(self.grid.index(ns))

    def end(self, window: int) -> int:
        """What all sources must have promised for it to close."""
        return self.grid.start((window + 1) * self.window.slide)


def _is_of_nodes(steps: tuple[Step, ...], window: Window) -> bool:
    """Whether its panes are those of the nodes: then they are panes of time, whatever the attribute is."""
    return isinstance(steps[0].plan, Aggregate) and steps[0].plan.window == window
