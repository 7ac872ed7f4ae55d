"""Arithmetic that kernels call. Written into every kernel (`assemble`), as `layers` is."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from lowlevel.kernel.machine import double_of, fold_product, high_unsigned, word_of, wrap_add, wrap_mul, wrap_sub

__all__ = [
    "canonical_double", "chosen", "coarse_double", "coarse_word", "double_less", "floor_div", "floor_mod", "hash_pair",
    "mixed", "number_less", "quotient", "unsigned_less",
]  # fmt: skip

_Number = TypeVar("_Number", int, float)


def chosen(condition: bool, one: _Number, other: _Number) -> _Number:
    return one if condition else other


def floor_div(a: int, b: int) -> int:
    """a // b, rounded down; it wraps. 0 if b is 0: the caller makes that null."""
    if b == 0:
        return 0
    if b == -1:  # the processor traps on the one quotient that does not fit
        return int(wrap_sub(0, a))
    return a // b


def floor_mod(a: int, b: int) -> int:
    if b == 0 or b == -1:
        return 0
    return a % b


def quotient(value: int, factor: int, shift: int) -> int:
    """⌊value / divisor⌋ without a division. `literals.reciprocal` computes factor and shift of the divisor; factor 0
    means divisor 1. For a negative value it is ~(~value // divisor)."""
    if factor == 0:
        return value
    sign = value >> 63
    return int(high_unsigned(value ^ sign, factor) >> shift ^ sign)


def unsigned_less(a: int, b: int) -> bool:
    return (a ^ -0x8000000000000000) < (b ^ -0x8000000000000000)


def number_less(a_high: int, a_middle: int, a_low: int, b_high: int, b_middle: int, b_low: int) -> bool:
    """a < b for unsigned numbers of three words: addresses (the first word is the version) and Community IDs."""
    if a_high != b_high:
        return unsigned_less(a_high, b_high)
    if a_middle != b_middle:
        return unsigned_less(a_middle, b_middle)
    return unsigned_less(a_low, b_low)


def double_less(a: float, b: float) -> bool:
    """a < b in an order in which NaN is the greatest and both zeros are equal."""
    return a < b or (b != b and a == a)


def canonical_double(value: float) -> float:
    """The value, with one form of zero and one of NaN."""
    return np.nan if value != value else value + 0.0


def hash_pair(a: int, b: int, secret_a: int, secret_b: int) -> int:
    return int(fold_product(a ^ secret_a, b ^ secret_b))


def mixed(hashed: int, word: int) -> int:
    """Add a word to a hash, by the steps of splitmix64."""
    z = wrap_add(hashed ^ word, -0x61C8864680B583EB)
    z = wrap_mul(z ^ (z >> 30 & 0x3FFFFFFFF), -0x40A7B892E31B1A47)
    z = wrap_mul(z ^ (z >> 27 & 0x1FFFFFFFFF), -0x6B2FB644ECCEEE15)
    return int(z ^ (z >> 31 & 0x1FFFFFFFF))


def coarse_word(value: int, bits: int) -> int:
    """The middle of the range of words that have the same leading `bits` bits as the value."""
    sign = value >> 63
    magnitude = value ^ sign
    rest, dropped = magnitude >> bits, 0
    while rest > 0:
        rest >>= 1
        dropped += 1
    return (magnitude >> dropped << dropped | 1 << dropped >> 1) ^ sign


def coarse_double(value: float, bits: int) -> float:
    """The value rounded to its leading `bits` bits; the value itself if that would be infinite."""
    if value - value != 0.0:  # NaN and the infinities
        return value
    dropped = 53 - bits
    rounded = double_of(wrap_add(word_of(value), 1 << dropped >> 1) >> dropped << dropped)
    return rounded if rounded - rounded == 0.0 else value
