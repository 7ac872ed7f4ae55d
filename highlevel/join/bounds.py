"""The progress of a join's inputs: a piece of state."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from highlevel.interface import Space

__all__ = ["Bounds", "bounds_space"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """For each input, the time (ns) before which none of its later rows lies."""

    times: tuple[int, ...]


def bounds_space(name: str = "bounds") -> Space[Bounds]:
    def encode(piece: Bounds) -> bytes:
        return struct.pack(f">{len(piece.times)}q", *piece.times)

    def decode(data: bytes) -> Bounds:
        return Bounds(struct.unpack(f">{len(data) // 8}q", data))

    return Space(name, encode, decode)
