"""Blocks of captured frames: the data that a source hands to a node."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lowmark.wire.records.verdicts import Reason

__all__ = ["BAD_TIME", "FUTURE_NS", "NO_TIME", "NO_VLAN", "UNKNOWN_INTERFACE", "Flaw", "FrameBlock"]

BAD_TIME = -1
"""`link` of a frame whose timestamp does not fit int64 nanoseconds: it is skipped as `malformed`. `link` is below 0
exactly for frames without a time."""

NO_TIME = -2
"""`link` of a frame for which its capture has no timestamp: it is skipped as `no_time`."""

UNKNOWN_INTERFACE = -3
"""`link` of a frame from an interface that its capture does not describe, so timestamp and link type are unknown: it
is skipped as `unknown_interface`."""

NO_VLAN = -1
"""`vlan` of a frame without a tag, or whose tag is still in its bytes."""

FUTURE_NS = 60 * 1_000_000_000
"""A live frame whose timestamp is this far ahead of the clock is skipped as `future`."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """A reason against a source's data from `from_ns` to `until_ns`, both included. `from_ns` INT64_MIN includes all
    earlier data; `until_ns` FOREVER includes all later data."""

    reason: Reason
    from_ns: int
    until_ns: int


@dataclass(frozen=True, slots=True, eq=False)
class FrameBlock:
    """Frames of one source in order of arrival. The arrays have one entry for each frame; `data` is borrowed from the
    source (a read buffer, a ring block) and valid until the next block is requested."""

    data: npt.NDArray[np.uint8]
    offset: npt.NDArray[np.int64]  # of the frame's first byte in data
    captured: npt.NDArray[np.int64]  # bytes of the frame that are in data
    length: npt.NDArray[np.int64]  # bytes on the wire
    ts: npt.NDArray[np.int64]  # time of capture, ns since 1970
    link: npt.NDArray[np.int32]  # link type (LINKTYPE_ number of its interface), or why it has no time
    low: npt.NDArray[np.int64]  # the source's low-watermark just before this frame, ns: never regresses
    low_after: int  # the low-watermark after the last frame, ns: no later tuple has a smaller ts
    vlan: npt.NDArray[np.int32] | None = None  # outermost VLAN id that the kernel took out of the frame, or NO_VLAN
    dropped: int = 0  # live sources: frames that the kernel dropped since the previous block
    taken_ns: int | None = None  # live sources: the clock that stamps frames, read after the block and its drops
    flaws: tuple[Flaw, ...] = ()  # found since the previous block

    def __len__(self) -> int:
        return len(self.ts)
