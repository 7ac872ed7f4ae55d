"""Records that wait on disk, in order, because the queue to Kafka has no more room in memory.

The files have no names, so they vanish with the process: no later process could send its records. Records that the disk
does not take stay in memory, after those that it took."""

from __future__ import annotations

import logging
import os
import pickle
import struct
import tempfile
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from lowlevel.config import LowLevelConfigError
from lowmark.wire.records.record import WireRecord

__all__ = ["Backlog", "SpillError", "SpillFolder"]

_LOG = logging.getLogger("lowmark.spill")

_SEGMENT = 64 << 20  # bytes after which a new file is begun: a file's space is free again when all of it was read
_HEAD = struct.Struct("<Id")  # bytes of the record after it, and when it was put


class SpillError(Exception):
    """Records on disk cannot be read."""


class SpillFolder:
    """The folder for files. `full`: the disk did not take a record. Only the removal of a file in the folder resets it,
    not a smaller record that still fits."""

    def __init__(self, path: Path) -> None:
        """Raises LowLevelConfigError if the folder is not writable."""
        self.full = False
        self._path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            self.file().close()
        except OSError as error:
            raise LowLevelConfigError(f"spill is {path}: nothing can be written there: {error.strerror}") from None

    def file(self) -> BinaryIO:
        made: BinaryIO = tempfile.TemporaryFile(dir=self._path, buffering=0)  # noqa: SIM115  # its segment closes it
        return made


Put = tuple[WireRecord, float]
"""A record and the time at which it was put, on the caller's clock."""


def _packed(record: WireRecord, put_s: float) -> bytes:
    """The record's bytes in a file."""
    plain = pickle.dumps((record.key, record.value, record.headers), pickle.HIGHEST_PROTOCOL)
    return _HEAD.pack(len(plain), put_s) + plain


class _Segment:
    """One file: written at its end, read from its beginning. `kept` holds the records from the first one that the disk
    did not take."""

    def __init__(self, folder: SpillFolder) -> None:
        self._folder = folder
        self._file: BinaryIO | None = None
        self._read = self.written = 0
        self.kept: deque[Put] = deque()

    def put(self, record: WireRecord, put_s: float) -> None:
        if not self.kept:
            try:
                self._write(_packed(record, put_s))
                return
            except OSError as error:
                if not self._folder.full:
                    _LOG.error("the disk behind the queue takes no more: %s", error.strerror or error)
        self.kept.append((record, put_s))
        self._folder.full = True

    def _write(self, packed: bytes) -> None:
        if self._file is None:
            self._file = self._folder.file()
        if os.pwrite(self._file.fileno(), packed, self.written) < len(packed):
            raise OSError("there is no more room")
        self.written += len(packed)

    def take(self) -> Put | None:
        """The next record; None: there is none left. Raises SpillError."""
        if self._read == self.written:
            return self.kept.popleft() if self.kept else None
        size, put_s = _HEAD.unpack(self._bytes(_HEAD.size))
        return WireRecord(*pickle.loads(self._bytes(size))), put_s

    def _bytes(self, size: int) -> bytes:
        assert self._file is not None, "there is something to read"
        try:
            taken = os.pread(self._file.fileno(), size, self._read)
        except OSError as error:
            raise SpillError(error.strerror) from None
        if len(taken) < size:
            raise SpillError("the file has been cut")
        self._read += size
        return taken

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._folder.full = False


class Backlog:
    """The backlog of one partition, first in, first out. An empty one is false. Memory does not grow with it."""

    def __init__(self, folder: SpillFolder) -> None:
        self._folder = folder
        self._segments: deque[_Segment] = deque()
        self.records = 0
        self.since_s = 0.0  # lower bound of the time at which the oldest record left was put

    def __bool__(self) -> bool:
        return self.records > 0

    def put(self, record: WireRecord, put_s: float) -> None:
        """Take the record in any case, on disk or in memory after it."""
        last = self._segments[-1] if self._segments else None
        if last is None or (last.written >= _SEGMENT and not last.kept):
            last = _Segment(self._folder)
            self._segments.append(last)
        if not self.records:
            self.since_s = put_s
        self.records += 1
        last.put(record, put_s)

    def drain(self) -> Iterator[Put]:
        """The records, as far as the caller iterates; those given are removed. Raises SpillError."""
        while self.records:
            put = self._segments[0].take()
            if put is None:
                self._segments.popleft().close()
                continue
            self.records -= 1
            self.since_s = put[1]
            if not self.records:
                self.close()
            yield put

    def close(self) -> None:
        """Drop all records."""
        self.records = 0
        while self._segments:
            self._segments.popleft().close()
