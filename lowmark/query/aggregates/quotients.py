"""Whole numbers divided: the double nearest to the quotient, as Python's own division of integers gives it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["quotient"]

_WHOLE = 1 << np.finfo(np.float64).nmant + 1
"""Whole numbers up to it are doubles."""


def quotient(
    dividends: npt.NDArray[np.int64], divisors: npt.NDArray[np.int64], scale: int = 1
) -> npt.NDArray[np.float64]:
    """dividends / (divisors · scale), divisors from 1, a scale of at most 53 bits behind its powers of two. Rounded
    once: of two doubles by the division itself, of longer numbers by Python."""
    odd = scale // (scale & -scale)
    exact = (np.abs(dividends.clip(-_WHOLE - 1)) <= _WHOLE) & (divisors <= _WHOLE // odd)
    result: npt.NDArray[np.float64] = dividends / (divisors * float(scale))
    long = np.flatnonzero(~exact)
    result[long] = dividends[long].astype(object) / (divisors[long].astype(object) * scale)
    return result
