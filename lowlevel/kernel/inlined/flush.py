"""Flushes partials from a table when their pane has ended (Li 8.3.3). Written into every kernel, as `panes` is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lowlevel.kernel.inlined.panes import (
    AHEAD,
    DELAY,
    DONE,
    DUE,
    EVERY,
    FLUSHED,
    GAP,
    HEAD,
    HURRY,
    LENGTH,
    MOST,
    OLD,
    OUT,
    OUT_TUPLES,
    PANE_NUMBER,
    PANE_RESIDENTS,
    PANES,
    ROW_PANE,
    ROW_TUPLES,
    SINCE,
    TAKEN,
    WALK,
    WITHIN,
)

if TYPE_CHECKING:
    from lowlevel.kernel.bytewise import copy_row
    from lowlevel.kernel.machine import of_width, prefetch

__all__ = ["flush"]


def flush(
    table: npt.NDArray[np.int64],
    ring: npt.NDArray[np.uint32],
    panes: npt.NDArray[np.int64],  # residents by pane
    state: npt.NDArray[np.int64],
    out: npt.NDArray[np.int64],
    pane: np.int64,  # the pane of the low-watermark
    since: int,  # from the start of that pane to the low-watermark, ns
    force: int,  # 1: flush all groups whose pane has ended; 2: flush all groups
    words: int,  # of a row
    slot_words: int,  # of a slot of the table
    pane_length: int,  # ns
    sent: int,  # tuples of each slot that were output on arrival
) -> bool:
    """Output the groups that must leave by now. False: the output buffer is full, and groups are left."""
    due, ended = pane, pane
    if force == 2:
        due = np.int64(0x7FFFFFFFFFFFFFFF)
    elif force == 0:
        due -= state[DELAY]
    if due > state[DUE]:
        # A new walk begins. The groups that the walk before has left have been due for a whole pane.
        old, hurry = 0, 0
        for place in range(PANES):
            if panes[PANE_RESIDENTS, place] != 0 and panes[PANE_NUMBER, place] < due:
                old += panes[PANE_RESIDENTS, place]
                if panes[PANE_NUMBER, place] < due - state[GAP] and state[EVERY] == 0:
                    hurry = 1
        state[DUE] = due
        state[OLD] = old
        state[WALK] = state[LENGTH]
        state[DONE] = 0
        state[HURRY] = hurry
        state[SINCE] = state[TAKEN]
    if state[OLD] == 0:
        return True
    target = state[WALK]
    if force == 0 and state[EVERY] != 0:
        target = min(state[WALK], (state[TAKEN] - state[SINCE]) // state[EVERY])
        oldest = ended
        for place in range(PANES):
            if panes[PANE_RESIDENTS, place] != 0 and panes[PANE_NUMBER, place] < oldest:
                oldest = panes[PANE_NUMBER, place]
        if oldest < ended - state[MOST]:
            target = state[WALK]
        elif oldest == ended - state[MOST]:
            # If few packets come, the walk would not end with this pane, and the rest would leave all at once. The walk
            # therefore also advances with time. It ends an eighth of a pane early, because no packet may come later.
            share = since / pane_length * (8.0 / 7.0)
            target = max(target, np.int64(state[WALK] * min(1.0, share)))
    elif force == 0 and state[HURRY] == 0 and since < state[WITHIN]:
        target = np.int64(state[WALK] * (since / state[WITHIN]))

    table, out = of_width(table, slot_words), of_width(out, words)
    head, length, done, old = state[HEAD], state[LENGTH], state[DONE], state[OLD]
    rows, tuples, flushed = state[OUT], 0, 0
    slots = table.shape[0] - 1
    while done < target and old != 0 and rows < out.shape[0]:
        slot = ring[np.uint64(head)]
        prefetch(table, np.int64(ring[np.uint64((head + AHEAD) & slots)]), 0)
        head = (head + 1) & slots
        resident = table[slot, ROW_PANE]
        if resident < due:
            rest = table[slot, ROW_TUPLES] - sent
            if rest != 0:
                copy_row(out, rows, table, np.int64(slot), words)
                out[rows, ROW_TUPLES] = rest
                rows += 1
                tuples += rest
            table[slot, ROW_TUPLES] = 0
            panes[PANE_RESIDENTS, resident & (PANES - 1)] -= 1
            length -= 1
            old -= 1
            flushed += 1
        else:
            ring[(head + length - 1) & slots] = slot
        done += 1
    state[HEAD], state[LENGTH], state[DONE], state[OLD] = head, length, done, old
    state[OUT] = rows
    state[OUT_TUPLES] += tuples
    state[FLUSHED] += flushed
    return bool(done >= target or old == 0)
