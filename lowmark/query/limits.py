"""What a query may keep for ever, and what it lets go of. The command line needs no more of a plan."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from lowmark.query.catalog import unit_ns
from lowmark.wire.values import INT64_MAX

__all__ = ["DEFAULT_LIMITS", "Limits", "parse_span"]

_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([^\W\d_]+)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Raises ValueError for what cannot be."""

    groups: int = 4_000_000  # of a query in a bucket that no window's end lets go: of landmark windows, values of PA
    expire_idle_ns: int | None = None  # a value of PA without a tuple for longer is let go of; None: none is

    def __post_init__(self) -> None:
        if self.groups < 1:
            raise ValueError(f"groups is {self.groups}: it is 1 or more")


DEFAULT_LIMITS = Limits()


def parse_span(text: str) -> int:
    """Nanoseconds of a length of time as queries write it. ValueError for any other text, and for none at all."""
    match = _SPAN.fullmatch(text.strip())
    try:
        span = Fraction(0) if match is None else Fraction(match[1]) * unit_ns(match[2])
    except KeyError:
        span = Fraction(0)
    if span.denominator != 1 or not 0 < span <= INT64_MAX:
        raise ValueError(f"{text!r} is not a length of time, such as '1 hour' or '90 s'")
    return int(span)
