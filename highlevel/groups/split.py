"""Splits rows by pane; the rows of a pane keep their order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from highlevel.interface import Words
from lowmark.jit.compiled import compiled

__all__ = ["by_pane", "split"]

Ints = npt.NDArray[np.int64]

_SPARSE = 1024
"""Counting sort is used if there are at most this many panes more than rows."""


@compiled
def _count_and_place(panes: Ints, low: int, starts: Ints, order: Ints) -> None:
    """`starts` (two longer than the span of panes, zero) becomes where each pane starts in `order`."""
    for i in range(panes.shape[0]):
        starts[panes[i] - low + 2] += 1
    for pane in range(2, starts.shape[0]):
        starts[pane] += starts[pane - 1]
    for i in range(panes.shape[0]):
        at = panes[i] - low + 1
        order[starts[at]] = i
        starts[at] += 1


def by_pane(panes: Ints, rows: Words) -> tuple[Ints, Words]:
    """Panes and rows sorted by pane; the rows of a pane keep their order."""
    if (panes[1:] >= panes[:-1]).all():
        return panes, rows
    order = np.argsort(panes, kind="stable")
    return panes[order], rows[order]


def split(panes: Ints, rows: Words) -> Iterator[tuple[int, Words]]:
    """Each pane with its rows, ascending; `panes` has one entry per row."""
    if not len(rows):
        return
    panes = np.ascontiguousarray(panes)  # contiguous, because it is scanned several times
    low, high = int(panes.min()), int(panes.max())
    if low == high:
        yield low, rows
        return
    span = high - low + 1
    if span <= len(rows) + _SPARSE:
        starts, order = np.zeros(span + 2, np.int64), np.empty(len(rows), np.int64)
        _count_and_place(panes, low, starts, order)
        bounds = starts[: span + 1]
    else:
        order = np.argsort(panes, kind="stable")
        changes = np.flatnonzero(np.diff(panes[order])) + 1
        bounds = np.concatenate(([0], changes, [len(rows)]))
    sorted_rows = rows[order]
    filled = np.flatnonzero(np.diff(bounds))
    for start, end in zip(bounds[filled].tolist(), bounds[filled + 1].tolist(), strict=True):
        yield int(panes[order[start]]), sorted_rows[start:end]
