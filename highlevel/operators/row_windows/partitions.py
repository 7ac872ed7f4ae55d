"""Counts tuples for each value of the partition (PA); the numbers continue from batch to batch.

Counters are spread over 256 sub-buckets, one piece of state each, by a part of the hash that does not choose the
bucket. Without a partition there is one counter, in one piece.

If the plan has an `expire`, a partition has *lives*: a life ends when the next tuple is later than the latest time so
far by more than `expire`. A tuple's life depends only on the tuples and their order of arrival. The state of a life is
dropped once a promise says that none of its tuples can come any more, at the latest with the first tuple of the next.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import numpy as np

from highlevel.groups.group_table import GroupTable
from highlevel.groups.layout import GROUP_TUPLES, Layout
from highlevel.groups.split import split
from highlevel.groups.state import tables_space
from highlevel.interface import ONLY, Space, State, Words
from highlevel.limits import GroupLimit
from lowmark.query.bind.keys import free_name
from lowmark.query.expr.evaluate import Bools, Ints
from lowmark.query.plan.nodes import Counted, Fold, FoldOp
from lowmark.wire.records.partials import PANE_WORD, TUPLES_WORD
from lowmark.wire.rows.hashing import hash_rows, key_words
from lowmark.wire.rows.schema import Column, Kind, Schema
from lowmark.wire.rows.values import INT64_MIN

__all__ = ["Partitions", "as_tuples"]

_SHIFT = np.uint64(56)  # the uppermost 8 bits of the hash: 256 sub-buckets

_NUMBER = struct.Struct(">q")

_FRONT = 3
"""Columns of the input before the partition: pane, tuples and what is counted by; one word each."""

_LOOKS = 8
"""All partitions are searched this many times per `expire`, so an idle one is kept longer by at most that fraction."""


def as_tuples(groups: Words) -> Words:
    """Groups in the form of tuples, which begin with a pane."""
    found = np.empty((len(groups), groups.shape[1] + 1), np.uint64)
    found[:, 0] = groups[:, 0] << np.uint64(1)
    found[:, PANE_WORD] = 0
    found[:, TUPLES_WORD:] = groups[:, GROUP_TUPLES:]
    return found


class Partitions:
    """The partitions of a `Counted`. Rows are of its input. `times` gives their times in the units of `expire`."""

    def __init__(self, plan: Counted, limit: GroupLimit | None, times: Callable[[Words], Ints]) -> None:
        self._limit = limit
        self._schema = plan.input
        self._keys = plan.partition
        self._times = times
        self._expire = plan.expire
        columns = (*plan.input.columns[: _FRONT - 1], *(plan.input.column(name) for name in plan.partition))
        latest = (Column(free_name("_latest", plan.partition), Kind.INT),) if self._expire is not None else ()
        self._layout = Layout(Schema((*columns, *latest), plan.input.strings), plan.partition, ())
        counted = Layout(self._layout.partials, plan.partition, (Fold(FoldOp.MAX, latest, ()),) if latest else ())
        self._words = sum(plan.input.column(name).kind.words for name in plan.partition)
        self.space = tables_space("counters", counted)
        self._counted = counted
        self._known = _number("partitions")
        self._looked = _number("looked")

    def spread(self, rows: Words) -> Iterator[tuple[int, Ints]]:
        """The sub-buckets of rows, ascending, each with the places of its rows in their order."""
        places = np.arange(len(rows)).astype(np.uint64).reshape(-1, 1)
        if not self._keys:
            yield 0, np.arange(len(rows))
            return
        hashes = hash_rows(key_words(self._schema, rows, self._keys))
        for sub, part in split((hashes >> _SHIFT).astype(np.int64), places):
            yield sub, part[:, 0].astype(np.int64)

    def heads(self, rows: Words) -> Words:
        """The rows of `(pane, tuples, partition…)`, with their times if partitions expire."""
        found = np.empty((len(rows), self._layout.partials.words), np.uint64)
        found[:, 1:_FRONT] = rows[:, 1:_FRONT]
        found[:, _FRONT : _FRONT + self._words] = rows[:, 1 + _FRONT : 1 + _FRONT + self._words]
        nulls = np.uint64((1 << len(self._keys)) - 1)
        found[:, 0] = (rows[:, 0] >> np.uint64(_FRONT) & nulls) << np.uint64(_FRONT - 1)
        if self._expire is not None:
            found[:, -1] = self._times(rows).view(np.uint64)
        return found

    def table(self) -> GroupTable:
        """A table that distinguishes partitions."""
        return GroupTable(self._layout)

    def count(self, sub: int, rows: Words, state: State) -> tuple[GroupTable, Ints, Ints]:
        """Count the tuples of rows of one sub-bucket, one life per partition. Returns the counters, the place of each
        row's partition in them, and the number of tuples up to and including each row."""
        counters = state.get(self.space, sub) or GroupTable(self._counted)
        before = len(counters)
        places = counters.place(self.heads(rows))
        state.put(self.space, sub, counters)
        self._note(len(counters) - before, state)
        tuples = rows[:, TUPLES_WORD].view(np.int64)
        order = np.argsort(places, kind="stable")
        running = np.cumsum(tuples[order])
        starts = np.flatnonzero(np.diff(places[order], prepend=-1))
        lengths = np.diff(np.append(starts, len(order)))
        earlier = np.repeat(running[starts] - tuples[order][starts], lengths)
        ends = np.repeat(running[starts + lengths - 1], lengths)
        totals = counters.groups[:, GROUP_TUPLES].view(np.int64)[places[order]]
        numbers = np.empty(len(rows), np.int64)
        numbers[order] = totals - (ends - earlier) + (running - earlier)
        return counters, places, numbers

    def lives(self, sub: int, rows: Words, state: State) -> Ints:
        """For each row of one sub-bucket, how many lives of its partition end before it, beginning at the counters."""
        if self._expire is None or not len(rows):
            return np.zeros(len(rows), np.int64)
        heads, times = self.heads(rows), self._times(rows)
        before = np.full(len(rows), INT64_MIN)
        if (counters := state.get(self.space, sub)) is not None:
            places = counters.find(heads)
            before[places >= 0] = _latest(counters)[places[places >= 0]]
        groups = self.table().place(heads)
        order = np.argsort(groups, kind="stable")
        groups, times, before = groups[order], times[order], before[order]
        # The latest time of the partition up to each row, as one number that sorts like (partition, time).
        known, ranks = np.unique(np.concatenate((times, before)), return_inverse=True)
        base = groups * len(known)
        reached = np.maximum.accumulate(base + np.maximum(ranks[: len(times)], ranks[len(times) :])) - base
        first = np.diff(groups, prepend=-1) != 0
        earlier = known[np.where(first, ranks[len(times) :], np.roll(reached, 1))]
        anew = np.cumsum((earlier != INT64_MIN) & (times > earlier + self._expire))
        starts = np.flatnonzero(first)
        lengths = np.diff(np.append(starts, len(order)))
        passed = np.concatenate(([0], anew))[starts]
        lives = np.empty(len(rows), np.int64)
        lives[order] = anew - np.repeat(passed, lengths)
        return lives

    def of(self, sub: int, rows: Words, state: State) -> Bools:
        """Which counters of a sub-bucket belong to the partitions of these rows."""
        counters = state.get(self.space, sub)
        assert counters is not None, "they have been counted before"
        chosen = np.zeros(len(counters), np.bool_)
        places = counters.find(self.heads(rows))
        chosen[places[places >= 0]] = True
        return chosen

    def idle(self, below: int, state: State) -> Iterator[tuple[int, Bools]]:
        """By sub-bucket: which counters belong to lives that have ended, because no tuple with a time below `below`
        will come. Does nothing until a fraction of `expire` has passed since the last search."""
        if self._expire is None:
            return
        looked = state.get(self._looked, ONLY)
        if looked is not None and below - looked < max(1, self._expire // _LOOKS):
            return
        state.put(self._looked, ONLY, below)
        for sub in state.keys(self.space):
            counters = state.get(self.space, sub)
            assert counters is not None, "a listed piece is there"
            ended = below - 1 - self._expire >= _latest(counters)
            if ended.any():
                yield sub, ended

    def forget(self, sub: int, chosen: Bools, state: State) -> GroupTable:
        """Remove these counters and return them."""
        counters = state.get(self.space, sub)
        assert counters is not None, "they have been counted before"
        gone = counters.take(chosen)
        if len(counters):
            state.put(self.space, sub, counters)
        else:
            state.drop(self.space, sub)
        self._note(-len(gone), state)
        return gone

    def numbers(self, rows: Words, state: State) -> tuple[Ints, bool]:
        """The number of tuples of each row's partition in this life up to and including that row; and whether a life
        ended before some row."""
        numbers, ended = np.empty(len(rows), np.int64), False
        for sub, places in self.spread(rows):
            lives = self.lives(sub, rows[places], state)
            for life in range(int(lives.max(initial=0)) + 1):
                mine = places[lives == life]
                if life:
                    self.forget(sub, self.of(sub, rows[mine], state), state)
                    ended = True
                numbers[mine] = self.count(sub, rows[mine], state)[2]
        return numbers, ended

    def _note(self, new: int, state: State) -> None:
        if new and self._limit is not None and self._keys:
            known = (state.get(self._known, ONLY) or 0) + new
            self._limit.check(known, self._keys)
            state.put(self._known, ONLY, known)


def _number(name: str) -> Space[int]:
    return Space(name, lambda number: _NUMBER.pack(number), lambda data: int(_NUMBER.unpack(data)[0]))


def _latest(counters: GroupTable) -> Ints:
    latest: Ints = counters.groups[:, -1].view(np.int64)
    return latest
