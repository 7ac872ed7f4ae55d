"""Takes groups out of a table before their pane has ended, because their source is about to promise that they are
over."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lowlevel.kernel.inlined.panes import (
    DONE,
    DUE,
    FLUSHED,
    HEAD,
    LENGTH,
    OLD,
    OUT,
    OUT_TUPLES,
    PANE_RESIDENTS,
    PANES,
    ROW_MASK,
    ROW_PANE,
    ROW_TUPLES,
    WALK,
)
from lowmark.jit.compiled import compiled

__all__ = ["index_of", "mix", "take_groups"]


def index_of(groups: int) -> npt.NDArray[np.int32]:
    """An empty index with room for this many groups."""
    return np.zeros(max(64, 4 << max(0, groups - 1).bit_length()), np.int32)


@compiled
def mix(hashed: np.uint64, word: np.uint64) -> np.uint64:
    """Extend a hash by one word."""
    hashed = (hashed ^ word) * np.uint64(0xFF51AFD7ED558CCD)
    return hashed ^ (hashed >> np.uint64(32))


@compiled
def take_groups(
    table: npt.NDArray[np.int64],
    ring: npt.NDArray[np.uint32],
    panes: npt.NDArray[np.int64],
    state: npt.NDArray[np.int64],
    out: npt.NDArray[np.int64],
    groups: npt.NDArray[np.int64],  # by group: the bits of its mask, and its words
    words: npt.NDArray[np.int64],  # the places of those words in a row
    bits: int,  # bits of the mask that belong to the key
    index: npt.NDArray[np.int32],  # zeros
    sent: int,  # how many of each slot's tuples were output on arrival
) -> bool:
    """Output the residents of these groups, of any pane. False: the output buffer is full and residents are left. The
    ring keeps its order, and a flush under way keeps its place."""
    last = np.uint64(index.shape[0] - 1)
    for group in range(groups.shape[0]):
        hashed = np.uint64(groups[group, 0])
        for at in range(words.shape[0]):
            hashed = mix(hashed, np.uint64(groups[group, 1 + at]))
        place = hashed & last
        while index[place] != 0:
            place = (place + np.uint64(1)) & last
        index[place] = group + 1
    head, length, kept, waiting = state[HEAD], state[LENGTH], 0, state[WALK] - state[DONE]
    rows, tuples, taken, missed, slots = state[OUT], 0, 0, 0, table.shape[0] - 1
    for entry in range(length):
        slot = np.int64(ring[(head + entry) & slots])
        mask = table[slot, ROW_MASK] & bits
        hashed = np.uint64(mask)
        for at in range(words.shape[0]):
            hashed = mix(hashed, np.uint64(table[slot, words[at]]))
        place, found = hashed & last, False
        while index[place] != 0 and not found:
            group = index[place] - 1
            found = groups[group, 0] == mask
            for at in range(words.shape[0]):
                found = found and groups[group, 1 + at] == table[slot, words[at]]
            place = (place + np.uint64(1)) & last
        if found and rows == out.shape[0]:
            missed += 1
            found = False
        if not found:
            ring[(head + kept) & slots] = np.uint32(slot)
            kept += 1
            continue
        rest = table[slot, ROW_TUPLES] - sent
        if rest != 0:
            for word in range(out.shape[1]):
                out[rows, word] = table[slot, word]
            out[rows, ROW_TUPLES] = rest
            rows += 1
            tuples += rest
        pane = table[slot, ROW_PANE]
        table[slot, ROW_TUPLES] = 0
        panes[PANE_RESIDENTS, pane & (PANES - 1)] -= 1
        if pane < state[DUE]:
            state[OLD] -= 1
        if entry < waiting:
            state[WALK] -= 1
        taken += 1
    state[LENGTH] = kept
    state[OUT] = rows
    state[OUT_TUPLES] += tuples
    state[FLUSHED] += taken
    return missed == 0
