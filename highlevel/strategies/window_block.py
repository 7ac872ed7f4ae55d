"""The groups of neighbouring windows in one piece of state: for each group, a partial per window (Li ch. 6: WID).

A table per window would cost a call and a group lookup for each window that holds a row. Here a group is looked up once
per block of windows, and its partials lie side by side.
"""

from __future__ import annotations

import struct

import numpy as np

from highlevel.groups.group_table import GroupRows, GroupTable, add_carry
from highlevel.groups.layout import Layout, with_one_form
from highlevel.groups.spread_kernel import pack, spread_rows, unpack
from highlevel.interface import Words
from highlevel.operators.window_groups import WindowGroups
from lowmark.jit.native_code import Laid
from lowmark.query.expr.evaluate import Bools, Ints

__all__ = ["WindowBlock"]

_HEADER = struct.Struct(">IIII")  # partials, words of each, groups, carries
_LEAST_GROUPS = 8


class WindowBlock:
    """A block of `width` windows, numbered 0 … width − 1 here. Every group has a partial in at least one of them."""

    def __init__(self, layout: Layout, width: int) -> None:
        self._layout = layout
        self._width = width
        self._groups = GroupTable(layout.of_keys)
        # Each group has `width` rows of `layout.schema`; a row with zero tuples is empty.
        self._slots: Words = np.empty((0, layout.schema.words), np.uint64)
        self._ready = 0  # groups whose slots can be read
        self._laid = Laid(self._slots, width)
        self._carries: dict[tuple[int, int], int] = {}  # by (slot, fold), like those of a `GroupTable`

    @property
    def partials(self) -> int:
        return int(np.count_nonzero(self._tuples))

    @property
    def held(self) -> Bools:
        """Whether each window holds a tuple."""
        held: Bools = (self._tuples != 0).any(axis=0)
        return held

    def merge(self, rows: Words, firsts: Ints, stops: Ints, base: int) -> None:
        """Merge rows of `layout.partials`, each into the windows from its `firsts` up to its `stops` that are in the
        block, if its first window is `base`. At least one of them is."""
        rows = with_one_form(rows, self._layout)
        self._merge(rows, 1, self._groups.place(rows), firsts, stops, base)

    def merge_groups(self, source: GroupRows, firsts: Ints, stops: Ints, base: int) -> None:
        """As `merge`, with groups instead of rows."""
        places = self._groups.merge_groups(source)
        self._merge(source.rows, 0, places, firsts, stops, base)
        for (group, fold), lacks in source.carries.items():
            for window in range(max(int(firsts[group]) - base, 0), min(int(stops[group]) - base, self._width)):
                add_carry(self._carries, (int(places[group]) * self._width + window, fold), lacks)

    def part(self, first: int, stop: int, base: int) -> WindowGroups:
        """The groups of the windows from `first` up to `stop`, numbered as if the block began with `base`."""
        tuples = self._tuples[:, first:stop]
        windows, groups = np.nonzero(tuples.T)
        slots = groups * self._width + windows + first
        counts = np.bincount(windows, minlength=stop - first)
        held = np.flatnonzero(counts)
        return WindowGroups(
            (held + (first + base)).tolist(),
            tuples.sum(axis=0)[held].tolist(),
            counts[held].tolist(),
            GroupRows(self._slots, self._carries).at(slots),
        )

    def leave(self, below: int) -> bool:
        """Drop the windows before `below`; returns whether there was anything to drop."""
        left = self._tuples[:, :below]
        if not left.any():
            return False
        left[:] = 0
        self._carries = {key: lacks for key, lacks in self._carries.items() if key[0] % self._width >= below}
        kept = (self._tuples != 0).any(axis=1)
        if not kept.all():
            places = np.cumsum(kept) - 1
            self._carries = {
                (int(places[slot // self._width]) * self._width + slot % self._width, fold): lacks
                for (slot, fold), lacks in self._carries.items()
            }
            self._slots = self._slots[: self._ready * self._width][np.repeat(kept, self._width)]
            self._laid = Laid(self._slots, self._width)
            self._groups.take(~kept)
            self._ready = len(self._groups)
        return True

    def encode(self) -> bytes:
        held = self._tuples != 0
        packed = np.empty((int(np.count_nonzero(held)), self._slots.shape[1]), np.uint64)
        pack(self._slots[: held.size], packed)
        carries = [(slot, fold, lacks) for (slot, fold), lacks in self._carries.items()]
        return b"".join((
            _HEADER.pack(*packed.shape, self._ready, len(carries)),
            np.array(carries, "<i8").tobytes(),
            packed.astype("<u8", copy=False).tobytes(),
            np.packbits(held).tobytes(),
        ))  # fmt: skip

    @classmethod
    def decode(cls, layout: Layout, width: int, data: bytes) -> WindowBlock:
        count, words, groups, carried = _HEADER.unpack_from(data)
        if words != layout.schema.words:
            raise ValueError(f"a block of windows of {words} words a group, where {layout.schema.words} are one")
        block = cls(layout, width)
        carries = np.frombuffer(data, "<i8", 3 * carried, _HEADER.size).reshape(carried, 3)
        block._carries = {(slot, fold): lacks for slot, fold, lacks in carries.tolist()}
        packed = np.frombuffer(data, "<u8", count * words, _HEADER.size + carries.nbytes)
        bits = np.frombuffer(data, np.uint8, offset=_HEADER.size + carries.nbytes + packed.nbytes)
        heads = np.empty((groups, layout.of_keys.schema.words), np.uint64)
        block._reserve(groups)
        unpack(
            packed.astype(np.uint64, copy=False).reshape(count, words),
            np.unpackbits(bits, count=groups * width), width, block._slots[: groups * width], heads,
        )  # fmt: skip
        block._groups = GroupTable.of(layout.of_keys, heads)
        return block

    @property
    def _tuples(self) -> Ints:
        """A row for each group, a column for each window."""
        tuples: Ints = self._slots[: self._ready * self._width, 1].view(np.int64).reshape(self._ready, self._width)
        return tuples

    def _merge(self, rows: Words, shift: int, groups: Ints, firsts: Ints, stops: Ints, base: int) -> None:
        merging = self._layout.merging
        self._reserve(len(self._groups))
        start = 0
        while start < len(rows):
            start, count = spread_rows(rows, start, shift, groups, firsts, stops, base, self._laid, merging.folding)
            for slot, fold, lacks in merging.events[:count].tolist():
                add_carry(self._carries, (slot, fold), lacks)

    def _reserve(self, groups: int) -> None:
        """Reserve slots for this many groups; new ones have zero tuples."""
        if groups * self._width > len(self._slots):
            room = max(groups, _LEAST_GROUPS, 2 * self._ready) * self._width
            larger = np.empty((room, self._slots.shape[1]), np.uint64)
            used = self._ready * self._width
            larger[:used] = self._slots[:used]
            self._slots = larger
            self._laid = Laid(larger, self._width)
        self._slots[self._ready * self._width : groups * self._width, 1] = 0
        self._ready = groups
