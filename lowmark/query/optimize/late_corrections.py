"""Which queries can correct the results of closed windows, and how each of their aggregates is corrected.

A correction holds an aggregate's value over the late tuples alone. It tells how the window's value changes where the
two values merge: counts and sums add up, the lesser of two minima stays. It tells nothing if rows of the window
were left out, if another stage has read the window's rows, or if values alone do not merge.
"""

from __future__ import annotations

from collections.abc import Mapping

from lowmark.query.expr.expressions import Field
from lowmark.query.plan.nodes import Aggregate, Counted, Finish, NodeInput, Number, QueryPlan
from lowmark.query.windows.window import WindowKind
from lowmark.wire.records.verdicts import Merge

__all__ = ["CannotCorrect", "merges"]

_MERGES: Mapping[str, Merge] = {
    "count": Merge.ADD,
    "sum": Merge.ADD,
    "min": Merge.LEAST,
    "max": Merge.GREATEST,
    "bit_and": Merge.AND,
    "bit_or": Merge.OR,
}
_EMIT = '"emit" sends the late rows themselves'


class CannotCorrect(Exception):
    """Corrections would be wrong: `reason` is a sentence for the query's author, `hint` says what would be right."""

    def __init__(self, reason: str, hint: str = _EMIT) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


def merges(plan: QueryPlan) -> Mapping[str, Merge]:
    """How changes merge, for each column of the answer that is an aggregate. CannotCorrect says why none can."""
    aggregate, finish = _only_steps(plan)
    if aggregate.window.kind is WindowKind.NONE:
        raise CannotCorrect("its groups have no window that a correction could name", "give it one: [RANGE 1 minute]")
    if aggregate.window.kind is WindowKind.LANDMARK:
        raise CannotCorrect("a tuple of a landmark window is in all later windows too")
    for clause, there in (
        ("HAVING", finish.having is not None),
        ("LIMIT", finish.limit is not None),
        ("DISTINCT", finish.distinct),
    ):
        if there:
            raise CannotCorrect(f"{clause} leaves rows out, which late tuples might bring back")
    if finish.totals:
        raise CannotCorrect("late tuples of one group change total() in the rows of all")
    found = {}
    calls = {call.column.name: call for call in aggregate.calls}
    missing = dict.fromkeys(aggregate.keys)
    for column in finish.columns:
        name = column.expr.name if isinstance(column.expr, Field) else None
        if name in missing:
            del missing[name]
        elif name in calls:
            found[column.name] = _merge(calls[name].function, bool(calls[name].details), column.name)
        elif name not in ("window_start", "window_end", *aggregate.keys):
            raise CannotCorrect(f"column {column.name} computes with what a group holds", "select its parts")
    if missing:
        raise CannotCorrect(f"its rows do not show {', '.join(missing)}, so they cannot be told apart", "select it too")
    return found


def _only_steps(plan: QueryPlan) -> tuple[Aggregate, Finish]:
    match plan.steps:
        case (first, second) if isinstance(first.plan, Aggregate) and isinstance(second.plan, Finish):
            if all(isinstance(source, NodeInput) for source in first.inputs):
                return first.plan, second.plan
    if len(plan.steps[-1].inputs) > 1:
        raise CannotCorrect("it is a union: groups of its members may look alike, and a correction would not say whose")
    if any(isinstance(step.plan, Number | Counted) for step in plan.steps):
        raise CannotCorrect("it counts tuples in their order, and a late one changes the numbers of those behind it")
    if not any(isinstance(step.plan, Aggregate) for step in plan.steps):
        raise CannotCorrect("it aggregates nothing: a late tuple changes no row")
    raise CannotCorrect("it has stages that read each other: what one has made of a window's rows stands")


def _merge(function: str, holistic: bool, column: str) -> Merge:
    if holistic:
        raise CannotCorrect(f"{column}: {function} needs all values of the window again")
    if function not in _MERGES:
        hint = "select sum and count, whose quotient it is" if function == "avg" else _EMIT
        raise CannotCorrect(f"{column}: its value over late tuples alone does not say how the window's changes", hint)
    return _MERGES[function]
