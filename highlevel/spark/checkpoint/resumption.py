"""From when on a new generation needs the partials of a stage: those of windows that no former one has completed.

A stage has such a time if all of its queries have windows over time whose oldest tuple follows from their end, and all
of its sources are live. A live source's record is not appended much earlier than the time of its tuples (`is_future`),
so the time of append says where to begin. Sources promise at least each `_HEARD_WITHIN_NS`: each has made a promise
below the needed time by then. If one has not, its windows say `lossy: gap` up to its first promise.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from highlevel.progress.future_records import MAX_AHEAD_NS
from highlevel.progress.promises.reach import Reach, numbering
from highlevel.spark.checkpoint.checkpoint import BucketKey, Completed
from highlevel.verdicts.loss_routes import answer_step
from lowmark.query.plan.nodes import Aggregate, Finish, Gather, Join, QueryPlan, Reduce, Send, StepPlan, Totals
from lowmark.query.windows.window import Window, WindowKind
from lowmark.wire.records.registration import SourceKind
from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.values import FOREVER, NEVER

__all__ = ["READ_AHEAD_NS", "Lookback", "lookbacks", "needed_from"]

_HEARD_WITHIN_NS = 60 * 10**9

READ_AHEAD_NS = MAX_AHEAD_NS + _HEARD_WITHIN_NS
"""Records appended earlier than this before the needed time are not read."""

_FAR = 1_000


@dataclass(frozen=True, slots=True)
class Lookback:
    """A query, and how long before a promise that closes a window the window's oldest tuple can lie."""

    plan: QueryPlan
    span_ns: int

    def needed_from(self, bound: int) -> int | None:
        """The least time of tuples that windows need which end after the bound. None: their times do not follow from
        their ends alone."""
        assert self.plan.window is not None
        window, reach = self.plan.window, Reach(self.plan)
        first = window.first_after(bound) + 1  # the window after it is to be the first open one
        far = window.end(first + _FAR) - window.end(first)
        times = []
        for node in reach.nodes:
            upto = reach.needed(node.name, first)
            if upto == FOREVER or reach.needed(node.name, first + _FAR) - upto != far:
                return None
            times.append(upto)
        return min(times) - self.span_ns


def lookbacks(
    plans: Iterable[QueryPlan], roster: Mapping[str, tuple[str, ...]], kinds: Mapping[str, SourceKind]
) -> dict[str, tuple[Lookback, ...]]:
    """By stage whose sources are all live: its queries, or none if it has to be read from its beginning. `roster` has
    the sources of each stream, `kinds` those that are not live."""
    readers: dict[str, list[QueryPlan]] = {}
    for plan in plans:
        readers.setdefault(plan.stage.fingerprint, []).append(plan)
    found = {}
    for stage, of in readers.items():
        if all(_is_live(plan, roster, kinds) for plan in of):
            each = tuple(lookback for plan in of if (lookback := _lookback(plan)) is not None)
            found[stage] = each if len(each) == len(of) else ()
    return found


def needed_from(
    stages: Mapping[str, Sequence[Lookback]], completed: Mapping[BucketKey, Completed],
    shortened: Mapping[BucketKey, int],
) -> dict[str, int]:  # fmt: skip
    """By stage: the least time of tuples that are needed. Stages that are read from their beginning are left out, such
    as those of which a bucket has not completed anything. `shortened`: by stage and bucket whose beginning Kafka has
    deleted, when the first record that is left was appended: what sources had promised before is not known then,
    either."""
    found = {
        stage: max(first_ns for (of, _), first_ns in shortened.items() if of == stage) + _HEARD_WITHIN_NS
        for stage in stages.keys() & {stage for stage, _ in shortened}
    }
    for stage, queries in stages.items():
        times = [_needed_from(each, completed) for each in queries]
        known = [time for time in times if time is not None]
        if known and len(known) == len(times):
            found[stage] = max(min(known), found.get(stage, NEVER))
    return found


def _needed_from(lookback: Lookback, completed: Mapping[BucketKey, Completed]) -> int | None:
    plan = lookback.plan
    known = [completed.get((plan.name, bucket)) for bucket in range(plan.stage.buckets)]
    bounds = [NEVER if each is None else each.bound for each in known]
    return None if NEVER in bounds or FOREVER in bounds else lookback.needed_from(min(bounds))


def _is_live(plan: QueryPlan, roster: Mapping[str, Collection[str]], kinds: Mapping[str, SourceKind]) -> bool:
    streams = {stream for node in plan.stage.nodes for stream in node.streams}
    return not any(source in kinds for stream in streams for source in roster[stream])


def _lookback(plan: QueryPlan) -> Lookback | None:
    if answer_step(plan) is None or numbering(plan) is not None:
        return None
    spans = [_span_ns(step.plan) for step in plan.steps]
    for pane in (node.reduction.pane for node in plan.stage.nodes):
        spans.append(pane.width if pane.attribute == "ts" and not pane.steps else None)
    known = [span for span in spans if span is not None]
    return Lookback(plan, sum(known)) if len(known) == len(spans) else None


def _span_ns(step: StepPlan) -> int | None:
    """How much older the rows may be that a step still needs; None: it may need all."""
    match step:
        case Aggregate(window=window) | Gather(window=window) | Totals(window=window):
            return _length_ns(window)
        case Join(oblivious=None):
            return 2 * sum(step.bands.sizes)
        case Finish() | Reduce() | Send():
            return 0
    return None


def _length_ns(window: Window) -> int | None:
    if window.kind is not WindowKind.SLIDING or window.axis.kind is not Kind.TIME:
        return None
    return (window.size + window.slide) * window.axis.unit
