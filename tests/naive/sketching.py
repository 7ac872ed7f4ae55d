"""What approximate aggregates count by, in Python's own numbers."""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Iterable
from fractions import Fraction

__all__ = ["coarse", "distinct", "hashed", "word_of"]


_CELLS, _RANKS = 2**12, 52


def distinct(values: Iterable[tuple[int, ...]]) -> int:
    """The estimated number of different values, each given as its words: the whole number nearest to that of which as
    many bits are expected."""
    bits = set()
    for value in values:
        drawn = hashed(value)
        rest = drawn >> 12 & 2**51 - 1
        bits.add((drawn % _CELLS, (rest & -rest).bit_length() - 1 if rest else _RANKS - 1))
    low, high = 0, 2**51
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if _expected(middle + 0.5) < len(bits) else (low, middle)
    return low


def _expected(number: float) -> float:
    """How many of the bits this many values set: one of the last rank as often as one of the last but one."""
    chances = (2.0 ** -min(rank + 1, _RANKS - 1) / _CELLS for rank in range(_RANKS))
    return _CELLS * math.fsum(-math.expm1(number * math.log1p(-chance)) for chance in chances)


def hashed(words: Iterable[int]) -> int:
    """Of 64-bit words: what splitmix64 gives for each, from the seed that is the one before it, with the word in it."""
    z = 0
    for word in words:
        z = ((z ^ word % 2**64) + 0x9E3779B97F4A7C15) % 2**64
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        z ^= z >> 31
    return z


def word_of(value: float) -> int:
    """A double's bits, one form for both zeros and one for what is no number."""
    return int.from_bytes(struct.pack("<d", math.nan if math.isnan(value) else value + 0.0), "little")


def coarse(value: int | float, bits: int) -> int | float:
    """A double rounded to its leading bits; the middle of all whole numbers that share them."""
    if isinstance(value, float):
        if not math.isfinite(value):
            return value
        exponent = max(math.frexp(value)[1], sys.float_info.min_exp)  # below it doubles have fewer bits
        unit = Fraction(2) ** (exponent - bits)
        try:
            return math.copysign(float(math.floor(Fraction(abs(value)) / unit + Fraction(1, 2)) * unit), value)
        except OverflowError:
            return value
    if value < 0:
        return ~coarse(~value, bits)
    width = 2 ** max(value.bit_length() - bits, 0)
    return value // width * width + width // 2
