"""The state pieces of an aggregate: groups of a pane, of a block of panes, of a running window."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from highlevel.groups.group_table import GroupTable
from highlevel.groups.layout import Layout
from highlevel.interface import Space, Words

__all__ = [
    "ClosedSoFar", "SlidingGroups", "closing_space", "early_space", "rows_space", "running_space",
    "tables_space",
]  # fmt: skip


_CLOSING = struct.Struct(">qBq")
_RUNNING = struct.Struct(">qq")


@dataclass(slots=True)
class ClosedSoFar:
    """The progress of closing. `frontier`: the first pane that has not ended; `window`: the first window that has not
    been closed, None before the first promise."""

    frontier: int
    window: int | None


@dataclass(slots=True)
class SlidingGroups:
    """The groups of the panes from `start` up to `end`, kept from one window to the next."""

    start: int
    end: int
    table: GroupTable


def closing_space() -> Space[ClosedSoFar]:
    def encode(piece: ClosedSoFar) -> bytes:
        return _CLOSING.pack(piece.frontier, piece.window is not None, piece.window or 0)

    def decode(data: bytes) -> ClosedSoFar:
        frontier, known, window = _CLOSING.unpack(data)
        return ClosedSoFar(frontier, window if known else None)

    return Space("closing", encode, decode)


def tables_space(name: str, layout: Layout) -> Space[GroupTable]:
    """A growing space: the groups of a table's parts are merged in order of arrival."""

    def merge(parts: Sequence[GroupTable]) -> GroupTable:
        oldest, *newer = parts
        oldest.reserve(sum(map(len, parts)))
        oldest.merge_tables(newer)
        return oldest

    return Space(name, GroupTable.encode, lambda data: GroupTable.decode(layout, data), merge)


def running_space(layout: Layout) -> Space[SlidingGroups]:
    def encode(piece: SlidingGroups) -> bytes:
        return _RUNNING.pack(piece.start, piece.end) + piece.table.encode()

    def decode(data: bytes) -> SlidingGroups:
        start, end = _RUNNING.unpack_from(data)
        return SlidingGroups(start, end, GroupTable.decode(layout, data[_RUNNING.size :]))

    return Space("running", encode, decode)


def early_space() -> Space[int]:
    """By window, the tuples of groups that left before it closed."""
    return Space("early", lambda tuples: str(tuples).encode(), int)


def rows_space(name: str, words: int) -> Space[list[Words]]:
    """Rows of this many words, in order of arrival."""

    def encode(piece: list[Words]) -> bytes:
        return b"".join(rows.astype("<u8", copy=False).tobytes() for rows in piece)

    def decode(data: bytes) -> list[Words]:
        return [np.frombuffer(data, "<u8").reshape(-1, words).astype(np.uint64)]

    return Space(name, encode, decode)
