"""Computes a source's low-watermark from its disorder, frame by frame. The result does not depend on where blocks are
cut, except for `scan`, which promises at the ends of blocks.

Frames that are later skipped because they are not IP packets still advance the source's time; frames without a time do
not. Neither does a single frame far ahead of its neighbours (`stream_time`), except for `scan`, which knows what
follows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ingest.columns import Columns
from ingest.disorder.declarations import Disorder, Measured, Ordered, Scan, WithinTime, WithinTuples
from ingest.disorder.observed_lateness import Lateness, behind
from ingest.disorder.stream_time import StreamTime, times_of
from lowmark.wire.frames import BAD_TIME
from lowmark.wire.rows.values import FOREVER, NEVER

__all__ = [
    "FIRST_BOUND_NS", "NEVER", "ArrivalLows", "ClockedLows", "Lows", "arrival_lows", "least_after", "meaning",
    "scanned_lows",
]  # fmt: skip

FIRST_BOUND_NS = 1_000_000_000
"""The bound of measured disorder before enough frames have been observed."""

_LAST = int(FOREVER) - 1  # the greatest low-watermark of a source that has not ended


class Lows(Protocol):
    """One source's low-watermark. Each block is given once, in order."""

    @property
    def bound_ns(self) -> int | None:
        """For measured disorder: how far the low-watermark is now behind the newest time."""

    def of(self, columns: Columns) -> tuple[npt.NDArray[np.int64], int]:
        """The low-watermark just before each frame, and the one after the last: ns, never regressing."""


class ArrivalLows(Lows, Protocol):
    """A low-watermark computed from the frames that have arrived."""

    @property
    def believed(self) -> npt.NDArray[np.int64]:
        """The newest time that is believed after each frame of the last block (StreamTime)."""


def arrival_lows(disorder: Disorder) -> ArrivalLows:
    """The low-watermark computed from the frames that have arrived; not for `scan`, which knows the rest of the
    file."""
    match disorder:
        case Ordered():
            return _Newest(0)
        case WithinTime(bound_ns):
            return _Newest(bound_ns)
        case WithinTuples(count):
            return _Delayed(count)
        case Measured(share):
            return _MeasuredLows(float(share))
        case Scan():
            raise ValueError("scan goes by what will arrive")


def least_after(blocks: Iterable[Columns]) -> npt.NDArray[np.int64]:
    """For each block, the least time in all later blocks: the promise at its end. If no later block has a time, it is
    the greatest time of all, because only the source's end may promise that nothing follows. Keeps two numbers per
    block. Both passes must cut the same blocks."""
    extremes = []
    for block in blocks:
        times = times_of(block)
        known = times if times is block.ts else times[block.link >= 0]
        extremes.append((int(known.min(initial=FOREVER)), int(known.max(initial=NEVER))))
    if not extremes:
        return np.empty(0, np.int64)
    least, greatest = np.array(extremes, np.int64).T
    following = np.append(least[1:], FOREVER)
    suffix: npt.NDArray[np.int64] = np.minimum.accumulate(following[::-1])[::-1]
    return np.minimum(suffix, min(int(greatest.max()), _LAST))


def scanned_lows(least: npt.NDArray[np.int64], *, within: bool = False) -> Lows:
    """The low-watermark computed from the result of `least_after`: exact at the end of each block and unchanged within
    it, so no frame is ever late. `within`: also exact before each frame, for blocks that are cut again."""
    return _Scanned(least, within)


class _Newest:
    """The newest time that is believed, minus a bound."""

    bound_ns = None

    def __init__(self, bound_ns: int) -> None:
        self.believed = np.empty(0, np.int64)
        self._bound_ns = bound_ns
        self._time = StreamTime()

    def of(self, columns: Columns) -> tuple[npt.NDArray[np.int64], int]:
        low = np.empty(len(columns.ts) + 1, np.int64)
        low[0] = self._time.newest
        self.believed = low[1:] = self._time.of(times_of(columns))
        if self._bound_ns:
            np.maximum(low, NEVER + self._bound_ns, out=low)  # the subtraction must not wrap
            low -= self._bound_ns
        np.minimum(low, _LAST, out=low)
        return low[:-1], int(low[-1])


class _Delayed:
    """The newest time that was believed more than `count` places ago."""

    bound_ns = None

    def __init__(self, count: int) -> None:
        self.believed = np.empty(0, np.int64)
        self._time = StreamTime()
        self._recent = np.full(count + 1, NEVER, np.int64)  # after each of the last frames

    def of(self, columns: Columns) -> tuple[npt.NDArray[np.int64], int]:
        size = len(columns.ts)
        self.believed = self._time.of(times_of(columns))
        newest = np.concatenate([self._recent, self.believed])
        self._recent = newest[size:].copy()
        np.minimum(newest, _LAST, out=newest)
        return newest[:size], int(newest[size])


def meaning(disorder: Disorder) -> str:
    """For people: how far the low-watermark trails under a declaration, and which packets can be late."""
    match disorder:
        case Ordered():
            return (
                "the low-watermark is the newest time, but for a lone packet's far ahead of the others; a packet older "
                "than one before it is late if its granule ended"
            )
        case WithinTime():
            return f"the low-watermark stays {str(disorder).removeprefix('within ')} behind the newest time"
        case WithinTuples(count):
            return f"the low-watermark is the newest time of the packets that came more than {count} places ago"
        case Scan():
            return "the file is read twice: the low-watermark is exact at the end of each block, and nothing is late"
        case Measured(share):
            return (
                f"the low-watermark stays behind the newest time by a bound that {_percent(share)} of the packets "
                f"observed kept to: {FIRST_BOUND_NS // 10**9} s until {_enough(float(share))} have come, then "
                f"estimated anew after every {_AGAIN}, and what is older counts less. A greater bound holds the "
                f"low-watermark where it is. About {_percent(1 - share)} of the packets come later than that, and are "
                "late if their granule ended. `lowmark explain -r FILE` prints the bound for a capture; "
                "lowmark_disorder_bound_seconds shows it for a running source"
            )


def _percent(share: Fraction) -> str:
    return f"{float(share * 100):.10g}%"


def _enough(share: float) -> int:
    """Frames needed for a first estimate."""
    return max(_AGAIN, int(4 / (1 - share)))


_AGAIN = 4096  # frames after which the bound is estimated again
_MEMORY = 1 << 20  # frames after which the weight of earlier ones is halved


class _MeasuredLows:
    """The newest time that is believed, minus the bound that this share of the frames kept to. While a growing bound
    would move the low-watermark back, it stays where it is."""

    def __init__(self, share: float) -> None:
        self.believed = np.empty(0, np.int64)
        self._share = share
        self._time = StreamTime()
        self._observed = Lateness()
        self._enough = _enough(share)
        self._bound_ns = FIRST_BOUND_NS
        self._low = NEVER
        self._left = _AGAIN  # frames until the next estimate
        self._estimates = 0

    @property
    def bound_ns(self) -> int | None:
        return self._bound_ns

    def of(self, columns: Columns) -> tuple[npt.NDArray[np.int64], int]:
        times = times_of(columns)
        newest = self.believed = self._time.of(times)
        low = np.empty(len(times) + 1, np.int64)
        low[0] = self._low
        done = 0
        while done < len(times):
            part = slice(done, done + self._left)
            known = times[part] != NEVER
            self._observed.add(behind(times[part][known], newest[part][known]))
            done = min(len(times), part.stop)
            low[1 + part.start : 1 + done] = np.maximum(newest[part], NEVER + self._bound_ns) - self._bound_ns
            self._left -= done - part.start
            if self._left == 0:
                self._estimate()
        np.maximum.accumulate(low, out=low)
        np.minimum(low, _LAST, out=low)
        self._low = int(low[-1])
        return low[:-1], self._low

    def _estimate(self) -> None:
        self._left = _AGAIN
        self._estimates += 1
        if self._observed.frames >= self._enough:
            self._bound_ns = self._observed.within_ns(self._share)
        if self._estimates % (_MEMORY // _AGAIN) == 0:
            self._observed.fade()


class ClockedLows:
    """The low-watermark of a live source, whose frames are stamped by this host's clock. Arriving frames move it; while
    none arrive, the clock does. Before `start_ns` nothing was captured."""

    def __init__(self, disorder: Disorder, lag_ns: int, start_ns: int) -> None:
        """`lag_ns`: how far the low-watermark stays behind the clock while no frames arrive."""
        self._lows = arrival_lows(disorder)
        self._lag_ns = lag_ns
        self._low = start_ns - lag_ns

    def of(self, columns: Columns, latest_ns: int) -> tuple[npt.NDArray[np.int64], int]:
        """As Lows.of; frames stamped later than latest_ns do not advance the time."""
        if len(columns.ts) and int(columns.ts.max()) > latest_ns:
            columns = replace(columns, link=np.where(columns.ts > latest_ns, np.int32(BAD_TIME), columns.link))
        low, after = self._lows.of(columns)
        low = np.maximum(low, self._low)
        self._low = max(self._low, after)
        return low, self._low

    @property
    def bound_ns(self) -> int | None:
        return self._lows.bound_ns

    @property
    def low_ns(self) -> int:
        """The current low-watermark."""
        return self._low

    def idle(self, clock_ns: int) -> int:
        """The low-watermark while no frames arrive: everything stamped before clock_ns, less the lag, has been seen."""
        self._low = max(self._low, clock_ns - max(self._lag_ns, self.bound_ns or 0))
        return self._low


class _Scanned:
    bound_ns = None

    def __init__(self, least: npt.NDArray[np.int64], within: bool) -> None:
        self._promises = iter(least.tolist())
        self._within = within
        self._low = NEVER

    def of(self, columns: Columns) -> tuple[npt.NDArray[np.int64], int]:
        before = np.full(len(columns.ts), self._low, np.int64)
        # If a file was written to between the passes, it may have more blocks; new frames in it are late.
        self._low = max(self._low, next(self._promises, self._low))
        if self._within:
            least = np.minimum(np.where(columns.link >= 0, columns.ts, FOREVER), self._low)
            np.maximum(before, np.minimum.accumulate(least[::-1])[::-1], out=before)
        return before, self._low
