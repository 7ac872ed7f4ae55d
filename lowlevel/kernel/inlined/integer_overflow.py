"""Whether the result of an operation on integers leaves 64 bits, and where that is noted. Written into the kernels that
check something, as `arithmetic` is into all."""

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
    """To the left."""
    return a > 0x7FFFFFFFFFFFFFFF >> distance or a < -0x8000000000000000 >> distance


def note_lost(lost: npt.NDArray[np.int64], pane: int) -> None:
    """Behind a number of entries come so many panes in which something was lost; there is room for one more."""
    last = lost[0]
    if last == 0 or lost[last] != pane:
        lost[last + 1] = pane
        lost[0] = last + 1
