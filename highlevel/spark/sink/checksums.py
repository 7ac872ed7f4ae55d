"""The checksums of rows that wait for their completion: of early rows and of queries without windows, over batches."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from highlevel.interface import Space, State
from lowmark.wire.records.row_checksums import checksum_of_values
from lowmark.wire.records.verdicts import Complete

__all__ = ["Checksums"]


@dataclass(slots=True)
class _Sums:
    by_window: dict[str, int]

    def encode(self) -> bytes:
        return json.dumps(self.by_window, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, piece: bytes) -> _Sums:
        return cls(json.loads(piece))


class Checksums:
    """Of one bucket and these queries. `save` puts what still waits into the state."""

    def __init__(self, state: State, queries: Iterable[str]) -> None:
        self._state = state
        self._stored = {
            query: {} if (stored := state.get(_space(query), 0)) is None else stored.by_window for query in queries
        }
        self._sums = {query: dict(stored) for query, stored in self._stored.items()}

    def add(self, query: str, window: int | None, starts: bytes, data: bytes) -> None:
        """The values of these records are rows of the window."""
        sums, key = self._sums[query], _key(window)
        sums[key] = checksum_of_values(data, np.frombuffer(starts, np.int64), sums.get(key, 0))

    def on(self, complete: Complete) -> Complete:
        """The completion with the checksum of its rows."""
        window = None if complete.windows is None else complete.windows.first
        return replace(complete, checksum=self._sums[complete.query].pop(_key(window), 0))

    def save(self) -> None:
        for query, sums in self._sums.items():
            if sums != self._stored[query]:
                self._state.put(_space(query), 0, _Sums(sums))


def _space(query: str) -> Space[_Sums]:
    return Space(f"checksums.{query}", _Sums.encode, _Sums.decode)


def _key(window: int | None) -> str:
    return "" if window is None else str(window)
