"""A bucket's messages of a micro-batch, kept until all are known, and then cut into parts: one transaction each.

Nothing is written before the bucket has taken all its records: an operator that fails leaves no part of a batch. The
cut follows from the messages alone, so a batch that is run again has the same parts.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from highlevel.spark.sink.messages import Bundle, Position

__all__ = ["Outgoing", "Part", "scratch_folder"]

_IN_MEMORY = 32 << 20
"""Bytes of messages that stay in memory; when there are more, they go into a file of this machine."""

_PART_BYTES = 16 << 20
"""A part ends where a window or a position does, when it has so many bytes …"""

_MOST_BYTES = 64 << 20
"""… or anywhere, when it has so many, unless only a position says which results have been written."""


@dataclass(frozen=True, slots=True)
class Part:
    bundles: list[Bundle]
    position: Position | None  # None: as before
    last: bool


def scratch_folder() -> str:
    """Where a worker of Spark keeps what does not fit into memory: on its own machine."""
    return os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir()).split(",")[0]


class Outgoing:
    """`by_position`: whether a query's results are told apart by positions alone."""

    def __init__(self, by_position: bool) -> None:
        self._by_position = by_position
        self._waiting: list[Bundle | Position] = []
        self.bytes = 0
        self._file: IO[bytes] | None = None
        self.any = False  # whether there is a message

    def put(self, bundle: Bundle) -> None:
        self.any = True
        self._waiting.append(bundle)
        self.bytes += len(bundle.data)
        if self.bytes > _IN_MEMORY:
            self._spill()

    def mark(self, position: Position) -> None:
        """What was put so far follows from the records before the position."""
        self._waiting.append(position)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def few(self) -> list[Part] | None:
        """The parts, if all messages are in memory."""
        return list(self.parts()) if self._file is None else None

    def parts(self) -> Iterator[Part]:
        """None if there is no message: nobody needs a position's move then."""
        bundles: list[Bundle] = []
        size, at_end = 0, False
        position: Position | None = None
        for entry in self._entries():
            if isinstance(entry, Position):
                position, at_end = entry, True
                continue
            full = _PART_BYTES if at_end else _MOST_BYTES
            if size >= full and (position is not None or not self._by_position):
                yield Part(bundles, position, last=False)
                bundles, size = [], 0
            bundles.append(entry)
            size += len(entry.data)
            at_end = entry.closes and not self._by_position
        if bundles:
            yield Part(bundles, position, last=True)

    def _entries(self) -> Iterator[Bundle | Position]:
        if self._file is not None:
            self._file.seek(0)
            while True:
                try:
                    entry = pickle.load(self._file)
                except EOFError:
                    break
                yield from _pieces(entry)
        for entry in self._waiting:
            yield from _pieces(entry)

    def _spill(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=scratch_folder())  # noqa: SIM115  # `close` closes it
        for entry in self._waiting:
            pickle.dump(entry, self._file, pickle.HIGHEST_PROTOCOL)
        self._waiting.clear()
        self.bytes = 0


def _pieces(entry: Bundle | Position) -> Iterator[Bundle | Position]:
    if isinstance(entry, Bundle) and len(entry.data) > _PART_BYTES:
        yield from entry.split(_PART_BYTES)
    else:
        yield entry
