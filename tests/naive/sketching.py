"""What approximate aggregates count by, in Python's own numbers."""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Iterable
from fractions import Fraction

__all__ = ["coarse", "distinct", "hashed", "word_of"]


def distinct(values: Iterable[tuple[int, ...]]) -> int:
    """The estimated number of different values, each given as its words."""
    least: dict[int, int] = {}
    for value in values:
        drawn = hashed(value)
        cell, rank = drawn % 2**12, drawn >> 12 & 2**51 - 1
        least[cell] = min(rank, least.get(cell, rank))
    empty = 2**12 - len(least)
    return round(2**12 * len(least) / (empty + sum(rank + Fraction(1, 2) for rank in least.values()) / 2**51))


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
