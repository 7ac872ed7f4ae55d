"""The kernels of a shared join: rows of one port in chains by key, and the scans that the schedule chooses.

A chain holds the rows of one hash in order of time, the newest first; of rows of one time, the one that came last is
first. A scan is one waiting row's walk over the partners that its next window adds to the last one. It continues where
the previous walk stopped, in both directions, because rows come in any order and partners can be newer.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from highlevel.join.probe_kernel import START, equal_at, hash_of
from lowmark.jit.compiled import compiled

__all__ = ["LWO", "MQT", "SWF", "find_due", "link_rows", "scan_rows"]

Words = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Shorts = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]

LWO, SWF, MQT = 0, 1, 2
"""The schedules (`Scheduling`), as numbers."""


@compiled
def link_rows(
    order: Ints, keys: Words, times: Ints, heads: Shorts, older: Shorts, newer: Shorts, seed: np.uint64
) -> None:
    """Put these rows into their chains; `order`: ascending by time, then by arrival."""
    mask = np.uint64(heads.shape[0] - 1)
    for n in range(order.shape[0]):
        i = order[n]
        place = np.int64(hash_of(keys, i, seed) & mask)
        after = -1
        at = heads[place]
        while at >= 0 and times[at] > times[i]:
            after = at
            at = older[at]
        newer[i] = after
        older[i] = at
        if at >= 0:
            newer[at] = i
        if after >= 0:
            older[after] = i
        else:
            heads[place] = i


@compiled
def _chosen(schedule: int, complete: Ints, level: Ints, gain: Floats) -> int:
    """The waiting row that is served next; -1: no row waits. It is the oldest of the rows that have scanned equally
    many windows. Of rows of equal throughput it is the one that has scanned fewest (fig. 6: over uniform windows MQT
    works as SWF does).

    The first `complete[n]` rows have scanned at least n windows: no row has scanned more than an older one.
    """
    windows = complete.shape[0] - 1
    if complete[windows] == complete[0]:
        return -1
    best = -1
    most = -1.0
    for met in range(windows - 1, -1, -1):
        row = int(complete[met + 1])
        if row < complete[met]:
            if schedule == LWO:
                return row
            if schedule == SWF:
                best = row
            else:
                upto = level[row - 1] if row > 0 else windows
                if gain[met, upto] >= most:
                    most = gain[met, upto]
                    best = row
    return best


@compiled
def _find_place(
    row: int, keys: Words, i: int, first: bool, low: int, high: int, down: Ints, up: Ints, times: Ints, heads: Shorts,
    older: Shorts, seed: np.uint64,
) -> int:  # fmt: skip
    """Set where the row's walks begin: around the window [low, high) that it has scanned; if it has scanned none
    (`first`), at the newer end of the first one. Returns the number of rows examined."""
    at = heads[np.int64(hash_of(keys, i, seed) & np.uint64(heads.shape[0] - 1))]
    examined = 0
    up[row] = -1
    while at >= 0 and times[at] >= high:
        up[row] = at
        at = older[at]
        examined += 1
    while not first and at >= 0 and times[at] >= low:
        at = older[at]
        examined += 1
    down[row] = at
    return examined


@compiled
def _scan(
    row: int, i: int, number: int, met: int, seed: np.uint64, own: Words, low: Ints, high: Ints, down: Ints, up: Ints,
    keys: Words, times: Ints, numbers: Ints, heads: Shorts, older: Shorts, newer: Shorts,
    found: int, outer: Ints, partner: Ints, ring: Ints,
) -> tuple[bool, int, int]:  # fmt: skip
    """Match a waiting row, row `i` of its port, with the partners that its next window adds to the `met` windows: rows
    of the other port that came before it. Returns whether all are matched, the results found, and the rows examined."""
    examined = 0
    if down[row] == START:
        inner = max(met - 1, 0)
        examined += _find_place(
            row, own, i, met == 0, low[row, inner], high[row, inner], down, up, times, heads, older, seed
        )
    while down[row] >= 0 and times[down[row]] >= low[row, met]:
        j = down[row]
        if numbers[j] < number and equal_at(own, i, keys, j):
            if found == outer.shape[0]:
                return False, found, examined
            outer[found] = row
            partner[found] = j
            ring[found] = met
            found += 1
        examined += 1
        down[row] = older[j]
    while up[row] >= 0 and times[up[row]] < high[row, met]:
        j = up[row]
        if numbers[j] < number and equal_at(own, i, keys, j):
            if found == outer.shape[0]:
                return False, found, examined
            outer[found] = row
            partner[found] = j
            ring[found] = met
            found += 1
        examined += 1
        up[row] = newer[j]
    return True, found, examined


@compiled
def scan_rows(
    schedule: int, budget: int, seed: np.uint64, gain: Floats, complete: Ints, port: Ints, at: Ints, numbers: Ints,
    level: Ints, low: Ints, high: Ints, down: Ints, up: Ints,
    keys0: Words, times0: Ints, numbers0: Ints, heads0: Shorts, older0: Shorts, newer0: Shorts,
    keys1: Words, times1: Ints, numbers1: Ints, heads1: Shorts, older1: Shorts, newer1: Shorts,
    outer: Ints, partner: Ints, ring: Ints,
) -> tuple[int, int, int, int]:  # fmt: skip
    """Do up to `budget` scans. Results go to `outer` (the waiting row), `partner` (its row in the other port's arrays)
    and `ring` (the number of the least window that holds both).

    Returns scans ended, results found, rows examined, and the last row whose scan has ended. The row is -1 if the
    results are full before the last scan has ended; the next call continues it."""
    scans = 0
    found = 0
    examined = 0
    last = -1
    while scans < budget:
        row = _chosen(schedule, complete, level, gain)
        if row < 0:
            break
        met = level[row]
        if port[row] == 0:
            ended, found, looked = _scan(
                row, at[row], numbers[row], met, seed, keys0, low, high, down, up,
                keys1, times1, numbers1, heads1, older1, newer1, found, outer, partner, ring,
            )  # fmt: skip
        else:
            ended, found, looked = _scan(
                row, at[row], numbers[row], met, seed, keys1, low, high, down, up,
                keys0, times0, numbers0, heads0, older0, newer0, found, outer, partner, ring,
            )  # fmt: skip
        examined += looked
        if not ended:
            last = -1
            break
        level[row] = met + 1
        complete[met + 1] += 1
        scans += 1
        last = row
    return scans, found, examined, last


@compiled
def find_due(
    schedule: int, complete: Ints, last: int, outer: Ints, ring: Ints, sent: Ints, due: Ints
) -> tuple[int, int]:  # fmt: skip
    """Set, for each result, a bit in `due` and in `sent` for each output that it may go to now. Returns how many
    results are due anywhere, and how many have gone to all their outputs.

    An output gets the results of a row only after all results of older rows. The row whose turn it is need not wait
    until its scan of the output's window has ended: its results go out as they are found, or (SWF: the paper's fig. 3)
    after each scan."""
    windows = complete.shape[0] - 1
    found = 0
    gone = 0
    for i in range(outer.shape[0]):
        bits = 0
        for output in range(ring[i], windows):
            turn = complete[output + 1]
            early = outer[i] == turn and (schedule != SWF or last == turn)
            if (outer[i] < turn or early) and sent[i] >> output & 1 == 0:
                bits |= 1 << output
        due[i] = bits
        if bits != 0:
            sent[i] |= bits
            found += 1
        if sent[i] >> ring[i] == (1 << (windows - ring[i])) - 1:
            gone += 1
    return found, gone
