"""The window aggregate: partials in any order, the rows of closed windows out (Li 6.1 over panes, 6.2).

One piece of state a pane holds its groups. A promise that panes below p have ended closes every window that ends at or
below p. Windows that hold tuples have rows and are told one by one, with the tuples of their extent (of a landmark
window: of its own slide, whose tuples alone are new to it); a run of windows without any is told as one. The first
window told is the first one that was still open at the first promise, or an earlier one that holds a tuple. At the end
of the input every window that holds a tuple closes, and none behind the last of these is told.
"""

from __future__ import annotations

from collections.abc import Iterator

from highlevel.aggregate.assembly import Panes, assembly_of
from highlevel.aggregate.groups import GroupTable
from highlevel.aggregate.incoming import in_windows, panes_of, timely
from highlevel.aggregate.layout import Layout
from highlevel.aggregate.resultrows import ResultRows
from highlevel.aggregate.spaces import ONLY, Closing, closing_space, tables_space
from highlevel.aggregate.splitting import split
from highlevel.aggregate.together import complete, within_reach
from highlevel.interface import Out, Port, State, Words
from highlevel.limits import Limits
from lowmark.query.expressions import Named
from lowmark.query.plan import Aggregate
from lowmark.query.progressing import Progress, progress
from lowmark.query.windows import WindowKind
from lowmark.wire.partials import PANE
from lowmark.wire.promises import FOREVER, Bound, Promise
from lowmark.wire.values import INT64_MAX, INT64_MIN

__all__ = ["AggregateOperator"]


class AggregateOperator:
    """Partials of `plan.input` in, rows of `plan.output` out, in ascending order of windows."""

    def __init__(self, plan: Aggregate, limits: Limits | None = None) -> None:
        self._plan = plan
        self._limits = limits if plan.window.kind is WindowKind.LANDMARK else None
        self._window = plan.window
        layout = Layout(plan.input, (*plan.keys, *plan.details), plan.folds)
        self._layout = layout
        self._panes = tables_space("pane", layout)
        self._closing = closing_space()
        self._assembly = assembly_of(plan.window, layout)
        self._result = ResultRows(plan)
        self._keys_progress = tuple(_progressing(key) for key in plan.progress)

    @property
    def inputs(self) -> tuple[Port, ...]:
        return (Port(self._plan.input, (PANE,), self._plan.keys),)

    @property
    def outputs(self) -> tuple[Port, ...]:
        if self._window.kind is WindowKind.NONE:
            progressing = tuple(key.name for key in self._plan.progress)
        elif self._window.kind is WindowKind.LANDMARK:
            progressing = self._plan.output.names[1:2]
        else:
            progressing = self._plan.output.names[:2]
        return (Port(self._plan.output, progressing, self._plan.keys),)

    def on_batch(self, port: int, rows: Words, state: State, out: Out) -> None:
        closing = state.get(self._closing, ONLY)
        if closing is not None:
            rows = timely(rows, closing.frontier, out)
        rows = in_windows(rows, panes_of(rows), self._window)
        for pane, part in split(panes_of(rows), rows):
            table = state.get(self._panes, pane) or GroupTable(self._layout)
            table.merge(part)
            state.put(self._panes, pane, table)

    def on_promise(self, port: int, promise: Promise, state: State, out: Out) -> None:
        if len(promise.bounds) > 1:
            self._close_groups(promise, state, out)
            return
        frontier = promise.below(PANE)
        closing = state.get(self._closing, ONLY) or Closing(INT64_MIN, None)
        if frontier is None or frontier <= closing.frontier:
            return
        panes = Panes(self._panes, state, None if frontier == FOREVER else frontier)
        first = self._first(frontier, panes) if closing.window is None else closing.window
        end = self._end(frontier, panes)
        if first is not None and end is not None and first < end:
            self._close(first, end, panes, state, out)
            first = end
        state.put(self._closing, ONLY, Closing(frontier, first))
        if frontier == FOREVER:
            out.promise(0, Promise((), last=True))
        else:
            self._promise(frontier, first, out)

    def work(self, state: State, out: Out, budget: int) -> int:
        return 0

    def _close_groups(self, promise: Promise, state: State, out: Out) -> None:
        """Without windows: groups whose keys lie below all bounds leave before their pane has ended."""
        if self._window.kind is not WindowKind.NONE or not {b.column for b in promise.bounds} <= {*self._plan.keys}:
            return
        for pane in state.keys(self._panes):
            table = state.get(self._panes, pane) if within_reach(promise, pane, self._keys_progress) else None
            if table is None:
                continue
            gone = table.take(complete(promise, table.groups, self._layout.schema))
            if not len(gone):
                continue
            rows, lossy = self._result.of(gone, pane)
            out.rows(0, rows)
            if lossy.any():
                out.overflow(0, pane)
            state.put(self._panes, pane, table)

    def _end(self, frontier: int, panes: Panes) -> int | None:
        """The first window that stays open; at the end of the input the one behind the last that holds a tuple."""
        if frontier != FOREVER:
            return self._window.closed_by(frontier)
        return self._window.wids(panes.keys[-1]).stop if panes.keys else None

    def _first(self, frontier: int, panes: Panes) -> int | None:
        firsts = [] if frontier == FOREVER else [self._window.closed_by(frontier)]
        if panes.keys:
            firsts.append(self._window.wids(panes.keys[0]).start)
        return min(firsts, default=None)

    def _close(self, first: int, end: int, panes: Panes, state: State, out: Out) -> None:
        told = first
        for window in self._holding(first, end, panes):
            if told < window:
                out.closed(0, range(told, window), 0)
            table = self._assembly.table(window, panes, state)
            if self._limits is not None:
                self._limits.check_groups(len(table), self._plan.keys)
            rows, lossy = self._result.of(table, window)
            out.rows(0, rows)
            if lossy.any():
                out.overflow(0, window)
            out.closed(0, range(window, window + 1), self._tuples(window, table, panes))
            told = window + 1
            self._assembly.leave(self._window.first_needed(told), panes, state)
        if told < end:
            out.closed(0, range(told, end), 0)
        self._assembly.leave(self._window.first_needed(end), panes, state)

    def _holding(self, first: int, end: int, panes: Panes) -> Iterator[int]:
        """The windows from `first` up to `end` that hold a tuple, ascending: from the panes, not from the windows."""
        for pane in panes.keys:
            wids = self._window.wids(pane)
            yield from range(max(first, wids.start), min(end, wids.stop))
            first = max(first, min(end, wids.stop))

    def _tuples(self, window: int, table: GroupTable, panes: Panes) -> int:
        if self._window.kind is not WindowKind.LANDMARK:
            return table.tuples
        extent = self._window.extent(window)
        return sum(panes.table(pane).tuples for pane in panes.within(extent.start, extent.stop))

    def _promise(self, frontier: int, window: int | None, out: Out) -> None:
        """What can still come: rows of windows from `window` on; without windows, keys of panes from `frontier` on."""
        least = [(name, key.value(frontier)) for name, key in self._keys_progress]
        if self._window.kind is not WindowKind.NONE and window is not None:
            start_name, end_name = self._plan.output.names[:2]
            start = self._window.start(window)
            least = [] if start is None else [(start_name, start)]
            least.append((end_name, self._window.end(window)))
        for name, below in least:
            if INT64_MIN <= below <= INT64_MAX:
                out.promise(0, Promise((Bound(name, below=below),)))


def _progressing(key: Named) -> tuple[str, Progress]:
    found = progress(key.expr, (PANE,))
    if found is None:
        raise ValueError(f"{key.name} does not progress with the pane")
    return key.name, found
