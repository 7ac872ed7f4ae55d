"""Files that count the bytes read: plain ones up to their size, pipes as they fill, and files that grow."""

from __future__ import annotations

import os
import select
from abc import abstractmethod
from collections.abc import Callable
from io import FileIO, RawIOBase
from threading import Event
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["HEAD", "CountedFile", "Followed", "Piped", "Sized", "recognizable"]

HEAD = 4096
"""Bytes by which a file is recognised. A capture that is begun anew has another first packet."""

_PCAPNG = b"\x0a\x0d\x0d\x0a"
_LOOK_MS = 200  # a wait for bytes is interrupted this often to ask whether they are still wanted


def recognizable(head: bytes) -> bytes:
    """The part of a file's first bytes that does not change: pcapng writers may enter a section's length at its end."""
    return head[:16] + head[24:] if head.startswith(_PCAPNG) else head


class CountedFile(RawIOBase):
    """A file that counts the bytes taken from it and lets callers see its first bytes before that."""

    def __init__(self, file: FileIO) -> None:
        self._file = file
        self._ahead = b""
        self._interrupted = Event()
        self.taken = 0
        self.head = b""  # the first bytes that were taken, at most HEAD of them
        self.status: os.stat_result | None = None  # as of the last call of `renewed`

    @property
    def interrupted(self) -> bool:
        return self._interrupted.is_set()

    def interrupt(self) -> None:
        """Tell a reader that waits for more that there is none; called from another thread."""
        self._interrupted.set()

    def peek(self, size: int) -> bytes | None:
        """The first bytes, fewer than `size` if the file ends before. None: they did not arrive within a moment."""
        while len(self._ahead) < size:
            room = bytearray(size - len(self._ahead))
            taken = self._read(memoryview(room))
            if taken is None and not self.interrupted:
                return None
            if not taken:
                break
            self._ahead += room[:taken]
        return self._ahead

    @abstractmethod
    def waiting(self) -> bool:
        """Whether the next read would return at once."""

    @abstractmethod
    def arrives(self) -> bool:
        """Wait a moment for data. False: none has arrived yet, so a read would block."""

    @abstractmethod
    def renewed(self) -> bool:
        """Whether the beginning of the file has changed: the bytes read last may then belong to other packets."""

    @abstractmethod
    def _read(self, room: memoryview) -> int | None:
        """Number of bytes read, 0 at the end; None: no byte arrived within a moment. Raises OSError if they cannot be
        read."""

    def fileno(self) -> int:
        return self._file.fileno()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        room = memoryview(buffer).cast("B")
        if self._ahead:
            taken = min(len(room), len(self._ahead))
            room[:taken] = self._ahead[:taken]
            self._ahead = self._ahead[taken:]
        else:
            while (found := self._read(room)) is None and not self.interrupted:
                pass
            taken = found or 0
        if self.taken == len(self.head) < HEAD:
            self.head += bytes(room[: min(taken, HEAD - self.taken)])
        self.taken += taken
        return taken

    def close(self) -> None:
        self._file.close()
        super().close()


class Piped(CountedFile):
    """Reads what arrives, until it is interrupted."""

    def waiting(self) -> bool:
        return bool(self._ahead) or self._arrived(0)

    def arrives(self) -> bool:
        return bool(self._ahead) or self.interrupted or self._arrived(_LOOK_MS)

    def renewed(self) -> bool:
        return False

    def _arrived(self, within_ms: int) -> bool:
        poll = select.poll()
        poll.register(self._file.fileno(), select.POLLIN)
        return bool(poll.poll(within_ms))

    def _read(self, room: memoryview) -> int | None:
        return self._file.readinto(room) or 0 if self._arrived(_LOOK_MS) else None


class _Regular(CountedFile):
    """A file on disk. It is never mapped: touching a mapped page that somebody has cut off would end the process."""

    def renewed(self) -> bool:
        # Take the status first: a later write changes the file's time, and an earlier write shows in the head.
        self.status = os.fstat(self._file.fileno())
        head = os.pread(self._file.fileno(), len(self.head), 0)
        return recognizable(head) != recognizable(self.head)

    def _shrunk(self, size: int, meanwhile: str) -> None:
        there = os.fstat(self._file.fileno()).st_size
        if there < size:
            raise OSError(f"the file shrank from {size} to {there} bytes while it was {meanwhile}")


class Sized(_Regular):
    """A file up to its size when it was opened, even if it is read several times."""

    def __init__(self, file: FileIO, size: int) -> None:
        super().__init__(file)
        self.size = size
        self._left = size

    def again(self) -> Sized:
        """The same file from its beginning; the caller must close this one."""
        file = FileIO(os.dup(self._file.fileno()))
        file.seek(0)
        again = Sized(file, self.size)
        again.head, again.status = self.head, self.status
        return again

    def waiting(self) -> bool:
        return True

    def arrives(self) -> bool:
        return True

    def _read(self, room: memoryview) -> int:
        taken = self._file.readinto(room[: self._left]) or 0
        self._left -= taken
        if not taken and room and self._left:
            self._shrunk(self.size, "read")
        return taken


class Followed(_Regular):
    """A file that is still being written. It ends when it is interrupted, or at its end once `ended` is true. Raises
    OSError if what had been read is gone: the file was cut, or begun anew."""

    def __init__(self, file: FileIO, ended: Callable[[], bool]) -> None:
        super().__init__(file)
        self._ended = ended

    def waiting(self) -> bool:
        return bool(self._ahead) or os.fstat(self._file.fileno()).st_size != self._file.tell()

    def arrives(self) -> bool:
        return self.waiting() or self._ended() or self._interrupted.wait(_LOOK_MS / 1000)

    def _read(self, room: memoryview) -> int | None:
        if taken := self._file.readinto(room) or 0:
            return taken
        ended = self._ended()  # asked only at the end, since it may have to list a folder
        if taken := self._file.readinto(room) or 0:  # written before `ended` became true
            return taken
        self._shrunk(self._file.tell(), "followed")
        if ended:
            return 0
        self._interrupted.wait(_LOOK_MS / 1000)
        return None
