"""Promises, punctuations and the ledger (DESIGN: words; Li 7.2; Ding 2004 for value bounds)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from lowmark.wire.partials import Origin

__all__ = ["FOREVER", "Account", "Bound", "Ending", "Ledger", "Promise", "Punctuation"]

FOREVER = 2**63 - 1
"""The bound of a lane that has ended: every value lies below it."""


@dataclass(frozen=True, slots=True)
class Bound:
    """`column < below`, or `column in values` (canonical integers of the column's kind). Exactly one is given."""

    column: str
    below: int | None = None
    values: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if (self.below is None) == (self.values is None):
            raise ValueError(f"a bound on {self.column} is either `below` or `values`")


@dataclass(frozen=True, slots=True)
class Promise:
    """No later row of this lane satisfies all of these bounds. `last`: nothing at all will follow."""

    bounds: tuple[Bound, ...]
    last: bool = False

    def below(self, column: str) -> int | None:
        """The value that this promise alone moves the column's frontier to: joint promises move none."""
        if self.last:
            return FOREVER
        if len(self.bounds) == 1 and self.bounds[0].column == column:
            return self.bounds[0].below
        return None


class Ending(Enum):
    NONE = "none"
    END = "end"  # a finite source: all of it has been sent
    STOP = "stop"  # a live source: covered up to the promise, then the stall rule decides


@dataclass(frozen=True, slots=True)
class Account:
    """What a granule that this promise closes holds, at the lane that sent it."""

    granule: int
    here: int  # tuples sent to this partition
    everywhere: int  # tuples sent to all partitions
    late: int = 0
    dropped: int = 0
    given_up: int = 0
    reasons: tuple[str, ...] = ()  # of operators' lanes: why the windows that this granule came from are lossy


@dataclass(frozen=True, slots=True)
class Ledger:
    """Cumulative counters of the epoch, and an account for each granule with content that the promise closes."""

    counters: dict[str, int] = field(default_factory=dict)
    accounts: tuple[Account, ...] = ()


@dataclass(frozen=True, slots=True)
class Punctuation:
    """The record that carries a promise and the ledger to one partition, after the data that they cover."""

    origin: Origin
    sequence: int
    promise: Promise
    ledger: Ledger
    ending: Ending = Ending.NONE
