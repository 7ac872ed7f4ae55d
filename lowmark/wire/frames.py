"""Blocks of captured frames: what crosses from a source into a node."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lowmark.wire.records.verdicts import Reason

__all__ = ["BAD_TIME", "FUTURE_NS", "NO_TIME", "NO_VLAN", "UNKNOWN_INTERFACE", "Flaw", "FrameBlock"]

BAD_TIME = -1
"""`link` of a frame whose timestamp does not fit int64 nanoseconds: it is skipped as `malformed`. Frames that have no
time have a `link` below 0, and those that have one another."""

NO_TIME = -2
"""`link` of a frame for which its capture has no timestamp: it is skipped as `no_time`."""

UNKNOWN_INTERFACE = -3
"""`link` of a frame from an interface that its capture does not describe, which alone would say what timestamp and link
type mean: it is skipped as `unknown_interface`."""

NO_VLAN = -1
"""`vlan` of a frame whose tag, if it has one, still stands in its bytes."""

FUTURE_NS = 60 * 1_000_000_000
"""A live frame that is stamped so far ahead of the clock is skipped as `future`."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """What a source has to say against the time from `from_ns` to `until_ns`, that included. From INT64_MIN:
    whatever was before; until FOREVER: whatever comes."""

    reason: Reason
    from_ns: int
    until_ns: int


@dataclass(frozen=True, slots=True, eq=False)
class FrameBlock:
    """Frames in order of arrival, all of one source. The arrays have one entry a frame; `data` is borrowed from the
    source (a buffer that is read into, a ring block) and valid until the next block is asked for."""

    data: npt.NDArray[np.uint8]
    offset: npt.NDArray[np.int64]  # of the frame's first byte in data
    captured: npt.NDArray[np.int64]  # bytes of it that are in data
    length: npt.NDArray[np.int64]  # bytes on the wire
    ts: npt.NDArray[np.int64]  # time of capture, ns since 1970
    link: npt.NDArray[np.int32]  # link type (LINKTYPE_ number of its interface), or why it has no time
    low: npt.NDArray[np.int64]  # the source's low-watermark just before this frame, ns: never regresses
    low_after: int  # the low-watermark after the last frame, ns: no later tuple has a smaller ts
    vlan: npt.NDArray[np.int32] | None = None  # outermost VLAN id that the kernel took out of the frame, or NO_VLAN
    dropped: int = 0  # frames the kernel dropped since the block before (live sources)
    taken_ns: int | None = None  # of live sources: the clock that stamps frames, when block and drops had been taken
    flaws: tuple[Flaw, ...] = ()  # that became known since the block before

    def __len__(self) -> int:
        return len(self.ts)
