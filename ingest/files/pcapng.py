"""The pcapng format: blocks in sections. Compiled code walks the packets, Python reads the headers."""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from ingest.columns import LARGEST, Columns, Walk
from ingest.files.errors import CaptureError
from ingest.files.prefetch import prefetch
from ingest.files.timestamps import to_nanoseconds
from lowmark.jit.compiled import compiled
from lowmark.wire.frames import BAD_TIME, NO_TIME, UNKNOWN_INTERFACE

__all__ = ["HEADER", "MAGIC", "PcapngWalker"]

HEADER = 16
"""Bytes that determine a capture's byte order and version: the beginning of its first section's header."""

MAGIC = b"\x0a\x0d\x0d\x0a"
"""First four bytes: the type of a section's header, which reads the same in both byte orders."""

_SECTION, _INTERFACE, _OLD_PACKET, _SIMPLE_PACKET, _PACKET = 0x0A0D0D0A, 1, 2, 3, 6
_RESOLUTION_OPTION, _OFFSET_OPTION = 9, 14
_MICROSECONDS = 6
_ORDERS = {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}
_SMALLEST = 12  # bytes of a block without a body: type, length, and the length again
_MOST_INTERFACES = 1 << 16  # most interfaces of a section, because each takes memory as long as the section lasts
_AHEAD = 4096  # bytes to prefetch: each block only says where the next one begins
_FULL, _SHORT, _HEADER, _BAD_LENGTH, _BAD_TRAILER, _BAD_CAPTURED = range(6)
_LINK, _SNAPLEN, _RESOLUTION, _OFFSET = range(4)  # the columns of the table of interfaces


class _NonsenseError(Exception):
    """The current block contradicts itself. The text says how."""


class PcapngWalker:
    """Remembers the byte order and the interfaces of the current section."""

    def __init__(self, name: str, head: bytes) -> None:
        if len(head) < HEADER:
            raise CaptureError(f"{name}: the file ends after {len(head)} bytes, within a pcapng's header")
        if head[8:12] not in _ORDERS:
            raise CaptureError(f"{name}: this begins like pcapng, but has the byte-order mark {head[8:12].hex()}")
        order = _ORDERS[head[8:12]]
        major, minor = struct.unpack_from(order + "HH", head, 12)
        if major != 1:
            raise CaptureError(f"{name}: this is pcapng version {major}.{minor}; version 1.0 is read")
        self._order = order
        self._interfaces = np.zeros((4, 4), np.int64)
        self._count = 0

    def walk(self, data: npt.NDArray[np.uint8], position: int, stop: int, filled: int, out: Columns) -> Walk:
        """Fill `out` with the packets whose blocks begin in data[position:stop]. Their bytes may reach up to
        `filled`."""
        count = 0
        while True:
            count, position, state = _walk(
                data, position, stop, filled, self._order == ">", self._interfaces, self._count,
                out.offset, out.captured, out.length, out.ts, out.link, count,
            )  # fmt: skip
            if state == _FULL:
                return Walk(count, position)
            head = data[position : min(position + 28, filled)].tobytes()
            if len(head) < _SMALLEST:
                return Walk(count, position, wanted=_SMALLEST)
            if head[:4] == MAGIC:
                if head[8:12] not in _ORDERS:
                    return Walk(count, position, nonsense=f"a section has the byte-order mark {head[8:12].hex()}")
                self._order = _ORDERS[head[8:12]]
            kind, size = struct.unpack_from(self._order + "II", head)
            if state == _BAD_LENGTH or not _SMALLEST <= size <= LARGEST or size % 4:
                return Walk(count, position, nonsense=f"a block of type {kind} claims a length of {size} bytes")
            if filled - position < size:
                return Walk(count, position, wanted=size)
            if state == _BAD_CAPTURED:
                (captured,) = struct.unpack_from(self._order + "I", head, 20)
                return Walk(count, position, nonsense=f"a packet claims {captured} bytes of a block of {size}")
            try:
                self._enter(kind, data[position : position + size].tobytes())
            except _NonsenseError as error:
                return Walk(count, position, nonsense=str(error))
            position += size

    def _enter(self, kind: int, block: bytes) -> None:
        """Read the header of a section or an interface; `block` is the whole block."""
        size = len(block)
        (again,) = struct.unpack_from(self._order + "I", block, size - 4)
        if again != size:
            raise _NonsenseError(f"a block of type {kind} has a length of {size} bytes in front and of {again} behind")
        if kind == _SECTION:
            if size < 28:
                raise _NonsenseError(f"a section's header claims a length of {size} bytes")
            major, minor = struct.unpack_from(self._order + "HH", block, 12)
            if major != 1:
                raise _NonsenseError(f"a section has version {major}.{minor}; version 1.0 is read")
            self._count = 0
            return
        if size < 20:
            raise _NonsenseError(f"an interface's description claims a length of {size} bytes")
        link, snaplen = struct.unpack_from(self._order + "HxxI", block, 8)
        resolution, offset_s = self._clock(block[16:-4])
        if self._count == _MOST_INTERFACES:
            raise _NonsenseError(f"a section describes more than {_MOST_INTERFACES} interfaces")
        if self._count == len(self._interfaces):
            self._interfaces = np.concatenate([self._interfaces, np.zeros_like(self._interfaces)])
        self._interfaces[self._count] = (link, snaplen, resolution, offset_s)
        self._count += 1

    def _clock(self, options: bytes) -> tuple[int, int]:
        """Resolution (an if_tsresol byte) and offset (seconds) of an interface's timestamps."""
        resolution, offset_s = _MICROSECONDS, 0
        header, at = struct.Struct(self._order + "HH"), 0
        while len(options) - at >= header.size:
            code, size = header.unpack_from(options, at)
            if code == 0:
                break
            value = options[at + 4 : at + 4 + size]
            at += 4 + (size + 3) // 4 * 4
            if len(value) < size:
                raise _NonsenseError("an interface's description ends within one of its options")
            if code == _RESOLUTION_OPTION and size == 1:
                resolution = value[0]
            elif code == _OFFSET_OPTION and size == 8:
                (offset_s,) = struct.unpack(self._order + "q", value)
        return resolution, offset_s


@compiled
def _walk(data, position, stop, filled, big, interfaces, known, offsets, captureds, lengths, times, links, count):  # type: ignore[no-untyped-def]
    """`filled` bounds every read: before a block is complete, only its type and length are read."""
    room = len(times)
    while count < room and position < stop:
        if filled - position < _SMALLEST:
            return count, position, _SHORT
        prefetch(data, position + _AHEAD)
        kind = _word(data, position, big)
        if kind == _SECTION:
            return count, position, _HEADER
        size = _word(data, position + 4, big)
        if size < _SMALLEST or size > LARGEST or size % 4 != 0:
            return count, position, _BAD_LENGTH
        if filled - position < size:
            return count, position, _SHORT
        if _word(data, position + size - 4, big) != size:
            return count, position, _BAD_TRAILER
        if kind == _INTERFACE:
            return count, position, _HEADER
        if kind in (_PACKET, _OLD_PACKET):
            if size < 32:
                return count, position, _BAD_LENGTH
            captured = _word(data, position + 20, big)
            if captured > size - 32:
                return count, position, _BAD_CAPTURED
            interface = _word(data, position + 8, big)
            if kind == _OLD_PACKET:  # its interface has 16 bits, and a count of drops follows
                interface = interface >> 16 if big else interface & 0xFFFF
            offsets[count] = position + 28
            captureds[count] = captured
            lengths[count] = _word(data, position + 24, big)
            if interface < known:
                units = np.uint64(_word(data, position + 12, big)) << np.uint64(32)
                units |= np.uint64(_word(data, position + 16, big))
                of = interfaces[interface]
                ns, fits = to_nanoseconds(units, of[_RESOLUTION], of[_OFFSET])
                times[count] = ns
                links[count] = of[_LINK] if fits else BAD_TIME
            else:
                times[count] = 0
                links[count] = UNKNOWN_INTERFACE
            count += 1
        elif kind == _SIMPLE_PACKET:
            if size < 16:
                return count, position, _BAD_LENGTH
            # A simple packet belongs to the first interface, and only that interface's snaplen tells its captured
            # length.
            length = _word(data, position + 8, big)
            captured = min(length, size - 16)
            if known > 0 and interfaces[0, _SNAPLEN] > 0:
                captured = min(captured, interfaces[0, _SNAPLEN])
            offsets[count] = position + 12
            captureds[count] = captured
            lengths[count] = length
            times[count] = 0
            links[count] = NO_TIME if known > 0 else UNKNOWN_INTERFACE
            count += 1
        position += size
    return count, position, _FULL


@compiled
def _word(data, at, big):  # type: ignore[no-untyped-def]
    """Unsigned all through, which lets the compiler make one load of the four."""
    i, u = np.uint64(at), np.uint32
    if big:
        word = u(data[i]) << u(24) | u(data[i + u(1)]) << u(16) | u(data[i + u(2)]) << u(8) | u(data[i + u(3)])
    else:
        word = u(data[i]) | u(data[i + u(1)]) << u(8) | u(data[i + u(2)]) << u(16) | u(data[i + u(3)]) << u(24)
    return np.int64(word)
