"""A query's own piece of state: its progress."""

from __future__ import annotations

import json
from dataclasses import astuple, dataclass, field

from highlevel.verdicts.exchanged_windows import FollowedRow
from highlevel.verdicts.marks import NOTHING, FindingRow, MarkRow
from highlevel.verdicts.unions import MeldedRow
from highlevel.verdicts.window_sequence import SequenceRow

__all__ = ["Saved"]


@dataclass(slots=True)
class Saved:
    """A query's piece of state."""

    sequences: list[SequenceRow | FollowedRow | MeldedRow] = field(default_factory=list)
    announced: int | None = None  # of a query without windows: the bound announced last
    rows: int = 0  # … rows since then
    since: FindingRow = NOTHING  # … findings since then
    shifted: bool = False  # … tuples were lost that would have been counted: all later numbers are wrong
    marks: list[MarkRow] = field(default_factory=list)  # … of a join: marks on times not yet announced
    open: tuple[int, int] = (0, 0)  # … of partitions that number their rows: the last counts announced
    early: dict[str, int] = field(default_factory=dict)  # by window: rows that left before it closed

    def encode(self) -> bytes:
        return json.dumps(astuple(self), separators=(",", ":")).encode()

    @classmethod
    def decode(cls, piece: bytes) -> Saved:
        return cls(*json.loads(piece))
