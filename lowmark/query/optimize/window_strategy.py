"""The cost of each strategy for a windowed aggregate, by Li 6.2.3, and the choice of one.

Costs are per window, in merges of one row. The low level has already reduced tuples to partials, so the tuples of eqs.
6.1 to 6.4 are partials here: N in a pane, of G groups. A window has P panes, a slide has S; counted in cells
(`shared_panes`) these are Q and T.

    Paned-WID, from panes           a N S + b G T + c Q G               eq. 6.1
    Paned-WID, by subtraction       a N S + b G T + 2 c G T             eq. 6.2
    Paned-WID, from blocks          a N S + b G T + 2 c G (T + log Q)   eq. 6.1, with blocks that windows share
    WID                             a N S + a' N P + b' G               eq. 6.3

Eqs. 6.1 and 6.2 print a T/P + b G, the cost of one pane; a window brings S new panes (or P, if it is shorter than a
slide). Eq. 6.3 prints a N P + b G; here a partial's group is looked up once and then merged into adjacent windows,
which costs less for each (a'), while removing a window from between the others costs more (b'). The constants are those
whose choice came nearest to the best over the grid of `bench.windows costs`.

Eqs. 6.3 and 6.4 as printed, over n tuples a pane, give the cost of windows without panes: a n P for WID, 2 a n S for
differential aggregates, in the buffering implementation that Li compares with. No plan runs without panes, because the
low level reduces tuples to panes wherever they are captured. `panes_pay` says from how many tuples on that saves work
(6.2.3); it helps a person to choose RANGE and SLIDE.
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
"""From this many windows to a pane on it pays to keep more than the panes."""

_A = 1.0  # a: find a partial's group, and merge it into its pane's table
_A_WID = 0.5  # a': merge it into one more window
_A_WID_STORED = 4.0  # a' where state is stored: every batch that touches a window reads and writes all of it
_B = 0.5  # b: make a group of a table
_B_WID = 3.5  # b': make a group of a window among others
_C = 0.75  # c: merge a pane's group into a window, or take it out

_MUCH_STATE = 1 << 24
"""From this many group states of one query on (about a gigabyte), memory decides and not time."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """One strategy, per window: its cost, in merges of a partial into its pane; the rows that are merged; the equation;
    and the group states kept for a group that appears in every pane (`dense`) and in a single one (`sparse`)."""

    strategy: Strategy
    cost: float
    merges: float
    equation: str
    dense: int
    sparse: int


def can_choose(plan: Aggregate) -> bool:
    """Whether there is a choice: there is none without windows, nor for landmark windows, whose state only grows."""
    return plan.window.kind is WindowKind.SLIDING


def weigh(window: Window, folds: Sequence[Fold], rates: Rates, early: bool = False) -> tuple[Weighed, ...]:
    """The cost of each strategy for a window that `can_choose`. `early`: groups may leave before it ends, so that it is
    put together from its panes alone."""
    cells = cells_of(window).window
    rows = partials_of(window, rates)
    fresh = rows * min(window.size, window.slide)
    made = _A * fresh + _B * rows * min(cells.size, cells.slide)
    levels = cells.size.bit_length() - 1
    open_windows = -(-window.size // window.slide)
    if early or cells.size < MUCH_OVERLAP * cells.slide:
        between = 0.0 if cells.size == 1 else rows * cells.size
        equation, dense, sparse = "6.1", cells.size, 1
    elif all(fold.op in DIFFERENTIAL for fold in folds):
        between = 2 * rows * cells.slide
        equation, dense, sparse = "6.2", cells.size + 1, 2
    else:
        # At most, a block of each size is merged from two, and a window from two of each size.
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
    """The strategy of each step that has a choice: that of its hint, else that asked for the whole query."""
    return {
        number: _decided(step.plan, asked, rates)
        for number, step in enumerate(steps)
        if isinstance(step.plan, Aggregate) and can_choose(step.plan)
    }


def _decided(plan: Aggregate, asked: Strategy, rates: Rates) -> Strategy:
    wanted = asked if plan.asked is Strategy.AUTO else plan.asked
    return cheapest(plan, rates) if wanted is Strategy.AUTO else wanted


def cheapest(plan: Aggregate, rates: Rates) -> Strategy:
    """The cheapest strategy of an aggregate that `can_choose`. Only panes can emit groups early."""
    if plan.crowded or plan.closes:
        return Strategy.PANED
    paned, wid, _ = weigh(plan.window, plan.folds, rates)
    if plan.window.size > 1 and paned.dense * partials_of(plan.window, rates) > _MUCH_STATE:
        return Strategy.ADAPT
    return Strategy.WID if wid.cost < paned.cost else Strategy.PANED


def panes_pay(window: Window, folds: Sequence[Fold], rates: Rates) -> tuple[float, str] | None:
    """The number of tuples per group and pane from which on panes cost less than putting each tuple into its windows,
    and the equation of the cost without panes. None: a tuple is in one window only, so panes save nothing."""
    without, equation = window.size, "6.3"
    if 2 * window.slide < window.size and all(fold.op in DIFFERENTIAL for fold in folds):
        without, equation = 2 * window.slide, "6.4"
    spared = _A * (without - window.slide)  # saved per tuple, less the cost of finding its pane
    if spared <= 0:
        return None
    paned = weigh(window, folds, rates)[0]
    return paned.cost / partials_of(window, rates) / spared, equation


def partials_of(window: Window, rates: Rates) -> float:
    """Partials in a pane: N, and also G, because a source sends one for each group."""
    return max(1.0, min(tuples_of(window, rates), float(rates.groups)))


def tuples_of(window: Window, rates: Rates) -> float:
    """Tuples in a pane; one a group for attributes without a rate."""
    axis = window.axis
    if axis.kind is Kind.TIME:
        return axis.unit / 1e9 * rates.tuples
    return float(axis.unit) if axis.attribute == ROW_NUM else float(rates.groups)
