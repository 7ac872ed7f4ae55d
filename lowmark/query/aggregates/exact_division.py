"""Vectorised division of numbers longer than a double: whole numbers, rounded once; and sums of two doubles (high,
low), to about 106 bits (Dekker 1971, Knuth's TwoSum)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["float_variance", "quotient"]

Floats = npt.NDArray[np.float64]
Long = tuple[Floats, Floats]

_SPLIT = 2.0**27 + 1
_NOISE = 2.0**-90
"""A difference n·Q - S² below this share of n·Q counts as 0, so that equal values have no variance."""


def float_variance(n: npt.NDArray[np.int64], squares: Long, sums: Long) -> Floats:
    """(n·Q - S²) / n² with Q = Σx², S = Σx. Doubles would not do: far from 0, n·Q and S² share most digits."""
    with np.errstate(invalid="ignore", over="ignore"):  # infinite and NaN values have no variance
        count = n.astype(np.float64)
        high, low = _sum(*squares)
        q, q_lost = _product(count, high)
        q_low = q_lost + count * low
        high, low = _sum(*sums)
        s, s_lost = _product(high, high)
        s_low = s_lost + 2.0 * high * low
        difference, lost = _sum(q, -s)
        found = difference + (lost + (q_low - s_low))
        return np.where(found < _NOISE * q, 0.0, found) / (count * count)


def _sum(a: Floats, b: Floats) -> Long:
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _product(a: Floats, b: Floats) -> Long:
    product = a * b
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def _halves(x: Floats) -> Long:
    split = _SPLIT * x
    high = split - (split - x)
    return high, x - high


_WHOLE = 1 << np.finfo(np.float64).nmant + 1
"""Whole numbers up to this one are exact as doubles."""


def quotient(
    dividends: npt.NDArray[np.int64], divisors: npt.NDArray[np.int64], scale: int = 1
) -> npt.NDArray[np.float64]:
    """dividends / (divisors · scale); divisors are 1 or more, scale has at most 53 bits above its trailing zeros.
    Rounded once: by the division itself if both are doubles, by Python for longer numbers."""
    odd = scale // (scale & -scale)
    exact = (np.abs(dividends.clip(-_WHOLE - 1)) <= _WHOLE) & (divisors <= _WHOLE // odd)
    result: npt.NDArray[np.float64] = dividends / (divisors * float(scale))
    long = np.flatnonzero(~exact)
    result[long] = dividends[long].astype(object) / (divisors[long].astype(object) * scale)
    return result
