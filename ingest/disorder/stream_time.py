"""The stream time of a source: the newest time of its frames that another frame confirms."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ingest.columns import Columns
from lowmark.wire.rows.values import FOREVER, NEVER

__all__ = ["LONE_NS", "StreamTime", "moved", "times_of"]

LONE_NS = 60_000_000_000
"""A frame further ahead of its neighbours than this may have been stamped by a wrong clock."""

Times = npt.NDArray[np.int64]


class StreamTime:
    """The newest time that is believed. A frame is believed at once if it is at most LONE_NS ahead of the newest time
    that a later frame has confirmed. A frame further ahead, or the first of all, is believed when the next frame
    confirms it. A frame confirms the one before it if it is at most LONE_NS older. So a lone frame from the future
    moves nothing, and a lasting jump is followed one frame later.

    What is believed after a frame depends only on the frames up to it, not on how blocks are cut."""

    def __init__(self) -> None:
        self._last = NEVER  # the last time, not confirmed yet
        self._confirmed = NEVER
        self._newest = NEVER

    @property
    def newest(self) -> int:
        return self._newest

    def of(self, times: Times) -> Times:
        """What is believed after each frame; it never regresses. NEVER stands for a frame without a time."""
        return self.with_hindsight(times)[0]

    def with_hindsight(self, times: Times) -> tuple[Times, Times]:
        """As `of`; also the time believed at each frame if the next frame, when it is in this block, counts as well."""
        if not len(times):
            return times, times
        if self._is_calm(times):
            newest = max(self._newest, self._last)
            believed = times
            if times[0] < newest or (times[1:] < times[:-1]).any():
                believed = np.maximum(np.maximum.accumulate(times), newest)
            self._confirmed = max(self._confirmed, self._last, int(times[:-1].max(initial=NEVER)))
            self._last, self._newest = int(times[-1]), int(believed[-1])
            return believed, believed
        before = self._newest
        timed = np.flatnonzero(times != NEVER)
        known = times[timed]
        chain = np.append(np.int64(self._last), known)
        confirms = chain[1:] >= _less(chain[:-1], LONE_NS)
        confirmed = np.maximum.accumulate(np.where(confirms, chain[:-1], NEVER))  # by the time that each has come
        np.maximum(confirmed, self._confirmed, out=confirmed)
        at_once = np.where(_less(known, LONE_NS) <= confirmed, known, NEVER)
        believed = np.maximum(np.maximum.accumulate(at_once), confirmed)
        later = np.maximum(believed, np.append(confirmed[1:], np.int64(NEVER)))
        if len(known):
            self._last, self._confirmed = int(known[-1]), int(confirmed[-1])
            self._newest = max(before, int(believed[-1]))
        return _spread(believed, timed, len(times), before), _spread(later, timed, len(times), before)

    def _is_calm(self, times: Times) -> bool:
        """Whether no two frames are so far apart that one of them could be doubted."""
        if self._last == NEVER:
            return False
        return max(int(times.max()), self._last) - min(int(times.min()), self._last) <= LONE_NS


def times_of(columns: Columns) -> Times:
    """The times of frames, NEVER for a frame without one."""
    timed = columns.link >= 0
    return columns.ts if timed.all() else np.where(timed, columns.ts, np.int64(NEVER))


def moved(ns: int, by_ns: int) -> int:
    """The time moved later by this much, limited to the range of times. NEVER and FOREVER stay."""
    return ns if ns in (NEVER, FOREVER) else min(max(ns + by_ns, NEVER), FOREVER - 1)


def _less(times: Times, ns: int) -> Times:
    """Subtract without wrapping."""
    return np.maximum(times, NEVER + ns) - ns


def _spread(known: Times, at: npt.NDArray[np.intp], size: int, before: int) -> Times:
    """Extend values known at some frames to all: each other frame keeps the last value."""
    found = np.full(size, before, np.int64)
    found[at] = np.maximum(known, before)
    np.maximum.accumulate(found, out=found)
    return found
