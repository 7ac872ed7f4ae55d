"""The hold buffer of an in-order join: rows of the output that wait until no older one can come, in bins of time."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from highlevel.groups.split import split
from highlevel.interface import Space, State, Words
from lowmark.wire.rows.values import FOREVER

__all__ = ["Hold"]

Ints = npt.NDArray[np.int64]

_WORDS = struct.Struct(">I")


@dataclass(slots=True)
class HeldRows:
    """Rows, each followed by one more word, its time."""

    parts: list[Words] = field(default_factory=list)

    @property
    def held(self) -> int:
        """Bytes of memory."""
        return sum(part.nbytes for part in self.parts)

    def __len__(self) -> int:
        return sum(map(len, self.parts))


class Hold:
    """`width`: ns of a bin."""

    def __init__(self, width: int) -> None:
        self._width = width
        self.space: Space[HeldRows] = Space("held", _encode, _decode)

    def add(self, rows: Words, times: Ints, state: State) -> None:
        stored = np.column_stack((rows, times.view(np.uint64)))
        for key, part in split(times // self._width, stored):
            piece = state.get(self.space, key) or HeldRows()
            piece.parts.append(part)
            state.put(self.space, key, piece)

    def release(self, before: int, state: State) -> Iterator[Words]:
        """Remove the rows older than this time and return them in order."""
        for key in state.keys(self.space, None if before == FOREVER else before // self._width + 1):
            piece = state.get(self.space, key)
            assert piece is not None, "a listed piece is there"
            rows = np.concatenate(piece.parts)
            times = rows[:, -1].view(np.int64)
            old = np.ones(len(rows), np.bool_) if before == FOREVER else times < before
            if old.all():
                state.drop(self.space, key)
            else:
                piece.parts = [rows[~old]]
                state.put(self.space, key, piece)
            if old.any():
                gone = rows[old]
                yield gone[np.argsort(times[old], kind="stable"), :-1]


def _encode(piece: HeldRows) -> bytes:
    rows = np.concatenate(piece.parts)
    return _WORDS.pack(rows.shape[1]) + rows.astype("<u8", copy=False).tobytes()


def _decode(data: bytes) -> HeldRows:
    (words,) = _WORDS.unpack_from(data)
    rows = np.frombuffer(data, "<u8", offset=_WORDS.size).reshape(-1, words)
    return HeldRows([rows.astype(np.uint64)])
