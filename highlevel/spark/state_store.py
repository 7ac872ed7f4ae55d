"""Stores the pieces of a bucket's state in Spark's state store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import MapState

__all__ = ["SparkByteStore"]


class SparkByteStore:
    """A ByteStore over one MapState of the grouping key: (space, key) -> piece.

    The names of all pieces are read once, by listing the map's keys, which RocksDB does without reading values.
    """

    def __init__(self, state: MapState) -> None:
        self._state = state
        self._listed: dict[str, list[int]] | None = None

    def load(self, space: str, key: int) -> bytes | None:
        value = self._state.getValue((space, key))
        return None if value is None else bytes(value[0])

    def store(self, space: str, key: int, piece: bytes) -> None:
        self._state.updateValue((space, key), (piece,))

    def delete(self, space: str, key: int) -> None:
        self._state.removeKey((space, key))

    def keys(self, space: str) -> Sequence[int]:
        if self._listed is None:
            self._listed = {}
            for name, key in self._state.keys():  # noqa: SIM118  # MapState is no mapping
                self._listed.setdefault(name, []).append(int(key))
        return self._listed.get(space, [])
