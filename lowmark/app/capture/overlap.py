"""Former stages of changed queries: captures serve them beside the new ones for `job.overlap`.

Captures and job take a changed query at different times. While both stages are served, the job can tell the last window
of the former text and the first whole one of the new text, with none missing between them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lowmark.query.plan.nodes import QueryPlan

__all__ = ["Overlap"]


@dataclass(frozen=True, slots=True)
class _Former:
    plan: QueryPlan
    until_s: float


class Overlap:
    """`now_s`: any clock that does not step."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._former: tuple[_Former, ...] = ()

    @property
    def plans(self) -> list[QueryPlan]:
        """The former plans that are still served."""
        return [each.plan for each in self._former]

    @property
    def is_over(self) -> bool:
        """Whether a former plan has been served for the whole overlap."""
        return any(each.until_s <= self._now_s() for each in self._former)

    def after(self, were: Sequence[QueryPlan], are: Sequence[QueryPlan], length_s: float) -> Overlap:
        """The overlap when queries change. A query that is dropped has none, nor has one that comes back to a former
        stage."""
        now_s = self._now_s()
        former = [each for each in self._former if each.until_s > now_s]
        former += [_Former(plan, now_s + length_s) for plan in were]
        now = {plan.name: plan.stage.fingerprint for plan in are}
        read = {*now.values()}
        found = Overlap(self._now_s)
        found._former = tuple(
            each for each in former if each.plan.name in now and each.plan.stage.fingerprint not in read
        )
        return found
