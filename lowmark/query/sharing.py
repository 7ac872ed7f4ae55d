"""Which queries share a stage: one node in the capture processes, one pass over packets, one topic of partials.

They do where their fingerprints agree, and they are read by one bucket state each: windows, HAVING, strategies and the
selected columns may differ, as long as panes, keys, conditions and the aggregates' states are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lowmark.query.plan import Node, QueryPlan
from lowmark.wire.fields import Json

__all__ = ["describe_beside", "render_beside"]


def describe_beside(plan: QueryPlan, others: Sequence[QueryPlan]) -> list[Json]:
    """Of each other query whether it shares the stage of this one, and if not, in what they differ."""
    return [
        {"query": other.name, "shares": not (why := tuple(_differences(plan, other))), "because": why}
        for other in others
    ]


def render_beside(plan: QueryPlan, others: Sequence[QueryPlan]) -> str:
    """The same for people, as lines of text; and what sharing saves."""
    alike = [other for other in others if not tuple(_differences(plan, other))]
    lines = ["", "beside"]
    for other in others:
        why = "; ".join(_differences(plan, other))
        lines.append(f"  {other.name}: " + (f"a stage of its own, since {why}" if why else "shares the stage"))
    nodes, queries = len(plan.stage.nodes), len(alike) + 1
    if alike:
        lines.append(f"  saved: {queries} queries take {_many(nodes, 'node')} and one topic, in place of "
                     f"{_many(queries * nodes, 'node')} and {queries} topics")  # fmt: skip
    return "\n".join(lines)


def _many(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _differences(one: QueryPlan, other: QueryPlan) -> Iterator[str]:
    if one.stage.fingerprint == other.stage.fingerprint:
        return
    if len(one.stage.nodes) != len(other.stage.nodes):
        yield "they have other numbers of nodes"
        return
    if one.stage.buckets != other.stage.buckets:
        yield f"it has {_many(other.stage.buckets, 'bucket')}, not {one.stage.buckets}"
    for mine, theirs in zip(one.stage.nodes, other.stage.nodes, strict=True):
        yield from _of_nodes(mine, theirs)


def _of_nodes(mine: Node, theirs: Node) -> Iterator[str]:
    a, b = mine.reduction, theirs.reduction
    said = False
    for differs, text in (
        (mine.streams != theirs.streams, "its streams differ"),
        (a.where != b.where, "its conditions differ"),
        (a.pane != b.pane, "its panes differ"),
        ((a.keys, a.grouped, mine.bucket_by) != (b.keys, b.grouped, theirs.bucket_by), "its groups differ"),
        ((a.folds, a.details) != (b.folds, b.details), "its aggregates keep other states"),
    ):
        if differs:
            yield text
            said = True
    if not said and mine != theirs:
        yield "its table of texts differs"
