"""The state of a node, and small steps on it. Written into every kernel (`assemble`), as `layers` is.

A table is a matrix of rows in word form; a slot whose `tuples` word is 0 is empty. Each occupied slot stands once in a
ring of slot numbers, in the order in which slots came to be occupied, so that a flush walks what is there and not what
is empty. Residents are counted by pane in a small direct-mapped table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lowlevel.kernel.inlined.arithmetic import quotient

if TYPE_CHECKING:
    from lowlevel.kernel.machine import wrap_mul, wrap_sub

# Places in a node's state, all int64.
OUT = 0  # rows in the output buffer
LATE = 1  # entries in the buffer of late tuples
OPEN = 2  # the first pane that has not ended, by the low-watermark of the frame looked at last
OPEN_UNTIL = 3  # the low-watermark at which OPEN grows
HEAD = 4  # place of the ring's first entry
LENGTH = 5  # number of the ring's entries: the residents
DUE = 6  # panes below this one are being flushed
OLD = 7  # residents of those panes
WALK = 8  # entries of the ring that the current flush walks
DONE = 9  # entries of them that it has walked
HURRY = 10  # 1: the current flush is out of time and walks all at once
DELAY = 11  # a flush begins this many panes after a pane's end
WITHIN = 12  # a flush takes this long, ns
FILTERED = 13  # tuples that the predicate refused
TAKEN = 14  # tuples neither filtered nor late
OUT_TUPLES = 15  # tuples in the rows that were put out
EVICTED = 16  # rows that left for another group, or for the next of their own whose sum would not have fitted
STRAIGHT = 17  # rows of single tuples that never were in the table
FLUSHED = 18  # rows that left because their pane had ended
LINK = 19  # code of the source's stream in the node's strings
RANK = 20  # of the source
SHIFT = 21  # the plan's pane 0 is pane SHIFT of `pane_of`
STRAYS = 22  # rows in the buffer of late tuples that are sent on
EVERY = 23  # a flush walks one entry for each so many tuples; 0: in step with time
MOST = 24  # panes after a pane's end by which all of its partials must have left
SINCE = 25  # tuples taken when the flush began
ORDERED = 26  # 1: partials leave in the order of their panes
OVERFULL = 27  # rows that left because a sum would not have fitted
GAP = 28  # from a pane that may hold tuples to the next one
STATE_WORDS = 29

# Words of a row. Its keys, details and folds begin at ROW_KEYS.
ROW_MASK = 0  # bits of columns that are null
ROW_PANE = 1
ROW_TUPLES = 2  # 0: the slot is empty
ROW_KEYS = 3

# Rows of the table that counts residents by pane.
PANE_NUMBER = 0  # the pane that an entry counts now
PANE_RESIDENTS = 1

# Columns of the buffer of late tuples.
LATE_PANE = 0
LATE_TUPLES = 1

# Words of a grid of panes, counted from the place of its first.
GRID_WIDTH = 0
GRID_ORIGIN = 1  # from 0 to width - 1
GRID_FACTOR = 2  # these two are the `reciprocal` of the width
GRID_SHIFT = 3

PANES = 256
"""Entries of the table that counts residents by pane."""

AHEAD = 16
"""A flush prefetches the slot that is so many entries of the ring ahead."""

CONSTANTS = {name: value for name, value in globals().items() if name.isupper() and isinstance(value, int)}
"""Constants that kernels use by name."""


def pane_of(value: int, grids: npt.NDArray[np.int64], at: int) -> int:
    """Index of the pane that holds a value. No intermediate result leaves int64."""
    index = quotient(value, grids[at + GRID_FACTOR], grids[at + GRID_SHIFT])
    rest = wrap_sub(value, wrap_mul(index, grids[at + GRID_WIDTH]))
    return int(index - 1 if rest < grids[at + GRID_ORIGIN] else index)


def since_pane(value: int, grids: npt.NDArray[np.int64], at: int) -> int:
    """Distance of a value from the start of its pane."""
    index = quotient(value, grids[at + GRID_FACTOR], grids[at + GRID_SHIFT])
    rest = wrap_sub(value, wrap_mul(index, grids[at + GRID_WIDTH])) - grids[at + GRID_ORIGIN]
    return int(rest + grids[at + GRID_WIDTH] if rest < 0 else rest)


def pane_start(value: int, grids: npt.NDArray[np.int64], at: int) -> int:
    """Start of the pane of a value, at least the least int64."""
    rest = since_pane(value, grids, at)
    return value - rest if value >= -0x8000000000000000 + rest else -0x8000000000000000


def pane_end(value: int, grids: npt.NDArray[np.int64], at: int) -> int:
    """End of the pane of a value, at most the greatest int64."""
    rest = grids[at + GRID_WIDTH] - since_pane(value, grids, at)
    return int(value + rest if value <= 0x7FFFFFFFFFFFFFFF - rest else 0x7FFFFFFFFFFFFFFF)


def note_late(late: npt.NDArray[np.int64], state: npt.NDArray[np.int64], pane: int) -> None:
    """Count a late tuple. There is room for one more entry (pane, tuples)."""
    last = state[LATE] - 1
    if last >= 0 and late[last, LATE_PANE] == pane:
        late[last, LATE_TUPLES] += 1
    else:
        late[last + 1, LATE_PANE] = pane
        late[last + 1, LATE_TUPLES] = 1
        state[LATE] += 1
