"""The kernels that merge rows into a table of groups, by the program of a `Layout`, and that find rows in it.

They are compiled once for all queries, run without the GIL and allocate nothing. A merge that needs room, in the table
or for events, returns early and is called again for the rest of the rows. It processes rows in blocks: it finds each
row's group, then applies each fold to the block, so the program is interpreted once per block.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from highlevel.groups.fold_kernel import fold_rows
from highlevel.groups.layout import BLOCK, GROUP_KEYS, GROUP_NULLS, GROUP_TUPLES
from lowmark.jit.compiled import compiled

__all__ = ["fill_index", "find_rows", "merge_rows"]

Words = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@compiled
def _hash(rows: Words, i: int, first: int, end: int, nulls: np.uint64, seed: np.uint64) -> np.uint64:
    h = seed ^ nulls
    for at in range(first, end):
        h = (h ^ rows[i, at]) * _P1
        h ^= h >> _HALF
    h *= _P2
    return h ^ (h >> _HALF)


@compiled
def _merge_rows(
    rows: Words, start: int, shift: int, subtract: bool, positions: Ints, used: int, table: Words, index: Words,
    seed: np.uint64, key_end: int, key_mask: np.uint64, hashes: Words, program: Ints, comparisons: Ints, events: Ints,
    places: Ints, sources: Ints,
) -> tuple[int, int, int]:  # fmt: skip
    """Merge `rows[start:]` into the `used` groups of `table`. Returns (the first row not merged, groups now, events).

    `shift` is 1 where rows begin with a pane, 0 where they are groups. `subtract` takes back what was merged before; it
    is for programs of integer sums only. `positions`, if not empty, receives the group of each row. An event (group,
    fold, ±1) says that a sum lacks that many times 2^64; there is room for at least a block's. `hashes`, `places`
    and `sources` are scratch of BLOCK words.
    """
    mask = np.uint64(index.shape[0] - 1)
    key_bits = key_mask << np.uint64(shift)
    folds, words = program.shape[0], table.shape[1]
    noted = 0
    fetched = _ZERO
    for block in range(start, rows.shape[0], BLOCK):
        count = min(BLOCK, rows.shape[0] - block)
        if noted + count * folds > events.shape[0]:
            return block, used, noted
        for k in range(count):
            nulls = rows[block + k, GROUP_NULLS] >> np.uint64(shift) & key_mask
            h = _hash(rows, block + k, GROUP_KEYS + shift, key_end + shift, nulls, seed)
            hashes[k] = h
            fetched |= index[h & mask]
        for k in range(count):
            likely = np.int64(index[hashes[k] & mask] & _LOW_HALF)
            if likely != 0:
                # A row spans two or more cache lines.
                fetched |= table[likely - 1, GROUP_TUPLES] ^ table[likely - 1, words - 1]
        full = False
        for k in range(count):
            i = block + k
            tag, slot = hashes[k] & ~_LOW_HALF, hashes[k] & mask
            g = np.int64(-1)
            while g < 0:
                entry = index[slot]
                if entry == _ZERO:
                    break
                if entry & ~_LOW_HALF == tag:
                    g = np.int64(entry & _LOW_HALF) - np.int64(1)
                    same = (table[g, GROUP_NULLS] & key_mask) << np.uint64(shift) == rows[i, GROUP_NULLS] & key_bits
                    for at in range(GROUP_KEYS, key_end):
                        same = same and table[g, at] == rows[i, at + shift]
                    if same:
                        break
                    g = np.int64(-1)
                slot = (slot + _ONE) & mask
            if g >= 0:
                added = rows[i, GROUP_TUPLES + shift]
                table[g, GROUP_TUPLES] = table[g, GROUP_TUPLES] - added if subtract else table[g, GROUP_TUPLES] + added
                places[k] = g
            else:
                if used == table.shape[0]:
                    full = True
                    count = k
                    break
                g = np.int64(used)
                used += 1
                index[slot] = tag | np.uint64(used)
                table[g, GROUP_NULLS] = rows[i, GROUP_NULLS] >> np.uint64(shift)
                for at in range(GROUP_TUPLES, words):
                    table[g, at] = rows[i, at + shift]
                places[k] = -1  # nothing is left to fold
            sources[k] = i
            if positions.shape[0] != 0:
                positions[i] = g
        noted = fold_rows(table, rows, sources, places, count, shift, subtract, program, comparisons, events, noted)
        if full:
            return block + count, used, noted
    hashes[0] = fetched  # keeps the compiler from removing the loads above
    return rows.shape[0], used, noted


merge_rows: Callable[..., tuple[int, int, int]] = _merge_rows
"""Takes arguments laid out beforehand."""


@compiled
def fill_index(table: Words, used: int, index: Words, key_end: int, key_mask: np.uint64, seed: np.uint64) -> None:
    """Enter the groups of a table, all different, into an index of zeros."""
    mask = np.uint64(index.shape[0] - 1)
    for g in range(used):
        h = _hash(table, g, GROUP_KEYS, key_end, table[g, GROUP_NULLS] & key_mask, seed)
        slot = h & mask
        while index[slot] != _ZERO:
            slot = (slot + _ONE) & mask
        index[slot] = (h & ~_LOW_HALF) | np.uint64(g + 1)


@compiled
def _find_rows(
    rows: Words, shift: int, positions: Ints, table: Words, index: Words, seed: np.uint64, key_end: int,
    key_mask: np.uint64,
) -> None:  # fmt: skip
    """`positions` receives the place of each row's group in `table`, or −1; `index` is the table's index. `shift` is 1
    where rows begin with a pane, 0 where they are groups."""
    mask = np.uint64(index.shape[0] - 1)
    key_bits = key_mask << np.uint64(shift)
    for i in range(rows.shape[0]):
        nulls = rows[i, GROUP_NULLS] >> np.uint64(shift) & key_mask
        h = _hash(rows, i, GROUP_KEYS + shift, key_end + shift, nulls, seed)
        tag, slot = h & ~_LOW_HALF, h & mask
        g = np.int64(-1)
        while g < 0 and index[slot] != _ZERO:
            entry = index[slot]
            if entry & ~_LOW_HALF == tag:
                g = np.int64(entry & _LOW_HALF) - np.int64(1)
                same = (table[g, GROUP_NULLS] & key_mask) << np.uint64(shift) == rows[i, GROUP_NULLS] & key_bits
                for at in range(GROUP_KEYS, key_end):
                    same = same and table[g, at] == rows[i, at + shift]
                if not same:
                    g = np.int64(-1)
            slot = (slot + _ONE) & mask
        positions[i] = g


find_rows: Callable[..., None] = _find_rows
"""Takes arguments laid out beforehand."""
