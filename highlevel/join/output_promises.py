"""Converts promises of a join's inputs into promises about its rows (Li 7.1, 7.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lowmark.query.plan.nodes import AT, Extreme, Join
from lowmark.query.windows.progressing import Progress, progress
from lowmark.wire.records.punctuations import Bound, Promise
from lowmark.wire.rows.values import FOREVER, INT64_MAX, INT64_MIN, NEVER

__all__ = ["Promising"]


class Promising:
    def __init__(self, plan: Join) -> None:
        self._bands = plan.bands
        self._extremes = plan.extremes
        self.progress: dict[str, dict[int, Progress]] = {}  # by column, with each input that shows it
        for number, port in enumerate(plan.inputs):
            for named in port.progress:
                found = progress(named.expr, (AT,))
                if found is None:
                    raise ValueError(f"{named.name} does not progress with the window's attribute")
                self.progress.setdefault(named.name, {})[number] = found

    @property
    def columns(self) -> tuple[str, ...]:
        """The output columns on which there are promises."""
        return (*self.progress, *(extreme.name for extreme in self._extremes))

    def promises(self, before: Sequence[int], bounds: Sequence[int]) -> Iterator[Promise]:
        """The new promises once the inputs have these bounds, which are times."""
        if all(bound == FOREVER for bound in bounds):
            yield Promise((), last=True)
            return
        known, least = self._bands.output(before), self._bands.output(bounds)
        for name, ways in self.progress.items():
            moved = any(least[port] > known[port] for port in ways)
            if moved and (bound := _bound(name, min(found.value(least[port]) for port, found in ways.items()))):
                yield Promise((bound,))
        for extreme in self._extremes:
            told, low = (self._least_of(extreme, times) for times in (before, bounds))
            if low > told and (made := _bound(extreme.name, low)):
                yield Promise((made,))
        yield from self._joint(bounds)

    def least(self, times: Sequence[int]) -> Iterator[Bound]:
        """Bounds on the columns of rows that have these times of the inputs, or later ones."""
        known = [time > NEVER for time in times]
        found = {
            name: min(way.value(times[port]) for port, way in ways.items())
            for name, ways in self.progress.items()
            if all(known[port] for port in ways)
        }
        for extreme in self._extremes:
            choose = max if extreme.greatest else min
            if all(name in found for name in extreme.of):
                found[extreme.name] = choose(found[name] for name in extreme.of)
        for name, value in found.items():
            if (bound := _bound(name, value)) is not None:
                yield bound

    def _least_of(self, extreme: Extreme, bounds: Sequence[int]) -> int:
        """The least possible value of the greatest or least time in later output rows. Each of them contains a later
        row of some input."""
        choose = max if extreme.greatest else min
        ways = [(port, way) for name in extreme.of for port, way in self.progress[name].items()]
        return min(choose(way.value(times[port]) for port, way in ways) for times in self._bands.earliest(bounds))

    def _joint(self, bounds: Sequence[int]) -> Iterator[Promise]:
        """Every later output row contains a later row of some input, so it is not before all bounds. This is promised
        only if a row before all bounds is possible; rows of ended inputs may be in any output row."""
        if INT64_MIN in bounds:
            return
        if FOREVER not in bounds and not self._bands.together([bound - 1 for bound in bounds]):
            return
        firsts: dict[int, tuple[str, Progress]] = {}
        for name, ways in self.progress.items():
            if len(ways) == 1:  # if several inputs show a column, its row's input is unknown
                ((port, found),) = ways.items()
                firsts.setdefault(port, (name, found))
        if len(firsts) < len(bounds):
            return
        made = [_joint_bound(name, found, bounds[port]) for port, (name, found) in sorted(firsts.items())]
        if None not in made:
            yield Promise(tuple(bound for bound in made if bound is not None))


def _joint_bound(name: str, found: Progress, time: int) -> Bound | None:
    return Bound(name, below=FOREVER) if time == FOREVER else _bound(name, found.value(time))


def _bound(name: str, value: int) -> Bound | None:
    """A bound on a column; None: the value is outside int64 and bounds nothing."""
    return Bound(name, below=value) if INT64_MIN < value <= INT64_MAX else None
