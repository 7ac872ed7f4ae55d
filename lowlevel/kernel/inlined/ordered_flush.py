"""The order-preserving baseline: partials leave in the order of their panes. Written into every kernel, as `panes`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lowlevel.kernel.inlined.flush import flush
from lowlevel.kernel.inlined.panes import (
    DELAY,
    DUE,
    FLUSHED,
    GAP,
    HEAD,
    LENGTH,
    OLD,
    OUT,
    OUT_TUPLES,
    PANE_NUMBER,
    PANE_RESIDENTS,
    PANES,
    ROW_PANE,
    ROW_TUPLES,
)

if TYPE_CHECKING:
    from lowlevel.kernel.bytewise import copy_row
    from lowlevel.kernel.machine import of_width

__all__ = ["flush_below", "flush_in_order"]


def flush_below(
    table: npt.NDArray[np.int64],
    ring: npt.NDArray[np.uint32],
    panes: npt.NDArray[np.int64],
    state: npt.NDArray[np.int64],
    out: npt.NDArray[np.int64],
    limit: np.int64,
    words: int,
    slot_words: int,
) -> None:
    """Output all groups of panes before `limit`, pane by pane, the oldest first. `out` has room for all groups of the
    table."""
    table, out = of_width(table, slot_words), of_width(out, words)
    slots = table.shape[0] - 1
    pane = limit
    while True:
        oldest = limit
        for place in range(PANES):
            if panes[PANE_RESIDENTS, place] != 0 and panes[PANE_NUMBER, place] < oldest:
                oldest = panes[PANE_NUMBER, place]
        pane = oldest
        if pane >= limit:
            return
        head, length = state[HEAD], state[LENGTH]
        rows, tuples, flushed = state[OUT], 0, 0
        kept = 0
        for step in range(length):
            slot = ring[(head + step) & slots]
            if table[slot, ROW_PANE] == pane:
                copy_row(out, rows, table, np.int64(slot), words)
                rows += 1
                tuples += table[slot, ROW_TUPLES]
                table[slot, ROW_TUPLES] = 0
                flushed += 1
            else:
                ring[(head + kept) & slots] = slot
                kept += 1
        panes[PANE_RESIDENTS, pane & (PANES - 1)] = 0
        state[LENGTH] = kept
        state[OUT] = rows
        state[OUT_TUPLES] += tuples
        state[FLUSHED] += flushed
        if pane < state[DUE]:
            state[OLD] -= flushed


def flush_in_order(
    table: npt.NDArray[np.int64],
    ring: npt.NDArray[np.uint32],
    panes: npt.NDArray[np.int64],
    state: npt.NDArray[np.int64],
    out: npt.NDArray[np.int64],
    pane: np.int64,
    since: int,
    force: int,
    words: int,
    slot_words: int,
    pane_length: int,
) -> bool:
    """As `flush`, in the order of panes: the groups of all older panes leave before the walk over a pane begins."""
    due = pane
    if force == 2:
        due = np.int64(0x7FFFFFFFFFFFFFFF)
    elif force == 0:
        due -= state[DELAY] + state[GAP]
    if force != 0 or due >= state[DUE]:
        if out.shape[0] - state[OUT] < state[LENGTH]:
            return False
        flush_below(table, ring, panes, state, out, due, words, slot_words)
    return flush(table, ring, panes, state, out, pane, since, force, words, slot_words, pane_length, 0)
