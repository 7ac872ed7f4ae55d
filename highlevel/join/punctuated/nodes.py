"""The rows that a punctuated join keeps of one input, in lists by value and by time (Ding 4.1, figure 3).

A T-node holds a row. It is in the list of the rows of its value, and in the list of the rows of its time. An I-node
stands for a value: it heads the list of its rows, and holds the time below which its input has promised the value, if
it has (PunctFlag). All of them are positions in arrays: no object is made for a row or a value.

Ding's time list is one list in order of time. Here rows come in any order, so it is a list for each bin of time: a bin
that reaches beyond the frontier is scanned again later. Bins are also the pieces of state (`node_pieces`); the lists
are made from them when first needed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from highlevel.interface import Words
from highlevel.join.probe_kernel import START
from highlevel.join.punctuated.node_kernel import (
    find_nodes,
    link_nodes,
    link_rows,
    make_nodes,
    probe_lists,
    promise,
    remove_older,
)
from lowmark.jit.native_code import Laid
from lowmark.wire.rows.values import FOREVER, NEVER

__all__ = ["Nodes"]

Ints = npt.NDArray[np.int64]
Shorts = npt.NDArray[np.int32]  # positions: fewer rows than 2^31 are kept of an input

MOST_PROMISED = 1 << 16
"""Most promised values remembered of an input. Beyond this limit promises are lost, never rows."""

_PAIRS = 1 << 15
"""Most pairs found at a time. Their combinations must fit into memory, however skewed the values are."""

_LEAST = 64
_GROWTH = 8
"""A full array grows by an eighth. Removed rows take room until they are a third of all rows."""
_INDEX_GROWTH = 2
"""The arrays of I-nodes grow by half, because all chains are linked again."""

_STORED, _GONE = -1, -2
"""Owners of removed rows: of those that may still be in the stored state, and of those that are not."""

# Values come from the network. Neither the rows found nor their order depend on the seed.
_SEED = np.uint64(secrets.randbits(64))


@dataclass(slots=True)
class _TNodes:
    """The first `used` entries of each array are valid. `laid`: the arrays that kernels take, as they take them."""

    rows: Words
    times: Ints  # a column of `rows`
    numbers: Ints  # number of arrival
    owners: Shorts  # the I-node; below 0: the row was removed
    bins: Shorts
    next_value: Shorts
    next_time: Shorts
    laid: Laid
    used: int = 0
    removed: int = 0

    @classmethod
    def of(cls, room: int, words: int, at: int) -> _TNodes:
        """`at`: the word of a row that holds its time."""
        rows, numbers = np.empty((room, words), np.uint64), np.empty(room, np.int64)
        times = rows[:, at].view(np.int64)
        owners, bins, next_value, next_time = np.empty((4, room), np.int32)
        laid = Laid(owners, times, bins, next_value, next_time)
        return cls(rows, times, numbers, owners, bins, next_value, next_time, laid)


@dataclass(slots=True)
class _INodes:
    """The first `used` entries of each array except `slots` are valid. `laid` as that of T-nodes."""

    keys: Words
    slots: Shorts  # the hash table: the first I-node of each chain
    following: Shorts  # the next one in the chain
    heads: Shorts
    counts: Shorts  # number of rows
    waiting: Shorts  # rows below the bound
    bounds: Ints  # no later row of the input has the value and a time below this; NEVER: no promise
    told: Ints  # the bound that the output was promised
    dirty: npt.NDArray[np.bool_]  # the bounds have changed since they were stored
    laid: Laid
    used: int = 0

    @classmethod
    def of(cls, room: int, words: int) -> _INodes:
        slots = np.full(1 << (room - 1).bit_length(), -1, np.int32)
        following, heads = np.full((2, room), -1, np.int32)
        counts, waiting = np.zeros((2, room), np.int32)
        bounds, told = np.full((2, room), NEVER)
        keys = np.zeros((room, words), np.uint64)
        laid = Laid(slots, following, keys, _SEED, bounds, heads, counts, waiting)
        return cls(keys, slots, following, heads, counts, waiting, bounds, told, np.zeros(room, np.bool_), laid)


@dataclass(slots=True)
class _Bins:
    """The bins of time: where the list of each begins. `places`: by key; `stored`: by place, the number of the first
    row that is not in the stored state; `laid` as that of T-nodes."""

    keys: list[int] = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)
    stored: dict[int, int] = field(default_factory=dict)
    heads: Shorts = field(default_factory=lambda: np.full(_LEAST, -1, np.int32))
    counts: Shorts = field(default_factory=lambda: np.zeros(_LEAST, np.int32))
    changed: Shorts = field(default_factory=lambda: np.zeros(_LEAST, np.int32))
    laid: Laid = field(init=False)

    def __post_init__(self) -> None:
        self.laid = Laid(self.heads, self.counts, self.changed)

    def place(self, key: int) -> int:
        found = self.places.get(key)
        if found is None:
            found = self.places[key] = len(self.keys)
            self.keys.append(key)
            if found == len(self.heads):
                room = np.zeros(found, np.int32)
                self.heads = np.concatenate((self.heads, room - 1))
                self.counts, self.changed = np.concatenate((self.counts, room)), np.concatenate((self.changed, room))
                self.laid = Laid(self.heads, self.counts, self.changed)
        return found


class Nodes:
    """`at`: the word of a row that holds its time; `width`: ns of a bin; `key_words`: words of a value."""

    def __init__(self, at: int, width: int, words: int, key_words: int) -> None:
        self._at = at
        self._width = width
        self._t = _TNodes.of(_LEAST, words, at)
        self._i = _INodes.of(_LEAST, key_words)
        self._bins = _Bins()
        self._arrivals = 0
        self._lines: int | None = None  # lines of promised values in the stored state; None: they must be written anew
        self._changed = False  # whether a bin has
        self._until = NEVER  # the greatest bound of a promise that ends; NEVER: there is none
        self._looked_at = 0  # number of I-nodes when the unused ones were last counted

    @property
    def held(self) -> int:
        """Bytes of memory, with room to grow."""
        t, i = self._t, self._i
        parts = (t.rows, t.numbers, t.owners, t.bins, t.next_value, t.next_time, i.keys, i.slots, i.following, i.heads)
        return sum(part.nbytes for part in (*parts, i.counts, i.waiting, i.bounds, i.told))

    def __len__(self) -> int:
        """Number of rows."""
        return self._t.used - self._t.removed

    @property
    def promised(self) -> int:
        """Number of promised values that are remembered."""
        return int((self._i.bounds[: self._i.used] != NEVER).sum())

    @property
    def expiring(self) -> bool:
        """Whether a promise with a bound in time is remembered."""
        return self._until > NEVER

    def find(self, keys: Words) -> tuple[Ints, Ints | None]:
        """The I-node of each key; -1: there is none. And the times below which the input has promised to send no more
        rows of them; None: it has promised none of them."""
        found, bounds = np.empty((2, len(keys)), np.int64)
        return found, bounds if find_nodes(keys, found, bounds, self._i.laid) else None

    def bounds(self, nodes: Ints) -> Ints:
        """The times below which the input has promised to send no more rows of these I-nodes."""
        return self._i.bounds[nodes]

    def probe(self, nodes: Ints, low: Ints, high: Ints) -> Iterator[tuple[Ints, Words]]:
        """Pairs of a probing row, given by the I-node of its partners, and a row of this input with a time from the
        probing row's `low` up to its `high`, in runs."""
        row, at = 0, START
        while row < len(nodes):
            found, matched = np.empty(_PAIRS, np.int64), np.empty(_PAIRS, np.int64)
            row, at, count = probe_lists(nodes, low, high, row, at, found, matched, self._i.laid, self._t.laid)
            if count:
                yield found[:count], self._t.rows[matched[:count]]

    def add(self, rows: Words, keys: Words, nodes: Ints) -> None:
        """Keep rows, given with their keys and with their I-nodes as far as there are any."""
        if len(rows):
            places = self._places(rows[:, self._at].view(np.int64) // self._width)
            self._add(rows, keys, nodes, self._arrivals + np.arange(len(rows)), places)
            self._arrivals += len(rows)

    def drop_before(self, alive: int) -> Ints:
        """Remove rows older than this time. Returns the I-nodes of promised values that thereby have no row below their
        bound."""
        last = FOREVER if alive == FOREVER else alive // self._width
        old = [place for key, place in self._bins.places.items() if key <= last]
        return self._remove_older(np.array(old, np.int64), False, alive)

    def purge(self, nodes: Ints, alive: int) -> Ints:
        """Remove the rows of these I-nodes older than this time, because the other input has promised their values.
        Returns those I-nodes whose values this input has promised, too, and that thereby have no row below their
        bound."""
        if not (nodes >= 0).any():
            return nodes[:0]
        return self._remove_older(nodes, True, alive)

    def promise(self, keys: Words, bound: int) -> tuple[Ints, Ints]:
        """Note this input's promise of these values below this time. Returns their I-nodes, and those of them that have
        no row below it."""
        self._reserve(len(keys))
        self._until = max(self._until, NEVER if bound == FOREVER else bound)
        nodes, done = np.empty((2, len(keys)), np.int64)
        self._i.used, count = promise(keys, bound, nodes, done, self._i.used, self._i.laid, self._t.laid)
        self._i.dirty[nodes] = True
        self._limit()
        return nodes, done[:count]

    def tell(self, nodes: Ints) -> Ints:
        """Returns the bounds of these I-nodes. They count as promised to the output from now on."""
        bounds = self.bounds(nodes)
        self._i.told[nodes] = bounds
        self._i.dirty[nodes] = True
        return bounds

    def told(self, nodes: Ints) -> Ints:
        """The bounds that the output was promised."""
        return np.where(nodes < 0, NEVER, self._i.told[nodes])

    def keys(self, nodes: Ints) -> Words:
        return self._i.keys[nodes]

    def forget(self, nodes: Ints) -> None:
        """Forget the promises of these values: they exclude nothing any more."""
        for array in (self._i.bounds, self._i.told):
            array[nodes] = NEVER
        self._i.waiting[nodes] = 0
        self._i.dirty[nodes] = True

    def forget_below(self, time: int) -> bool:
        """Forget promises below this time: no later row of the output has an older row of this input. Returns whether
        there were any."""
        if self._until == NEVER:
            return False
        bounds = self._i.bounds[: self._i.used]
        old = np.flatnonzero((bounds != NEVER) & (bounds <= time) & (bounds < FOREVER))
        self.forget(old)
        self._until = NEVER if self._until <= time else self._until
        return len(old) > 0

    def tidy(self) -> None:
        """Free the memory of removed rows and values once it is much."""
        i, gone = self._i, 0
        if i.used > _LEAST + self._looked_at + self._looked_at // 2:
            gone = int(((i.counts[: i.used] == 0) & (i.bounds[: i.used] == NEVER)).sum())
            self._looked_at = i.used
        if self._t.removed > _LEAST + len(self) // 2 or gone > _LEAST + (i.used - gone) // 2:
            self._compact()

    def rows_of(self, key: int) -> tuple[Words]:
        """The rows of a bin in order of arrival, as one run, each with its number as one word more."""
        t = self._t
        place = self._bins.places.get(key, -1)
        return (self._numbered(np.flatnonzero((t.bins[: t.used] == place) & (t.owners[: t.used] >= 0))),)

    def bin_news(self, key: int) -> tuple[Words, Ints] | None:
        """The rows of a bin, with their numbers, that came since the last call or since it was read, and the numbers of
        those that were removed; None: it has to be written anew. Call this only to store them."""
        t, bins, place = self._t, self._bins, self._bins.places[key]
        since, bins.stored[place] = bins.stored.get(place), self._arrivals
        gone = np.flatnonzero((t.owners[: t.used] == _STORED) & (t.bins[: t.used] == place))
        t.owners[gone] = _GONE
        if since is None:
            return None
        first = int(np.searchsorted(t.numbers[: t.used], since))
        added = first + np.flatnonzero((t.bins[first : t.used] == place) & (t.owners[first : t.used] >= 0))
        return self._numbered(added), t.numbers[gone[gone < first]]

    def take_changed(self) -> list[tuple[int, bool]]:
        """The keys of the bins that have changed since the last call, each with whether it still has rows."""
        if not self._changed:
            return []
        bins = self._bins
        places = np.flatnonzero(bins.changed[: len(bins.keys)]).tolist()
        bins.changed[:] = 0
        self._changed = False
        for place in places:
            if not bins.counts[place]:
                bins.stored.pop(place, None)
        return sorted((bins.keys[place], bool(bins.counts[place])) for place in places)

    def load(self, bins: Mapping[int, Sequence[Words]], keys_of: Callable[[Words], Words]) -> None:
        """Put rows from the state, by bin in runs and with their numbers, into the lists, which are empty. `keys_of`:
        the values of rows."""
        count = sum(len(run) for runs in bins.values() for run in runs)
        if not count:
            return
        self._t = t = _TNodes.of(max(_LEAST, count + count // _GROWTH), self._t.rows.shape[1], self._at)
        start = 0
        for key, runs in bins.items():
            for run in runs:
                part = slice(start, start + len(run))
                t.rows[part], t.numbers[part] = run[:, :-1], run[:, -1].view(np.int64)
                t.bins[part] = self._bins.place(key)
                start = part.stop
        if (t.numbers[1:count] < t.numbers[: count - 1]).any():
            order = np.argsort(t.numbers[:count], kind="stable")
            for array in (t.rows, t.numbers, t.bins):
                array[:count] = array[order]
        t.used, self._arrivals = count, int(t.numbers[count - 1]) + 1
        self._reserve(count + count // _GROWTH)
        t.owners[:count] = self._made(keys_of(t.rows[:count]), np.full(count, -1))
        link_rows(0, count, self._i.laid, t.laid, self._bins.laid)
        self._wait_again()
        self._bins.changed[:] = 0
        self._bins.stored = dict.fromkeys(range(len(bins)), self._arrivals)

    def flags(self) -> tuple[Words, Ints, Ints]:
        """The promised values with their bounds and the bounds that the output was promised."""
        which = np.flatnonzero(self._i.bounds[: self._i.used] != NEVER)
        return self._i.keys[which], self._i.bounds[which], self._i.told[which]

    def promised_lines(self) -> Words:
        """The promised values as they are stored: each with its bound and the bound that the output was promised."""
        lines = self._lines_of(np.flatnonzero(self._i.bounds[: self._i.used] != NEVER))
        self._lines = len(lines)
        return lines

    def promised_news(self) -> Words | None:
        """The values whose bounds have changed since the last call or since they were read, as lines; without bounds:
        they were forgotten. None: all have to be written anew. Call this only to store them."""
        dirty = np.flatnonzero(self._i.dirty[: self._i.used])
        self._i.dirty[dirty] = False
        if self._lines is None or self._lines + len(dirty) > _LEAST + 2 * self.promised:
            return None
        self._lines += len(dirty)
        return self._lines_of(dirty)

    def set_promised(self, lines: Words) -> None:
        """Take promised values from the state; of a value with several lines the last one counts."""
        if len(lines):
            nodes = self._made(np.ascontiguousarray(lines[:, :-2]), np.full(len(lines), -1))
            bounds, told = lines[:, -2].view(np.int64), lines[:, -1].view(np.int64)
            self._i.bounds[nodes], self._i.told[nodes] = bounds, told
            self._until = int(bounds.max(initial=NEVER, where=bounds < FOREVER))
        self._lines = len(lines)

    def _remove_older(self, lists: Ints, by_value: bool, alive: int) -> Ints:
        if not len(lists):
            return lists
        done = np.empty(self._i.used, np.int64)
        removed, count = remove_older(
            lists, by_value, alive, done, self._i.laid, self._t.laid, self._bins.laid
        )  # fmt: skip
        self._t.removed += removed
        self._changed |= removed > 0
        return done[:count]

    def _numbered(self, which: Ints) -> Words:
        return np.column_stack((self._t.rows[which], self._t.numbers[which].view(np.uint64)))

    def _lines_of(self, nodes: Ints) -> Words:
        i = self._i
        return np.column_stack((i.keys[nodes], i.bounds[nodes].view(np.uint64), i.told[nodes].view(np.uint64)))

    def _places(self, keys: Ints) -> Shorts:
        """The places of the bins with these keys."""
        first = int(keys[0])
        if (keys == first).all():
            return np.full(len(keys), self._bins.place(first), np.int32)
        different, inverse = np.unique(keys, return_inverse=True)
        return np.array([*map(self._bins.place, different.tolist())], np.int32)[inverse]

    def _add(self, rows: Words, keys: Words, nodes: Ints, numbers: Ints, places: Shorts) -> None:
        owners = self._made(keys, nodes)
        t, bins = self._t, self._bins
        start, stop = t.used, t.used + len(rows)
        if stop > len(t.owners):
            self._t = t = _larger(t, max(stop, len(t.owners) + len(t.owners) // _GROWTH), self._at)
        t.rows[start:stop], t.numbers[start:stop] = rows, numbers
        t.owners[start:stop], t.bins[start:stop] = owners, places
        t.used, self._changed = stop, True
        link_rows(start, stop, self._i.laid, t.laid, bins.laid)

    def _made(self, keys: Words, nodes: Ints) -> Ints:
        """The I-nodes of these keys; missing ones are made."""
        missing = int((nodes < 0).sum())
        if not missing:
            return nodes
        self._reserve(missing)
        nodes = nodes.copy()
        self._i.used = make_nodes(keys, nodes, self._i.used, self._i.laid)
        return nodes

    def _reserve(self, more: int) -> None:
        """Make room for so many I-nodes more."""
        i = self._i
        if i.used + more > len(i.heads):
            self._i = _larger_index(i, max(i.used + more, len(i.heads) + len(i.heads) // _INDEX_GROWTH))

    def _compact(self) -> None:
        t, i, bins = self._t, self._i, self._bins
        left = np.flatnonzero(t.owners[: t.used] >= 0)
        untold = {*np.unique(t.bins[: t.used][t.owners[: t.used] == _STORED]).tolist()}
        stored = {bins.keys[place]: number for place, number in bins.stored.items() if place not in untold}
        kept = np.flatnonzero((i.counts[: i.used] > 0) | (i.bounds[: i.used] != NEVER))
        if i.dirty[: i.used].any():
            self._lines = None  # forgotten values leave here
        renumbered = np.full(i.used, -1, np.int32)
        renumbered[kept] = np.arange(len(kept))
        changed = [key for key, place in bins.places.items() if bins.changed[place]]
        emptied = [key for key in changed if not bins.counts[bins.places[key]]]
        self._i = _INodes.of(max(_LEAST, len(kept) + len(kept) // _GROWTH), i.keys.shape[1])
        for name in ("keys", "waiting", "bounds", "told"):
            getattr(self._i, name)[: len(kept)] = getattr(i, name)[kept]
        self._i.used = self._looked_at = len(kept)
        link_nodes(0, len(kept), self._i.laid)
        self._t = _TNodes.of(max(_LEAST, len(left) + len(left) // _GROWTH), t.rows.shape[1], self._at)
        self._bins = _Bins()
        for key in emptied:
            self._bins.place(key)
        places = np.array([self._bins.place(key) if bins.counts[place] else -1 for key, place in bins.places.items()])
        stop = self._t.used = len(left)
        self._t.rows[:stop], self._t.numbers[:stop] = t.rows[left], t.numbers[left]
        self._t.owners[:stop] = renumbered[t.owners[left]]
        if stop:
            self._t.bins[:stop] = places[t.bins[left]]
        link_rows(0, stop, self._i.laid, self._t.laid, self._bins.laid)
        self._bins.changed[:] = 0
        for key in changed:
            self._bins.changed[self._bins.place(key)] = 1
        self._bins.stored = {
            self._bins.places[key]: number for key, number in stored.items() if key in self._bins.places
        }

    def _wait_again(self) -> None:
        """Count the rows below the bounds of promised values."""
        t, i = self._t, self._i
        if not (i.bounds[: i.used] != NEVER).any():
            return
        which = np.flatnonzero(t.owners[: t.used] >= 0)
        owners = t.owners[which]
        below = t.times[which] < i.bounds[owners]
        i.waiting[: i.used] = np.bincount(owners[below], minlength=i.used)

    def _limit(self) -> None:
        """Forget promises beyond the limit: those of the least bounds first, of equal bounds those of the least
        values."""
        if self._i.used <= MOST_PROMISED:
            return
        keys, bounds, _ = self.flags()
        if len(keys) > MOST_PROMISED:
            order = np.lexsort((*keys.T[::-1], bounds))
            self.forget(self.find(np.ascontiguousarray(keys[order[: len(keys) - MOST_PROMISED]]))[0])


def _larger(t: _TNodes, room: int, at: int) -> _TNodes:
    grown = _TNodes.of(room, t.rows.shape[1], at)
    for name in ("rows", "numbers", "owners", "bins", "next_value", "next_time"):
        getattr(grown, name)[: t.used] = getattr(t, name)[: t.used]
    grown.used, grown.removed = t.used, t.removed
    return grown


def _larger_index(i: _INodes, room: int) -> _INodes:
    grown = _INodes.of(room, i.keys.shape[1])
    for name in ("keys", "heads", "counts", "waiting", "bounds", "told", "dirty"):
        getattr(grown, name)[: i.used] = getattr(i, name)[: i.used]
    grown.used = i.used
    link_nodes(0, i.used, grown.laid)
    return grown
