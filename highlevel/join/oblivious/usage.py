"""The buffers that a window-oblivious join needed, and those that the model predicts: a piece of state.

A row that finds a partner needs a buffer of all rows that came of that input since the partner, the partner included
(Wu, 5.1: the optimal buffer space). The model's accuracy is the share of results for which the predicted buffers were
large enough (eq. 1); without `Memory.MODEL` it is the accuracy that the model would have.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from highlevel.interface import Space

__all__ = ["Buffer", "Usage", "usage_space"]

_PERIOD = 4096
"""Rows of all inputs in a period. The greatest buffer is that of this period and the one before."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """The buffer of one input of a join in one bucket: the rows that the model predicts and those needed recently.
    `found` and `within` are those of the join."""

    input: str
    predicted: int
    used: int
    found: int
    within: int


@dataclass(slots=True)
class Usage:
    """`predicted`: rows of each input, by the model, when `then` rows of it had come. `found`: output rows of the join;
    `within`: those whose partners were inside the predicted buffers. `shed`: rows of each input that the model gave up
    before their time."""

    predicted: list[int]
    then: list[int]
    shed: list[int]
    most: list[list[int]]  # needed buffers by input: in the previous period and in this one
    cut: list[int]  # the rows of each input before this place have been given up
    found: int = 0
    within: int = 0
    taken: int = field(default=0)  # rows of all inputs

    @classmethod
    def of(cls, inputs: int) -> Usage:
        """The usage before the first row. Nothing is predicted yet, so every kept row counts as inside."""
        return cls([0] * inputs, [0] * inputs, [0] * inputs, [[0, 0] for _ in range(inputs)], [0] * inputs)

    @property
    def used(self) -> tuple[int, ...]:
        """The greatest buffer of each input that a recent row has needed."""
        return tuple(map(max, self.most))

    def need(self, port: int, rows: int) -> None:
        self.most[port][1] = max(self.most[port][1], rows)

    def take(self, rows: int) -> None:
        """Count rows that have come."""
        period = self.taken // _PERIOD
        self.taken += rows
        if self.taken // _PERIOD > period:
            self.most = [[now, 0] for _, now in self.most]

    def encode(self) -> bytes:
        return json.dumps(
            [self.predicted, self.then, self.shed, self.most, self.cut, self.found, self.within, self.taken]
        ).encode()

    @classmethod
    def decode(cls, data: bytes) -> Usage:
        found: Sequence[object] = json.loads(data)
        return cls(*found)  # type: ignore[arg-type]  # as `encode` wrote them


def usage_space() -> Space[Usage]:
    return Space("usage", Usage.encode, Usage.decode)
