"""Compression of batches between their sender and their reader."""

from __future__ import annotations

from enum import Enum

__all__ = ["Compression"]


class Compression(Enum):
    """Compression of the buffers of an Arrow batch, done by Arrow itself: any Arrow reader reads all of these."""

    NONE = "none"
    LZ4 = "lz4"
    ZSTD = "zstd"
