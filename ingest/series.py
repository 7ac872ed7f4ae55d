"""Several capture files as one: those of a folder, or that a pattern names, in the order of their names."""

from __future__ import annotations

import glob
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path

from ingest.capture import NO_FRAMES, CaptureFile, Frames, open_capture
from ingest.damage import CaptureError, Damage
from ingest.inputs import STANDARD_INPUT

__all__ = ["CaptureSeries", "open_captures"]

_LOOK_S = 0.2  # how often a folder is looked at for another file
_DIGITS = re.compile(r"(\d+)")


class CaptureSeries:
    """Read as CaptureFile is. Of a damaged file the rest is left out, and reading goes on with the next one."""

    def __init__(self, path: str, follow: bool) -> None:
        """Raises CaptureError where there is no file."""
        self.name = path
        self.rereadable = not follow
        self.damages: list[Damage] = []  # of the present reading: found behind the blocks that it has given
        self._follow = follow
        self._interrupted = threading.Event()
        self._begun: set[str] = set()
        self._present: CaptureFile | None = None
        self._read_bytes = 0
        # Every reading is of the same files: what vanishes before its turn is told.
        self._fixed = None if follow else self._there()
        if not follow and not self._fixed:
            raise CaptureError(f"{path}: there is no file there; give captures, a folder of them, or a pattern")

    @property
    def read_bytes(self) -> int:
        """Bytes of the files on disk that the present reading has taken."""
        return self._read_bytes + (0 if self._present is None else self._present.read_bytes)

    @property
    def total_bytes(self) -> int | None:
        """Size of the files on disk; None while more may come."""
        return None if self._fixed is None else sum(map(_size, self._fixed))

    def blocks(self) -> Iterator[Frames]:
        """All frames, in blocks; empty ones while more is waited for."""
        self._begun.clear()
        self._read_bytes = 0
        self.damages = []
        while not self._interrupted.is_set():
            file = self._next()
            if file is None and self._follow:
                self._interrupted.wait(_LOOK_S)
                yield NO_FRAMES
                continue
            if file is None:
                return
            self._begun.add(file)
            try:
                capture = open_capture(file, self._is_behind if self._follow else None)
            except CaptureError as error:
                self.damages.append(Damage(file, None, str(error).removeprefix(f"{file}: ")))
                continue
            self._present = capture
            yield from capture.blocks()
            if self._interrupted.is_set():
                return
            self.damages += capture.damages
            self._read_bytes += capture.read_bytes
            self._present = None
            capture.close()

    def interrupt(self) -> None:
        """From another thread: where the reading waits for more to arrive, it ends."""
        self._interrupted.set()
        if (present := self._present) is not None:
            present.interrupt()

    def close(self) -> None:
        """Lets go of the files. Blocks handed out stay readable."""
        if self._present is not None:
            self._present.close()

    def _next(self) -> str | None:
        """The first file, in order, that has not been begun."""
        return next((file for file in self._files() if file not in self._begun), None)

    def _is_behind(self) -> bool:
        """Whether there is a later file: then nobody writes to the present one any more."""
        return any(file not in self._begun for file in self._files())

    def _files(self) -> list[str]:
        """Into an empty one somebody is about to write, where they are followed."""
        return [file for file in self._there() if _size(file)] if self._fixed is None else self._fixed

    def _there(self) -> list[str]:
        found = glob.glob(os.path.join(glob.escape(self.name), "*") if os.path.isdir(self.name) else self.name)
        return sorted((file for file in found if os.path.isfile(file) or _leads_nowhere(file)), key=_place)


def _leads_nowhere(file: str) -> bool:
    return os.path.islink(file) and not os.path.exists(file)


def _size(file: str) -> int:
    """In bytes; 0 where it has gone."""
    try:
        return os.stat(file).st_size
    except OSError:
        return 0


def open_captures(path: str, follow: bool = False) -> CaptureFile | CaptureSeries:
    """A capture file, a folder of them, or those that a pattern names (`*`, `?`, `[…]`). `follow`: more may be written,
    and is waited for. Raises CaptureError."""
    if path != STANDARD_INPUT and (os.path.isdir(path) or (glob.has_magic(path) and not os.path.exists(path))):
        return CaptureSeries(path, follow)
    if not follow:
        return open_capture(path)
    return open_capture(path, lambda: False)


def _place(file: str) -> tuple[str, list[str | int]]:
    """Numbers in a name count as numbers: what comes after `trace9` is `trace10`."""
    parts = _DIGITS.split(Path(file).name)
    return os.path.dirname(file), [int(part) if place % 2 else part for place, part in enumerate(parts)]
