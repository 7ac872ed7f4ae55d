"""The bytes of a capture, read piece by piece into one buffer."""

from __future__ import annotations

import contextlib
import fcntl
import lzma
import os
import stat
import zlib
from collections.abc import Callable
from dataclasses import replace
from gzip import BadGzipFile, GzipFile
from io import FileIO

import numpy as np
import numpy.typing as npt

from ingest.files.counted import CountedFile, Followed, Piped, Sized
from ingest.files.errors import CaptureError, UnpackingLimit
from ingest.files.identity import Identity, identity_of
from ingest.files.xz import XzReader
from ingest.files.zstd import ZstdError, ZstdReader

__all__ = ["PIECE", "STANDARD_INPUT", "CaptureBytes", "is_stream", "open_bytes"]

STANDARD_INPUT = "-"
"""The path that stands for standard input."""

PIECE = 4 << 20
"""Most bytes held at a time, unless one frame needs more: few enough to stay in the processor's cache between reading
and walking, which makes reading as fast as mapping."""

_PIPE = 1 << 20  # bytes that a pipe may hold, if permitted: what has arrived makes a block
_UNPACKED = 256 << 10  # bytes that are decompressed at a time
_GZIP = b"\x1f\x8b"
_XZ = b"\xfd7zXZ\x00"
_ZSTD = b"\x28\xb5\x2f\xfd"


class CaptureBytes:
    """A sliding view of a capture's bytes: `data[:filled]` holds it from byte `base` on. An unfinished rest of a piece
    is carried over to the next.

    A plain file is read in whole pieces, so that blocks are cut alike every time. Any other input is read as far as it
    has arrived, so that no bytes wait for later ones. Nothing is read before it is requested."""

    def __init__(self, name: str, counted: CountedFile) -> None:
        self.name = name
        self._counted = counted
        self._buffer: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
        self._begin()

    def _begin(self) -> None:
        self.data = self._buffer[:0]  # read-only
        self.filled = 0
        self.base = 0
        self.complete = False  # data[:filled] is the rest of the capture
        self.idle = False  # the last `advance` read no byte
        self.broken: str | None = None  # why the bytes end too soon; None if they end regularly
        self._reader: CountedFile | GzipFile | XzReader | ZstdReader | None = None  # None: nothing has arrived yet

    @property
    def rereadable(self) -> bool:
        """Whether the same bytes can be read a second time, without waiting for any."""
        return isinstance(self._counted, Sized)

    @property
    def compressed(self) -> bool:
        """Whether positions count decompressed bytes."""
        return self._reader is not None and self._reader is not self._counted

    @property
    def read_bytes(self) -> int:
        """Bytes of the file on disk that have been taken so far."""
        return self._counted.taken

    @property
    def total_bytes(self) -> int | None:
        """Size of the file on disk; None if unknown."""
        return self._counted.size if isinstance(self._counted, Sized) else None

    def identity(self) -> Identity:
        """The identity of the file on disk, as it is now."""
        return identity_of(self._counted.fileno())

    def taken(self) -> Identity:
        """The identity of the file on disk when it was last read: at least this long, and with this beginning."""
        status = self._counted.status or os.fstat(self._counted.fileno())
        seen = Identity.of(status, self._counted.head)
        return replace(seen, size=max(seen.size, self._counted.taken))

    def advance(self, position: int, wanted: int) -> int:
        """Drop everything before data[position] and try to get `wanted` bytes from there on. Reads at least once unless
        `complete`, or `idle` for a moment. Returns the new place of data[position]. Arrays cut from `data` become
        invalid."""
        self.idle = not self._arrives()
        if self.idle:
            return position
        size, tail = max(PIECE, wanted), self._buffer[position : self.filled]
        if len(self._buffer) != size:
            self._buffer = np.empty(size, np.uint8)
            self._buffer[: len(tail)] = tail
        elif position:  # small pieces stay in place until more has come
            self._buffer[: len(tail)] = tail
        self.base += position
        self.filled = carried = len(tail)
        while not self.complete and self.filled < size:
            self.filled += self._take(self._buffer[self.filled :])
            if not self._counted.waiting():
                break
        try:
            if self._counted.renewed():
                self.filled = carried
                self._end(self.broken or "the file was begun anew while it was read")
        except OSError as error:
            self._end(self.broken or f"reading failed ({error.strerror or error})")
        self.data = self._buffer.view()
        self.data.flags.writeable = False
        return 0

    def _arrives(self) -> bool:
        # A decompressor may hold more decompressed bytes than can be seen here, so it is read again at once.
        if self._reader is None:
            return self._recognized()
        return self.compressed or self._counted.arrives()

    def _recognized(self) -> bool:
        """Whether enough has arrived to recognise the compression."""
        try:
            head = self._counted.peek(len(_XZ))
        except OSError:
            head = b""  # reports it again on the next read
        if head is None:
            return False
        if head.startswith(_GZIP):
            self._reader = GzipFile(fileobj=self._counted, mode="rb")
        elif head.startswith(_ZSTD):
            self._reader = ZstdReader(self._counted)
        elif head == _XZ:
            self._reader = XzReader(self._counted)
        else:
            self._reader = self._counted
        return True

    def _take(self, room: npt.NDArray[np.uint8]) -> int:
        """Read once into `room`; 0 bytes mean the end."""
        reader = self._reader
        assert reader is not None, "it was chosen by what arrived first"
        try:
            if isinstance(reader, CountedFile):
                taken = reader.readinto(room.data)
            else:
                piece = reader.read1(min(len(room), _UNPACKED))
                taken = len(piece)
                room[:taken] = np.frombuffer(piece, np.uint8)
        except EOFError:
            return self._end(None if self._counted.interrupted else "the compressed data end too soon")
        except UnpackingLimit as error:
            return self._end(str(error))
        except (BadGzipFile, zlib.error, lzma.LZMAError, ZstdError) as error:
            return self._end(f"the compressed data are damaged ({error})")
        except OSError as error:
            return self._end(f"reading failed ({error.strerror or error})")
        return taken or self._end(None)

    def interrupt(self) -> None:
        """End a read that waits for bytes, as if there were no more; called from another thread."""
        self._counted.interrupt()

    def rewind(self) -> None:
        """Go back to the first byte, if it is rereadable."""
        assert isinstance(self._counted, Sized), "nothing else can be read twice"
        again = self._counted.again()
        self.close()
        self._counted = again
        self._begin()

    def _end(self, broken: str | None) -> int:
        self.complete = True
        self.broken = broken
        return 0

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._counted.close()


def is_stream(path: str) -> bool:
    """Whether the path is a stream, which can be read once. Opening and closing it would end its writer."""
    return path == STANDARD_INPUT or (os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path))


def open_bytes(path: str, follow: Callable[[], bool] | None = None) -> CaptureBytes:
    """Open a path, or standard input for `-`. Raises CaptureError if that is impossible or there is nothing. `follow`:
    at the end of a file, wait for more data until this function returns true."""
    name = "standard input" if path == STANDARD_INPUT else path
    try:
        # The descriptor itself is read: Python's own buffer would wait for more than has arrived.
        file = FileIO(0, closefd=False) if path == STANDARD_INPUT else FileIO(path, opener=_opened)
        status = os.fstat(file.fileno())
    except FileNotFoundError:
        raise CaptureError(f"{name}: there is no such file; give a capture file, or - for standard input") from None
    except IsADirectoryError:
        raise CaptureError(f"{name}: this is a directory; give a capture file") from None
    except PermissionError:
        raise CaptureError(f"{name}: reading it is not permitted; it takes a file that this user may read") from None
    except (OSError, ValueError) as error:
        raise CaptureError(f"{name}: it cannot be opened: {error}") from None
    try:
        # Standard input may be a file positioned in its middle; it must not be rewound.
        if path == STANDARD_INPUT or not stat.S_ISREG(status.st_mode):
            os.set_blocking(file.fileno(), True)  # the owner of a terminal or socket may have changed it
            with contextlib.suppress(OSError):  # not a pipe, or no larger size is permitted: then blocks are smaller
                fcntl.fcntl(file.fileno(), fcntl.F_SETPIPE_SZ, _PIPE)
            return CaptureBytes(name, Piped(file))
        if follow is not None:
            return CaptureBytes(name, Followed(file, follow))
        if status.st_size == 0:
            raise CaptureError(f"{name}: the file is empty (0 bytes); a capture has at least a file header")
        return CaptureBytes(name, Sized(file, status.st_size))
    except OSError as error:
        file.close()
        raise CaptureError(f"{name}: it cannot be read: {error}") from None
    except CaptureError:
        file.close()
        raise


def _opened(path: str, flags: int) -> int:
    """Open without waiting for a writer, which a named pipe may not have yet."""
    return os.open(path, flags | os.O_NONBLOCK)
