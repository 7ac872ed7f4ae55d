"""The columns that the walkers of both formats fill: one entry per frame, without the frames' bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["LARGEST", "Columns", "Walk"]

LARGEST = 128 << 20
"""Largest credible length of a frame or a block, in bytes. A larger one means that the file is damaged."""


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """As in FrameBlock; offsets count from the first byte of the array that was walked."""

    offset: npt.NDArray[np.int64]
    captured: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    ts: npt.NDArray[np.int64]
    link: npt.NDArray[np.int32]

    @classmethod
    def of_size(cls, frames: int) -> Columns:
        offset, captured, length, ts = np.empty((4, frames), np.int64)
        return cls(offset, captured, length, ts, np.empty(frames, np.int32))

    def first(self, count: int) -> Columns:
        return Columns(
            self.offset[:count], self.captured[:count], self.length[:count], self.ts[:count], self.link[:count]
        )


@dataclass(frozen=True, slots=True)
class Walk:
    """How far a walk got. At most one of `wanted` and `nonsense` is set. If neither is, the columns are full or the
    stretch is used up."""

    count: int  # frames in the columns
    position: int  # place of the first unused byte
    wanted: int = 0  # bytes needed from `position` on to continue
    nonsense: str | None = None  # why the walk cannot continue at `position`
