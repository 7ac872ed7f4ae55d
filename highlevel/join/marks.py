"""Maps marks on a join's inputs to its output, whose rows also have the times of the partners."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from highlevel.join.output_promises import Promising
from highlevel.row_marks import EVERYWHERE, Extent, RowMark, through
from lowmark.query.plan.nodes import Join
from lowmark.query.windows.progressing import Progress
from lowmark.wire.records.partials import PANE
from lowmark.wire.records.verdicts import Reason, Verdict
from lowmark.wire.rows.values import FOREVER, NEVER

__all__ = ["JoinMarks"]


class JoinMarks:
    """Every column of the output gets the extent of all times, because a row of the answer is before a bound as soon as
    one of its times is."""

    def __init__(self, plan: Join, promising: Promising) -> None:
        self._plan = plan
        self._progress: Mapping[str, Mapping[int, Progress]] = promising.progress

    def of_input(self, port: int, mark: RowMark) -> RowMark:
        """A mark on rows of an input as one on rows of the output."""
        bands, of = self._plan.bands, self._plan.inputs[port]
        start, stop = (each if each in EVERYWHERE else each * of.unit for each in mark.extents.get(PANE, EVERYWHERE))
        own = mark.extents.get(of.attribute, EVERYWHERE)
        start, stop = max(start, own[0]), min(stop, own[1])
        others = [other for other in range(len(self._plan.inputs)) if other != port]
        first, last = start, stop
        if start != NEVER:
            first = min(start, *(bands.partners(port, start, other)[0] for other in others))
        if stop != FOREVER:
            last = max(stop, *(bands.partners(port, stop - 1, other)[1] for other in others))
        return replace(mark, extents=self._shown((first, last)), times=(first, stop), joined=True)

    def overflow(self, times: Extent) -> RowMark:
        """A mark on rows of the output whose times all lie in this extent."""
        return replace(self.of_rows(Verdict(frozenset({Reason.OVERFLOW})), times), shifts=True)

    def of_rows(self, verdict: Verdict, times: Extent) -> RowMark:
        """As `overflow`, with any verdict."""
        return RowMark(verdict, self._shown(times), times, joined=True)

    def _shown(self, times: Extent) -> dict[str, Extent]:
        found: dict[str, Extent] = {}
        for name, ways in self._progress.items():
            each = [through(times, way) for way in ways.values()]
            found[name] = min(start for start, _ in each), max(stop for _, stop in each)
        for extreme in self._plan.extremes:
            each = [found[name] for name in extreme.of]
            found[extreme.name] = min(start for start, _ in each), max(stop for _, stop in each)
        return found
