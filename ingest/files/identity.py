"""How a file is recognised under its name: rotation gives names to other files, or begins the same file anew."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from ingest.files.counted import HEAD, recognizable

__all__ = ["Identity", "identity_at", "identity_of"]


@dataclass(frozen=True, slots=True)
class Identity:
    """What was seen of a file."""

    inode: tuple[int, int]  # device and inode
    size: int
    changed_ns: int
    head: bytes = b""  # its first bytes, at most HEAD of them, as far as they were read

    @classmethod
    def of(cls, status: os.stat_result, head: bytes = b"") -> Identity:
        return cls((status.st_dev, status.st_ino), status.st_size, status.st_mtime_ns, head)

    def is_unchanged(self, later: Identity) -> bool:
        """Nobody has written to it since. The inode is not compared: some file systems change it now and then."""
        return (later.size, later.changed_ns) == (self.size, self.changed_ns)

    def is_begun_anew(self, later: Identity) -> bool:
        """What was seen is no longer there. A file that has only grown is the same."""
        if self.is_unchanged(later):
            return False
        same = recognizable(later.head).startswith(recognizable(self.head))
        return later.inode != self.inode or later.size < self.size or not same


def identity_of(descriptor: int) -> Identity:
    """The identity of an open file."""
    status = os.fstat(descriptor)
    return Identity.of(status, os.pread(descriptor, HEAD, 0) if stat.S_ISREG(status.st_mode) else b"")


def identity_at(path: str) -> Identity | None:
    """The identity of the file at a path; None: it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return identity_of(descriptor)
    except OSError:
        return None
    finally:
        os.close(descriptor)
