"""How far out of order a source's frames may arrive, as a stream declares it: the declarations and their text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

__all__ = [
    "MOST_TUPLES",
    "Disorder",
    "DisorderError",
    "Measured",
    "Ordered",
    "Scan",
    "WithinTime",
    "WithinTuples",
    "parse_disorder",
]

MOST_TUPLES = 1_000_000
"""The largest n of `within n tuples`: a source remembers one time for each."""


class DisorderError(ValueError):
    """A declaration that cannot be used. The text says why and what is valid."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """No frame is older than an earlier one."""

    def __str__(self) -> str:
        return "ordered"


@dataclass(frozen=True, slots=True)
class WithinTime:
    """No frame is older by more than `bound_ns` than the newest before it."""

    bound_ns: int

    def __str__(self) -> str:
        unit, ns = next((u, n) for u, n in reversed(_SHOWN.items()) if self.bound_ns % n == 0)
        return f"within {self.bound_ns // ns} {unit}"


@dataclass(frozen=True, slots=True)
class WithinTuples:
    """A frame comes at most `count` places late: it may be older than any of the `count` frames before it, but not
    older than a frame before those. All frames count, including those that are not IP packets."""

    count: int

    def __str__(self) -> str:
        return f"within {self.count} tuples"


@dataclass(frozen=True, slots=True)
class Scan:
    """No assumption: a first pass over the file finds the times still to come at the end of each block."""

    def __str__(self) -> str:
        return "scan"


@dataclass(frozen=True, slots=True)
class Measured:
    """A bound that this share of the frames observed so far has kept; the estimate is updated continually."""

    share: Fraction = Fraction(999, 1000)

    def __str__(self) -> str:
        return f"measured {float(self.share * 100):.10g}%"


Disorder = Ordered | WithinTime | WithinTuples | Scan | Measured

_UNITS_NS = {
    ("ns", "nanosecond", "nanoseconds"): 1,
    ("us", "µs", "μs", "microsecond", "microseconds"): 1_000,
    ("ms", "millisecond", "milliseconds"): 1_000_000,
    ("s", "sec", "secs", "second", "seconds"): 1_000_000_000,
    ("min", "mins", "minute", "minutes"): 60_000_000_000,
    ("h", "hour", "hours"): 3_600_000_000_000,
    ("d", "day", "days"): 86_400_000_000_000,
}
_SHOWN = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "min": 60_000_000_000, "h": 3_600_000_000_000}
_VALID = "valid are: ordered, scan, within 2 s (ns, us, ms, s, min, h, d), within 500 tuples, measured, measured 99.9%"
_MEASURED = re.compile(r"measured(?:\s+([0-9]+(?:\.[0-9]+)?)\s*%)?")
_WITHIN = re.compile(r"within\s+([0-9]+(?:\.[0-9]+)?)\s*([^\W\d_]+)")
_MOST_NS = 2**62


def parse_disorder(text: str) -> Disorder:
    """Reads a declaration, in upper or lower case. Raises DisorderError."""
    plain = text.strip().lower()
    if plain == "ordered":
        return Ordered()
    if plain == "scan":
        return Scan()
    if (measured := _MEASURED.fullmatch(plain)) is not None:
        share = Fraction(measured[1]) / 100 if measured[1] else Measured().share
        if not Fraction(1, 2) <= share < 1:
            raise DisorderError(f"disorder '{text}': the share is from 50% to below 100%")
        return Measured(share)
    match = _WITHIN.fullmatch(plain)
    if match is None:
        raise DisorderError(f"disorder '{text}' is not known; {_VALID}")
    number, unit = Fraction(match[1]), match[2]
    if unit in ("tuple", "tuples"):
        if number.denominator != 1 or number > MOST_TUPLES:
            raise DisorderError(f"disorder '{text}': the number of tuples is a whole one, at most {MOST_TUPLES}")
        return WithinTuples(int(number))
    unit_ns = next((ns for names, ns in _UNITS_NS.items() if unit in names), None)
    if unit_ns is None:
        raise DisorderError(f"disorder '{text}': '{unit}' is no unit; {_VALID}")
    bound_ns = number * unit_ns
    if bound_ns.denominator != 1:
        raise DisorderError(f"disorder '{text}' is finer than a nanosecond")
    if bound_ns > _MOST_NS:
        raise DisorderError(
            f"disorder '{text}' is more than the {_MOST_NS // 86_400_000_000_000} days that are possible"
        )
    return WithinTime(int(bound_ns))
