"""Converts the timestamps of pcapng, in any resolution, to nanoseconds since 1970."""

from __future__ import annotations

import numpy as np

from lowmark.jit.compiled import compiled

__all__ = ["to_nanoseconds"]

_POWERS = np.array([10**exponent for exponent in range(20)], np.uint64)
_LAST_S, _LAST_NS = 9_223_372_036, 854_775_807  # the last moment that int64 nanoseconds can express
_FIRST_S, _FIRST_NS = -9_223_372_037, 145_224_192  # the first one, with its fraction counted forward


@compiled
def to_nanoseconds(units, resolution, offset_s):  # type: ignore[no-untyped-def]
    """Convert `units` (uint64) of an if_tsresol byte's resolution, plus offset_s, and round down to nanoseconds.
    Returns the value and whether it fits into int64 (else the value is 0). Exact for all 2^64 units, all resolutions
    and all offsets."""
    u = np.uint64
    exponent = resolution & 127
    seconds, fraction_ns = u(0), u(0)
    if resolution < 128:
        if exponent <= 19:
            seconds = units // _POWERS[exponent]
            rest = units - seconds * _POWERS[exponent]
            fraction_ns = rest * _POWERS[9 - exponent] if exponent <= 9 else rest // _POWERS[exponent - 9]
        elif exponent - 9 <= 19:
            fraction_ns = units // _POWERS[exponent - 9]
    else:
        rest = units
        if exponent < 64:
            seconds = units >> u(exponent)
            rest = units & ((u(1) << u(exponent)) - u(1))
        # rest · 10^9 / 2^exponent takes up to 94 bits: in two halves of 32 bits of rest each.
        low = (rest & u(0xFFFFFFFF)) * u(1_000_000_000)
        high = (rest >> u(32)) * u(1_000_000_000) + (low >> u(32))
        if exponent < 32:
            fraction_ns = low >> u(exponent)
        elif exponent < 96:
            fraction_ns = high >> u(exponent - 32)

    if offset_s >= 0:
        if seconds > u(_LAST_S) or offset_s > _LAST_S:
            return np.int64(0), False
        total_s = np.int64(seconds) + offset_s
    else:
        back = u(0) - u(offset_s)
        if seconds >= back:
            if seconds - back > u(_LAST_S):
                return np.int64(0), False
            total_s = np.int64(seconds - back)
        else:
            if back - seconds > u(-_FIRST_S):
                return np.int64(0), False
            total_s = -np.int64(back - seconds)
    below = total_s == _FIRST_S and fraction_ns < u(_FIRST_NS)
    above = total_s > _LAST_S or (total_s == _LAST_S and fraction_ns > u(_LAST_NS))
    if below or above:
        return np.int64(0), False
    return total_s * 1_000_000_000 + np.int64(fraction_ns), True
