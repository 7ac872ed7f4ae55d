"""Panes: what windows are runs of, and how a value of the windowing attribute tells its pane."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from lowmark.query.expr.expressions import Op

__all__ = ["Pane", "PaneSteps", "after", "before"]

P = TypeVar("P", int, npt.NDArray[np.int64])

PaneSteps = tuple[tuple[Op, int], ...]
"""ADD, MUL and FLOOR_DIV with a constant, one after the other; the constants of the last two are positive. So what they
make of a number is non-decreasing in it."""


def after(steps: PaneSteps, value: P) -> P:
    """What the steps make of a value."""
    for op, constant in steps:
        value = value + constant if op is Op.ADD else value * constant if op is Op.MUL else value // constant
    return value


def before(steps: PaneSteps, value: int) -> int:
    """The least of which the steps make this value or more."""
    for op, constant in reversed(steps):
        value = value - constant if op is Op.ADD else -(-value // constant) if op is Op.MUL else value * constant
    return value


@dataclass(frozen=True, slots=True)
class Pane:
    """The grid over `attribute`, of pieces of a width: a tuple lies in piece (a − origin) // width. Times in ns. What
    the steps make of a piece's number is that of its pane. Where there are none each piece is one.

    The window's attribute is the column through steps of its own. Where it is multiplied on the way, by what the panes'
    length is no multiple of, they have whole pieces, but not equally many: some may have none."""

    width: int
    origin: int = 0
    attribute: str = "ts"
    steps: PaneSteps = ()

    def index(self, value: P) -> P:
        whole, rest = divmod(self.origin, self.width)
        at = value // self.width - whole
        return after(self.steps, at - (value % self.width < rest) if rest else at)  # no value leaves int64 on the way

    def start(self, index: int) -> int:
        """The least value in this pane or a later one."""
        return before(self.steps, index) * self.width + self.origin

    @property
    def length(self) -> int:
        """At most so long is a pane, but for the rounding of several steps."""
        return self.width * max(1, -(-self._factor(Op.FLOOR_DIV) // self._factor(Op.MUL)))

    @property
    def gap(self) -> int:
        """From a piece that begins a pane to the one that begins the next, panes' numbers grow at least by this."""
        least = 1
        for op, constant in self.steps:
            least = least * constant if op is Op.MUL else least // constant if op is Op.FLOOR_DIV else least
        return max(1, least)

    def _factor(self, of: Op) -> int:
        return prod(constant for op, constant in self.steps if op is of)
