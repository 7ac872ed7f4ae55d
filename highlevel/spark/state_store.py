"""Stores the pieces of a bucket's state in Spark's state store."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import MapState

__all__ = ["SparkByteStore"]


class SparkByteStore:
    """A ByteStore over one MapState of the grouping key: (space, key) -> piece. Its keys are never listed, because
    Spark reads every value for that."""

    def __init__(self, state: MapState) -> None:
        self._state = state

    def load(self, space: str, key: int) -> bytes | None:
        value = self._state.getValue((space, key))
        return None if value is None else bytes(value[0])

    def store(self, space: str, key: int, piece: bytes) -> None:
        self._state.updateValue((space, key), (piece,))

    def delete(self, space: str, key: int) -> None:
        self._state.removeKey((space, key))
