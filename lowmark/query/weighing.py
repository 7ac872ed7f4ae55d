"""What the strategies of a windowed aggregate cost, by Li 6.2.3, and which of them a plan takes.

Costs are of one window, in merges of one row. The low level has reduced tuples to partials already, so that what
eqs. 6.1 to 6.4 call tuples are partials here: N of a pane, of G groups. P panes are a window, and S of them a slide.

    Paned-WID, from panes           (a N + b G) S + c P G               eq. 6.1
    Paned-WID, by subtraction       (a N + b G) S + 2 c G S             eq. 6.2
    Paned-WID, from blocks          (a N + b G) S + c G (2 + S) log P   eq. 6.1, which windows share
    WID                             a' N P                              eq. 6.3

Eqs. 6.1 and 6.2 print a T/P + b G, the cost of one pane; a window brings S new ones (or P, if it is shorter than a
slide). Eq. 6.4 is of a buffering implementation, which the bench has and no plan takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lowmark.query.aggregates import DIFFERENTIAL
from lowmark.query.plan import Aggregate, Fold, Step
from lowmark.query.relations import ROW_NUM
from lowmark.query.strategy import Rates, Strategy
from lowmark.query.windows import Window, WindowKind
from lowmark.wire.schema import Kind

__all__ = ["MUCH_OVERLAP", "Weighed", "can_choose", "chosen", "partials_of", "weigh"]

MUCH_OVERLAP = 3
"""Windows that hold a pane, from which on it pays to keep more than the panes."""

_A = 1.0  # a: to merge a partial into its pane's table
_A_WID = 3.0  # a': into a window's, of which every batch that touches one writes all groups to the state
_B = 2.0  # b: to make a pane's group, and write it to the state once
_C = 1.0  # c: to merge a pane's group into a window, or take it out

_MUCH_STATE = 1 << 24
"""Group states of one query (a gigabyte, or so), from which on what they take decides and not the time."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """Of one strategy: its cost (in merges a window), by which equation, and the group states that it keeps for a group
    that shows in every pane and for one that shows in a single one."""

    strategy: Strategy
    merges: float
    equation: str
    dense: int
    sparse: int


def can_choose(plan: Aggregate) -> bool:
    """Whether there is more than one way: not of windows that never forget, nor where there are none."""
    return plan.window.kind is WindowKind.SLIDING


def weigh(window: Window, folds: Sequence[Fold], rates: Rates) -> tuple[Weighed, ...]:
    """Of a window that `can_choose`."""
    panes, slide = window.size, window.slide
    rows = partials_of(window, rates)
    fresh = min(panes, slide)
    made = (_A * rows + _B * rows) * fresh
    levels = panes.bit_length() - 1
    if panes < MUCH_OVERLAP * slide:
        between = 0.0 if panes == 1 else _C * panes * rows
        paned = Weighed(Strategy.PANED, made + between, "6.1", panes, 1)
    elif all(fold.op in DIFFERENTIAL for fold in folds):
        paned = Weighed(Strategy.PANED, made + 2 * _C * rows * slide, "6.2", panes + 1, 2)
    else:
        shared = made + _C * rows * (2 + slide) * levels
        paned = Weighed(Strategy.PANED, shared, "6.1, in blocks", 2 * panes, levels + 1)
    open_windows = -(-panes // slide)
    # Where a window is one pane the two are the same.
    wid = Weighed(Strategy.WID, made if panes == 1 else _A_WID * rows * panes, "6.3", open_windows, open_windows)
    adapt = Weighed(Strategy.ADAPT, made + _C * rows * panes, "6.1, by group", min(open_windows, panes), 1)
    return paned, wid, adapt


def chosen(steps: Sequence[Step], asked: Strategy, rates: Rates) -> dict[int, Strategy]:
    """The strategy of each step that has a choice."""
    return {
        number: _best(step.plan, rates) if asked is Strategy.AUTO else asked
        for number, step in enumerate(steps)
        if isinstance(step.plan, Aggregate) and can_choose(step.plan)
    }


def _best(plan: Aggregate, rates: Rates) -> Strategy:
    if plan.crowded:
        return Strategy.PANED
    paned, wid, _ = weigh(plan.window, plan.folds, rates)
    if plan.window.size > 1 and paned.dense * partials_of(plan.window, rates) > _MUCH_STATE:
        return Strategy.ADAPT
    return Strategy.WID if wid.merges < paned.merges else Strategy.PANED


def partials_of(window: Window, rates: Rates) -> float:
    """Of a pane: N, and G, of which a source sends one each."""
    axis = window.axis
    tuples = float(rates.groups)
    if axis.kind is Kind.TIME:
        tuples = axis.unit / 1e9 * rates.tuples
    elif axis.attribute == ROW_NUM:
        tuples = float(axis.unit)
    return max(1.0, min(tuples, float(rates.groups)))
