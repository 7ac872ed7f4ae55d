"""Windows over rows that are numbered separately in each partition (PA).

Tuples come in order of arrival, with none missing before them, so each partition's window closes as soon as its last
row is there. At the end of the input the open windows that hold a tuple close. A partition's count is kept for ever, so
state grows with every new partition, unless the plan releases idle ones: their windows close as at the end of the
input, and the partition begins anew.

The number of open windows follows from the row numbers alone. Its sum is kept and updated with the partitions that
change, so no code iterates over all partitions.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from highlevel.groups.group_table import GroupRows, GroupTable
from highlevel.groups.layout import GROUP_KEYS, GROUP_TUPLES
from highlevel.groups.state import tables_space
from highlevel.interface import ONLY, MarkOut, Out, Space, State, Words
from highlevel.limits import GroupLimit
from highlevel.operators.incoming import in_windows, panes_of
from highlevel.operators.row_windows.extents import Extents, Spans
from highlevel.operators.row_windows.partitions import Partitions, as_tuples
from highlevel.row_marks import RowMark, counted_anew
from lowmark.query.expr.evaluate import Bools, Ints
from lowmark.query.plan.nodes import Counted
from lowmark.query.windows.window import WindowKind
from lowmark.wire.records.partials import PANE
from lowmark.wire.records.punctuations import Promise
from lowmark.wire.records.verdicts import OpenCount, Reason
from lowmark.wire.rows.values import INT64_MIN

__all__ = ["PartitionedRowsOperator"]

_AT = 3  # the word of row numbers in a tuple
_PAST = -1  # the bin of everything before a landmark window's own slide

_COUNT = struct.Struct(">qq")
_OPEN: Space[OpenCount] = Space(
    "open", lambda count: _COUNT.pack(count.windows, count.partitions), lambda data: OpenCount(*_COUNT.unpack(data))
)


@dataclass(frozen=True, slots=True, eq=False)
class _Closing:
    """Windows to close in a sub-bucket: from `first` up to `end`, by the place of each partition in its counters."""

    sub: int
    counters: GroupTable
    bins: GroupTable
    first: Ints
    end: Ints


class PartitionedRowsOperator:
    """Numbered tuples of `counted.input` in, rows of its output out. Only the order of the numbers matters."""

    def __init__(self, counted: Counted, limit: GroupLimit | None = None) -> None:
        self._counted = counted
        self._window = counted.window
        self._rows = counted.window.slide * counted.window.axis.unit
        self._partitions = Partitions(counted, limit, panes_of)
        self._extents = Extents(counted)
        self._bins = tables_space("bins", self._extents.layout)

    def on_batch(self, port: int, rows: Words, state: State, out: Out) -> None:
        waiting = [(sub, rows[places]) for sub, places in self._partitions.spread(rows)]
        lives = [self._partitions.lives(sub, part, state) for sub, part in waiting]
        for life in range(max((int(of.max(initial=0)) for of in lives), default=0) + 1):
            now = [(sub, part[of == life]) for (sub, part), of in zip(waiting, lives, strict=True)]
            now = [(sub, part) for sub, part in now if len(part)]
            if life:
                self._end([(sub, self._partitions.of(sub, part, state)) for sub, part in now], state, out)
            closings = [self._take(sub, part, state) for sub, part in now]
            closings = [closing for closing in closings if (closing.first < closing.end).any()]
            if closings:
                for sub, bins in self._close(closings, out):
                    state.put(self._bins, sub, bins)

    def on_promise(self, port: int, promise: Promise, state: State, out: Out) -> None:
        """Close idle partitions, and at the end all. No promise is possible about partitions that continue."""
        if not promise.last:
            if (pane := promise.below(PANE)) is not None:
                self._end(list(self._partitions.idle(pane, state)), state, out)
            return
        closings = []
        for sub in state.keys(self._bins):
            counters, bins = state.get(self._partitions.space, sub), state.get(self._bins, sub)
            if counters is not None and bins is not None:
                closings.append(self._last(sub, counters, bins))
            state.drop(self._bins, sub)
        if closings:
            self._close(closings, out)
        state.drop(_OPEN, ONLY)
        out.promise(0, Promise((), last=True))

    def open(self, state: State) -> OpenCount:
        """The number of windows that the end of the input would close now."""
        return state.get(_OPEN, ONLY) or OpenCount()

    def on_mark(self, port: int, mark: RowMark, state: State, out: MarkOut) -> None:
        out.mark(0, counted_anew(mark, self._counted.output.names))

    def work(self, state: State, out: Out, budget: int) -> int:
        return 0

    def _take(self, sub: int, rows: Words, state: State) -> _Closing:
        counters, places, numbers = self._partitions.count(sub, rows, state)
        panes = (numbers - 1) // self._window.axis.unit
        rows[:, _AT] = panes.view(np.uint64)
        _, rows = in_windows(panes, rows, self._window)
        bins = state.get(self._bins, sub) or GroupTable(self._extents.layout)
        bins.merge(rows)
        state.put(self._bins, sub, bins)
        after = _tuples(counters)
        before = after - np.bincount(places, minlength=len(counters))
        moved = np.flatnonzero(after != before)
        self._move(before[moved], after[moved], state)
        return _Closing(sub, counters, bins, before // self._rows, after // self._rows)

    def _last(self, sub: int, counters: GroupTable, bins: GroupTable) -> _Closing:
        """The closing of all open windows that hold a tuple."""
        counts = _tuples(counters)
        return _Closing(sub, counters, bins, counts // self._rows, self._begun(counts))

    def _begun(self, counts: Ints) -> Ints:
        """For partitions with these numbers of tuples, at least one each: the first window that holds none."""
        last = (counts - 1) // self._window.axis.unit
        span = self._window.size or self._window.slide
        begun: Ints = (last + span) // self._window.slide
        return begun

    def _move(self, before: Ints, after: Ints, state: State) -> None:
        """Update the count of open windows: the partitions' numbers of tuples change from `before` to `after`."""
        state.put(_OPEN, ONLY, self.open(state) + self._count(after) - self._count(before))

    def _count(self, counts: Ints) -> OpenCount:
        """The open windows that hold a tuple, of partitions with these numbers of tuples."""
        counts = counts[counts > 0]
        windows = self._begun(counts) - counts // self._rows
        return OpenCount(int(windows.sum()), int(np.count_nonzero(windows)))

    def _end(self, ending: Sequence[tuple[int, Bools]], state: State, out: Out) -> None:
        """End the lives of these partitions, given as a choice of counters by sub-bucket."""
        if not ending:
            return
        closings = []
        for sub, chosen in ending:
            counters = state.get(self._partitions.space, sub)
            assert counters is not None, "they have been counted before"
            bins = state.get(self._bins, sub) or GroupTable(self._extents.layout)
            of = counters.find(self._partitions.heads(as_tuples(bins.groups)))
            gone = bins.take(chosen[of])
            ended = self._partitions.forget(sub, chosen, state)
            self._move(_tuples(ended), np.zeros(0, np.int64), state)
            closings.append(self._last(sub, ended, gone))
            if len(bins):
                state.put(self._bins, sub, bins)
            else:
                state.drop(self._bins, sub)
        self._close(closings, out)
        out.flaw(0, 0, Reason.NUMBERING)

    def _close(self, closings: list[_Closing], out: Out) -> list[tuple[int, GroupTable]]:
        """Close windows of several sub-buckets together. Returns their bins without those that are no longer needed."""
        first = np.concatenate([closing.first for closing in closings])
        end = np.concatenate([closing.end for closing in closings])
        known = self._partitions.table()
        for closing in closings:
            known.merge_table(closing.counters)  # no partition is in two sub-buckets, so all are new
        bins = GroupRows.of([closing.bins for closing in closings])
        places = known.place(self._partitions.heads(as_tuples(bins.rows)))
        self._emit(bins, places, first, end, out)
        needed = (end + 1) * self._window.slide - (self._window.size or self._window.slide)
        past = bins.rows[:, GROUP_KEYS].view(np.int64) < needed[places]
        left, done = [], 0
        for closing in closings:
            mine = past[done : done + len(closing.bins)]
            done += len(closing.bins)
            left.append((closing.sub, self._left(closing.bins, mine)))
        return left

    def _emit(self, bins: GroupRows, places: Ints, first: Ints, end: Ints, out: Out) -> None:
        """Output the windows from `first` up to `end` of each partition."""
        counts = np.maximum(end - first, 0)
        partitions = np.repeat(np.arange(len(counts)), counts)
        begun = np.repeat(np.cumsum(counts) - counts, counts)
        ids = np.repeat(first, counts) + np.arange(len(partitions)) - begun
        stops = (ids + 1) * self._window.slide
        landmark = self._window.kind is WindowKind.LANDMARK
        starts = np.full_like(stops, INT64_MIN) if landmark else stops - self._window.size
        if len(ids):
            self._extents.emit(bins, places, Spans(ids, partitions, starts, stops - 1), out)

    def _left(self, bins: GroupTable, past: Bools) -> GroupTable:
        """Drop bins that no later window needs once they are the majority; a landmark window merges them instead."""
        values = bins.groups[:, GROUP_KEYS].view(np.int64)
        landmark = self._window.kind is WindowKind.LANDMARK
        loose = past & (values != _PAST) if landmark else past
        if 2 * int(np.count_nonzero(loose)) <= len(values):
            return bins
        left = GroupTable(self._extents.layout)
        places = np.arange(len(values)) if landmark else np.flatnonzero(~past)
        left.merge_copies(GroupRows.of((bins,)), places, np.where(past, _PAST, values)[places])
        return left


def _tuples(counters: GroupTable) -> Ints:
    counts: Ints = counters.groups[:, GROUP_TUPLES].view(np.int64)
    return counts
