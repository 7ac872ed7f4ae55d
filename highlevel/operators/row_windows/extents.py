"""Makes rows from bins, for windows whose extents depend on the data.

A bin holds the groups of all tuples with one value of what is counted by: a pane of row numbers of a partition, or a
value of RATTR. It is a window of its own in the sense of Li's fig. 6-7: a tuple is merged once, into its bin, and is
not kept. Fig. 6-7 then adds the tuple to every bin up to RANGE later; here a window is merged from bins when it closes.
Windows that close together share most of their bins, which are merged once for many windows: a window of R bins costs
about 2·√R merges instead of R.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isqrt

import numpy as np

from highlevel.groups.group_table import GroupRows, GroupTable
from highlevel.groups.layout import GROUP_KEYS, Layout
from highlevel.interface import Out, Words
from highlevel.operators.result_rows import RowBuilder
from lowmark.query.expr.evaluate import Ints
from lowmark.query.plan.nodes import Aggregate, Counted
from lowmark.query.windows.window import Window, WindowKind
from lowmark.wire.rows.schema import Schema
from lowmark.wire.rows.values import INT64_MIN

__all__ = ["Extents", "Spans", "before"]

_LONG = 512
"""From this number of bins on, windows share the bins that they have in common."""

_AT_ONCE = 1 << 19
"""Most groups copied at a time, apart from those of one window. This limits the memory used."""


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Windows; those of a partition are adjacent and ascending. Window i has the id `ids[i]` and holds the tuples of
    `partitions[i]` with values from `starts[i]` to `lasts[i]`, included."""

    ids: Ints
    partitions: Ints
    starts: Ints
    lasts: Ints


class Extents:
    """Makes rows of `plan.output` from bins: groups by (at, keys…, details…)."""

    def __init__(self, plan: Counted) -> None:
        self.layout = Layout(plan.input, (plan.at, *plan.keys, *plan.details), plan.folds)
        self._plan = plan
        output = Schema((plan.input.column(plan.at), *plan.output.columns[2:]), plan.output.strings)
        self._result = RowBuilder(
            Aggregate(
                plan.input, (plan.at, *plan.keys), plan.details, plan.folds, plan.calls,
                Window(WindowKind.NONE, 1, 1, plan.window.axis), output,
            )
        )  # fmt: skip

    def emit(self, bins: GroupRows, partitions: Ints, spans: Spans, out: Out) -> None:
        """Output the rows of these windows. `partitions`: the partition of each bin's group, numbered as in `spans`."""
        values = bins.rows[:, GROUP_KEYS].view(np.int64)
        order = np.lexsort((values, partitions))
        known, ranks = np.unique(values, return_inverse=True)
        # One number that sorts like (partition, value).
        keys = (partitions * (len(known) + 1) + ranks)[order]
        base = spans.partitions * (len(known) + 1)
        first = np.searchsorted(keys, base + np.searchsorted(known, spans.starts))
        stop = np.searchsorted(keys, base + np.searchsorted(known, spans.lasts, "right"))
        for table, shared in self._tables(_Sorted(bins, order), spans, first, stop):
            rows, flawed = self._result.of(table, 0)
            if shared:  # groups only at a window's edge come after those of later windows
                by_window = np.argsort(rows[:, 1].view(np.int64), kind="stable")
                rows, flawed = rows[by_window], {reason: of[by_window] for reason, of in flawed.items()}
            out.rows(0, self._shown(rows))
            for reason, of in flawed.items():
                for number in np.unique(rows[of, 1].view(np.int64)).tolist():
                    out.flaw(0, number, reason)

    def _tables(self, bins: _Sorted, spans: Spans, first: Ints, stop: Ints) -> Iterator[tuple[GroupTable, bool]]:
        """Sets of windows, each with a table of all their groups, and whether the windows shared bins."""
        begin = 0
        while begin < len(spans.ids):
            length = int(stop[begin] - first[begin])
            same = spans.partitions[begin : begin + max(1, isqrt(length))] == spans.partitions[begin]
            end = begin + int(np.argmin(same) if not same.all() else len(same))
            shared = int(stop[begin] - first[end - 1])
            if length >= _LONG and end - begin > 1 and 2 * shared > length:
                for table in self._sharing(bins, spans.ids[begin:end], first[begin:end], stop[begin:end]):
                    yield table, True
            else:
                lengths = np.cumsum(stop[begin:] - first[begin:])
                end = begin + max(1, int(np.searchsorted(lengths, _AT_ONCE, "right")))
                long = np.flatnonzero(stop[begin + 1 : end] - first[begin + 1 : end] >= _LONG)
                end = begin + 1 + int(long[0]) if len(long) else end
                table = GroupTable(self.layout)
                bins.merge(table, first[begin:end], stop[begin:end], spans.ids[begin:end])
                yield table, False
            begin = end

    def _sharing(self, bins: _Sorted, ids: Ints, first: Ints, stop: Ints) -> Iterator[GroupTable]:
        """Windows of one partition that share the bins from `first[-1]` up to `stop[0]`."""
        core = GroupTable(self.layout)
        bins.merge(core, first[-1:], stop[:1], ids[:1])
        common = GroupRows.of((core,))
        edges = int((first[-1] - first[0]) + (stop[-1] - stop[0]))
        step = max(1, _AT_ONCE // (len(core) + edges))
        for begin in range(0, len(ids), step):
            some = slice(begin, begin + step)
            table = GroupTable(self.layout)
            count = len(ids[some])
            table.merge_copies(common, np.tile(np.arange(len(core)), count), np.repeat(ids[some], len(core)))
            bins.merge(table, first[some], np.broadcast_to(first[-1], count), ids[some])
            bins.merge(table, np.broadcast_to(stop[0], count), stop[some], ids[some])
            yield table

    def _shown(self, rows: Words) -> Words:
        """Turn (at, keys…, calls…) into (window_start, window_end, keys…, calls…)."""
        shown = np.empty((len(rows), rows.shape[1] + 1), np.uint64)
        starts, ends = self._bounds(rows[:, 1].view(np.int64))
        shown[:, 0] = rows[:, 0] >> np.uint64(1) << np.uint64(2)
        shown[:, 1], shown[:, 2] = starts.view(np.uint64), ends.view(np.uint64)
        shown[:, 3:] = rows[:, 2:]
        if self._plan.window.kind is WindowKind.LANDMARK:
            shown[:, 0] |= np.uint64(1)
            shown[:, 1] = 0
        return shown

    def _bounds(self, ids: Ints) -> tuple[Ints, Ints]:
        window = self._plan.window
        if window.kind is WindowKind.SLIDE_BY_TUPLE:
            return before(ids, window.size), ids
        ends = (ids + 1) * window.slide
        axis = window.axis
        return (ends - window.size) * axis.unit + axis.origin, ends * axis.unit + axis.origin


def before(values: Ints, distance: int) -> Ints:
    """The values minus a distance, limited to the least int64, where time begins."""
    return np.where(values < INT64_MIN + distance, INT64_MIN, values - distance)


@dataclass(frozen=True, slots=True, eq=False)
class _Sorted:
    """Bins in the order of (partition, value)."""

    bins: GroupRows
    order: Ints

    def merge(self, table: GroupTable, first: Ints, stop: Ints, ids: Ints) -> None:
        """For each window, merge the groups of the bins from its `first` up to its `stop`."""
        lengths = stop - first
        before = np.cumsum(lengths) - lengths
        places = np.arange(int(lengths.sum())) - np.repeat(before - first, lengths)
        table.merge_copies(self.bins, self.order[places], np.repeat(ids, lengths))
