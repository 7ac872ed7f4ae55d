"""The constants of a kernel that are no part of its text: data that it gets as `literals`. Queries that differ only in
constants therefore share native code.

The text keeps what decides its form: widths of rows, null, booleans, how many ranges a small set has, and which words
of a range are alike.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

__all__ = ["Literals", "reciprocal"]


class Literals:
    """Collects the constants in the order in which the text names them."""

    def __init__(self) -> None:
        self._words: list[int] = []

    def word(self, value: int) -> str:
        """Source of the low 64 bits of an integer."""
        low = value % (1 << 64)
        self._words.append(low - (1 << 64) if low >> 63 else low)
        return f"literals[{len(self._words) - 1}]"

    def double(self, value: float) -> str:
        return f"double_of({self.word(int.from_bytes(struct.pack('>d', value), 'big'))})"

    def divisor(self, value: int) -> str:
        """Source of two arguments of `quotient`."""
        factor, shift = reciprocal(value)
        return f"{self.word(factor)}, {self.word(shift)}"

    def grid(self, width: int, origin: int) -> str:
        """Source of two arguments of `pane_of` and the like."""
        at = len(self._words)
        for value in (width, origin, *reciprocal(width)):
            self.word(value)
        return f"literals, {at}"

    @property
    def array(self) -> npt.NDArray[np.int64]:
        return np.array(self._words, np.int64)


def reciprocal(divisor: int) -> tuple[int, int]:
    """The factor and the shift by which `quotient` divides: ⌊n / d⌋ = ⌊n·m / 2^(63+l)⌋ for all 0 ≤ n < 2^63, with
    l = ⌈log2 d⌉ and m = ⌈2^(63+l) / d⌉ < 2^64 (Granlund and Montgomery, 1994, theorem 4.2). 0, 0 for 1, whose factor
    does not fit."""
    if divisor == 1:
        return 0, 0
    bits = (divisor - 1).bit_length()
    return -(-(1 << 63 + bits) // divisor), bits - 1
