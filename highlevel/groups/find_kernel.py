"""The kernel that finds the groups of rows in a table without adding any."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from highlevel.groups.layout import GROUP_KEYS, GROUP_NULLS
from highlevel.groups.merge_kernel import _hash
from lowmark.jit.compiled import compiled

__all__ = ["find_rows"]

Words = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_LOW_HALF = np.uint64(0xFFFFFFFF)


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
