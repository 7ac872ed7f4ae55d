"""Finds the open windows of an answer from promises, tuple counts and completions."""

from __future__ import annotations

from highlevel.progress.promises.reach import Reach
from lowmark.app.progress.completions_seen import CompletionsSeen
from lowmark.app.progress.query_inputs import QueryInputs
from lowmark.query.plan.nodes import Aggregate, Counted, Pane, QueryPlan
from lowmark.query.windows.window import Window
from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.values import FOREVER

__all__ = ["OpenWindows", "sliding_by_tuple"]

_SHOWN = 10  # the oldest open windows of a query, shown one by one


class OpenWindows:
    """The open windows of a query whose windows make one sequence."""

    def __init__(self, plan: QueryPlan, window: Window, reach: Reach) -> None:
        self._window = window
        self._buckets = plan.stage.buckets
        self._reach = reach
        first = plan.steps[0].plan
        self._of_nodes = isinstance(first, Aggregate) and first.window == window
        self._grid = _grid(plan, window, self._of_nodes)
        self._first: int | None = None  # windows are completed from the first frontier on

    @property
    def begins(self) -> bool:
        """Whether the first frontier is known."""
        return self._first is not None

    def begin(self, inputs: QueryInputs) -> None:
        """Call it after each promise until `begins` is true."""
        if inputs.frontier_ns not in (None, FOREVER):
            self._first = self._reach.of(inputs.granules())

    def oldest(self, inputs: QueryInputs, seen: CompletionsSeen) -> tuple[range, int | None]:
        """The oldest open windows, or the next one if none has begun; and how many have begun (None: not known)."""
        first = self._next(inputs, seen)
        if first is None:
            return range(0), 0
        self._reach.forget(first)
        begun = self._begun(inputs)
        count = None if begun is None else max(0, begun - first)
        shown = min(count or 0, _SHOWN)
        return range(first, first + (shown if inputs.ended else max(shown, 1))), count

    def _next(self, inputs: QueryInputs, seen: CompletionsSeen) -> int | None:
        """The first window that some bucket has not completed; for a bucket without completions, the very first."""
        found = [last.windows.to + 1 for last in seen.last.values() if last.windows is not None]
        if len(found) < self._buckets:
            if self._reach.numbers_rows:
                found.append(self._reach.of_rows(0))
            else:
                found += [] if self._first is None else [self._first]
                found += [self._reach.of({node: low}) for node, low in inputs.first_granules().items()]
        return min(found, default=None)

    def _begun(self, inputs: QueryInputs) -> int | None:
        """The first window without a reported tuple."""
        if self._reach.numbers_rows:
            before, ahead = inputs.tuples
            return None if before is None else self._of(before + ahead)
        if inputs.ended:
            last = inputs.last_granule() if self._of_nodes else None
            return None if last is None else self._window.wids(last).stop
        if self._grid is None or inputs.furthest_ns is None:
            return None
        return self._window.wids(self._grid.index(inputs.furthest_ns)).stop

    def _of(self, row: int) -> int:
        axis = self._window.axis
        return self._window.wids((row - axis.origin) // axis.unit).stop


def _grid(plan: QueryPlan, window: Window, of_nodes: bool) -> Pane | None:
    """The panes of the window in time; None: the window is not over time."""
    if of_nodes:
        return plan.stage.nodes[0].reduction.pane
    return Pane(window.axis.unit, window.axis.origin) if window.axis.kind is Kind.TIME else None


def sliding_by_tuple(plan: QueryPlan) -> int | None:
    """Every how many tuples a window may end: the SLIDE, or 1 if each partition counts its own tuples, because then any
    tuple may end a window. None: the windows do not slide by tuple."""
    found = (step.plan for step in plan.steps if isinstance(step.plan, Counted))
    return next((1 if counted.partition else counted.window.slide for counted in found if counted.slides), None)
