"""Files that are read as far as they go, and counted: pipes that have yet to fill, files that still grow."""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from io import FileIO, RawIOBase
from threading import Event
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["Counted", "Followed"]

_LOOK_MS = 200  # how often a read that waits looks whether it is wanted any more


class Counted(RawIOBase):
    """A file that counts what is taken from it and lets its first bytes be seen before. `waits`: for bytes that have
    yet to come, until it is interrupted."""

    def __init__(self, file: FileIO, waits: bool) -> None:
        self._file = file
        self._waits = waits
        self._ahead = b""
        self._interrupted = Event()
        self.taken = 0

    @property
    def interrupted(self) -> bool:
        return self._interrupted.is_set()

    def interrupt(self) -> None:
        """From another thread: who waits for more is told that there is none."""
        self._interrupted.set()

    def peek(self, size: int) -> bytes:
        while len(self._ahead) < size and (piece := self._file.read(size - len(self._ahead))):
            self._ahead += piece
        return self._ahead

    def waiting(self) -> bool:
        """Whether the next read would return at once."""
        return bool(self._ahead) or self._arrived(0)

    def arrives(self) -> bool:
        """Waits a moment. False: nothing has come, and something may come yet; a read would wait."""
        return bool(self._ahead) or not self._waits or self.interrupted or self._arrived(_LOOK_MS)

    def _arrived(self, within_ms: int) -> bool:
        poll = select.poll()
        poll.register(self._file.fileno(), select.POLLIN)
        return bool(poll.poll(within_ms))

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        room = memoryview(buffer).cast("B")
        if self._ahead:
            taken = min(len(room), len(self._ahead))
            room[:taken] = self._ahead[:taken]
            self._ahead = self._ahead[taken:]
        else:
            taken = self._read(room)
        self.taken += taken
        return taken

    def _read(self, room: memoryview) -> int:
        while self._waits and not self._arrived(_LOOK_MS):
            if self.interrupted:
                return 0
        return self._file.readinto(room) or 0

    def close(self) -> None:
        self._file.close()
        super().close()


class Followed(Counted):
    """A file to which somebody still writes. It ends when it is interrupted, or at its end once `ended` is true.
    OSError where what had been read of it is gone: it was cut, or begun anew."""

    def __init__(self, file: FileIO, ended: Callable[[], bool]) -> None:
        super().__init__(file, waits=True)
        self._ended = ended

    def peek(self, size: int) -> bytes:
        while len(self._ahead) < size:
            room = bytearray(size - len(self._ahead))
            taken = self._read(memoryview(room))
            if not taken:
                break
            self._ahead += room[:taken]
        return self._ahead

    def arrives(self) -> bool:
        ended = self._ended()  # asked first, as in `_read`
        return self.waiting() or ended or self._interrupted.wait(_LOOK_MS / 1000)

    def waiting(self) -> bool:
        return bool(self._ahead) or os.fstat(self._file.fileno()).st_size != self._file.tell()

    def _read(self, room: memoryview) -> int:
        while True:
            ended = self._ended()  # asked first: what was written before it became true is read yet
            taken = self._file.readinto(room) or 0
            if not taken:
                self._check_size()
            if taken or ended or self._interrupted.wait(_LOOK_MS / 1000):
                return taken

    def _check_size(self) -> None:
        size, read = os.fstat(self._file.fileno()).st_size, self._file.tell()
        if size < read:
            raise OSError(f"the file shrank from {read} to {size} bytes while it was followed")
