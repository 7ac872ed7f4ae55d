"""What `explain` says of a join."""

from __future__ import annotations

from collections.abc import Iterator

from lowmark.query.plan import Join
from lowmark.query.printing import span_text, text_of
from lowmark.wire.fields import Json

__all__ = ["describe_join"]


def describe_join(plan: Join) -> dict[str, Json]:
    """Times are those of the attributes that the inputs' windows go over."""
    return {
        "joins": [port.label for port in plan.inputs],
        "kind": plan.kind.value.lower(),
        "window": list(_windows(plan)),
        "equal": [" = ".join(_members(plan, columns)) for columns in plan.equal],
        "matches": None if plan.where is None else text_of(plan.where, plan.output.strings),
        "state": list(_state(plan)),
    }


def _members(plan: Join, columns: tuple[str | None, ...]) -> Iterator[str]:
    for port, column in zip(plan.inputs, columns, strict=True):
        if column is not None:
            yield dict(port.output).get(column, f"{port.label}.{column}")


def _windows(plan: Join) -> Iterator[str]:
    if plan.tumbling:
        yield f"tumbling, {span_text(plan.inputs[0].size)}"
        return
    for j, other in enumerate(plan.inputs):
        for port in plan.inputs[:j]:
            mine = f"{port.label}.{port.attribute}"
            low, high = span_text(other.size), span_text(port.size)
            yield f"{mine} - {low} <= {other.label}.{other.attribute} < {mine} + {high}"


def _state(plan: Join) -> Iterator[str]:
    """How long a row of each input is kept."""
    for of, port in enumerate(plan.inputs):
        others = [n for n in range(len(plan.inputs)) if n != of]
        if plan.tumbling:
            until = f"the others have passed the end of its {span_text(port.size)}"
        else:
            longest = max(plan.bands.reach(of, other)[1] // 1000 * 1000 for other in others)
            until = f"the others are {span_text(longest)} past it"
        yield f"a row of {port.label} until {until}"
