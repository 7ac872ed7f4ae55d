"""Detects results of integer operations that do not fit into 64 bits, and notes their panes. Written into each kernel
that has checked operations, as `arithmetic` is written into all kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy.typing as npt

if TYPE_CHECKING:
    import numpy as np

    from lowlevel.kernel.machine import high_product, wrap_add, wrap_mul, wrap_sub

__all__ = ["difference_leaves", "note_lost", "product_leaves", "quotient_leaves", "shifted_leaves", "sum_leaves"]


def sum_leaves(a: int, b: int) -> bool:
    result = wrap_add(a, b)
    return bool((a ^ result) & (b ^ result) < 0)


def difference_leaves(a: int, b: int) -> bool:
    return bool((a ^ b) & (a ^ wrap_sub(a, b)) < 0)


def product_leaves(a: int, b: int) -> bool:
    return bool(high_product(a, b) != wrap_mul(a, b) >> 63)


def quotient_leaves(a: int, b: int) -> bool:
    return b == -1 and a == -0x8000000000000000


def shifted_leaves(a: int, distance: int) -> bool:
    """Whether `a << distance` does not fit."""
    return a > 0x7FFFFFFFFFFFFFFF >> distance or a < -0x8000000000000000 >> distance


def note_lost(lost: npt.NDArray[np.int64], pane: int) -> None:
    """Note that a value of this pane was lost. lost[0] is the number of entries; the entries, which are panes, follow.
    There is room for one more."""
    last = lost[0]
    if last == 0 or lost[last] != pane:
        lost[last + 1] = pane
        lost[0] = last + 1
