"""Replays: blocks delivered when their frames fall due, and their times moved onto the present."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ingest.config import Replay
from ingest.lows import NEVER
from lowmark.wire.frames import BAD_TIME, FOREVER, FrameBlock

__all__ = ["replayed"]

_LONE_NS = 60_000_000_000
"""A single frame that is so far ahead of what stands around it is taken for a broken clock."""

_INT64 = np.iinfo(np.int64)


def replayed(
    blocks: Iterator[FrameBlock],
    replay: Replay,
    *,
    start_ns: int,
    now_ns: Callable[[], int],
    wait: Callable[[float], bool],
) -> Iterator[FrameBlock]:
    """The same frames in the same order, cut anew. Frames fall due by the newest time so far: `start_ns`, by the clock
    `now_ns`, is the moment of the first frame's time (or of rebase_from_ns). A lone frame far ahead of its neighbours
    is delivered with them and moves nothing. `wait` takes seconds and says whether to stop instead."""
    origin_ns = replay.rebase_from_ns
    progress = _Progress()
    for block in blocks:
        timed = block.link != BAD_TIME
        if origin_ns is None and timed.any():
            origin_ns = int(block.ts[int(timed.argmax())])
        if origin_ns is None:
            # Nothing can be said in the new times before one of the old ones is known.
            yield _without_promise(block) if replay.rebase_to_ns is not None else block
            continue
        moved = block if replay.rebase_to_ns is None else _moved(block, replay.rebase_to_ns - origin_ns)
        if replay.pace is None:
            yield moved
            continue
        # In floating point: exact to a microsecond over a century, and it cannot wrap.
        due = (progress.passed(block).astype(np.float64) - float(origin_ns)) / replay.pace + float(start_ns)
        for piece in _as_due(moved, due, replay.tick_ns, now_ns, wait):
            if piece is None:
                return
            yield piece


def _as_due(
    block: FrameBlock,
    due: npt.NDArray[np.float64],
    tick_ns: int,
    now_ns: Callable[[], int],
    wait: Callable[[float], bool],
) -> Iterator[FrameBlock | None]:
    """The block in pieces, each when its last frame is due; None for an end before its time."""
    if not len(block):
        yield block
        return
    at = 0
    while at < len(block):
        now = now_ns()
        until = int(np.searchsorted(due, now, side="right"))
        if until > at:
            yield _piece(block, at, until)
            at = until
        elif wait(max(float(due[at]) - now, tick_ns) / 1e9):
            yield None
            return


class _Progress:
    """How far the capture's own time has come."""

    def __init__(self) -> None:
        self._newest_ns = NEVER
        self._doubted_ns: int | None = None  # the last frame's time, where it was taken for a broken clock's

    def passed(self, block: FrameBlock) -> npt.NDArray[np.int64]:
        """The time reached with each frame: never less than with the one before."""
        times = np.where(block.link == BAD_TIME, NEVER, block.ts)
        if not len(times):
            return times
        # A step back of more than a minute right behind a frame gives that frame away. The last one has nobody behind
        # it yet: it is compared with what came before, and believed where the last of the block before said the same.
        following = np.minimum(times[1:], _INT64.max - _LONE_NS)
        ahead = np.zeros(len(times), np.bool_)
        ahead[:-1] = (times[:-1] > following + _LONE_NS) & (following != NEVER)
        before = max(self._newest_ns, int(times[:-1][~ahead[:-1]].max(initial=NEVER)))
        last, doubted = int(times[-1]), self._doubted_ns
        ahead[-1] = last - before > _LONE_NS and before != NEVER and (doubted is None or last < doubted - _LONE_NS)
        self._doubted_ns = last if ahead[-1] else None
        passed: npt.NDArray[np.int64] = np.maximum.accumulate(np.where(ahead, NEVER, times))
        np.maximum(passed, self._newest_ns, out=passed)
        self._newest_ns = int(passed[-1])
        return passed


def _piece(block: FrameBlock, first: int, end: int) -> FrameBlock:
    """Frames first…end of a block, with the promise that held behind them."""
    cut = slice(first, end)
    return replace(
        block,
        offset=block.offset[cut],
        captured=block.captured[cut],
        length=block.length[cut],
        ts=block.ts[cut],
        link=block.link[cut],
        low=block.low[cut],
        low_after=block.low_after if end == len(block) else int(block.low[end]),
        vlan=None if block.vlan is None else block.vlan[cut],
        dropped=block.dropped if first == 0 else 0,
    )


def _moved(block: FrameBlock, shift_ns: int) -> FrameBlock:
    """All times and promises later by shift_ns. A frame whose new time int64 cannot tell has none any more."""
    # The times that stay within int64; the shift itself may be beyond it.
    least, most = max(_INT64.min, _INT64.min - shift_ns), min(_INT64.max, _INT64.max - shift_ns)
    if least >= most:
        return replace(_without_promise(block), link=np.full_like(block.link, BAD_TIME))
    fits = (block.ts >= least) & (block.ts <= most)
    low_after = block.low_after
    if low_after not in (NEVER, FOREVER):
        low_after = min(max(low_after + shift_ns, NEVER), FOREVER - 1)
    # A promise that leaves the range becomes its nearest end. At the upper end that is a weaker one, at the lower none.
    low = _shifted(np.clip(block.low, least, min(most, FOREVER - 1 - shift_ns)), shift_ns)
    return replace(
        block,
        ts=np.where(fits, _shifted(block.ts, shift_ns), 0),
        link=np.where(fits, block.link, BAD_TIME).astype(np.int32),
        low=np.where(block.low == NEVER, NEVER, low),
        low_after=low_after,
    )


def _shifted(times: npt.NDArray[np.int64], shift_ns: int) -> npt.NDArray[np.int64]:
    """Sums that are right wherever they fit: a shift may itself be too large for int64, modulo 2^64 it is not."""
    return (times.view(np.uint64) + np.uint64(shift_ns % 2**64)).view(np.int64)


def _without_promise(block: FrameBlock) -> FrameBlock:
    ended = block.low_after == FOREVER
    return replace(block, low=np.full_like(block.low, NEVER), low_after=FOREVER if ended else NEVER)
