"""Zstandard, as far as Arrow unpacks it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ingest.files.damage import UnpackingLimit

if TYPE_CHECKING:
    from ingest.files.counted import CountedFile

__all__ = ["ZstdError", "ZstdReader"]

_PIECE = 16 << 10  # bytes: what is unpacked in one go is lost where it ends in damage


class ZstdError(Exception):
    """The data are damaged. The text says how."""


class ZstdReader:
    """Frames of zstd, one behind the other, unpacked. EOFError where they end too soon, UnpackingLimit."""

    def __init__(self, packed: CountedFile) -> None:
        import pyarrow as pa  # it takes a while to load, and is for this format only

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
