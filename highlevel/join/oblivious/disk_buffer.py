"""A first-in, first-out queue on disk for waiting rows of a join (Wu, 4.2).

All rows of a process wait in one file without a name: the file vanishes with the process, so a start finds no remains.
A block of rows is a piece of state that contains the rows themselves, so a restart on another host has them all. A
block loaded from the state stays in memory, because it is loaded only when it is about to be read.
"""

from __future__ import annotations

import json
import logging
import os
import struct
import tempfile
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from heapq import heappop, heappush
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

import numpy as np
import numpy.typing as npt

from highlevel.interface import ONLY, Space, State, Words

__all__ = ["BLOCK_BYTES", "DiskBuffer", "DiskBufferError", "DiskFull", "DiskRoom", "room_of"]

_LOG = logging.getLogger("lowmark.disk_buffer")

Ints = npt.NDArray[np.int64]

BLOCK_BYTES = 1 << 18
"""Largest size of a block, in bytes: what one read brings into memory."""

_WORDS = struct.Struct(">I")  # words of a row


class DiskFull(Exception):
    """The disk buffer takes no more rows. The message says why."""


class DiskBufferError(OSError):
    """The disk buffer cannot be used, or rows cannot be read back. The host is at fault, not the query."""


class DiskRoom:
    """The file, in slots of one block each. `limit`: most bytes of the file."""

    def __init__(self, folder: Path, limit: int, block: int = BLOCK_BYTES) -> None:
        """Raises DiskBufferError if nothing can be written there."""
        self.block = block
        self.folder = folder
        self._slots = limit // block
        self._limit = limit
        self._free: list[int] = []  # a heap: the lowest is taken first, so that the end of the file becomes free
        self._used: set[int] = set()
        self._end = 0  # number of slots in the file
        self._lock = threading.Lock()
        # Slots whose blocks are gone. The garbage collector adds to them in any thread, even in one that holds the
        # lock.
        self._returned: deque[int] = deque()
        if not self._slots:
            raise DiskBufferError(
                f"the disk buffer may take {limit:,} bytes: less than one block; give it {block:,} bytes or more"
            )
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file: BinaryIO = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115  # `close` closes it
        except OSError as error:
            raise DiskBufferError(
                f"the disk buffer is {folder}: nothing can be written there: {error.strerror}"
            ) from None

    @property
    def used(self) -> int:
        """Bytes of slots that hold rows."""
        self.tidy()
        return len(self._used) * self.block

    @property
    def size(self) -> int:
        """Bytes of the file."""
        self.tidy()
        return os.fstat(self._file.fileno()).st_size

    def write(self, data: bytes) -> int:
        """Returns the slot. Raises DiskFull."""
        assert len(data) <= self.block, "a block fits into its slot"
        self.tidy()
        with self._lock:
            slot = heappop(self._free) if self._free else self._end
            if slot == self._slots:
                raise DiskFull(f"the disk buffer in {self.folder} holds the {self._limit:,} bytes that it may take")
            self._end = max(self._end, slot + 1)
            self._used.add(slot)
        try:
            if os.pwrite(self._file.fileno(), data, slot * self.block) < len(data):
                raise OSError(None, "no more room")
        except OSError as error:
            self.give_back(slot)
            raise DiskFull(
                f"the disk behind {self.folder} takes no more: {error.strerror}; {self.used:,} bytes of rows are on it"
            ) from None
        return slot

    def read(self, slot: int, size: int) -> bytes:
        """Raises DiskBufferError."""
        try:
            data = os.pread(self._file.fileno(), size, slot * self.block)
        except OSError as error:
            raise DiskBufferError(f"rows in {self.folder} cannot be read: {error.strerror}") from None
        if len(data) < size:
            raise DiskBufferError(f"rows in {self.folder} cannot be read: the file has been cut")
        return data

    def give_back(self, slot: int) -> None:
        """Mark the slot as unused. Takes no lock."""
        self._returned.append(slot)

    def tidy(self) -> None:
        """Free the slots that were given back."""
        if not self._returned:
            return
        with self._lock:
            while self._returned:
                slot = self._returned.popleft()
                self._used.remove(slot)
                heappush(self._free, slot)
            end = max(self._used, default=-1) + 1
            if end < self._end // 2 or not end:  # cutting at each block would cost more
                self._free = sorted(slot for slot in self._free if slot < end)
                self._end = end
                with suppress(OSError, ValueError):  # what is not cut off is used again; a closed file needs no cut
                    os.ftruncate(self._file.fileno(), end * self.block)

    def close(self) -> None:
        self._file.close()


@cache
def room_of(limit: int) -> DiskRoom:
    """The file of this process for so many bytes, in the system's folder for temporary files (TMPDIR). Raises
    DiskBufferError if nothing can be written there."""
    try:
        folder = tempfile.gettempdir()
    except OSError as error:
        raise DiskBufferError(
            f"the disk buffer has no folder: {error.strerror}; set TMPDIR to one that can be written"
        ) from None
    return DiskRoom(Path(folder), limit)


class _Block:
    """Rows on disk (`slot`), or in memory."""

    def __init__(self, rows: Words) -> None:
        self.shape = rows.shape
        self._rows: Words | None = rows
        self._room: DiskRoom | None = None
        self._slot = self._check = 0
        self._freed: weakref.finalize | None = None  # type: ignore[type-arg]  # its parameters do not matter

    @property
    def held(self) -> int:
        """Bytes of memory."""
        return 0 if self._rows is None else self._rows.nbytes

    def spill(self, room: DiskRoom) -> None:
        """Raises DiskFull; the rows are then still here."""
        assert self._rows is not None, "a block is written once"
        data = self._rows.tobytes()
        self._slot = room.write(data)
        self._check = crc32(data)
        self._room, self._rows = room, None
        self._freed = weakref.finalize(self, room.give_back, self._slot)

    def rows(self) -> Words:
        if self._rows is not None:
            return self._rows
        assert self._room is not None, "rows are on disk or in memory"
        data = self._room.read(self._slot, self.shape[0] * self.shape[1] * 8)
        if crc32(data) != self._check:
            raise DiskBufferError(f"rows in {self._room.folder} are not those that were written there")
        return np.frombuffer(data, np.uint64).reshape(self.shape)

    def free(self) -> None:
        if self._freed is not None and self._room is not None:
            self._freed()
            self._room.tidy()

    def encode(self) -> bytes:
        return _WORDS.pack(self.shape[1]) + self.rows().astype("<u8", copy=False).tobytes()

    @classmethod
    def decode(cls, data: bytes) -> _Block:
        return cls(_rows(data))


@dataclass(slots=True)
class _BlockQueue:
    """What is known of a buffer without reading its blocks. `blocks`: number, rows and least key of each."""

    tail: Words
    blocks: list[tuple[int, int, int]] = field(default_factory=list)
    next: int = 0

    def encode(self) -> bytes:
        head = json.dumps([self.tail.shape[1], self.next, self.blocks]).encode()
        return _WORDS.pack(len(head)) + head + self.tail.astype("<u8", copy=False).tobytes()

    @classmethod
    def decode(cls, data: bytes) -> _BlockQueue:
        (size,) = _WORDS.unpack_from(data)
        words, following, blocks = json.loads(data[_WORDS.size : _WORDS.size + size])
        tail = np.frombuffer(data, "<u8", offset=_WORDS.size + size).reshape(-1, words).astype(np.uint64)
        return cls(tail, [(number, rows, least) for number, rows, least in blocks], following)


class DiskBuffer:
    """The waiting rows of one input, in order of arrival. The last ones wait in memory until they fill a block, and so
    do those that the disk does not take. `refused`: why the disk takes no rows, until it takes some again."""

    def __init__(self, name: str, room: DiskRoom | None, words: int, key: int) -> None:
        """`key`: the word of a row that holds its key. Without a room all rows wait in memory: those that an earlier
        process had on disk, and those after them."""
        self.refused: str | None = None
        self._room = room
        self._words = words
        self._key = key
        self._block_rows = max(1, (BLOCK_BYTES if room is None else room.block) // (words * 8))
        self._blocks: Space[_Block] = Space(f"{name}.blocks", _Block.encode, _Block.decode)
        self._queue: Space[_BlockQueue] = Space(f"{name}.queue", _BlockQueue.encode, _BlockQueue.decode)

    def waiting(self, state: State) -> int:
        """Number of waiting rows."""
        queue = self._known(state)
        return len(queue.tail) + sum(rows for _, rows, _ in queue.blocks)

    def least(self, state: State) -> int | None:
        """The least key of the waiting rows; None: no row waits."""
        queue = self._known(state)
        return self._least(queue) if queue.blocks or len(queue.tail) else None

    def held(self, state: State) -> int:
        """Bytes of memory."""
        queue = self._known(state)
        blocks = (state.get(self._blocks, number) for number, _, _ in queue.blocks)
        return queue.tail.nbytes + sum(block.held for block in blocks if block is not None)

    def put(self, rows: Words, state: State) -> None:
        if not len(rows):
            return
        queue = self._known(state)
        queue.tail = np.concatenate((queue.tail, rows))
        written = 0  # in rows; the tail is cut once, because it is long after a full disk
        while self._room is not None and len(queue.tail) - written >= self._block_rows:
            part = queue.tail[written : written + self._block_rows]
            block = _Block(part)
            try:
                block.spill(self._room)
            except DiskFull as full:
                if self.refused is None:
                    _LOG.error("rows wait in memory: %s", full)
                self.refused = str(full)
                break
            self.refused = None
            state.put(self._blocks, queue.next, block)
            queue.blocks.append((queue.next, len(part), int(part[:, self._key].view(np.int64).min())))
            queue.next += 1
            written += len(part)
        queue.tail = queue.tail[written:].copy() if written else queue.tail
        state.put(self._queue, ONLY, queue)

    def take(self, least: int, through: int | None, state: State) -> Iterator[Words]:
        """Remove rows from the front, block by block, until `least` rows are taken and no waiting row has a key up to
        `through`. One block is in memory at a time."""
        queue = self._known(state)
        taken = 0
        while queue.blocks and (taken < least or (through is not None and self._least(queue) <= through)):
            number, rows, _ = queue.blocks.pop(0)
            block = state.get(self._blocks, number)
            assert block is not None, "a listed piece is there"
            found = block.rows()
            block.free()
            state.drop(self._blocks, number)
            state.put(self._queue, ONLY, queue)
            taken += rows
            yield found
        if not queue.blocks and len(queue.tail):
            keys = queue.tail[:, self._key].view(np.int64)
            wanted = 0 if through is None else int(np.flatnonzero(keys <= through).max(initial=-1)) + 1
            end = min(len(keys), max(least - taken, wanted))
            if end > 0:
                found, queue.tail = queue.tail[:end], queue.tail[end:].copy()
                state.put(self._queue, ONLY, queue)
                yield found

    def _least(self, queue: _BlockQueue) -> int:
        tail = queue.tail[:, self._key].view(np.int64)
        waiting = [least for _, _, least in queue.blocks]
        if len(tail):
            waiting.append(int(tail.min()))
        return min(waiting)

    def _known(self, state: State) -> _BlockQueue:
        return state.get(self._queue, ONLY) or _BlockQueue(np.empty((0, self._words), np.uint64))


def _rows(data: bytes) -> Words:
    (words,) = _WORDS.unpack_from(data)
    return np.frombuffer(data, "<u8", offset=_WORDS.size).reshape(-1, words).astype(np.uint64)
