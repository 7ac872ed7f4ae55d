"""Several capture files as one: those in a folder, or those that match a pattern, in the order of their names."""

from __future__ import annotations

import glob
import os
import re
import stat
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ingest.files.capture import NO_FRAMES, CaptureFile, Frames, open_capture
from ingest.files.errors import CaptureError, Damage
from ingest.files.identity import Identity, identity_at
from ingest.files.inputs import STANDARD_INPUT, is_stream

__all__ = ["CaptureSeries", "open_captures"]

_LOOK_S = 0.2  # shortest time between two looks for another file
_REST = 20  # the next look waits this many times as long as the last one took, because many files make a look slow
_DIGITS = re.compile(r"(\d+)")


class CaptureSeries:
    """Read like a CaptureFile. The rest of a damaged file is left out, and reading goes on with the next file.

    If more may come, the names are listed again when all known files have been read. A file that was written anew is
    read anew: in cyclic order after the one read last, as rings of files are written (`tcpdump -W`)."""

    def __init__(self, path: str, follow: bool) -> None:
        """Raises CaptureError if there is no file."""
        self.name = path
        self._pattern = path if not os.path.exists(path) else glob.escape(path)
        if os.path.isdir(path):
            self._pattern = os.path.join(self._pattern, "*")
        self.rereadable = not follow
        self.damages: list[Damage] = []  # damages of the current reading, found after the blocks delivered so far
        self._follow = follow
        self._interrupted = threading.Event()
        self._waiting: deque[tuple[str, Identity | None]] = deque()  # files to read, with their identity when listed
        self._known: dict[str, Identity] = {}  # files that were read, with their identity at the end
        self._whole: set[str] = set()  # the known files that were read to their end
        self._last = ""
        self._present: CaptureFile | None = None
        self._reading: tuple[int, int] | None = None  # inode of the file being read
        self._next_look_s = 0.0
        self._read_bytes = 0
        # Every reading reads the same files, so a file that vanishes before its turn is reported.
        listed = () if follow else self._there()
        self._fixed = tuple((file, None if status is None else Identity.of(status)) for file, status in listed)
        self._size = sum(was.size for _, was in self._fixed if was is not None)
        if not follow and not self._fixed:
            raise CaptureError(f"{path}: there is no file there; give captures, a folder of them, or a pattern")

    @property
    def read_bytes(self) -> int:
        """Bytes of the files on disk that the current reading has taken."""
        present = self._present  # another thread reads on
        return self._read_bytes + (0 if present is None else present.read_bytes)

    @property
    def total_bytes(self) -> int | None:
        """Size of the files on disk; None while more may come."""
        return None if self._follow else self._size

    def blocks(self) -> Iterator[Frames]:
        """All frames, in blocks; empty ones while the reader waits for more."""
        self._read_bytes = 0
        self.damages = []
        self._waiting.clear()
        self._waiting += self._fixed
        while not self._interrupted.is_set():
            if self._waiting or (self._follow and self._is_behind()):
                yield from self._read(*self._waiting.popleft())
            elif self._follow:
                self._interrupted.wait(_LOOK_S)
                yield NO_FRAMES
            else:
                return

    def interrupt(self) -> None:
        """End a reading that waits for more to arrive; called from another thread."""
        self._interrupted.set()
        if (present := self._present) is not None:
            present.interrupt()

    def close(self) -> None:
        """Release the files."""
        if self._present is not None:
            self._present.close()

    def _read(self, file: str, listed: Identity | None) -> Iterator[Frames]:
        self._last = file
        try:
            capture = open_capture(file, self._is_behind if self._follow else None)
        except CaptureError as error:
            self._left_out(file, str(error).removeprefix(f"{file}: "))
            if listed is not None:
                self._known[file] = listed
            return
        self._present = capture
        if self._interrupted.is_set():  # when there was no capture to interrupt yet
            return
        opened = capture.identity()
        self._reading = opened.inode
        expected = listed if self._follow else self._known.get(file, listed)
        lost = expected is not None and expected.is_begun_anew(opened)
        if lost:
            self._left_out(file, "it was written anew before it was read: what stood in it is lost")
        if self._follow or not lost:
            yield from capture.blocks()
            if self._interrupted.is_set():
                return
            self.damages += capture.damages
            (self._whole.discard if capture.damages else self._whole.add)(file)
            taken = capture.taken()
            # A damaged file gets a time that no file has, so that its head decides whether it was written anew.
            self._known[file] = replace(taken, changed_ns=-1) if capture.damages else taken
        self._read_bytes += capture.read_bytes
        self._present = self._reading = None
        capture.close()

    def _left_out(self, file: str, reason: str) -> None:
        self.damages.append(Damage(file, None, reason))

    def _is_behind(self) -> bool:
        """Whether there is another file to read, which means that no process writes to the current one any more."""
        began_s = time.monotonic()
        if not self._waiting and began_s >= self._next_look_s:
            self._waiting += self._news()
            ended_s = time.monotonic()
            self._next_look_s = ended_s + max(_LOOK_S, _REST * (ended_s - began_s))
        return bool(self._waiting)

    def _news(self) -> list[tuple[str, Identity]]:
        """The files to read, in the order in which a ring of files is written."""
        there = self._there()
        self._known = {file: self._known[file] for file, _ in there if file in self._known}
        self._whole &= self._known.keys()
        news = []
        for file, status in there:
            if status is None or not status.st_size:  # somebody is about to write to it
                continue
            known = self._known.get(file)
            seen = Identity.of(status)
            if (known is not None and known.is_unchanged(seen)) or (file == self._last and seen.inode == self._reading):
                continue
            now = identity_at(file) or seen
            if known is None or known.is_begun_anew(now):
                news.append((file, now))
                continue
            if file in self._whole and now.size > known.size:
                self._whole.discard(file)  # report this only once
                reason = f"it grew by {now.size - known.size} bytes when a later file had been begun: they are not read"
                self._left_out(file, f"{reason}; each writer is to have a folder of its own")
            self._known[file] = replace(now, head=known.head)
        at = next((at for at, (file, _) in enumerate(news) if _place(file) > _place(self._last)), 0)
        return news[at:] + news[:at]

    def _there(self) -> list[tuple[str, os.stat_result | None]]:
        """The files in the order of their names; None for links that lead nowhere."""
        found: list[tuple[str, os.stat_result | None]] = []
        for file in sorted(glob.glob(self._pattern), key=_place):
            try:
                status = os.stat(file)
            except OSError:  # it has vanished, unless it is a link
                found += [(file, None)] if os.path.islink(file) else []
            else:
                found += [(file, status)] if stat.S_ISREG(status.st_mode) else []
        return found


def open_captures(path: str, follow: bool = False) -> CaptureFile | CaptureSeries:
    """A capture file, a folder of them, or those that match a pattern (`*`, `?`, `[…]`). `follow`: wait for more to be
    written. Raises CaptureError."""
    there = path == STANDARD_INPUT or os.path.exists(path)
    if os.path.isdir(path) or (glob.has_magic(path) and not there) or (follow and there and not is_stream(path)):
        return CaptureSeries(path, follow)
    return open_capture(path)


def _place(file: str) -> tuple[str, list[str | int]]:
    """Sort key in which digits count as numbers: `trace10` comes after `trace9`."""
    parts = _DIGITS.split(Path(file).name)
    return os.path.dirname(file), [int(part) if place % 2 else part for place, part in enumerate(parts)]
