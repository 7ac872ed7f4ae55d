"""Replays: delivers blocks when their frames fall due, with times moved to the present."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ingest.config import Playback
from ingest.disorder.stream_time import StreamTime, moved
from lowmark.wire.frames import BAD_TIME, Flaw, FrameBlock
from lowmark.wire.rows.values import FOREVER, NEVER

__all__ = ["replayed"]

_INT64 = np.iinfo(np.int64)
_MOST_WAIT_S = 0.2
"""Longest wait between blocks. An empty block then shows that the replay waits, as for a pipe."""


def replayed(
    blocks: Iterator[FrameBlock],
    replay: Playback,
    *,
    start_ns: int,
    now_ns: Callable[[], int],
    wait: Callable[[float], bool],
) -> Iterator[FrameBlock]:
    """The same frames in the same order, in new blocks. A frame falls due by the newest time so far; the first frame's
    time (or rebase_from_ns) is due at `start_ns` of the clock `now_ns`. A lone frame far ahead of its neighbours is
    delivered with them and moves nothing. `wait` takes seconds and returns whether to stop instead."""
    origin_ns = replay.rebase_from_ns
    time = StreamTime()
    waiting: tuple[Flaw, ...] = ()  # flaws whose times cannot be moved yet
    for block in blocks:
        timed = block.link >= 0
        if origin_ns is None and timed.any():
            origin_ns = int(block.ts[int(timed.argmax())])
        if origin_ns is None:
            # No flaw or promise can be moved to the new times before one old time is known.
            if replay.rebase_to_ns is None:
                yield block
            else:
                waiting += block.flaws
                ended = block.low_after == FOREVER  # then they cover all times
                yield replace(_without_promise(block), flaws=waiting if ended else ())
            continue
        block, waiting = replace(block, flaws=waiting + block.flaws), ()
        shifted = block if replay.rebase_to_ns is None else _moved(block, replay.rebase_to_ns - origin_ns)
        if replay.pace is None:
            yield shifted
            continue
        # In floating point: exact to a microsecond over a century, and it cannot wrap.
        _, passed = time.with_hindsight(np.where(timed, block.ts, NEVER))
        due = (passed.astype(np.float64) - float(origin_ns)) / replay.pace + float(start_ns)
        for piece in _as_due(shifted, due, replay.tick_ns, now_ns, wait):
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
    """The block in pieces, each delivered when its last frame is due, with empty blocks meanwhile. None: stopped
    early."""
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
        elif wait(min(max(float(due[at]) - now, tick_ns) / 1e9, _MOST_WAIT_S)):
            yield None
            return
        elif due[at] > now_ns():
            yield replace(_piece(block, at, at), dropped=0, flaws=())


def _piece(block: FrameBlock, first: int, end: int) -> FrameBlock:
    """Frames first…end of a block, with the promise that held after them."""
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
        flaws=block.flaws if first == 0 else (),
    )


def _moved(block: FrameBlock, shift_ns: int) -> FrameBlock:
    """Move all times and promises later by shift_ns. A frame whose new time is beyond int64 has no time any more."""
    # Only these times stay within int64; the shift itself may lie outside.
    least, most = max(_INT64.min, _INT64.min - shift_ns), min(_INT64.max, _INT64.max - shift_ns)
    flaws = tuple(Flaw(f.reason, moved(f.from_ns, shift_ns), moved(f.until_ns, shift_ns)) for f in block.flaws)
    if least >= most:
        gone = np.where(block.link >= 0, BAD_TIME, block.link).astype(np.int32)
        return replace(_without_promise(block), link=gone, flaws=flaws)
    fits = (block.ts >= least) & (block.ts <= most) | (block.link < 0)
    # A promise beyond the range becomes its nearest end: at the upper end a weaker promise, at the lower end none.
    low = _shifted(np.clip(block.low, least, min(most, FOREVER - 1 - shift_ns)), shift_ns)
    return replace(
        block,
        ts=np.where(fits, _shifted(block.ts, shift_ns), 0),
        link=np.where(fits, block.link, BAD_TIME).astype(np.int32),
        low=np.where(block.low == NEVER, NEVER, low),
        low_after=moved(block.low_after, shift_ns),
        flaws=flaws,
    )


def _shifted(times: npt.NDArray[np.int64], shift_ns: int) -> npt.NDArray[np.int64]:
    """Sums that are right whenever they fit into int64. The shift itself may not fit, so it is added modulo 2^64."""
    return (times.view(np.uint64) + np.uint64(shift_ns % 2**64)).view(np.int64)


def _without_promise(block: FrameBlock) -> FrameBlock:
    ended = block.low_after == FOREVER
    return replace(block, low=np.full_like(block.low, NEVER), low_after=FOREVER if ended else NEVER)
