"""A table of groups: partial rows merge into it in any order, and can be subtracted again.

Sums of integers are exact whatever the order: a sum may leave int64 and come back. The missing multiple of 2^64 is kept
as a carry beside the table, so only the final value decides about an overflow.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from highlevel.groups.layout import GROUP_KEYS, GROUP_TUPLES, SEED, Layout, with_one_form
from highlevel.groups.merge_kernel import fill_index, find_rows, merge_rows
from highlevel.interface import Words
from lowmark.jit.native_code import Laid
from lowmark.query.aggregates.calls import DIFFERENTIAL

__all__ = ["GroupRows", "GroupTable", "add_carry"]

_HEADER = struct.Struct(">III")  # groups, words of a group, carries
_LEAST_CAPACITY = 64
_SMALL = 4096
"""Up to this number of groups a full table grows fourfold, because growing costs calls, which take longer than
merges."""

_TOGETHER = 1 << 13
"""Most groups of several tables that are merged in one call. Separate calls take longer than a copy within the
cache."""

_NO_POSITIONS = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class GroupRows:
    """The groups of one or more tables of one layout, read-only."""

    rows: Words
    carries: dict[tuple[int, int], int]  # by (row, fold)

    @classmethod
    def of(cls, tables: Sequence[GroupTable]) -> GroupRows:
        carries: dict[tuple[int, int], int] = {}
        done = 0
        for table in tables:
            carries |= {(done + group, fold): lacks for (group, fold), lacks in table._carries.items()}
            done += len(table)
        rows = tables[0].groups if len(tables) == 1 else np.concatenate([table.groups for table in tables])
        return cls(rows, carries)

    def at(self, places: npt.NDArray[np.int64]) -> GroupRows:
        """The groups at these places, each at most once."""
        carries = {
            (int(row), fold): lacks
            for (group, fold), lacks in self.carries.items()
            for row in np.flatnonzero(places == group)
        }
        return GroupRows(self.rows[places], carries)

    def overflowed(self, fold: int) -> npt.NDArray[np.bool_]:
        """Whether this fold's sum is out of range, for each group."""
        overflowed: npt.NDArray[np.bool_] = self.lacking(fold) != 0
        return overflowed

    def lacking(self, fold: int) -> npt.NDArray[np.int64]:
        """What this fold's sum lacks, for each group, in units of 2^64 (for a wide fold, 2^128): 0 if it fits."""
        lacking = np.zeros(len(self.rows), np.int64)
        for (group, index), lacks in self.carries.items():
            if index == fold:
                lacking[group] = lacks
        return lacking


class GroupTable:
    """Groups in order of arrival. Subtraction leaves groups of zero tuples, which do not count; the next compaction
    removes them."""

    def __init__(self, layout: Layout, room: int = 0) -> None:
        """`room`: the number of groups to expect, if known. It affects no result."""
        self._layout = layout
        self._room = room
        self._used = 0
        self._table: Words = np.empty((0, layout.schema.words), np.uint64)
        self._index: Words | None = None  # made when first needed, because many tables are only read
        self._arguments: Laid | None = None  # table and index, laid out; None if one of them was replaced
        self._carries: dict[tuple[int, int], int] = {}  # by (group, fold): what the sum lacks, in units of 2^64

    @classmethod
    def of(cls, layout: Layout, groups: Words) -> GroupTable:
        """A table of groups of `layout.schema`, all different; it takes ownership of them."""
        table = cls(layout)
        table._table, table._used = groups, len(groups)
        return table

    def __len__(self) -> int:
        """The number of groups, those with zero tuples included."""
        return self._used

    @property
    def layout(self) -> Layout:
        return self._layout

    @property
    def groups(self) -> Words:
        """The groups' rows, of `layout.schema`: a view that the next merge may change."""
        return self._table[: self._used]

    @property
    def tuples(self) -> int:
        """The number of tuples merged and not subtracted."""
        return int(self.groups[:, GROUP_TUPLES].view(np.int64).sum())

    def overflowed(self, fold: int) -> npt.NDArray[np.bool_]:
        """Whether this fold's sum is out of range now, for each group."""
        return GroupRows.of((self,)).overflowed(fold)

    def merge(self, partials: Words) -> None:
        """Merge rows of `layout.partials`, of any panes."""
        self._merge(with_one_form(partials, self._layout), 1, False, _NO_POSITIONS)

    def place(self, partials: Words) -> npt.NDArray[np.int64]:
        """Merge rows as `merge` does; returns the place of each row's group."""
        positions = np.empty(len(partials), np.int64)
        self._merge(with_one_form(partials, self._layout), 1, False, positions)
        return positions

    def merge_copies(self, source: GroupRows, places: npt.NDArray[np.int64], firsts: npt.NDArray[np.int64]) -> None:
        """Merge groups of this layout, each as often as its place is listed, with new values for the first key, which
        is an integer."""
        rows = source.rows[places]
        rows[:, GROUP_KEYS] = firsts.view(np.uint64)
        positions = np.empty(len(rows), np.int64)
        self._merge(rows, 0, False, positions)
        for (group, fold), lacks in source.carries.items():
            for at in np.flatnonzero(places == group).tolist():
                self._carry(int(positions[at]), fold, lacks)

    def merge_table(self, other: GroupTable) -> npt.NDArray[np.int64]:
        """Merge another table's groups; returns the place of each of them in this one. The layouts may differ in two
        ways: this one's keys are the first of the other's, or this one has no folds."""
        if not self._used and self._layout == other._layout:
            self._adopt(other)
            return np.arange(len(other))
        return self.merge_groups(GroupRows(other.groups, other._carries))

    def merge_groups(self, source: GroupRows) -> npt.NDArray[np.int64]:
        """As `merge_table`, for groups that are in no table."""
        positions = np.empty(len(source.rows), np.int64)
        self._merge(source.rows, 0, False, positions)
        for (group, fold), lacks in source.carries.items():
            if fold < len(self._layout.folds):
                self._carry(int(positions[group]), fold, lacks)
        return positions

    def reserve(self, groups: int) -> None:
        """Make room for this many groups at once, which takes less time than to grow for them step by step."""
        if groups > len(self._table):
            self._grow(groups)

    def merge_tables(self, others: Iterable[GroupTable]) -> None:
        """Merge the groups of tables of this layout, one after the other; several small ones in one call."""
        small: list[Words] = []
        waiting = 0
        for other in others:
            copied = not self._used and not small and len(other) >= _LEAST_CAPACITY  # the copy includes the index
            alone = copied or len(other) > _TOGETHER or len(other._carries) > 0
            if alone or waiting + len(other) > _TOGETHER:
                self._merge_all(small)
                small, waiting = [], 0
            if alone:
                self.merge_table(other)
            else:
                small.append(other.groups)
                waiting += len(other)
        self._merge_all(small)

    def _merge_all(self, parts: Sequence[Words]) -> None:
        if parts:
            self._merge(parts[0] if len(parts) == 1 else np.concatenate(parts), 0, False, _NO_POSITIONS)

    def find(self, partials: Words) -> npt.NDArray[np.int64]:
        """The place of the group of each of these rows (of a layout with the same keys), or −1."""
        return self._find(with_one_form(partials, self._layout), 1)

    def find_groups(self, groups: GroupRows) -> npt.NDArray[np.int64]:
        """As `find`, for groups of a layout with these keys."""
        return self._find(groups.rows, 0)

    def _find(self, rows: Words, shift: int) -> npt.NDArray[np.int64]:
        positions = np.empty(len(rows), np.int64)
        find_rows(rows, shift, positions, self._laid(), self._layout.merging.keys)
        return positions

    def subtract_table(self, other: GroupTable) -> None:
        """Subtract a table that was merged before. Every fold must be differential."""
        if any(fold.op not in DIFFERENTIAL for fold in self._layout.folds):
            raise TypeError("only sums of integers can be subtracted")
        positions = np.empty(len(other), np.int64)
        self._merge(other.groups, 0, True, positions)
        for (group, fold), lacks in other._carries.items():
            self._carry(int(positions[group]), fold, -lacks)
        self._compact()

    def take(self, chosen: npt.NDArray[np.bool_]) -> GroupTable:
        """Remove these groups and return them."""
        taken = GroupTable(self._layout)
        taken._adopt(self)
        taken._retain(chosen)
        self._retain(~chosen)
        return taken

    def since(self, group: int) -> GroupTable:
        """A table of the groups from this place on, which have no folds."""
        later = GroupTable(self._layout)
        later._table = self.groups[group:].copy()
        later._used = len(later._table)
        return later

    def encode(self) -> bytes:
        carries = [(group, fold, lacks) for (group, fold), lacks in self._carries.items()]
        head = _HEADER.pack(self._used, self._layout.schema.words, len(carries))
        return b"".join((head, np.array(carries, "<i8").tobytes(), self.groups.astype("<u8", copy=False).tobytes()))

    @classmethod
    def decode(cls, layout: Layout, data: bytes) -> GroupTable:
        used, words, count = _HEADER.unpack_from(data)
        if words != layout.schema.words:
            raise ValueError(f"a table of groups of {words} words, where {layout.schema.words} are a group")
        carries = np.frombuffer(data, "<i8", 3 * count, _HEADER.size).reshape(count, 3)
        groups = np.frombuffer(data, "<u8", used * words, _HEADER.size + carries.nbytes)
        table = cls.of(layout, groups.reshape(used, words).astype(np.uint64))
        table._carries = {(group, fold): lacks for group, fold, lacks in carries.tolist()}
        return table

    def _adopt(self, other: GroupTable) -> None:
        self._table = other.groups.copy()
        self._used = other._used
        self._index = None if other._index is None else other._index.copy()
        self._arguments = None
        self._carries = dict(other._carries)

    def _merge(self, rows: Words, shift: int, subtract: bool, positions: npt.NDArray[np.int64]) -> None:
        merging = self._layout.merging
        if not len(self._table):
            self._grow(max(min(len(rows), _SMALL // 4), self._room))
        start = 0
        while start < len(rows):
            start, self._used, count = merge_rows(
                rows, start, shift, subtract, positions, self._used, self._laid(), merging.fixed
            )
            for group, fold, lacks in merging.events[:count].tolist():
                self._carry(group, fold, lacks)
            if start < len(rows) and self._used == len(self._table):
                self._grow((2 if self._used > _SMALL else 4) * self._used)

    def _carry(self, group: int, fold: int, lacks: int) -> None:
        add_carry(self._carries, (group, fold), lacks)

    def _laid(self) -> Laid:
        """Table and index, laid out for kernels."""
        if self._arguments is None:
            if self._index is None:
                size = 2 * max(_LEAST_CAPACITY, 1 << max(0, len(self._table) - 1).bit_length())
                self._index = np.zeros(size, np.uint64)
                if self._used:
                    layout = self._layout
                    fill_index(self._table, self._used, self._index, layout.key_end, layout.key_mask, SEED)
            self._arguments = Laid(self._table, self._index)
        return self._arguments

    def _grow(self, room: int) -> None:
        larger = np.empty((max(_LEAST_CAPACITY, room), self._table.shape[1]), np.uint64)
        larger[: self._used] = self.groups
        self._table = larger
        self._index = self._arguments = None

    def _compact(self) -> None:
        """Remove the groups with zero tuples once they are the majority."""
        live = self.groups[:, GROUP_TUPLES] != 0
        if 2 * int(np.count_nonzero(live)) < self._used:
            self._retain(live)

    def _retain(self, chosen: npt.NDArray[np.bool_]) -> None:
        places = np.cumsum(chosen) - 1
        self._carries = {
            (int(places[group]), fold): lacks for (group, fold), lacks in self._carries.items() if chosen[group]
        }
        self._table = self.groups[chosen]
        self._used = len(self._table)
        self._index = self._arguments = None


def add_carry(carries: dict[tuple[int, int], int], of: tuple[int, int], lacks: int) -> None:
    """Add to what a sum lacks, in units of 2^64; `of`: the group's place and the fold."""
    total = carries.pop(of, 0) + lacks
    if total:
        carries[of] = total
