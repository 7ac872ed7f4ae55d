"""Panes: windows are runs of panes, and the value of the windowing attribute gives a tuple's pane."""

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
"""ADD, MUL and FLOOR_DIV with a constant, applied in order; constants of MUL and FLOOR_DIV are positive. The result
therefore never decreases when the input grows."""


def after(steps: PaneSteps, value: P) -> P:
    """Apply the steps to a value."""
    for op, constant in steps:
        value = value + constant if op is Op.ADD else value * constant if op is Op.MUL else value // constant
    return value


def before(steps: PaneSteps, value: int) -> int:
    """The least input for which the steps give this value or more."""
    for op, constant in reversed(steps):
        value = value - constant if op is Op.ADD else -(-value // constant) if op is Op.MUL else value * constant
    return value


@dataclass(frozen=True, slots=True)
class Pane:
    """A grid over `attribute`: a tuple lies in piece (a − origin) // width, times in ns. The steps turn the number of a
    piece into the number of its pane; without steps each piece is a pane.

    The window's attribute is the column with steps of its own applied. If one of them multiplies by a number that does
    not divide the panes' length, panes still hold whole pieces, but not equally many: some may hold none."""

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
        """The greatest length of a pane, apart from the rounding of several steps."""
        return self.width * max(1, -(-self._factor(Op.FLOOR_DIV) // self._factor(Op.MUL)))

    @property
    def gap(self) -> int:
        """The least growth of the pane's number from a piece that begins a pane to the next such piece."""
        least = 1
        for op, constant in self.steps:
            least = least * constant if op is Op.MUL else least // constant if op is Op.FLOOR_DIV else least
        return max(1, least)

    def _factor(self, of: Op) -> int:
        return prod(constant for op, constant in self.steps if op is of)
