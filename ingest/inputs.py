"""The bytes of a capture: mapped from a plain file, or read piece by piece from anything else."""

from __future__ import annotations

import contextlib
import fcntl
import lzma
import mmap
import os
import stat
import zlib
from collections.abc import Callable
from gzip import BadGzipFile, GzipFile
from io import FileIO
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ingest.counted import Counted, Followed
from ingest.damage import CaptureError
from ingest.xz import XzReader
from ingest.zstd import ZstdError, ZstdReader

__all__ = ["STANDARD_INPUT", "Bytes", "MappedBytes", "StreamBytes", "open_bytes"]

STANDARD_INPUT = "-"
"""The path that stands for standard input."""

PIECE = 4 << 20
"""Bytes that are taken from a stream at a time, at most."""

_PIPE = 1 << 20  # bytes that a pipe holds, where it may: what has arrived makes a block
_UNPACKED = 256 << 10  # bytes that are unpacked in one go
_GZIP = b"\x1f\x8b"
_XZ = b"\xfd7zXZ\x00"
_ZSTD = b"\x28\xb5\x2f\xfd"


class Bytes(Protocol):
    """A sliding view of a capture's bytes. `data[:filled]` holds the capture from byte `base` on."""

    name: str
    rereadable: bool  # the same bytes can be read a second time
    data: npt.NDArray[np.uint8]  # read-only
    filled: int
    base: int
    compressed: bool  # positions count decompressed bytes
    complete: bool  # nothing follows behind data[:filled]
    idle: bool  # nothing came when the bytes were last asked to advance
    broken: str | None  # why the bytes end too soon; None where they end by themselves

    @property
    def read_bytes(self) -> int:
        """Bytes of the file on disk that have been taken so far."""

    @property
    def total_bytes(self) -> int | None:
        """Size of the file on disk; None where there is no saying."""

    def advance(self, position: int, wanted: int) -> int:
        """What stands before data[position] is done with, and `wanted` bytes from there on are hoped for. Reads on at
        least once unless `complete`, or `idle` for a moment; returns where data[position] stands now. Arrays cut from
        `data` are void."""

    def interrupt(self) -> None:
        """From another thread: a read that waits for bytes to arrive ends, as if there were no more."""

    def close(self) -> None: ...


class MappedBytes:
    """A regular file, mapped whole. The pages behind the reader are given back, so that memory stays small however
    large the file is; touching them again is harmless."""

    base = 0
    complete = True
    idle = False
    compressed = False

    def __init__(self, name: str, file: FileIO, size: int) -> None:
        self.name = name
        self.rereadable = True
        self.broken: str | None = None
        self._file = file
        self._map = mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED)
        self._map.madvise(mmap.MADV_SEQUENTIAL)
        self.data: npt.NDArray[np.uint8] = np.frombuffer(self._map, np.uint8)
        self.filled = size
        self._given_back = 0
        self._position = 0

    @property
    def read_bytes(self) -> int:
        return self._position

    @property
    def total_bytes(self) -> int | None:
        return self.filled

    def passed(self, position: int) -> None:
        """Everything before `position` has been used. Checks too that the file has not been cut meanwhile, since
        touching a page that is gone would end the process."""
        whole = position // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
        if whole > self._given_back:
            self._map.madvise(mmap.MADV_DONTNEED, self._given_back, whole - self._given_back)
            self._given_back = whole
        self._position = position
        size = os.fstat(self._file.fileno()).st_size
        if size < self.filled:
            self.broken = f"the file shrank from {self.filled} to {size} bytes while it was being read"
            self.filled = max(size, position)

    def rewind(self) -> None:
        self._given_back = self._position = 0

    def advance(self, position: int, wanted: int) -> int:
        return position

    def interrupt(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        # Arrays handed out may still refer to the map, which then goes with the last of them.
        self.data = np.empty(0, np.uint8)
        self._file.close()


class StreamBytes:
    """Bytes that come one after the other. What is unfinished at the end of a piece is carried over to the next.

    A regular file (`size` is known) is read in whole pieces, so that they are cut alike every time. Anything else is
    read as far as it has arrived, so that nothing waits for company."""

    def __init__(self, name: str, counted: Counted, size: int | None) -> None:
        self.name = name
        self.rereadable = size is not None
        self.data: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
        self.filled = 0
        self.base = 0
        self.complete = False
        self.idle = False
        self.broken: str | None = None
        self.compressed = False
        self._size = size
        self._counted = counted
        self._reader: Counted | GzipFile | XzReader | ZstdReader = counted
        head = counted.peek(len(_XZ))
        if head.startswith(_GZIP):
            self._reader = GzipFile(fileobj=counted, mode="rb")
        elif head.startswith(_ZSTD):
            self._reader = ZstdReader(counted)
        elif head == _XZ:
            self._reader = XzReader(counted)
        self.compressed = self._reader is not self._counted

    @property
    def read_bytes(self) -> int:
        return self._counted.taken

    @property
    def total_bytes(self) -> int | None:
        return self._size

    def advance(self, position: int, wanted: int) -> int:
        # What a decompressor still holds cannot be seen from here: it is asked at once.
        self.idle = not self.compressed and not self._counted.arrives()
        if self.idle:
            return position
        tail = self.data[position : self.filled]
        # A fresh array, and never one that is moved within itself: the frames handed out last point into the old one.
        fresh = np.empty(max(PIECE, wanted), np.uint8)
        fresh[: len(tail)] = tail
        self.base += position
        self.filled = len(tail)
        while not self.complete and self.filled < len(fresh):
            self.filled += self._take(fresh[self.filled :])
            if self._size is None and not self._counted.waiting():
                break
        fresh.flags.writeable = False
        self.data = fresh
        return 0

    def _take(self, room: npt.NDArray[np.uint8]) -> int:
        """Reads once into `room`; 0 bytes mean the end."""
        try:
            if isinstance(self._reader, Counted):
                taken = self._reader.readinto(room.data)
            else:
                piece = self._reader.read1(min(len(room), _UNPACKED))
                taken = len(piece)
                room[:taken] = np.frombuffer(piece, np.uint8)
        except EOFError:
            return self._end(None if self._counted.interrupted else "the compressed data end too soon")
        except (BadGzipFile, zlib.error, lzma.LZMAError, ZstdError) as error:
            return self._end(f"the compressed data are damaged ({error})")
        except OSError as error:
            return self._end(f"reading failed ({error.strerror or error})")
        return taken or self._end(None)

    def interrupt(self) -> None:
        self._counted.interrupt()

    def _end(self, broken: str | None) -> int:
        self.complete = True
        self.broken = broken
        return 0

    def close(self) -> None:
        if not isinstance(self._reader, Counted):
            self._reader.close()
        self._counted.close()


def open_bytes(path: str, follow: Callable[[], bool] | None = None) -> MappedBytes | StreamBytes:
    """Opens a path, or standard input for `-`. Raises CaptureError where that is impossible or there is nothing.
    `follow`: at the end of a file more is waited for, until this says that there is nothing to wait for."""
    name = "standard input" if path == STANDARD_INPUT else path
    try:
        # What is read is the descriptor itself: Python's own buffer would wait for more than has arrived.
        file = FileIO(0, closefd=False) if path == STANDARD_INPUT else FileIO(path)
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
        # Standard input may be a file that stands somewhere in its middle, and it is nobody's to rewind.
        if path == STANDARD_INPUT or not stat.S_ISREG(status.st_mode):
            os.set_blocking(file.fileno(), True)  # a terminal's or a socket's owner may have left it otherwise
            with contextlib.suppress(OSError):  # no pipe, or no more than it has: then blocks are smaller
                fcntl.fcntl(file.fileno(), fcntl.F_SETPIPE_SZ, _PIPE)
            return StreamBytes(name, Counted(file, waits=True), None)
        if follow is not None:
            return StreamBytes(name, Followed(file, follow), None)
        if status.st_size == 0:
            raise CaptureError(f"{name}: the file is empty (0 bytes); a capture has at least a file header")
        if os.pread(file.fileno(), len(_XZ), 0).startswith((_GZIP, _XZ, _ZSTD)):
            return StreamBytes(name, Counted(file, waits=False), status.st_size)
        return MappedBytes(name, file, status.st_size)
    except OSError as error:
        file.close()
        raise CaptureError(f"{name}: it cannot be read: {error}") from None
    except CaptureError:
        file.close()
        raise
