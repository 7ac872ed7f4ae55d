"""Where frames are missing or have no time, and which times that affects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from ingest.columns import Columns
from ingest.disorder.lateness import Lateness, behind
from ingest.disorder.stream_time import StreamTime, moved, times_of
from lowmark.wire.frames import BAD_TIME
from lowmark.wire.rows.values import FOREVER, NEVER

__all__ = ["Holes", "TimeSpan", "scanned_holes"]

TimeSpan = tuple[int, int]
"""Times from … to …, both included, ns. NEVER: from the beginning; FOREVER: to the end."""

Times = npt.NDArray[np.int64]


class Holes:
    """A hole begins where something was found unreadable, or at a frame that has no time. What is missing there is no
    older than what may still come just before the hole. Apart from its disorder, it is no newer than the stream at the
    first frame after the hole whose time is believed (`places` frames further on, if disorder is counted in tuples).

    The span that a hole can affect is output no later than the block that allows a promise there."""

    def __init__(self, places: int = 0) -> None:
        self._places = places
        self._frames = 0
        self._newest = NEVER
        self._from: int | None = None  # of the open hole; None: none is open
        self._begun = 0  # the first frame after it
        self._told = NEVER  # up to where that has been output

    def open(self, from_ns: int) -> None:
        """Open a hole after the frames so far."""
        if self._from is None:
            self._from, self._told = from_ns, NEVER
        self._begun = self._frames

    def of(self, columns: Columns, low: Times, believed: Times) -> Iterator[TimeSpan]:
        """The spans of a block. `low`: the least time still to come before each frame; `believed`: the newest after."""
        untimed = np.flatnonzero(columns.link < BAD_TIME)
        if self._from is not None or len(untimed):
            yield from self._spans(columns, untimed, low, believed)
        self._frames += len(columns.ts)
        self._newest = int(believed[-1]) if len(believed) else self._newest

    def end(self) -> Iterator[TimeSpan]:
        """The spans at the end, after which nothing is known."""
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
            # Up to here tuples are known and promises can come; not beyond, as long as nothing after the hole is known.
            self._told = newest
            yield self._from, newest


def scanned_holes(blocks: Iterable[Columns | None]) -> Iterator[TimeSpan]:
    """The spans of a whole capture; None stands where something was found unreadable. No disorder is declared, so the
    disorder that its frames show is used."""
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
