"""The rows that a shared join has taken and that have not scanned all windows, with their results: a piece of state.

Rows wait in order of arrival. Each has scanned its `level` shortest windows, never more than an older row. Each query
can therefore get its rows in the order in which a join of its own would emit them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from highlevel.interface import Space
from highlevel.join.probe_kernel import START

__all__ = ["BoundMove", "WaitingRows", "waiting_space"]

Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class BoundMove:
    """A move of the inputs' bounds. An output gets it after all results of the rows before it."""

    after: int  # number of arrivals before it
    before: tuple[int, ...]
    bounds: tuple[int, ...]
    outputs: list[int]  # outputs that have not got it yet


@dataclass(slots=True)
class WaitingRows:
    """Arrays have one entry a waiting row, or (`outer` to `sent`) one a result."""

    windows: int
    arrivals: int = 0  # rows taken so far
    port: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    numbers: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # number of arrival
    at: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # position in its port's index
    level: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    outer: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # the waiting row
    partner: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # its partner's position
    ring: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # the least window that holds both
    sent: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # a bit for each output that has it
    told: list[BoundMove] = field(default_factory=list)
    examined: int = 0  # rows examined since the beginning

    # Derived from the rows, not written: each row's windows by level, and the places of its walks.
    low: Ints = field(default_factory=lambda: np.empty((0, 0), np.int64))
    high: Ints = field(default_factory=lambda: np.empty((0, 0), np.int64))
    down: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    up: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    def __len__(self) -> int:
        return len(self.port)

    @property
    def held(self) -> int:
        """Bytes of memory of waiting rows and of results that are held back."""
        rows = (self.port, self.numbers, self.level, self.at, self.low, self.high, self.down, self.up)
        return sum(each.nbytes for each in (*rows, self.outer, self.partner, self.ring, self.sent))

    @property
    def scans(self) -> int:
        """The scans that are left."""
        return self.windows * len(self) - int(self.level.sum())

    def complete(self, rows: int) -> Ints:
        """How many of the first `rows` rows have scanned at least 0, 1, 2 … windows."""
        levels = np.bincount(self.level[:rows], minlength=self.windows + 1)
        return np.cumsum(levels[::-1])[::-1].astype(np.int64)

    def add(self, port: int, at: Ints, low: Ints, high: Ints) -> None:
        """Rows of a port that come now, at these positions of its index."""
        count = len(at)
        start = np.full(count, START)
        news = (np.full(count, port), self.arrivals + np.arange(count), np.zeros(count, np.int64), at, start, start)
        for name, new in zip(("port", "numbers", "level", "at", "down", "up"), news, strict=True):
            setattr(self, name, np.concatenate((getattr(self, name), new)))
        self.low = np.concatenate((self.low.reshape(-1, self.windows), low))
        self.high = np.concatenate((self.high.reshape(-1, self.windows), high))
        self.arrivals += count

    def add_results(self, outer: Ints, partner: Ints, ring: Ints, sent: Ints) -> None:
        for name, new in zip(("outer", "partner", "ring", "sent"), (outer, partner, ring, sent), strict=True):
            setattr(self, name, np.concatenate((getattr(self, name), new)))

    def drop(self, served: int) -> None:
        """Remove the first rows, which have scanned all windows and of which no result is held back."""
        if served:
            for name in ("port", "numbers", "level", "at", "low", "high", "down", "up"):
                setattr(self, name, getattr(self, name)[served:])
            self.outer -= served

    def keep_results(self, which: npt.NDArray[np.bool_]) -> None:
        for name in ("outer", "partner", "ring", "sent"):
            setattr(self, name, getattr(self, name)[which])


def waiting_space(windows: int) -> Space[WaitingRows]:
    written = ("port", "numbers", "at", "level", "outer", "partner", "ring", "sent")

    def encode(piece: WaitingRows) -> bytes:
        arrays: list[Ints] = [getattr(piece, name) for name in written]
        told = [(each.after, each.before, each.bounds, each.outputs) for each in piece.told]
        head = {"arrivals": piece.arrivals, "examined": piece.examined, "sizes": list(map(len, arrays)), "told": told}
        return json.dumps(head).encode() + b"\n" + b"".join(each.astype("<i8").tobytes() for each in arrays)

    def decode(data: bytes) -> WaitingRows:
        line, _, body = data.partition(b"\n")
        head = json.loads(line)
        values = np.frombuffer(body, "<i8").astype(np.int64)
        parts: Sequence[Ints] = np.split(values, np.cumsum(head["sizes"])[:-1])
        piece = WaitingRows(windows, head["arrivals"], examined=head["examined"])
        for name, part in zip(written, parts, strict=True):
            setattr(piece, name, part.copy())
        piece.told = [
            BoundMove(after, tuple(before), tuple(bounds), outputs) for after, before, bounds, outputs in head["told"]
        ]
        return piece

    return Space("waiting", encode, decode)
