"""What the promises of a join's inputs say of its rows (Li 7.1, 7.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lowmark.query.plan import AT, Join
from lowmark.query.progressing import Progress, progress
from lowmark.wire.promises import FOREVER, Bound, Promise
from lowmark.wire.values import INT64_MAX, INT64_MIN

__all__ = ["Promising"]


class Promising:
    def __init__(self, plan: Join) -> None:
        self._bands = plan.bands
        self._progress: list[tuple[int, str, Progress]] = []
        for number, port in enumerate(plan.inputs):
            for named in port.progress:
                found = progress(named.expr, (AT,))
                if found is None:
                    raise ValueError(f"{named.name} does not progress with the window's attribute")
                self._progress.append((number, named.name, found))

    @property
    def columns(self) -> tuple[str, ...]:
        """Of the output, those on which there are promises."""
        return tuple(name for _, name, _ in self._progress)

    def promises(self, before: Sequence[int], bounds: Sequence[int]) -> Iterator[Promise]:
        """What can be said now that could not be before. The bounds are times of the inputs."""
        if all(bound == FOREVER for bound in bounds):
            yield Promise((), last=True)
            return
        known, least = self._bands.output(before), self._bands.output(bounds)
        for port, name, found in self._progress:
            if least[port] > known[port] and (bound := _bound(name, found, least[port])) is not None:
                yield Promise((bound,))
        yield from self._joint(bounds)

    def _joint(self, bounds: Sequence[int]) -> Iterator[Promise]:
        """A later row has a later row in it, so it is not before all bounds. Worth telling where there can be one."""
        if INT64_MIN in bounds or FOREVER in bounds or not self._bands.together([bound - 1 for bound in bounds]):
            return
        firsts = {port: (name, found) for port, name, found in reversed(self._progress)}
        if len(firsts) < len(bounds):
            return
        made = [_bound(*firsts[port], bound) for port, bound in enumerate(bounds)]
        yield Promise(tuple(bound for bound in made if bound is not None))


def _bound(name: str, found: Progress, least: int) -> Bound | None:
    """None: the value lies outside of what there is, and bounds nothing."""
    value = found.value(least)
    return Bound(name, below=value) if INT64_MIN < value <= INT64_MAX else None
