"""The nodes of a punctuated join as pieces of state: rows in bins of time, and the promised values.

A piece is stored in parts (`highlevel.piece_directory`), so that a micro-batch writes only what has changed: rows that
came, the numbers of rows that went, values whose bounds have changed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

from highlevel.interface import ONLY, Space, State, Words
from highlevel.join.punctuated.nodes import Nodes

__all__ = ["NodeStore", "TimeBin"]

Ints = npt.NDArray[np.int64]

_COUNT = struct.Struct(">I")


def _none() -> Ints:
    return np.empty(0, np.int64)


@dataclass(slots=True, eq=False)
class TimeBin:
    """The rows of one bin of time, in runs. Each row has the number of its arrival as one word more. `gone`: of a part,
    the numbers of rows of older parts that were removed before its own rows came. `news`: what has changed since it was
    stored."""

    at: int  # the word of a row that holds its time
    numbered: Callable[[], Sequence[Words]]
    gone: Ints = field(default_factory=_none)
    news: Callable[[], tuple[Words, Ints] | None] = lambda: None

    @property
    def times(self) -> Ints:
        return np.concatenate([rows[:, self.at].view(np.int64) for rows in self.numbered()])


@dataclass(slots=True, eq=False)
class _Promised:
    """The promised values, one a line: the words of the value, its bound, and the bound that the output was promised.
    Of a value that has several lines the last one counts. `nodes`: the nodes of these values, once there are any."""

    lines: Words
    nodes: Nodes | None = None


class NodeStore:
    """The nodes of one input. `at`: the word of a row that holds its time; `keys_of`: the words of the values of rows;
    `width`: ns of a bin."""

    def __init__(self, port: int, at: int, words: int, keys_of: Callable[[Words], Words], width: int) -> None:
        self._at = at
        self._words = words
        self._keys_of = keys_of
        self._width = width
        self._key_words = keys_of(np.empty((0, words), np.uint64)).shape[1]
        self.space: Space[TimeBin] = Space(
            f"rows.{port}", _encode_bin, self._decode_bin, self._merge_bins, self._bin_news, version=2
        )
        self._promised: Space[_Promised] = Space(
            f"nodes.{port}", _encode_promised, self._decode_promised, _merge_promised, _promised_news
        )

    def nodes(self, state: State) -> Nodes:
        piece = state.get(self._promised, ONLY)
        if piece is None:
            piece = _Promised(np.empty((0, self._key_words + 2), np.uint64))
            state.put(self._promised, ONLY, piece)
        if piece.nodes is None:
            bins = {key: found for key in state.keys(self.space) if (found := state.get(self.space, key)) is not None}
            nodes = piece.nodes = Nodes(self._at, self._width, self._words, self._key_words)
            nodes.set_promised(piece.lines)
            nodes.load({key: found.numbered() for key, found in bins.items()}, self._keys_of)
            for key, found in bins.items():
                found.numbered, found.gone = partial(nodes.rows_of, key), _none()
                found.news = partial(nodes.bin_news, key)
        return piece.nodes

    def save(self, nodes: Nodes, state: State, promised: bool = False) -> None:
        """Put what has changed into the state; `promised`: also the promised values."""
        for key, rows_left in nodes.take_changed():
            if rows_left:
                piece = state.get(self.space, key) or TimeBin(
                    self._at, partial(nodes.rows_of, key), news=partial(nodes.bin_news, key)
                )
                state.put(self.space, key, piece)
            else:
                state.drop(self.space, key)
        nodes.tidy()
        if promised:
            piece_of_values = state.get(self._promised, ONLY)
            assert piece_of_values is not None, "nodes come from the state"
            state.put(self._promised, ONLY, piece_of_values)

    def _bin_news(self, piece: TimeBin) -> TimeBin | None:
        news = piece.news()
        return None if news is None else self._read([news[0]], news[1])

    def _merge_bins(self, parts: Sequence[TimeBin]) -> TimeBin:
        runs, gone = [*parts[0].numbered()], parts[0].gone
        for part in parts[1:]:
            unknown = part.gone
            for at, rows in enumerate(runs):
                if len(unknown):
                    numbers = rows[:, -1].view(np.int64)
                    runs[at] = rows[~np.isin(numbers, part.gone)]
                    unknown = unknown[~np.isin(unknown, numbers)]
            gone = np.concatenate((gone, unknown))
            runs += part.numbered()
        return self._read(runs, gone)

    def _read(self, runs: Sequence[Words], gone: Ints) -> TimeBin:
        return TimeBin(self._at, lambda: runs, gone)

    def _decode_bin(self, data: bytes) -> TimeBin:
        (count,) = _COUNT.unpack_from(data)
        gone = np.frombuffer(data, "<i8", count, _COUNT.size).astype(np.int64)
        rows = np.frombuffer(data, "<u8", offset=_COUNT.size + 8 * count).astype(np.uint64, copy=False)
        return self._read([rows.reshape(-1, self._words + 1)], gone)

    def _decode_promised(self, data: bytes) -> _Promised:
        return _Promised(np.frombuffer(data, "<u8").astype(np.uint64).reshape(-1, self._key_words + 2))


def _encode_bin(piece: TimeBin) -> bytes:
    rows = (run.astype("<u8", copy=False).tobytes() for run in piece.numbered())
    return b"".join((_COUNT.pack(len(piece.gone)), piece.gone.astype("<i8", copy=False).tobytes(), *rows))


def _encode_promised(piece: _Promised) -> bytes:
    lines = piece.lines if piece.nodes is None else piece.nodes.promised_lines()
    return lines.astype("<u8", copy=False).tobytes()


def _merge_promised(parts: Sequence[_Promised]) -> _Promised:
    return _Promised(np.concatenate([part.lines for part in parts]))


def _promised_news(piece: _Promised) -> _Promised | None:
    news = None if piece.nodes is None else piece.nodes.promised_news()
    return None if news is None else _Promised(news)
