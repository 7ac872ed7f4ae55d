"""The rows that a shared join has taken and not served yet, and what it has found of them: a piece of state.

Rows wait in order of arrival. Each has met the shortest windows, as many as `level` says; never more than an older row.
So each query can have its rows in the order in which a join of its own would emit them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from highlevel.interface import Space
from highlevel.join.probe_kernel import START

__all__ = ["Told", "Waiting", "waiting_space"]

Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class Told:
    """A move of the inputs' bounds that outputs learn of when they have what came before it."""

    after: int  # number of arrivals before it
    before: tuple[int, ...]
    bounds: tuple[int, ...]
    outputs: list[int]  # that have not been told yet


@dataclass(slots=True)
class Waiting:
    """Arrays have one entry a waiting row, or (`outer` to `sent`) one a result."""

    windows: int
    arrivals: int = 0  # rows taken so far
    port: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    numbers: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # of arrival
    at: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # position in its port's index
    level: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    outer: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # the waiting row
    partner: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # its partner's position
    ring: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # the least window that holds both
    sent: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # a bit for each output that has it
    told: list[Told] = field(default_factory=list)
    examined: int = 0  # rows looked at, since the beginning

    # Derived from the rows, not written: the windows of each, by level, and where its walks stand.
    low: Ints = field(default_factory=lambda: np.empty((0, 0), np.int64))
    high: Ints = field(default_factory=lambda: np.empty((0, 0), np.int64))
    down: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    up: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    def __len__(self) -> int:
        return len(self.port)

    @property
    def held(self) -> int:
        """Bytes of memory of rows that wait and results that are held back."""
        rows = (self.port, self.numbers, self.level, self.at, self.low, self.high, self.down, self.up)
        return sum(each.nbytes for each in (*rows, self.outer, self.partner, self.ring, self.sent))

    @property
    def scans(self) -> int:
        """The scans that are left."""
        return self.windows * len(self) - int(self.level.sum())

    def complete(self, rows: int) -> Ints:
        """Of the first `rows` rows, how many have met 0, 1, 2 … windows at least."""
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
        """The first so many rows are done with; none of their results is held back any more."""
        if served:
            for name in ("port", "numbers", "level", "at", "low", "high", "down", "up"):
                setattr(self, name, getattr(self, name)[served:])
            self.outer -= served

    def keep_results(self, which: npt.NDArray[np.bool_]) -> None:
        for name in ("outer", "partner", "ring", "sent"):
            setattr(self, name, getattr(self, name)[which])


def waiting_space(windows: int) -> Space[Waiting]:
    written = ("port", "numbers", "at", "level", "outer", "partner", "ring", "sent")

    def encode(piece: Waiting) -> bytes:
        arrays: list[Ints] = [getattr(piece, name) for name in written]
        told = [(each.after, each.before, each.bounds, each.outputs) for each in piece.told]
        head = {"arrivals": piece.arrivals, "examined": piece.examined, "sizes": list(map(len, arrays)), "told": told}
        return json.dumps(head).encode() + b"\n" + b"".join(each.astype("<i8").tobytes() for each in arrays)

    def decode(data: bytes) -> Waiting:
        line, _, body = data.partition(b"\n")
        head = json.loads(line)
        values = np.frombuffer(body, "<i8").astype(np.int64)
        parts: Sequence[Ints] = np.split(values, np.cumsum(head["sizes"])[:-1])
        piece = Waiting(windows, head["arrivals"], examined=head["examined"])
        for name, part in zip(written, parts, strict=True):
            setattr(piece, name, part.copy())
        piece.told = [
            Told(after, tuple(before), tuple(bounds), outputs) for after, before, bounds, outputs in head["told"]
        ]
        return piece

    return Space("waiting", encode, decode)
