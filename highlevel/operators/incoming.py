"""Selects the rows that an operator over panes takes from a batch: those in time, in panes that some window holds."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from highlevel.interface import Out, Words
from lowmark.query.windows.window import Window, WindowKind
from lowmark.wire.records.partials import KEYS_WORD, PANE_WORD

__all__ = ["in_windows", "panes_of", "timely", "with_pane_as_key"]

Ints = npt.NDArray[np.int64]


def panes_of(rows: Words) -> Ints:
    """The pane of each row as one contiguous array, because callers scan it several times."""
    return np.ascontiguousarray(rows[:, PANE_WORD]).view(np.int64)


def timely(panes: Ints, rows: Words, frontier: int, out: Out) -> tuple[Ints, Words]:
    """The rows of panes that have not ended, each with its pane; the others are reported as late."""
    if not len(panes) or panes.min() >= frontier:
        return panes, rows
    late = panes < frontier
    out.late(0, rows[late])
    return panes[~late], rows[~late]


def in_windows(panes: Ints, rows: Words, window: Window) -> tuple[Ints, Words]:
    """The rows that lie in some window; others lie between windows whose SLIDE is longer than their RANGE. `panes` has
    one entry per row."""
    if window.kind is not WindowKind.SLIDING or window.size >= window.slide:
        return panes, rows
    held = panes % window.slide >= window.slide - window.size
    return panes[held], rows[held]


def with_pane_as_key(rows: Words) -> Words:
    """Partials in the schema that `keyed_by_pane` gives."""
    found = np.empty((len(rows), rows.shape[1] + 1), np.uint64)
    low = np.uint64(3)  # the bits of pane and tuples, which are never null
    found[:, 0] = (rows[:, 0] & ~low) << np.uint64(1)
    found[:, 1:KEYS_WORD] = rows[:, 1:KEYS_WORD]
    found[:, KEYS_WORD] = rows[:, PANE_WORD]
    found[:, KEYS_WORD + 1 :] = rows[:, KEYS_WORD:]
    return found
