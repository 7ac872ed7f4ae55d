"""Makes the outputs of a query for late partials: separate late rows, or corrections of closed windows.

A correction for a window is output once the window has closed and the late partials have come. Each late partial is in
one correction of every window that would have held it, including windows before the first completed one, which have no
rows. While windows are open, late groups wait in one piece of state per pane.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from highlevel.groups.group_table import GroupTable
from highlevel.groups.split import split
from highlevel.groups.state import tables_space
from highlevel.interface import Space, State, Words
from highlevel.operators.late_view import LateView
from highlevel.progress.bucket_identity import BucketIdentity
from highlevel.verdicts.window_sequence import WindowRun
from lowmark.query.optimize.late_corrections import merges
from lowmark.query.options import Late
from lowmark.query.plan.nodes import NodeInput, QueryPlan
from lowmark.query.windows.window import Window
from lowmark.wire.records.partials import PANE_WORD
from lowmark.wire.records.verdicts import Correction, LateRow, Merge, WindowSpan
from lowmark.wire.rows.values import show

__all__ = ["LateRows"]

_GROUPS = 256
"""Most groups in one correction, so that it stays well below the limit of a record."""


class LateRows:
    """Late rows of one query in one bucket. If the query only counts late tuples, it outputs nothing."""

    def __init__(self, plan: QueryPlan, place: BucketIdentity, state: State) -> None:
        self._whose = plan.name, place.generation, place.bucket
        self._state = state
        read = (
            node.name for node in plan.stage.nodes if any(NodeInput(node.name) in step.inputs for step in plan.steps)
        )
        self._views = {} if plan.late is Late.COUNT else {name: LateView(plan, name) for name in read}
        self._merge: Mapping[str, Merge] | None = merges(plan) if plan.late is Late.CORRECT else None
        self._spaces: dict[str, Space[GroupTable]] = {}
        if self._merge is not None:
            self._spaces = {
                name: tables_space(f"late.{plan.name}.{name}", view.layout) for name, view in self._views.items()
            }

    def take(
        self, node: str, source: str, partials: Words, open_from: int | None
    ) -> Iterator[LateRow | Correction]:  # fmt: skip
        """Take late partials of a node, in any panes. Windows below `open_from` were output already; None: no window
        was."""
        view = self._views.get(node)
        if view is None:
            return
        for pane, part in split(partials[:, PANE_WORD].view(np.int64), partials):
            if self._merge is None:
                yield from self._emitted(view, source, pane, part)
            else:
                yield from self._corrected(node, pane, part, open_from)

    def closed(self, spans: Sequence[WindowRun], first: int | None) -> Iterator[Correction]:
        """Output the corrections that waited for these windows, which were output, or for windows before the first.
        `first` is the first window of all."""
        if not spans:
            return
        start, stop = spans[0].first, spans[-1].to + 1
        for node, space in self._spaces.items():
            view = self._views[node]
            for pane in self._state.keys(space):
                table = self._state.get(space, pane)
                assert table is not None, "a listed piece is there"
                wids = self._wids(view, pane)
                since = wids.start if start == first else max(wids.start, start)
                yield from self._corrections(view, range(since, min(wids.stop, stop)), table)
                if wids.stop <= stop:
                    self._state.drop(space, pane)

    def _emitted(self, view: LateView, source: str, pane: int, part: Words) -> Iterator[LateRow]:
        found = view.of(part)
        windows, start, end = None, None, None
        if view.window is not None:
            wids = view.window.wids(pane)
            if not wids:
                return  # the pane lies between windows whose SLIDE is longer than their RANGE
            windows, start, end = _named(view.window, wids)
        for row, tuples in zip(found.rows, found.tuples, strict=True):
            yield LateRow(*self._whose, source, windows, start, end, tuples, row)

    def _corrected(self, node: str, pane: int, part: Words, open_from: int | None) -> Iterator[Correction]:
        view, space = self._views[node], self._spaces[node]
        table = GroupTable(view.layout)
        table.merge(part)
        wids = self._wids(view, pane)
        if open_from is not None:
            yield from self._corrections(view, range(wids.start, min(wids.stop, open_from)), table)
        if wids and (open_from is None or open_from < wids.stop):
            waiting = self._state.get(space, pane) or GroupTable(view.layout)
            waiting.merge_table(table)
            self._state.put(space, pane, waiting)

    def _corrections(self, view: LateView, windows: range, table: GroupTable) -> Iterator[Correction]:
        assert self._merge is not None
        assert view.window is not None, "corrected are windows"
        if not windows:
            return
        found = view.of_groups(table)
        span, start, end = _named(view.window, windows)
        assert start is not None, "landmark windows are not corrected"
        for at in range(0, len(found.rows), _GROUPS):
            rows, tuples = found.rows[at : at + _GROUPS], sum(found.tuples[at : at + _GROUPS])
            yield Correction(*self._whose, span, start, end, tuples, self._merge, rows)

    def _wids(self, view: LateView, pane: int) -> range:
        assert view.window is not None, "corrected are windows"
        return view.window.wids(pane)


def _named(window: Window, wids: range) -> tuple[WindowSpan, int | str | None, int | str]:
    kind, last = window.axis.kind, wids.stop - 1
    start = window.start(wids.start)
    return (
        WindowSpan(wids.start, last),
        None if start is None else show(kind, start),
        show(kind, window.end(last)),
    )
