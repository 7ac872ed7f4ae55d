"""The kernels of a punctuated join: they build, probe and purge lists of T-nodes by value and by time (Ding 4.1, 4.3).

Nodes are positions in arrays: a T-node in `owners` and the arrays beside it, an I-node in `heads` and those beside it.
A removed T-node has no owner. It leaves a list when the next walk passes it (lazy deletion, 4.3). Value lists run from
the row that came last to the first, so that the results and their order depend on the rows alone.

Kernels take all arrays of a kind together and in the same order, because arrays that are laid out once cost nothing in
a call: those of I-nodes (`slots` to `waiting`), of T-nodes (`owners` to `next_time`) and of bins.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from highlevel.join.probe_kernel import START, equal_at, hash_of
from lowmark.jit.compiled import compiled
from lowmark.wire.rows.values import NEVER

__all__ = [
    "find_nodes",
    "link_nodes",
    "link_rows",
    "make_nodes",
    "probe_lists",
    "promise",
    "remove_older",
]

Words = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Shorts = npt.NDArray[np.int32]


@compiled
def _slot(keys: Words, i: int, slots: Shorts, seed: np.uint64) -> int:
    return int(np.int64(hash_of(keys, i, seed) & np.uint64(slots.shape[0] - 1)))


@compiled
def _find(keys: Words, i: int, slots: Shorts, following: Shorts, known: Words, seed: np.uint64) -> int:
    at = slots[_slot(keys, i, slots, seed)]
    while at >= 0 and not equal_at(keys, i, known, at):
        at = following[at]
    return int(at)


@compiled
def _found_or_made(
    keys: Words, i: int, used: int, slots: Shorts, following: Shorts, known: Words, seed: np.uint64,
) -> int:  # fmt: skip
    """The I-node of a key; if there is none, it is made, as the one at `used`."""
    at = _find(keys, i, slots, following, known, seed)
    if at < 0:
        at = used
        for word in range(keys.shape[1]):
            known[at, word] = keys[i, word]
        slot = _slot(keys, i, slots, seed)
        following[at] = slots[slot]
        slots[slot] = at
    return at


@compiled
def _find_nodes(
    keys: Words, found: Ints, promised: Ints, slots: Shorts, following: Shorts, known: Words, seed: np.uint64,
    bounds: Ints, heads: Shorts, counts: Shorts, waiting: Shorts,
) -> int:  # fmt: skip
    """The I-node of each key, and the bound up to which its value is promised; -1 and NEVER: there is none. Returns the
    number of those that are promised."""
    count = 0
    for i in range(keys.shape[0]):
        node = _find(keys, i, slots, following, known, seed)
        found[i] = node
        promised[i] = NEVER if node < 0 else bounds[node]
        count += promised[i] > NEVER
    return count


@compiled
def _link_nodes(
    first: int, stop: int, slots: Shorts, following: Shorts, known: Words, seed: np.uint64, bounds: Ints,
    heads: Shorts, counts: Shorts, waiting: Shorts,
) -> None:  # fmt: skip
    """Put I-nodes into their chains; `slots` has a power of two of entries."""
    for i in range(first, stop):
        slot = _slot(known, i, slots, seed)
        following[i] = slots[slot]
        slots[slot] = i


@compiled
def _make_nodes(
    keys: Words, nodes: Ints, used: int, slots: Shorts, following: Shorts, known: Words, seed: np.uint64,
    bounds: Ints, heads: Shorts, counts: Shorts, waiting: Shorts,
) -> int:  # fmt: skip
    """Give an I-node to each key that has none; returns the number of I-nodes then."""
    for i in range(keys.shape[0]):
        if nodes[i] < 0:
            nodes[i] = _found_or_made(keys, i, used, slots, following, known, seed)
            used += nodes[i] == used
    return used


@compiled
def _link_rows(
    start: int, stop: int, slots: Shorts, following: Shorts, known: Words, seed: np.uint64, bounds: Ints,
    heads: Shorts, counts: Shorts, waiting: Shorts, owners: Shorts, times: Ints, bins: Shorts, next_value: Shorts,
    next_time: Shorts, bin_heads: Shorts, bin_counts: Shorts, bin_changed: Shorts,
) -> None:  # fmt: skip
    """Put T-nodes at the heads of the lists of their value and of their time."""
    for i in range(start, stop):
        node = owners[i]
        next_value[i] = heads[node]
        heads[node] = i
        counts[node] += 1
        at = bins[i]
        next_time[i] = bin_heads[at]
        bin_heads[at] = i
        bin_counts[at] += 1
        bin_changed[at] = 1


@compiled
def _probe_lists(
    nodes: Ints, low: Ints, high: Ints, row: int, at: int, found: Ints, matched: Ints, slots: Shorts,
    following: Shorts, known: Words, seed: np.uint64, bounds: Ints, heads: Shorts, counts: Shorts, waiting: Shorts,
    owners: Shorts, times: Ints, bins: Shorts, next_value: Shorts, next_time: Shorts,
) -> tuple[int, int, int]:  # fmt: skip
    """Pairs of a probing row, given by the I-node of its partners, and a partner with a time from the row's `low` up to
    its `high`. Their number is the third result. The first two results say where to continue; the first is the number
    of rows when all is done.
    """
    count = 0
    for i in range(row, nodes.shape[0]):
        before = -2  # the node before is unknown in a list that is continued
        if at == START:
            at = heads[nodes[i]] if nodes[i] >= 0 else -1
            before = -1
        while at >= 0:
            after = next_value[at]
            if owners[at] < 0:
                if before == -1:
                    heads[nodes[i]] = after
                elif before >= 0:
                    next_value[before] = after
            else:
                if low[i] <= times[at] < high[i]:
                    if count == found.shape[0]:
                        return i, at, count
                    found[count] = i
                    matched[count] = at
                    count += 1
                before = at
            at = after
        at = START
    return nodes.shape[0], START, count


@compiled
def _remove_older(
    lists: Ints, by_value: bool, alive: int, done: Ints, slots: Shorts, following: Shorts, known: Words,
    seed: np.uint64, bounds: Ints, heads: Shorts, counts: Shorts, waiting: Shorts, owners: Shorts, times: Ints,
    bins: Shorts, next_value: Shorts, next_time: Shorts, bin_heads: Shorts, bin_counts: Shorts, bin_changed: Shorts,
) -> tuple[int, int]:  # fmt: skip
    """Remove the rows of these lists, of values or of times, that are older than `alive`; a list below 0 is none.
    Returns the number of rows, and how many I-nodes are in `done`: those of promised values that have no row below
    their bound any more. None is there twice."""
    firsts, next_row = (heads, next_value) if by_value else (bin_heads, next_time)
    removed, count = 0, 0
    for n in range(lists.shape[0]):
        if lists[n] < 0:
            continue
        before = -1
        at = firsts[lists[n]]
        while at >= 0:
            after = next_row[at]
            node = owners[at]
            if node >= 0 and times[at] < alive:
                removed += 1
                owners[at] = -1
                counts[node] -= 1
                bin_counts[bins[at]] -= 1
                bin_changed[bins[at]] = 1
                if times[at] < bounds[node]:
                    waiting[node] -= 1
                    if waiting[node] == 0:
                        done[count] = node
                        count += 1
            if owners[at] >= 0:
                before = at
            elif before < 0:
                firsts[lists[n]] = after
            else:
                next_row[before] = after
            at = after
    return removed, count


@compiled
def _promise(
    keys: Words, bound: int, nodes: Ints, done: Ints, used: int, slots: Shorts, following: Shorts, known: Words,
    seed: np.uint64, bounds: Ints, heads: Shorts, counts: Shorts, waiting: Shorts, owners: Shorts, times: Ints,
    bins: Shorts, next_value: Shorts, next_time: Shorts,
) -> tuple[int, int]:  # fmt: skip
    """Note this input's promise that no later row has one of these values and a time below the bound. Returns the
    number of I-nodes then, and how many of those of the values, which are in `nodes`, are in `done`: those without a
    row below the bound. None is there twice."""
    count = 0
    for n in range(keys.shape[0]):
        node = _found_or_made(keys, n, used, slots, following, known, seed)
        used += node == used
        nodes[n] = node
        if bound <= bounds[node]:
            continue
        bounds[node] = bound
        waiting[node] = 0
        at = heads[node]
        while at >= 0:
            if owners[at] >= 0 and times[at] < bound:
                waiting[node] += 1
            at = next_value[at]
        if waiting[node] == 0:
            done[count] = node
            count += 1
    return used, count


find_nodes: Callable[..., int] = _find_nodes
link_nodes: Callable[..., None] = _link_nodes
make_nodes: Callable[..., int] = _make_nodes
link_rows: Callable[..., None] = _link_rows
probe_lists: Callable[..., tuple[int, int, int]] = _probe_lists
remove_older: Callable[..., tuple[int, int]] = _remove_older
promise: Callable[..., tuple[int, int]] = _promise
