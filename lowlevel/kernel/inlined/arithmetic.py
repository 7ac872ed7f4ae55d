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
    """Rounded down and wrapping; 0 by zero, which the caller takes for null."""
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
    """⌊value / divisor⌋ without a division: `literals.reciprocal` has factor and shift of the divisor. Below 0 it is
    that of the complement, complemented."""
    if factor == 0:
        return value
    sign = value >> 63
    return int(high_unsigned(value ^ sign, factor) >> shift ^ sign)


def unsigned_less(a: int, b: int) -> bool:
    return (a ^ -0x8000000000000000) < (b ^ -0x8000000000000000)


def number_less(a_high: int, a_middle: int, a_low: int, b_high: int, b_middle: int, b_low: int) -> bool:
    """Unsigned numbers of three words: addresses, with their version in front, and Community IDs."""
    if a_high != b_high:
        return unsigned_less(a_high, b_high)
    if a_middle != b_middle:
        return unsigned_less(a_middle, b_middle)
    return unsigned_less(a_low, b_low)


def double_less(a: float, b: float) -> bool:
    """A total order up to zeros: NaN is the greatest."""
    return a < b or (b != b and a == a)


def canonical_double(value: float) -> float:
    """The same for both zeros, and one NaN."""
    return np.nan if value != value else value + 0.0


def hash_pair(a: int, b: int, secret_a: int, secret_b: int) -> int:
    return int(fold_product(a ^ secret_a, b ^ secret_b))


def mixed(hashed: int, word: int) -> int:
    """A hash with one word more, as in splitmix64."""
    z = wrap_add(hashed ^ word, -0x61C8864680B583EB)
    z = wrap_mul(z ^ (z >> 30 & 0x3FFFFFFFF), -0x40A7B892E31B1A47)
    z = wrap_mul(z ^ (z >> 27 & 0x1FFFFFFFFF), -0x6B2FB644ECCEEE15)
    return int(z ^ (z >> 31 & 0x1FFFFFFFF))


def coarse_word(value: int, bits: int) -> int:
    """The middle of all words whose leading bits are those of the value."""
    sign = value >> 63
    magnitude = value ^ sign
    rest, dropped = magnitude >> bits, 0
    while rest > 0:
        rest >>= 1
        dropped += 1
    return (magnitude >> dropped << dropped | 1 << dropped >> 1) ^ sign


def coarse_double(value: float, bits: int) -> float:
    """Rounded to its leading bits, unless that is beyond the greatest double."""
    if value - value != 0.0:  # NaN and the infinities
        return value
    dropped = 53 - bits
    rounded = double_of(wrap_add(word_of(value), 1 << dropped >> 1) >> dropped << dropped)
    return rounded if rounded - rounded == 0.0 else value
