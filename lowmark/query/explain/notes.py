"""The notes of `explain` on the choices that a plan made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod

from lowmark.query.aggregates.calls import function, kept_columns
from lowmark.query.expr.print import length_text, span_text
from lowmark.query.options import Limits
from lowmark.query.plan.nodes import Aggregate, Counted, Join, Number, Step
from lowmark.query.plan.planner import Halves
from lowmark.query.windows.window import Window, WindowKind

__all__ = ["gaps", "notes"]


def notes(halves: Halves, wanted: int, limits: Limits, ends: bool) -> tuple[str, ...]:
    """Sentences without a full stop. `wanted`: the number of buckets asked for; `ends`: LIMIT ends the query."""
    ending = ("the query ends with its LIMIT, in `lowmark query`: a job refuses it",) if ends else ()
    return tuple(dict.fromkeys((*ending, *gaps(halves.steps), *_buckets(halves, wanted), *_growth(halves, limits))))


def gaps(steps: Iterable[Step]) -> tuple[str, ...]:
    """Warnings that windows leave gaps. They are always shown, because no row of the answer reveals a gap."""
    windows = [step.plan.window for step in steps if isinstance(step.plan, Aggregate | Counted)]
    return tuple(dict.fromkeys(
        f"windows have gaps: of each {_length(window, window.slide)} of {window.axis.attribute} the last "
        f"{_length(window, window.size)} are in one, and what comes before is in none (RANGE is less than SLIDE)"
        for window in windows
        if window.kind is WindowKind.SLIDING and window.size < window.slide
    ))  # fmt: skip


def _length(window: Window, panes: int) -> str:
    return length_text(panes * window.axis.unit, window.axis.kind)


def _buckets(halves: Halves, wanted: int) -> Iterator[str]:
    if halves.reasons and wanted > 1:
        yield f"one bucket in place of {wanted}: {'; '.join(halves.reasons)}"


def _growth(halves: Halves, limits: Limits) -> Iterator[str]:
    for step in halves.steps:
        match step.plan:
            case Aggregate(window=window) as plan if window.kind is WindowKind.LANDMARK and kept_columns(plan):
                yield from _errors(plan)
                yield f"{_grows(kept_columns(plan))}: a landmark window forgets none; {_stops(limits)}"
            case Aggregate(details=details) as plan if details:
                yield from _details(plan)
            case Join(equal=()):
                yield "every row of one input meets all rows of the others in its window: the join has no equality"
            case Number(number="row_num"):
                yield "nothing is filtered below row_num: it numbers every packet of the stream"
            case Number():
                yield "tuples wait until all earlier ones are known to have arrived"
            case Counted(partition=partition, slides=slides):
                if slides is not None:
                    yield "state grows with the different RATTR in a window: a bin for each, with its groups"
                yield from _details(step.plan)
                if partition and limits.expire_idle_ns is None:
                    yield f"{_grows(partition)}: each goes on counting its tuples; {_stops(limits)}"
                elif partition:
                    yield from _expiry(step.plan, limits.expire_idle_ns)
                    yield _stops(limits)


def _grows(keys: tuple[str, ...]) -> str:
    return f"state grows with every new ({', '.join(keys)})"


def _expiry(plan: Counted, idle_ns: int | None) -> Iterator[str]:
    if idle_ns is None:
        return
    of = ", ".join(plan.partition)
    closes = "" if plan.slides else "its windows close as at the end, and "
    yield f"a ({of}) without a tuple for more than {span_text(idle_ns)} of stream time is dropped (expire_idle)"
    if plan.slides is None or plan.window.slide > 1:
        yield f"then {closes}it is counted anew when it comes back: from there on its bucket says lossy: numbering"


def _stops(limits: Limits) -> str:
    return f"the query stops at more than {limits.groups:,} in a bucket (limits.groups)"


def _errors(plan: Aggregate | Counted) -> Iterator[str]:
    for call in plan.calls:
        if error := function(call.function).error:
            yield f"{call.column.name} {error}"


def _details(plan: Aggregate | Counted) -> Iterator[str]:
    """What groups are split by, for calls whose value cannot be computed from one row a group."""
    yield from _errors(plan)
    calls = [(call, function(call.function)) for call in plan.calls if call.details]
    most = {call.details: called.most(plan.input.column(call.details[0]).kind) for call, called in calls if called.most}
    if any(call.details not in most for call, _ in calls):
        yield "state grows with the distinct values in a window: a holistic aggregate keeps a count of each"
    elif most:
        rows = " · ".join(f"{number:,}" for number in most.values())
        size = 8 * (plan.input.words - 1)  # a group's row has no pane
        room = _bytes(prod(most.values()) * size)
        each = ", one for each combination: in queries of their own they would add up" if len(most) > 1 else ""
        yield f"state of a group in each pane: at most {rows} rows of {size} bytes ({room}){each}"


def _bytes(number: int) -> str:
    units = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
    power = min((number.bit_length() - 1) // 10, len(units)) or 1
    shown = number / 1024**power
    return f"{shown:,.{0 if shown >= 10 else 1}f} {units[power - 1]}"
