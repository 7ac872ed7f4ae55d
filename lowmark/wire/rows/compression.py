"""How batches are compressed between their maker and their reader."""

from __future__ import annotations

from enum import Enum

__all__ = ["Compression"]


class Compression(Enum):
    """Of the buffers of an Arrow batch, as Arrow itself does it: any reader of Arrow reads all of them."""

    NONE = "none"
    LZ4 = "lz4"
    ZSTD = "zstd"
