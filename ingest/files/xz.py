"""Reads xz: streams, one after the other. Python's own reader silently ignores other data after the first stream."""

from __future__ import annotations

from lzma import FORMAT_XZ, LZMADecompressor, LZMAError
from typing import TYPE_CHECKING

from ingest.files.errors import UNPACKING_MIB, UnpackingLimit

if TYPE_CHECKING:
    from ingest.files.counted import CountedFile

__all__ = ["XzReader"]

_PIECE = 64 << 10


class XzReader:
    """Raises EOFError if the data end too soon, LZMAError if they are damaged, UnpackingLimit."""

    def __init__(self, packed: CountedFile) -> None:
        self._packed = packed
        self._stream = _stream()

    def read1(self, size: int) -> bytes:
        """Up to `size` bytes; none at the end."""
        while True:
            if self._stream.eof:
                packed = self._behind(self._stream.unused_data)
                if not packed:
                    return b""
                self._stream = _stream()
            elif self._stream.needs_input:
                packed = self._packed.read(_PIECE) or b""
                if not packed:
                    raise EOFError
            else:
                packed = b""
            try:
                piece = self._stream.decompress(packed, size)
            except LZMAError as error:
                if "emory usage limit" in str(error):  # the error has no class of its own
                    raise UnpackingLimit("xz -dc") from None
                raise
            if piece:
                return piece

    def _behind(self, packed: bytes) -> bytes:
        """What follows a stream, without the zeros that may pad it."""
        while not (packed := packed.lstrip(b"\0")):
            packed = self._packed.read(_PIECE) or b""
            if not packed:
                break
        return packed

    def close(self) -> None:
        """Does nothing: it holds only memory."""


def _stream() -> LZMADecompressor:
    return LZMADecompressor(FORMAT_XZ, memlimit=UNPACKING_MIB << 20)
