"""What the strategies of a windowed aggregate cost, by Li 6.2.3, and which of them a plan takes.

Costs are of one window, in merges of one row. The low level has reduced tuples to partials already, so that what
eqs. 6.1 to 6.4 call tuples are partials here: N of a pane, of G groups. P panes are a window, and S of them a slide; in
cells (`shared_panes`) these are Q and T.

    Paned-WID, from panes           a N S + b G T + c Q G               eq. 6.1
    Paned-WID, by subtraction       a N S + b G T + 2 c G T             eq. 6.2
    Paned-WID, from blocks          a N S + b G T + 2 c G (T + log Q)   eq. 6.1, which windows share
    WID                             a N S + a' N P + b' G               eq. 6.3

Eqs. 6.1 and 6.2 print a T/P + b G, the cost of one pane; a window brings S new ones (or P, if it is shorter than a
slide). Eq. 6.3 prints a N P + b G; here a partial's group is looked for once, and then merged into windows that lie
side by side, which costs less each (a'), while to take a window out from between the others costs more (b'). The
constants are those by which the choice was nearest to the best over the grid of `bench.windows costs`.

Eqs. 6.3 and 6.4 as they are printed, over n tuples a pane, are what windows cost without panes: a n P of WID, or
2 a n S of what is differential, in the buffering implementation that he compares with. No plan takes that side, for
the low level reduces tuples to panes wherever they are captured; `panes_pay` tells from when on that saves anything
(6.2.3), which is for whoever chooses RANGE and SLIDE.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lowmark.query.aggregates.calls import DIFFERENTIAL
from lowmark.query.bind.relations import ROW_NUM
from lowmark.query.optimize.shared_panes import cells_of
from lowmark.query.options import Rates, Strategy
from lowmark.query.plan.nodes import Aggregate, Fold, Step
from lowmark.query.windows.window import Window, WindowKind
from lowmark.wire.rows.schema import Kind

__all__ = [
    "MUCH_OVERLAP", "Weighed", "can_choose", "cheapest", "chosen", "panes_pay", "partials_of", "tuples_of", "weigh",
]  # fmt: skip

MUCH_OVERLAP = 3
"""Windows that hold a pane, from which on it pays to keep more than the panes."""

_A = 1.0  # a: to find a partial's group, and merge it into its pane's table
_A_WID = 0.5  # a': to merge it into one more window
_A_WID_STORED = 4.0  # the same where state is stored: every batch that touches a window reads and writes all of it
_B = 0.5  # b: to make a group of a table
_B_WID = 3.5  # b': of a window among others
_C = 0.75  # c: to merge a pane's group into a window, or take it out

_MUCH_STATE = 1 << 24
"""Group states of one query (a gigabyte, or so), from which on what they take decides and not the time."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """Of one strategy, a window: its cost, in merges of a partial into its pane; the rows that are merged; by which
    equation; and the group states that it keeps for a group that shows in every pane and for one that shows in a single
    one."""

    strategy: Strategy
    cost: float
    merges: float
    equation: str
    dense: int
    sparse: int


def can_choose(plan: Aggregate) -> bool:
    """Whether there is more than one way: not of windows that never forget, nor where there are none."""
    return plan.window.kind is WindowKind.SLIDING


def weigh(window: Window, folds: Sequence[Fold], rates: Rates) -> tuple[Weighed, ...]:
    """Of a window that `can_choose`."""
    cells = cells_of(window).window
    rows = partials_of(window, rates)
    fresh = rows * min(window.size, window.slide)
    made = _A * fresh + _B * rows * min(cells.size, cells.slide)
    levels = cells.size.bit_length() - 1
    open_windows = -(-window.size // window.slide)
    if cells.size < MUCH_OVERLAP * cells.slide:
        between = 0.0 if cells.size == 1 else rows * cells.size
        equation, dense, sparse = "6.1", cells.size, 1
    elif all(fold.op in DIFFERENTIAL for fold in folds):
        between = 2 * rows * cells.slide
        equation, dense, sparse = "6.2", cells.size + 1, 2
    else:
        # A block of each size is merged of two, and a window of two of each size, at most.
        between = 2 * rows * (cells.slide * (1 - 2**-levels) + levels)
        equation, dense, sparse = "6.1, in blocks", 2 * cells.size, levels + 1
    paned = Weighed(Strategy.PANED, made + _C * between, fresh + between, equation, dense, sparse)
    into = rows * window.size
    eager = _A * fresh + (_A_WID_STORED if rates.stored else _A_WID) * into + _B_WID * rows
    wid = Weighed(Strategy.WID, eager, into, "6.3", open_windows, open_windows)
    together = 0.0 if window.size == 1 else rows * cells.size
    adapt = Weighed(
        Strategy.ADAPT, made + _C * together, fresh + together, "6.1, by group", min(open_windows, cells.size), 1
    )
    return paned, wid, adapt


def chosen(steps: Sequence[Step], asked: Strategy, rates: Rates) -> dict[int, Strategy]:
    """The strategy of each step that has a choice: by a hint, else as it is asked for of the whole query."""
    return {
        number: _decided(step.plan, asked, rates)
        for number, step in enumerate(steps)
        if isinstance(step.plan, Aggregate) and can_choose(step.plan)
    }


def _decided(plan: Aggregate, asked: Strategy, rates: Rates) -> Strategy:
    wanted = asked if plan.asked is Strategy.AUTO else plan.asked
    return cheapest(plan, rates) if wanted is Strategy.AUTO else wanted


def cheapest(plan: Aggregate, rates: Rates) -> Strategy:
    """Of an aggregate that `can_choose`."""
    if plan.crowded:
        return Strategy.PANED
    paned, wid, _ = weigh(plan.window, plan.folds, rates)
    if plan.window.size > 1 and paned.dense * partials_of(plan.window, rates) > _MUCH_STATE:
        return Strategy.ADAPT
    return Strategy.WID if wid.cost < paned.cost else Strategy.PANED


def panes_pay(window: Window, folds: Sequence[Fold], rates: Rates) -> tuple[float, str] | None:
    """From how many tuples of a group and pane on panes take less than windows that each tuple is put into, and by
    which equation these are reckoned. None: a tuple is in one window only, and panes spare nothing."""
    without, equation = window.size, "6.3"
    if 2 * window.slide < window.size and all(fold.op in DIFFERENTIAL for fold in folds):
        without, equation = 2 * window.slide, "6.4"
    spared = _A * (without - window.slide)  # a tuple: its way into its pane is to be paid
    if spared <= 0:
        return None
    paned = weigh(window, folds, rates)[0]
    return paned.cost / partials_of(window, rates) / spared, equation


def partials_of(window: Window, rates: Rates) -> float:
    """Of a pane: N, and G, of which a source sends one each."""
    return max(1.0, min(tuples_of(window, rates), float(rates.groups)))


def tuples_of(window: Window, rates: Rates) -> float:
    """Of a pane; of attributes that have no rate, one a group."""
    axis = window.axis
    if axis.kind is Kind.TIME:
        return axis.unit / 1e9 * rates.tuples
    return float(axis.unit) if axis.attribute == ROW_NUM else float(rates.groups)
