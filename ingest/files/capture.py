"""Capture files: pcap or pcapng by what they begin with, plain, compressed or from a pipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ingest.columns import Columns, Walk
from ingest.files.damage import CaptureError, Damage
from ingest.files.identity import Identity
from ingest.files.inputs import CaptureBytes, open_bytes

__all__ = ["FRAMES", "NO_FRAMES", "STRETCH", "CaptureFile", "Frames", "open_capture"]

FRAMES = 32_768
"""Frames of a block, at most: large enough to make the work between blocks vanish, small enough for the cache."""

STRETCH = 4 << 20
"""Bytes of the capture that a block is cut from, at most, but for its last frame."""

_TELLING = 6  # bytes that tell what this is, where it is no capture
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

    def __init__(self, source: CaptureBytes) -> None:
        """CaptureError where it is seen that this is none: of a pipe, or of a file to which somebody still writes, that
        is left to the reading."""
        self.name = source.name
        self.rereadable = source.rereadable
        self.damages: list[Damage] = []  # of the present reading: found behind the blocks that it has given
        self._bytes = source
        self._walker: _Walker | None = None  # None: not enough has come to tell the format
        self._position = 0
        self._begun = False
        while self.rereadable and self._walker is None:
            self._recognize()

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
        times a second while more is waited for (of compressed data until their first bytes have come). Where the
        capture is damaged the frames before that come first, then `damages` tells it and the iteration ends."""
        if self._begun:
            self._rewind()
        self._begun = True
        source = self._bytes
        while self._walker is None:
            try:
                self._recognize()
            except CaptureError as error:
                self.damages.append(Damage(self.name, None, str(error).removeprefix(f"{self.name}: ")))
                return
            if source.idle:
                yield NO_FRAMES
        walker, position = self._walker, self._position
        columns = Columns.of_size(frames)
        while True:
            if self.rereadable and source.filled - position < stretch and not source.complete:
                position = source.advance(position, 0)  # else the rest of each piece would be a block by itself
            stop = min(position + stretch, source.filled)
            walk = walker.walk(source.data, position, stop, source.filled, columns)
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
            if walk.nonsense is not None or (at_end and source.complete):
                self._judge(walk)
                return

    def identity(self) -> Identity:
        """Of the file on disk, as it is now."""
        return self._bytes.identity()

    def taken(self) -> Identity:
        """Of the file on disk, as it was when it was read last."""
        return self._bytes.taken()

    def interrupt(self) -> None:
        """From another thread: where the reading waits for more to arrive, it ends."""
        self._bytes.interrupt()

    def close(self) -> None:
        """Lets go of the file."""
        self._bytes.close()

    def _rewind(self) -> None:
        if not self.rereadable:
            raise CaptureError(f"{self.name}: it cannot be read twice; a plain file can")
        self.damages = []
        self._bytes.rewind()
        self._walker = None

    def _recognize(self) -> None:
        """Chooses the walker, or reads on where that cannot be told yet. Raises CaptureError."""
        # Compiling is left until there is something to read: these take most of a second to import.
        from ingest.files import pcap, pcapng

        source = self._bytes
        head = source.data[: min(pcap.HEADER, source.filled)].tobytes()
        whole = pcapng.HEADER if head[:4] == pcapng.MAGIC else pcap.HEADER if head[:4] in pcap.MAGICS else _TELLING
        if source.filled < whole and not source.complete:
            source.advance(0, whole)
        elif head[:4] == pcapng.MAGIC:
            self._walker, self._position = pcapng.PcapngWalker(source.name, head), 0
        elif head[:4] in pcap.MAGICS:
            self._walker, self._position = pcap.PcapWalker(source.name, head), pcap.HEADER
        else:
            raise _foreign(source, head)

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
    """Opens a capture file, or standard input for `-`, and waits for nothing. Raises CaptureError where it is none.
    `follow`: at its end more is waited for, until this says that there is nothing to wait for."""
    source = open_bytes(path, follow)
    try:
        return CaptureFile(source)
    except BaseException:
        source.close()
        raise


def _foreign(source: CaptureBytes, head: bytes) -> CaptureError:
    right = "a pcap or pcapng capture, plain or compressed by gzip, xz or zstd, is read"
    if source.broken is not None:
        return CaptureError(f"{source.name}: {source.broken}, before the capture in them begins; {right}")
    if not head:
        return CaptureError(f"{source.name}: there is nothing in it (0 bytes); {right}")
    known = next((text for magic, text in _FOREIGN.items() if head.startswith(magic)), None)
    found = known or f"no capture (its first bytes are {head[:4].hex(' ')})"
    return CaptureError(f"{source.name}: this is {found}; {right}")
