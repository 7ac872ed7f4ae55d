"""Divides rows for another stage by the buckets of their keys, and counts the tuples of each pane."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from lowmark.jit.compiled import compiled
from lowmark.wire.rows.hashing import bucket_of, key_words
from lowmark.wire.rows.schema import Schema
from lowmark.wire.rows.words import Words

__all__ = ["divided", "tuples_by_pane"]

_FEW = 16
"""Up to this many panes, as batches normally have, are found by linear search."""


def divided(schema: Schema, rows: Words, key: tuple[str, ...], buckets: int) -> Iterator[tuple[int, Words]]:
    """Each bucket that has rows, with its rows in the order of `rows`."""
    if buckets == 1:
        if len(rows):
            yield 0, rows
        return
    bucket = bucket_of(key_words(schema, rows, key), buckets)
    ends = np.zeros(buckets, np.int64)
    parted = np.empty_like(rows)
    _scatter(np.ascontiguousarray(rows), bucket, ends, parted)
    start = 0
    for number, end in enumerate(ends.tolist()):
        if end > start:
            yield number, parted[start:end]
        start = end


@compiled
def _scatter(
    rows: npt.NDArray[np.uint64],
    bucket: npt.NDArray[np.int32],
    ends: npt.NDArray[np.int64],
    parted: npt.NDArray[np.uint64],
) -> None:
    """Sort rows into `parted`, and set `ends` (zeros at first) to the end of each bucket's rows there."""
    for b in bucket:
        ends[b] += 1
    start = 0
    for b in range(ends.shape[0]):
        start, ends[b] = start + ends[b], start
    for i in range(rows.shape[0]):
        place = ends[bucket[i]]
        ends[bucket[i]] = place + 1
        for word in range(rows.shape[1]):
            parted[place, word] = rows[i, word]


def tuples_by_pane(panes: npt.NDArray[np.int64], tuples: npt.NDArray[np.int64]) -> dict[int, int]:
    """The number of tuples of each pane that occurs, in order of panes."""
    if len(panes) and panes[0] == panes[-1] and (panes == panes[0]).all():
        return {int(panes[0]): int(tuples.sum())}
    distinct, sums = np.empty(_FEW, np.int64), np.empty(_FEW, np.int64)
    found = int(_sum_few(panes, tuples, distinct, sums))
    if found < 0:
        distinct, which = np.unique(panes, return_inverse=True)
        sums = np.zeros(len(distinct), np.int64)
        np.add.at(sums, which, tuples)
        found = len(distinct)
    return dict(sorted(zip(distinct[:found].tolist(), sums[:found].tolist(), strict=True)))


@compiled
def _sum_few(
    panes: npt.NDArray[np.int64],
    tuples: npt.NDArray[np.int64],
    distinct: npt.NDArray[np.int64],
    sums: npt.NDArray[np.int64],
) -> int:
    """Returns the number of panes; -1 if the outputs have no room for all of them."""
    found = 0
    at = 0
    for i in range(panes.shape[0]):
        if found == 0 or panes[i] != distinct[at]:
            at = 0
            while at < found and distinct[at] != panes[i]:
                at += 1
            if at == distinct.shape[0]:
                return -1
            if at == found:
                distinct[at], sums[at] = panes[i], 0
                found += 1
        sums[at] += tuples[i]
    return found
