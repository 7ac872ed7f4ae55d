"""The kernels of a join: chains of rows by the hash of their keys, and the walk along them.

They are compiled once for all queries and run without the GIL. A probe stops when its output is full; the next call
continues where it stopped. Chains run from the newest row to the oldest, so the order of the results depends only on
the rows, not on the size of the index or the seed.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lowmark.jit.compiled import compiled

__all__ = ["START", "chain_rows", "equal_at", "hash_of", "probe_rows"]

Words = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Shorts = npt.NDArray[np.int32]

START = -2
"""Takes the place of a position in a chain whose head has not been looked up yet."""

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_HALF = np.uint64(32)


@compiled
def hash_of(keys: Words, i: int, seed: np.uint64) -> np.uint64:
    h = seed
    for at in range(keys.shape[1]):
        h = (h ^ keys[i, at]) * _P1
        h ^= h >> _HALF
    h *= _P2
    return h ^ (h >> _HALF)


@compiled
def _hash_in(rows: Words, i: int, places: Ints, seed: np.uint64) -> np.uint64:
    """The hash (`hash_of`) of the words at these places of a row."""
    h = seed
    for at in range(places.shape[0]):
        h = (h ^ rows[i, places[at]]) * _P1
        h ^= h >> _HALF
    h *= _P2
    return h ^ (h >> _HALF)


@compiled
def chain_rows(
    rows: Words, places: Ints, start: int, end: int, heads: Shorts, following: Shorts, seed: np.uint64
) -> None:  # fmt: skip
    """Put the rows from `start` up to `end` at the heads of their chains, by the words at these places. `heads` has a
    power of two of entries."""
    mask = np.uint64(heads.shape[0] - 1)
    for i in range(start, end):
        place = np.int64(_hash_in(rows, i, places, seed) & mask)
        following[i] = heads[place]
        heads[place] = i


@compiled
def equal_at(a: Words, i: int, b: Words, j: int) -> bool:
    at = 0
    while at < a.shape[1] and a[i, at] == b[j, at]:
        at += 1
    return bool(at == a.shape[1])


@compiled
def _equal_in(keys: Words, i: int, rows: Words, j: int, places: Ints) -> bool:
    at = 0
    while at < places.shape[0] and keys[i, at] == rows[j, places[at]]:
        at += 1
    return bool(at == places.shape[0])


@compiled
def probe_rows(
    keys: Words, low: Ints, high: Ints, row: int, at: int, stored: Words, places: Ints, times: Ints, first: int,
    last: int, heads: Shorts, following: Shorts, seed: np.uint64, found: Ints, matched: Ints,
) -> tuple[int, int, int]:  # fmt: skip
    """Pairs of a probing row and a stored one with a time from the row's `low` up to its `high`, whose words at these
    places are equal to the row's keys.

    `first` and `last` are the extremes of the stored rows' times. Pairs go to `found` (the probing row) and `matched`;
    their number is the third result. The first two results say where to continue; the first is the number of rows when
    all is done.
    """
    mask = np.uint64(heads.shape[0] - 1)
    count = 0
    for i in range(row, keys.shape[0]):
        if at == START:
            if high[i] <= first or low[i] > last:
                continue
            at = heads[np.int64(hash_of(keys, i, seed) & mask)]
        while at >= 0:
            if low[i] <= times[at] < high[i] and _equal_in(keys, i, stored, at, places):
                if count == found.shape[0]:
                    return i, at, count
                found[count] = i
                matched[count] = at
                count += 1
            at = following[at]
        at = START
    return keys.shape[0], START, count
