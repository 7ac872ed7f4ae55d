"""The kernels of WID's aggregate (Li fig. 6-4): each row goes into every window that holds it.

A group's windows lie side by side, so the group is looked up once per row and each fold runs over its windows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from highlevel.groups.fold_kernel import fold_rows
from lowmark.jit.compiled import compiled

__all__ = ["pack", "spread_rows", "unpack"]

Words = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_ZERO = np.uint64(0)


@compiled
def _spread_rows(
    rows: Words, start: int, shift: int, groups: Ints, firsts: Ints, stops: Ints, base: int, slots: Words, width: int,
    program: Ints, comparisons: Ints, events: Ints, places: Ints, sources: Ints,
) -> tuple[int, int]:  # fmt: skip
    """Merge `rows[start:]`. Returns (the first row not merged, events as in `fold_rows`).

    Row i is of group `groups[i]` and of windows `firsts[i]` … `stops[i] − 1`, of which those from `base` up to `base +
    width` are here: `slots` has `width` rows per group, one per window; a row of zero tuples is empty. There is room
    for the events of BLOCK merges at least, which are folded together. `width` is less.
    """
    noted = 0
    i = start
    while i < rows.shape[0]:
        if noted + places.shape[0] * program.shape[0] > events.shape[0]:
            return i, noted
        count = 0
        while i < rows.shape[0] and count + width <= places.shape[0]:
            slot = groups[i] * width + max(firsts[i] - base, 0)
            end = groups[i] * width + min(stops[i] - base, width)
            for at in range(slot, end):
                if slots[at, 1] != _ZERO:
                    slots[at, 1] += rows[i, 1 + shift]
                    places[count] = at
                    sources[count] = i
                    count += 1
                else:
                    slots[at, 0] = rows[i, 0] >> np.uint64(shift)
                    for word in range(1, slots.shape[1]):
                        slots[at, word] = rows[i, word + shift]
            i += 1
        noted = fold_rows(slots, rows, sources, places, count, shift, False, program, comparisons, events, noted)
    return rows.shape[0], noted


spread_rows: Callable[..., tuple[int, int]] = _spread_rows
"""Takes arguments laid out beforehand."""


@compiled
def pack(slots: Words, packed: Words) -> None:
    """The slots that are not empty, one after the other."""
    count = 0
    for slot in range(slots.shape[0]):
        if slots[slot, 1] != _ZERO:
            for word in range(slots.shape[1]):
                packed[count, word] = slots[slot, word]
            count += 1


@compiled
def unpack(packed: Words, held: Bytes, width: int, slots: Words, heads: Words) -> None:
    """The reverse of `pack`; `held` says which slots are not empty. `heads` receives the beginning of a row of each
    group, which has at least one slot that is not empty."""
    count = 0
    for slot in range(slots.shape[0]):
        slots[slot, 1] = _ZERO
        if held[slot] != 0:
            for word in range(slots.shape[1]):
                slots[slot, word] = packed[count, word]
            for word in range(heads.shape[1]):
                heads[slot // width, word] = packed[count, word]
            count += 1
