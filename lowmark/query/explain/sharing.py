"""The part of `explain --beside` about queries that share a stage, or could, and what that saves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from lowmark.query.explain.joins import expected_rows
from lowmark.query.expr.print import span_text
from lowmark.query.plan.nodes import Join, QueryPlan
from lowmark.query.plan.shared_joins import shares
from lowmark.query.plan.sharing import CannotShare, share, unlike
from lowmark.wire.records.json_fields import Json

__all__ = ["describe_beside", "render_beside", "said_of_stages"]

_STATES = "its aggregates keep other states"


def describe_beside(plan: QueryPlan, others: Sequence[QueryPlan]) -> list[Json]:
    """For each other query: whether it shares this query's stage; if not, whether it would with the same `share` in the
    configuration; and if not, how the two differ."""
    return [
        {
            "query": other.name,
            "shares": _alike(plan, other),
            "can_share": not tuple(unlike(plan, other)),
            "because": () if _alike(plan, other) else tuple(unlike(plan, other)) or (_STATES,),
        }
        for other in others
    ]


def render_beside(plan: QueryPlan, others: Sequence[QueryPlan]) -> str:
    """The same for people, as lines of text, with what sharing saves."""
    lines = ["", "beside"]
    for other in others:
        if _alike(plan, other):
            said = "shares the stage"
        elif why := "; ".join(unlike(plan, other)):
            said = f"a stage of its own, since {why}"
        else:
            said = f"a stage of its own, since {_STATES}; shares one if both have the same `share`"
        lines.append(f"  {other.name}: {said}")
    alike = [other for other in others if _alike(plan, other)]
    if alike:
        lines.append(f"  saved: {_one_for_all(plan, len(alike) + 1, len(alike) + 1)}")
    lines += _joins(plan, alike)
    lines += _by_name(plan, [other for other in others if not tuple(unlike(plan, other))])
    return "\n".join(lines)


def _joins(plan: QueryPlan, others: Sequence[QueryPlan]) -> Iterator[str]:
    """The joins that run as one with joins of this query."""
    for found in shares([plan, *others]):
        if any(plan.name in names for names in found.queries):
            sizes = [" and ".join(dict.fromkeys(map(span_text, join.bands.sizes))) for join in found.plan.joins]
            each = [f"{', '.join(names)} ({size})" for names, size in zip(found.queries, sizes, strict=True)]
            yield f"  one join, in place of one each, for the windows of {_and(each)}, by {found.plan.scheduling.value}"
            kept = f"rows of {sizes[-1]} are kept in place of those of {_and(sizes)}"
            yield f"  saved: {kept}{_numbers(found.plan.joins)}; each pair is found once"


def _numbers(joins: Sequence[Join]) -> str:
    """The rows that one join keeps and those that one for each would, if the rates of the inputs are known."""
    ports = zip(*(join.inputs for join in joins), strict=True)
    rates = [rate for each in ports if (rate := next((port.rate for port in each if port.rate), None)) is not None]
    if len(rates) < len(joins[-1].inputs):
        return ""
    rows = [expected_rows(join, rates) for join in joins]
    return f" (about {rows[-1]:,.0f} in place of {sum(rows):,.0f})"


def _and(texts: Sequence[str]) -> str:
    return f"{', '.join(texts[:-1])} and {texts[-1]}"


def said_of_stages(plans: Sequence[QueryPlan]) -> Iterator[str]:
    """Which queries share a stage, and which could."""
    stages: dict[str, list[QueryPlan]] = {}
    for plan in plans:
        stages.setdefault(plan.stage.fingerprint, []).append(plan)
    for readers in stages.values():
        if len(readers) > 1:
            yield f"queries {_names(readers)} share a stage"
    alike: list[list[QueryPlan]] = []
    for plan, *_ in stages.values():
        found = next((group for group in alike if not any(tuple(unlike(one, plan)) for one in group)), None)
        if found is None:
            alike.append([plan])
        else:
            found.append(plan)
    for group in alike:
        if len(group) > 1:
            yield f"queries {_names(group)} could share a stage: give them the same `share`"


def _names(plans: Iterable[QueryPlan]) -> str:
    return ", ".join(plan.name for plan in plans)


def _by_name(plan: QueryPlan, others: Sequence[QueryPlan]) -> Iterator[str]:
    """What the queries that share no stage yet could save."""
    apart = {one.stage.fingerprint: one for one in (plan, *others)}
    if len(apart) == 1:
        return
    try:
        together, *_ = share([plan, *others])
    except CannotShare as error:
        yield f"  they cannot have the same `share`: {error}"
        return
    saved = _one_for_all(plan, len(others) + 1, len(apart))
    words = [sum(node.reduction.schema.words for node in one.stage.nodes) for one in (together, *apart.values())]
    listed = " + ".join(map(str, words[1:]))
    yield f"  with the same `share`: {saved}; each group sends {words[0]} words in place of {listed}"


def _one_for_all(plan: QueryPlan, queries: int, stages: int) -> str:
    nodes = len(plan.stage.nodes)
    return (
        f"{queries} queries take {_many(nodes, 'node')} and one topic, in place of "
        f"{_many(stages * nodes, 'node')} and {stages} topics"
    )


def _alike(plan: QueryPlan, other: QueryPlan) -> bool:
    return plan.stage.fingerprint == other.stage.fingerprint


def _many(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
