"""The parts that all joins share: a port for each input, kept rows, and promises."""

from __future__ import annotations

from collections.abc import Mapping

from highlevel.interface import MarkOut, Out, State, Words
from highlevel.join.kept_rows import Kept
from highlevel.join.marks import JoinMarks
from highlevel.join.output import Combine
from highlevel.join.output_promises import Promising
from highlevel.row_marks import RowMark
from lowmark.query.expr.evaluate import Bools, evaluate, holds
from lowmark.query.plan.nodes import Join

__all__ = ["WindowJoin"]


class WindowJoin:
    def __init__(self, plan: Join) -> None:
        self._plan = plan
        self._bands = plan.bands
        self._schemas = [port.schema for port in plan.inputs]
        self._kept = Kept(plan)
        self._combine = Combine(plan)
        self._promising = Promising(plan)
        self._marks = JoinMarks(plan, self._promising)

    def _passing(self, pairs: Words, parts: Mapping[int, Words], out: Out) -> Bools | None:
        """Which combinations pass the condition, given as the joined rows `pairs`; None: there is no such
        combination."""
        if self._plan.where is None:
            return None
        values = evaluate(self._plan.where, pairs, self._plan.output)
        if values.lost is not None and values.lost.any():
            out.mark(0, self._marks.overflow(self._kept.times(parts, values.lost)))
        return holds(values)

    def _emit(self, parts: Mapping[int, Words], out: Out) -> None:
        """Output the combinations of these rows that pass the condition."""
        pairs = self._combine.rows(parts)
        passing = self._passing(pairs, parts, out)
        if passing is not None:
            pairs = pairs[passing]
        if len(pairs):
            out.rows(0, pairs)

    def on_mark(self, port: int, mark: RowMark, state: State, out: MarkOut) -> None:
        out.mark(0, self._marks.of_input(port, mark))

    @property
    def bin_width(self) -> int:
        """The time covered by one piece of kept rows, in ns: key k begins at k times as much."""
        return self._kept.width
