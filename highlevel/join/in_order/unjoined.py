"""The rows that an in-order join has taken and has not matched yet: by port, in bins of time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from highlevel.groups.split import split
from highlevel.interface import State, Words
from highlevel.join.bins import Bin, bins_space
from lowmark.query.plan.nodes import Join
from lowmark.wire.rows.values import FOREVER

__all__ = ["Unjoined"]

Ints = npt.NDArray[np.int64]


class Unjoined:
    """`width`: ns of a bin."""

    def __init__(self, plan: Join, width: int) -> None:
        self._times = [port.schema.offset(port.attribute) for port in plan.inputs]
        self._spaces = [bins_space(f"unjoined.{number}", at) for number, at in enumerate(self._times)]
        self._width = width

    def add(self, port: int, rows: Words, state: State) -> None:
        space = self._spaces[port]
        for key, part in split(rows[:, self._times[port]].view(np.int64) // self._width, rows):
            piece = state.get(space, key)
            if piece is None:
                piece = Bin(part.copy(), self._times[port])
            else:
                piece.append(part)
            state.put(space, key, piece)

    def least(self, state: State) -> list[int]:
        """For each port the time of its oldest row; FOREVER: it has none."""
        found = []
        for space in self._spaces:
            keys = state.keys(space)
            piece = state.get(space, keys[0]) if keys else None
            found.append(FOREVER if piece is None else int(piece.times.min()))
        return found

    def count(self, before: int, state: State) -> int:
        """The rows older than this time."""
        return sum(int((piece.times < before).sum()) for _, _, piece in self._pieces(before, state))

    def take(self, before: int, most: int, state: State) -> list[Words]:
        """Remove and return at most `most` of the oldest rows before this time, for each port in order of time."""
        pieces = list(self._pieces(before, state))
        times = np.concatenate([piece.times[piece.times < before] for _, _, piece in pieces] or [np.empty(0, np.int64)])
        if len(times) > most:
            cut = int(np.partition(times, most - 1)[most - 1])
            rest = most - int((times < cut).sum())  # how many of the rows at this time to take
        else:
            cut, rest = before, 0
        found: list[list[Words]] = [[] for _ in self._spaces]
        for port, key, piece in pieces:
            chosen = piece.times < cut
            ties = np.flatnonzero(piece.times == cut)[:rest]
            rest -= len(ties)
            chosen[ties] = True
            found[port].append(piece.take(chosen))
            if len(piece):
                state.put(self._spaces[port], key, piece)
            else:
                state.drop(self._spaces[port], key)
        return [self._ordered(port, rows) for port, rows in enumerate(found)]

    def _pieces(self, before: int, state: State) -> Sequence[tuple[int, int, Bin]]:
        upto = None if before == FOREVER else before // self._width + 1
        return [
            (port, key, piece)
            for port, space in enumerate(self._spaces)
            for key in state.keys(space, upto)
            if (piece := state.get(space, key)) is not None
        ]

    def _ordered(self, port: int, parts: Sequence[Words]) -> Words:
        if not parts:
            return np.empty((0, 0), np.uint64)
        rows = np.concatenate(parts)
        ordered: Words = rows[np.argsort(rows[:, self._times[port]].view(np.int64), kind="stable")]
        return ordered
