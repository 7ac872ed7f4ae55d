"""The part of `explain` about the strategy of an aggregate: which one, why, and what each would cost."""

from __future__ import annotations

from lowmark.query.optimize.window_strategy import Weighed, can_choose, panes_pay, partials_of, tuples_of, weigh
from lowmark.query.options import Rates, Strategy
from lowmark.query.plan.nodes import Aggregate
from lowmark.wire.records.json_fields import Json
from lowmark.wire.rows.schema import Kind

__all__ = ["describe_strategy"]


def describe_strategy(plan: Aggregate, asked: Strategy, rates: Rates) -> dict[str, Json]:
    """The strategies and their costs; empty for windows that leave no choice."""
    if not can_choose(plan):
        return {}
    weighed = weigh(plan.window, plan.folds, rates, bool(plan.closes))
    return {
        "strategy": plan.strategy.value,
        "chosen": _reason(plan, asked),
        "assumes": _assumed(plan, rates),
        "costs": [f"{item.strategy.value} {_short(item.cost)} merges (eq. {item.equation})" for item in weighed],
        **_paying(plan, weighed[0], rates),
        "keeps_of": "a group in every pane, or in one: "
        + ", ".join(f"{item.strategy.value} {item.dense} or {item.sparse} states" for item in weighed),
    }


def _reason(plan: Aggregate, asked: Strategy) -> str:
    if plan.asked is not Strategy.AUTO:
        return "as the query asks"
    if asked is not Strategy.AUTO:
        return "as asked for"
    if plan.crowded:
        return "as many windows close at a time, and are put together at once"
    if plan.window.size == 1:
        return "as a window is one pane, and there is nothing to choose"
    if plan.closes:
        return "as only panes let groups leave before their window ends"
    if plan.strategy is Strategy.ADAPT:
        return "as so much state is to be kept small"
    return "as it takes the fewest merges a window"


def _assumed(plan: Aggregate, rates: Rates) -> str:
    groups = f"{_short(partials_of(plan.window, rates))} partials a pane"
    if plan.window.axis.kind is Kind.TIME:
        return f"{groups}, of {rates.tuples:,.10g} tuples a second and at most {rates.groups:,} groups"
    return f"{groups}, of at most {rates.groups:,} groups"


def _paying(plan: Aggregate, weighed: Weighed, rates: Rates) -> dict[str, Json]:
    found = panes_pay(plan.window, plan.folds, rates)
    if found is None or plan.window.axis.kind is not Kind.TIME:
        return {}
    least, against = found
    assumed = tuples_of(plan.window, rates) / partials_of(plan.window, rates)
    return {
        "panes_pay": f"from {_short(max(1.0, least))} tuples a partial on (eq. {weighed.equation} against {against}); "
        f"{_short(assumed)} are assumed"
    }


def _short(number: float) -> str:
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= unit:
            return f"{number / unit:.3g}{name}"
    return f"{number:.3g}"
