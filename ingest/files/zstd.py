"""Reads Zstandard with Arrow's decompressor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ingest.files.errors import UnpackingLimit

if TYPE_CHECKING:
    from ingest.files.counted import CountedFile

__all__ = ["ZstdError", "ZstdReader"]

_PIECE = 16 << 10  # bytes of a piece; a piece that ends in damage is lost as a whole


class ZstdError(Exception):
    """The data are damaged. The text says how."""


class ZstdReader:
    """Decompresses frames of zstd, one after the other. Raises EOFError if they end too soon, UnpackingLimit."""

    def __init__(self, packed: CountedFile) -> None:
        import pyarrow as pa  # slow to load, and only needed for this format

        self._stream = pa.CompressedInputStream(pa.PythonFile(packed, mode="r"), "zstd")

    def read1(self, size: int) -> bytes:
        """Up to `size` bytes; none at the end."""
        try:
            piece: bytes = self._stream.read(min(size, _PIECE))
        except OSError as error:
            text = str(error)
            if "Truncated" in text:
                raise EOFError from None
            if "too much memory" in text:
                raise UnpackingLimit("zstd --long=31 -dc") from None
            raise ZstdError(text.rpartition(": ")[2]) from None
        return piece

    def close(self) -> None:
        self._stream.close()
