"""Capture files: pcap or pcapng by what they begin with, plain, compressed or from a pipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ingest.columns import Columns, Walk
from ingest.damage import CaptureError, Damage
from ingest.inputs import MappedBytes, StreamBytes, open_bytes

__all__ = ["FRAMES", "NO_FRAMES", "STRETCH", "CaptureFile", "Frames", "open_capture"]

FRAMES = 32_768
"""Frames of a block, at most: large enough to make the work between blocks vanish, small enough for the cache."""

STRETCH = 4 << 20
"""Bytes of the capture that a block is cut from, at most, but for its last frame."""

_HEAD = 28  # bytes that tell the format
_FOREIGN = {
    b"\x28\xb5\x2f\xfd": "zstd in zstd (decompress it once more)",
    b"BZh": "bzip2-compressed data (decompress them: bzcat FILE | lowmark query -r - …)",
    b"\x1f\x8b": "gzip in gzip (decompress it once more)",
    b"PK\x03\x04": "a zip archive (unpack it)",
    b"\x34\xcd\xb2\xa1": "a pcap of the Kuznetzov variant (editcap -F pcap converts it)",
    b"\xa1\xb2\xcd\x34": "a pcap of the Kuznetzov variant (editcap -F pcap converts it)",
    b"snoop\0": "a snoop capture (editcap -F pcap converts it)",
}


@dataclass(frozen=True, slots=True, eq=False)
class Frames:
    """Frames in the order of the file; as FrameBlock, but before any promise. `data` is read-only, and borrowed until
    the next block is asked for; the columns are the receiver's own."""

    data: npt.NDArray[np.uint8]
    columns: Columns

    def __len__(self) -> int:
        return len(self.columns.ts)


NO_FRAMES = Frames(np.empty(0, np.uint8), Columns.of_size(0))
"""While more is waited for."""


class _Walker(Protocol):
    def walk(self, data: npt.NDArray[np.uint8], position: int, stop: int, filled: int, out: Columns) -> Walk: ...


class CaptureFile:
    """An open capture. `blocks()` reads it from its beginning: once, or as often as one likes where `rereadable`; the
    blocks of a rereadable capture are cut alike every time."""

    def __init__(self, source: MappedBytes | StreamBytes, path: str) -> None:
        self.name = source.name
        self.rereadable = source.rereadable
        self.damages: list[Damage] = []  # of the present reading: found behind the blocks that it has given
        self._path = path
        self._bytes = source
        self._walker, self._position = _begin(source)
        self._begun = False

    @property
    def read_bytes(self) -> int:
        """Bytes of the file on disk that the present reading has taken."""
        return self._bytes.read_bytes

    @property
    def total_bytes(self) -> int | None:
        """Size of the file on disk; None for pipes."""
        return self._bytes.total_bytes

    def blocks(self, frames: int = FRAMES, stretch: int = STRETCH) -> Iterator[Frames]:
        """All frames, in blocks of at most `frames`, cut from about `stretch` bytes. An empty one comes several
        times a second while more is waited for (not of compressed data). Where the
        capture is damaged the frames before that come first, then `damage` is set and the iteration ends."""
        if self._begun:
            self._rewind()
        self._begun = True
        source, position = self._bytes, self._position
        columns = Columns.of_size(frames)
        while True:
            stop = min(position + stretch, source.filled)
            walk = self._walker.walk(source.data, position, stop, source.filled, columns)
            position = walk.position
            at_end = position >= source.filled or walk.wanted > 0
            if walk.nonsense is None and at_end and not source.complete and walk.count == 0:
                position = source.advance(position, walk.wanted)
                if source.idle:
                    yield NO_FRAMES
                continue
            if walk.count:
                yield Frames(source.data, columns.first(walk.count))
                columns = Columns.of_size(frames)
            if isinstance(source, MappedBytes):
                source.passed(position)
            if walk.nonsense is not None or (at_end and source.complete):
                self._judge(walk)
                return

    def interrupt(self) -> None:
        """From another thread: where the reading waits for more to arrive, it ends."""
        self._bytes.interrupt()

    def close(self) -> None:
        """Lets go of the file. Blocks handed out of a plain file stay readable."""
        self._bytes.close()

    def _rewind(self) -> None:
        if not self.rereadable:
            raise CaptureError(f"{self.name}: it cannot be read twice; a plain file can")
        self.damages = []
        if isinstance(self._bytes, StreamBytes):
            self._bytes.close()
            self._bytes = open_bytes(self._path)
        else:
            self._bytes.rewind()
        self._walker, self._position = _begin(self._bytes)

    def _judge(self, walk: Walk) -> None:
        """Tells what is wrong behind the last frame, if anything."""
        source = self._bytes
        left = source.filled - walk.position
        if walk.nonsense is not None:
            reason = walk.nonsense
        elif source.broken is not None:
            reason = source.broken
        elif left > 0:
            due = f"{left} bytes are left of at least {walk.wanted}"
            reason = f"the capture ends in the middle of a packet or block ({due})"
        else:
            return
        self.damages.append(Damage(self.name, source.base + walk.position, reason, source.compressed))


def open_capture(path: str, follow: Callable[[], bool] | None = None) -> CaptureFile:
    """Opens a capture file, or standard input for `-`. Raises CaptureError where it is none. `follow`: at its end more
    is waited for, until this says that there is nothing to wait for."""
    source = open_bytes(path, follow)
    try:
        return CaptureFile(source, path)
    except BaseException:
        source.close()
        raise


def _begin(source: MappedBytes | StreamBytes) -> tuple[_Walker, int]:
    """The walker for what the capture begins with, and the position where it begins to walk."""
    # Compiling is left until there is something to read: these take most of a second to import.
    from ingest.pcap import HEADER, MAGICS, PcapWalker
    from ingest.pcapng import MAGIC, PcapngWalker

    while source.filled < _HEAD and not source.complete:
        source.advance(0, _HEAD)
    head = source.data[: min(_HEAD, source.filled)].tobytes()
    if head[:4] == MAGIC:
        return PcapngWalker(source.name, head), 0
    if head[:4] in MAGICS:
        return PcapWalker(source.name, head), HEADER
    right = "a pcap or pcapng capture, plain or compressed by gzip, xz or zstd, is read"
    if source.broken is not None:
        raise CaptureError(f"{source.name}: {source.broken} before the capture in them begins; {right}")
    if not head:
        raise CaptureError(f"{source.name}: there is nothing in it (0 bytes); {right}")
    known = next((text for magic, text in _FOREIGN.items() if head.startswith(magic)), None)
    found = known or f"no capture (its first bytes are {head[:4].hex(' ')})"
    raise CaptureError(f"{source.name}: this is {found}; {right}")
