"""What a query is asked to be, beside its text: what becomes of late tuples, by which strategy windows are evaluated,
what is kept. A module of its own: the command line needs no more of a plan."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from lowmark.query.catalog import unit_ns
from lowmark.wire.rows.values import INT64_MAX

__all__ = ["DEFAULT_LIMITS", "DEFAULT_RATES", "Late", "Limits", "Rates", "Strategy", "parse_span"]


class Late(Enum):
    """What becomes of tuples that come after their granule has ended, beside their being counted."""

    COUNT = "count"  # nothing: they stay in the capture process
    EMIT = "emit"  # they are sent on, as rows of their own
    CORRECT = "correct"  # what they change in closed windows is told


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


class Strategy(Enum):
    """How groups of open windows are held (Li ch. 6). None of them changes a row."""

    AUTO = "auto"  # the plan's own choice, by cost
    WID = "wid"  # 6.1: each partial is merged into every open window that holds it
    PANED = "paned"  # 6.2: each partial is merged into its pane, and windows are put together from panes as they close
    ADAPT = "adapt"  # 6.3: by group one or the other, whichever keeps less, with switches while it runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What costs are computed of. Raises ValueError for what cannot be."""

    tuples: float = 10_000.0  # that a stage reduces, a second (where windows go over seconds)
    groups: int = 10_000  # at the most in a pane
    stored: bool = True  # state is read and written with each batch of rows, as in the job

    def __post_init__(self) -> None:
        if not self.tuples > 0:
            raise ValueError(f"a rate is above 0, not {self.tuples:g}")
        if self.groups < 1:
            raise ValueError(f"groups are 1 or more, not {self.groups}")


DEFAULT_RATES = Rates()
