"""Options of a query beside its text: late tuples, window strategy, memory of joins, names of columns, limits. They
have a module of their own because the command line needs no other part of a plan."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction

from lowmark.query.catalog import unit_ns
from lowmark.query.optimize.buffer_model import Buffering
from lowmark.wire.rows.values import INT64_MAX

__all__ = [
    "DEFAULT_JOINS",
    "DEFAULT_LIMITS",
    "DEFAULT_RATES",
    "Buffering",
    "Joins",
    "Late",
    "Limits",
    "Memory",
    "Rates",
    "Strategy",
    "Vocabulary",
    "parse_span",
]  # fmt: skip


class Late(Enum):
    """What happens to tuples that arrive after their granule has ended, beside being counted."""

    COUNT = "count"  # nothing more: they stay in the capture process
    EMIT = "emit"  # they are sent on, as rows of their own
    CORRECT = "correct"  # their change to closed windows is reported


_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([^\W\d_]+)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on the state that no window end removes. Raises ValueError for impossible values."""

    groups: int = 4_000_000  # per query and bucket, of groups that no window end removes: landmark windows, PA values
    expire_idle_ns: int | None = None  # drop a value of PA after this long without a tuple; None: never

    def __post_init__(self) -> None:
        if self.groups < 1:
            raise ValueError(f"groups is {self.groups}: it is 1 or more")


DEFAULT_LIMITS = Limits()


def parse_span(text: str) -> int:
    """Nanoseconds of a length of time as queries write it; ValueError for any other text, also for an empty one."""
    match = _SPAN.fullmatch(text.strip())
    try:
        span = Fraction(0) if match is None else Fraction(match[1]) * unit_ns(match[2])
    except KeyError:
        span = Fraction(0)
    if span.denominator != 1 or not 0 < span <= INT64_MAX:
        raise ValueError(f"{text!r} is not a length of time, such as '1 hour' or '90 s'")
    return int(span)


class Memory(Enum):
    """How long a join without windows keeps a row."""

    FRONTIER = "frontier"  # until the other inputs have passed its time: no result is missing
    MODEL = "model"  # for as many rows as the model says: a row dropped too early makes windows lossy


_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Joins:
    """How joins without windows use memory, and what pairs of rows cost. Raises ValueError for impossible values."""

    memory: Memory = Memory.FRONTIER
    buffer: Buffering | None = None  # how rows wait before they enter the join; None: the limit decides
    limit_mib: int | None = None  # of memory, for the rows of one join in one bucket; None: no limit
    disk_mib: int = 1024  # of the file in which rows of all joins of a process may wait
    scrambling: Mapping[str, int] = field(default_factory=dict)  # by input: how many rows late a row may come
    pair_ns: float = 100.0  # approximate time of a pair (`bench.shared_joins`), for joins in order of time

    def __post_init__(self) -> None:
        if self.limit_mib is not None and self.limit_mib < 1:
            raise ValueError(f"limit_mib is {self.limit_mib}: it is 1 or more")
        if not 0 < self.pair_ns < math.inf:
            raise ValueError(f"pair_ns is {self.pair_ns:g}: it is a number of nanoseconds above 0")
        if self.disk_mib < 1:
            raise ValueError(f"disk_mib is {self.disk_mib}: it is 1 or more")
        for name, rows in self.scrambling.items():
            if rows < 0:
                raise ValueError(f"the scrambling of {name} is {rows}: it is a number of rows, 0 or more")

    @property
    def limit(self) -> int | None:
        """In bytes."""
        return None if self.limit_mib is None else self.limit_mib * _MIB

    @property
    def disk(self) -> int:
        """In bytes."""
        return self.disk_mib * _MIB


DEFAULT_JOINS = Joins()


class Vocabulary(Enum):
    """The vocabulary of a query's result columns."""

    LOWMARK = "lowmark"
    ECS = "ecs"  # Elastic Common Schema 8
    OTEL = "otel"  # OpenTelemetry's semantic conventions 1.27
    IPFIX = "ipfix"  # IANA's registry of information elements


class Strategy(Enum):
    """How groups of open windows are held (Li ch. 6). No strategy changes a row."""

    AUTO = "auto"  # the plan chooses the cheapest
    WID = "wid"  # 6.1: each partial is merged into every open window that holds it
    PANED = "paned"  # 6.2: each partial is merged into its pane; windows are assembled from panes when they close
    ADAPT = "adapt"  # 6.3: WID or PANED for each group, whichever keeps less state; groups switch while it runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """The rates that costs are computed from. Raises ValueError for impossible values."""

    tuples: float = 10_000.0  # per second, into a stage (for windows over time)
    groups: int = 10_000  # in one pane, at most
    stored: bool = True  # state is read and written with each batch of rows, as in the job

    def __post_init__(self) -> None:
        if not self.tuples > 0:
            raise ValueError(f"a rate is above 0, not {self.tuples:g}")
        if self.groups < 1:
            raise ValueError(f"groups are 1 or more, not {self.groups}")


DEFAULT_RATES = Rates()
