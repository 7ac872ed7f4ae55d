"""Capture files: pcap or pcapng, recognised by their first bytes; plain, compressed or from a pipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ingest.columns import Columns, Walk
from ingest.files.errors import CaptureError, Damage
from ingest.files.identity import Identity
from ingest.files.inputs import CaptureBytes, open_bytes

__all__ = ["FRAMES", "NO_FRAMES", "STRETCH", "CaptureFile", "Frames", "open_capture"]

FRAMES = 32_768
"""Most frames of a block: enough to make the work between blocks negligible, few enough for the cache."""

STRETCH = 4 << 20
"""Most bytes of the capture in one block; only its last frame may exceed them."""

_TELLING = 6  # bytes to show if this is not a capture
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
    """Frames in the order of the file; like FrameBlock, but before any promise. `data` is read-only and borrowed until
    the next block is requested; the receiver owns the columns."""

    data: npt.NDArray[np.uint8]
    columns: Columns

    def __len__(self) -> int:
        return len(self.columns.ts)


NO_FRAMES = Frames(np.empty(0, np.uint8), Columns.of_size(0))
"""Delivered while the reader waits for more data."""


class _Walker(Protocol):
    def walk(self, data: npt.NDArray[np.uint8], position: int, stop: int, filled: int, out: Columns) -> Walk: ...


class CaptureFile:
    """An open capture. `blocks()` reads it from its beginning: once, or any number of times if `rereadable`; a
    rereadable capture is cut into the same blocks every time."""

    def __init__(self, source: CaptureBytes) -> None:
        """Raises CaptureError if this is visibly not a capture. For a pipe, or a file that is still being written, that
        is found only during reading."""
        self.name = source.name
        self.rereadable = source.rereadable
        self.damages: list[Damage] = []  # damages of the current reading, found after the blocks delivered so far
        self._bytes = source
        self._walker: _Walker | None = None  # None: too few bytes have come to tell the format
        self._position = 0
        self._begun = False
        while self.rereadable and self._walker is None:
            self._recognize()

    @property
    def read_bytes(self) -> int:
        """Bytes of the file on disk that the current reading has taken."""
        return self._bytes.read_bytes

    @property
    def total_bytes(self) -> int | None:
        """Size of the file on disk; None for pipes."""
        return self._bytes.total_bytes

    def blocks(self, frames: int = FRAMES, stretch: int = STRETCH) -> Iterator[Frames]:
        """All frames, in blocks of at most `frames`, cut from about `stretch` bytes. While more is waited for, an empty
        block comes several times a second (for compressed data, until their first bytes have come). If the capture is
        damaged, the frames before the damage come first, then `damages` reports it and the iteration ends."""
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
                position = source.advance(position, 0)  # carries the rest over: it would be a small block of its own
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
        """The identity of the file on disk, as it is now."""
        return self._bytes.identity()

    def taken(self) -> Identity:
        """The identity of the file on disk, as it was when it was last read."""
        return self._bytes.taken()

    def interrupt(self) -> None:
        """End a reading that waits for more to arrive; called from another thread."""
        self._bytes.interrupt()

    def close(self) -> None:
        """Release the file."""
        self._bytes.close()

    def _rewind(self) -> None:
        if not self.rereadable:
            raise CaptureError(f"{self.name}: it cannot be read twice; a plain file can")
        self.damages = []
        self._bytes.rewind()
        self._walker = None

    def _recognize(self) -> None:
        """Choose the walker, or read on if too few bytes have come. Raises CaptureError."""
        # The walkers are imported when there is something to read: they take most of a second to import.
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
        """Report damage after the last frame, if there is any."""
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
    """Open a capture file, or standard input for `-`, without waiting. Raises CaptureError if it is not a capture.
    `follow`: at the end, wait for more data until this function returns true."""
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
