"""The pcap format: 24 bytes of file header, then 16 bytes before each frame."""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from ingest.columns import LARGEST, Columns, Walk
from ingest.files.errors import CaptureError
from ingest.files.prefetch import prefetch
from lowmark.jit.compiled import compiled

__all__ = ["HEADER", "MAGICS", "PcapWalker"]

HEADER = 24
"""Bytes of the file header."""

MAGICS = {
    b"\xd4\xc3\xb2\xa1": ("<", 1000),
    b"\xa1\xb2\xc3\xd4": (">", 1000),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
    b"\xa1\xb2\x3c\x4d": (">", 1),
}
"""First four bytes: the byte order, and the nanoseconds in a unit of a timestamp's fraction."""

_RECORD = 16
_AHEAD = 4096  # bytes to prefetch: each record only says where the next one begins
_FULL, _SHORT, _NONSENSE = range(3)


class PcapWalker:
    """Built from a file header. All frames have its link type, whose upper 16 bits describe frame check sequences."""

    def __init__(self, name: str, head: bytes) -> None:
        order, self._unit_ns = MAGICS[head[:4]]
        if len(head) < HEADER:
            raise CaptureError(f"{name}: the file ends after {len(head)} bytes, within the {HEADER} of a pcap's header")
        major, minor = struct.unpack_from(order + "HH", head, 4)
        if major != 2:
            raise CaptureError(f"{name}: this is pcap version {major}.{minor}; version 2.4 is read")
        self._big = order == ">"
        self._link = struct.unpack_from(order + "I", head, 20)[0] & 0xFFFF

    def walk(self, data: npt.NDArray[np.uint8], position: int, stop: int, filled: int, out: Columns) -> Walk:
        """Fill `out` with the frames whose records begin in data[position:stop]. Their bytes may reach up to
        `filled`."""
        count, position, state = _walk(
            data, position, stop, filled, self._big, self._unit_ns, self._link,
            out.offset, out.captured, out.length, out.ts, out.link,
        )  # fmt: skip
        if state == _FULL:
            return Walk(count, position)
        if filled - position < _RECORD:
            return Walk(count, position, wanted=_RECORD)
        captured = int.from_bytes(data[position + 8 : position + 12].tobytes(), "big" if self._big else "little")
        if state == _SHORT:
            return Walk(count, position, wanted=_RECORD + captured)
        return Walk(count, position, nonsense=f"a packet claims {captured} captured bytes, more than {LARGEST}")


@compiled
def _walk(data, position, stop, filled, big, unit_ns, link, offsets, captureds, lengths, times, links):  # type: ignore[no-untyped-def]
    """`filled` bounds every read: a record's header is read only if 16 bytes are left, and its frame is never read."""
    count, room = 0, len(times)
    while count < room and position < stop:
        if filled - position < _RECORD:
            return count, position, _SHORT
        prefetch(data, position + _AHEAD)
        if big:
            seconds = _big(data, position)
            fraction = _big(data, position + 4)
            captured = _big(data, position + 8)
            length = _big(data, position + 12)
        else:
            seconds = _little(data, position)
            fraction = _little(data, position + 4)
            captured = _little(data, position + 8)
            length = _little(data, position + 12)
        if captured > LARGEST:
            return count, position, _NONSENSE
        if filled - position - _RECORD < captured:
            return count, position, _SHORT
        offsets[count] = position + _RECORD
        captureds[count] = captured
        lengths[count] = length
        times[count] = seconds * 1_000_000_000 + fraction * unit_ns
        links[count] = link
        count += 1
        position += _RECORD + captured
    return count, position, _FULL


@compiled
def _little(data, at):  # type: ignore[no-untyped-def]
    """Unsigned all through, which lets the compiler make one load of the four."""
    i, u = np.uint64(at), np.uint32
    word = u(data[i]) | u(data[i + u(1)]) << u(8) | u(data[i + u(2)]) << u(16) | u(data[i + u(3)]) << u(24)
    return np.int64(word)


@compiled
def _big(data, at):  # type: ignore[no-untyped-def]
    i, u = np.uint64(at), np.uint32
    word = u(data[i]) << u(24) | u(data[i + u(1)]) << u(16) | u(data[i + u(2)]) << u(8) | u(data[i + u(3)])
    return np.int64(word)
