"""Where frames are missing or have no time, and which times that affects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from ingest.columns import Columns
from ingest.disorder.observed_lateness import Lateness, behind
from ingest.disorder.stream_time import StreamTime, moved, times_of
from lowmark.wire.frames import BAD_TIME
from lowmark.wire.rows.values import FOREVER, NEVER

__all__ = ["Holes", "TimeSpan", "scanned_holes"]

TimeSpan = tuple[int, int]
"""Times from … to …, both included, ns. NEVER: from the beginning; FOREVER: to the end."""

Times = npt.NDArray[np.int64]


class Holes:
    """Finds the times that missing frames may have. A hole begins at unreadable data or at a frame without a time.
    Frames missing there are no older than the low-watermark just before the hole. Apart from the source's disorder,
    they are no newer than the stream time at the first frame after the hole whose time is believed (`places` frames
    further on, if disorder is counted in tuples).

    The span that a hole can affect is output no later than the block whose promise covers it."""

    def __init__(self, places: int = 0) -> None:
        self._places = places
        self._frames = 0
        self._newest = NEVER
        self._from: int | None = None  # where the open hole begins, ns; None: no hole is open
        self._begun = 0  # number of the first frame after the open hole
        self._told = NEVER  # the open hole's span has been output up to here

    def open(self, from_ns: int) -> None:
        """Open a hole after the frames so far."""
        if self._from is None:
            self._from, self._told = from_ns, NEVER
        self._begun = self._frames

    def of(self, columns: Columns, low: Times, believed: Times) -> Iterator[TimeSpan]:
        """The spans of a block. `low`: before each frame, the least time still to come. `believed`: after each frame,
        the newest believed time."""
        untimed = np.flatnonzero(columns.link < BAD_TIME)
        if self._from is not None or len(untimed):
            yield from self._spans(columns, untimed, low, believed)
        self._frames += len(columns.ts)
        self._newest = int(believed[-1]) if len(believed) else self._newest

    def end(self) -> Iterator[TimeSpan]:
        """The span of a hole that is still open at the end: it has no upper bound."""
        if self._from is not None:
            yield self._from, FOREVER
            self._from = None

    def _spans(
        self, columns: Columns, untimed: npt.NDArray[np.intp], low: Times, believed: Times
    ) -> Iterator[TimeSpan]:
        starts, begun = low[untimed], untimed + 1
        if self._from is not None:
            starts = np.append(np.int64(self._from), starts)
            begun = np.append(self._begun - self._frames, begun)
        known = np.flatnonzero((columns.link >= 0) & (columns.ts <= believed))
        ended_by = np.searchsorted(known, begun + self._places)
        closed = ended_by < len(known)
        closing, first = np.unique(ended_by[closed], return_index=True)
        yield from _joined(starts[first].tolist(), believed[known[closing]].tolist())
        if closed.any():
            self._from = None
        if closed.all():
            return
        if self._from is None:
            self._from, self._told = int(starts[~closed][0]), NEVER
        self._begun = self._frames + int(begun[-1])
        newest = int(believed[-1]) if len(believed) else self._newest
        if newest > self._told:
            # While the hole is open, no promise goes beyond the newest believed time: a span up to there suffices.
            self._told = newest
            yield self._from, newest


def scanned_holes(blocks: Iterable[Columns | None]) -> Iterator[TimeSpan]:
    """The spans of a whole capture. A None among the blocks stands for unreadable data. The disorder is the one that
    the frames show, because none is declared."""
    time, lateness, holes, newest = StreamTime(), Lateness(), Holes(), NEVER
    spans: list[TimeSpan] = []
    for columns in blocks:
        if columns is None:
            holes.open(newest)
            continue
        times = times_of(columns)
        believed = time.of(times)
        timed = times != NEVER
        lateness.add(behind(times[timed], believed[timed]))
        before = np.append(np.int64(newest), believed[:-1]) if len(believed) else believed
        newest = time.newest
        spans += holes.of(columns, before, believed)
    spans += holes.end()
    for from_ns, until_ns in spans:
        yield moved(from_ns, -lateness.most_ns), moved(until_ns, lateness.most_ns)


def _joined(starts: list[int], ends: list[int]) -> Iterator[TimeSpan]:
    """Spans in order; adjoining ones are merged."""
    for place, end in enumerate(ends):
        if place == 0:
            start = starts[0]
        elif starts[place] > ends[place - 1]:
            yield start, ends[place - 1]
            start = starts[place]
        if place == len(ends) - 1:
            yield start, end
