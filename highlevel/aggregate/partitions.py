"""Tuples counted for each value of the partition (PA): numbers that go on from batch to batch.

Counters are spread over 256 sub-buckets, a piece of state each, by another part of the hash than the one that chose the
bucket. Without a partition there is one counter, in one piece.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

from highlevel.aggregate.groups import GroupTable
from highlevel.aggregate.layout import Layout
from highlevel.aggregate.spaces import ONLY, tables_space
from highlevel.aggregate.splitting import split
from highlevel.interface import Space, State, Words
from highlevel.limits import GroupLimit
from lowmark.query.evaluate import Ints
from lowmark.query.plan import Counted
from lowmark.wire.hashing import hash_rows, key_words
from lowmark.wire.schema import Schema

__all__ = ["Partitions", "as_tuples"]

_SHIFT = np.uint64(56)  # the uppermost 8 bits of the hash: 256 sub-buckets

_KNOWN = struct.Struct(">q")

_FRONT = 3
"""Columns of the input that stand before the partition: pane, tuples and what is counted by; a word each."""


def as_tuples(groups: Words) -> Words:
    """Groups in the form of tuples, which have a pane in front."""
    found = np.empty((len(groups), groups.shape[1] + 1), np.uint64)
    found[:, 0] = groups[:, 0] << np.uint64(1)
    found[:, 1] = 0
    found[:, 2:] = groups[:, 1:]
    return found


class Partitions:
    """The partitions of a `Counted`. Rows are of its input."""

    def __init__(self, plan: Counted, limit: GroupLimit | None) -> None:
        self._limit = limit
        self._schema = plan.input
        self._keys = plan.partition
        columns = (*plan.input.columns[: _FRONT - 1], *(plan.input.column(name) for name in plan.partition))
        self._layout = Layout(Schema(columns, plan.input.strings), plan.partition, ())
        self._words = sum(plan.input.column(name).kind.words for name in plan.partition)
        self.space = tables_space("counters", self._layout)
        self._known = Space("partitions", lambda known: _KNOWN.pack(known), lambda data: int(_KNOWN.unpack(data)[0]))

    def spread(self, rows: Words) -> Iterator[tuple[int, Ints]]:
        """The sub-buckets of rows, ascending, each with the places of its rows in the order in which they stand."""
        places = np.arange(len(rows)).astype(np.uint64).reshape(-1, 1)
        if not self._keys:
            yield 0, np.arange(len(rows))
            return
        hashes = hash_rows(key_words(self._schema, rows, self._keys))
        for sub, part in split((hashes >> _SHIFT).astype(np.int64), places):
            yield sub, part[:, 0].astype(np.int64)

    def heads(self, rows: Words) -> Words:
        """The rows of `(pane, tuples, partition…)`."""
        found = np.empty((len(rows), _FRONT + self._words), np.uint64)
        found[:, 1:_FRONT] = rows[:, 1:_FRONT]
        found[:, _FRONT:] = rows[:, 1 + _FRONT : 1 + _FRONT + self._words]
        nulls = np.uint64((1 << len(self._keys)) - 1)
        found[:, 0] = (rows[:, 0] >> np.uint64(_FRONT) & nulls) << np.uint64(_FRONT - 1)
        return found

    def table(self) -> GroupTable:
        """One that tells partitions apart."""
        return GroupTable(self._layout)

    def count(self, sub: int, rows: Words, state: State) -> tuple[GroupTable, Ints, Ints]:
        """Count the tuples of rows of one sub-bucket. The counters, the place of each row's partition in them, and how
        many tuples there are up to each row and with it."""
        counters = state.get(self.space, sub) or self.table()
        before = len(counters)
        places = counters.place(self.heads(rows))
        state.put(self.space, sub, counters)
        self._note_new(len(counters) - before, state)
        tuples = rows[:, 2].view(np.int64)
        order = np.argsort(places, kind="stable")
        running = np.cumsum(tuples[order])
        starts = np.flatnonzero(np.diff(places[order], prepend=-1))
        lengths = np.diff(np.append(starts, len(order)))
        earlier = np.repeat(running[starts] - tuples[order][starts], lengths)
        ends = np.repeat(running[starts + lengths - 1], lengths)
        totals = counters.groups[:, 1].view(np.int64)[places[order]]
        numbers = np.empty(len(rows), np.int64)
        numbers[order] = totals - (ends - earlier) + (running - earlier)
        return counters, places, numbers

    def _note_new(self, new: int, state: State) -> None:
        if new and self._limit is not None and self._keys:
            known = (state.get(self._known, ONLY) or 0) + new
            self._limit.check(known, self._keys)
            state.put(self._known, ONLY, known)

    def numbers(self, rows: Words, state: State) -> Ints:
        """How many tuples each row's partition has up to that row and with it."""
        numbers = np.empty(len(rows), np.int64)
        for sub, places in self.spread(rows):
            numbers[places] = self.count(sub, rows[places], state)[2]
        return numbers
