"""A plain reader of capture files: one frame after the other, exact times, no speed."""

from __future__ import annotations

import gzip
import struct
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from tests.naive.values import NS

NO_TIME, UNKNOWN_INTERFACE = -2, -3
"""In place of a link type: why a frame has no time."""


class Frame(NamedTuple):
    ts: int  # ns since 1970
    link: int
    data: bytes  # as captured
    length: int  # on the wire


@dataclass(frozen=True)
class Capture:
    frames: list[Frame]
    whole: bool  # False: the file ends in the middle of something, or is damaged behind the last frame


class _Cut(Exception):
    pass


def read_capture(path: Path | str) -> Capture:
    data = Path(path).read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    return read_bytes(data)


def read_bytes(data: bytes) -> Capture:
    frames: list[Frame] = []
    read = _pcapng if data[:4] == b"\x0a\x0d\x0d\x0a" else _pcap
    try:
        read(data, frames)
    except _Cut:
        return Capture(frames, False)
    return Capture(frames, True)


def _take(data: bytes, start: int, size: int) -> bytes:
    if start + size > len(data):
        raise _Cut
    return data[start : start + size]


def _pcap(data: bytes, frames: list[Frame]) -> None:
    head = _take(data, 0, 24)
    for order in "<>":
        magic = struct.unpack(order + "I", head[:4])[0]
        if magic in (0xA1B2C3D4, 0xA1B23C4D):
            break
    else:
        raise _Cut
    unit_ns = 1 if magic == 0xA1B23C4D else 1000
    link = struct.unpack(order + "I", head[20:])[0] & 0xFFFF
    at = 24
    while at < len(data):
        seconds, fraction, captured, length = struct.unpack(order + "IIII", _take(data, at, 16))
        frames.append(Frame(seconds * NS + fraction * unit_ns, link, _take(data, at + 16, captured), length))
        at += 16 + captured


@dataclass(frozen=True)
class _Interface:
    link: int
    snaplen: int
    unit_s: Fraction
    offset_s: int

    def ns(self, units: int) -> int:
        return self.offset_s * NS + (units * self.unit_s * NS).__floor__()


def _pcapng(data: bytes, frames: list[Frame]) -> None:
    at = 0
    order = "<"
    interfaces: list[_Interface] = []
    while at < len(data):
        head = _take(data, at, 12)
        if head[:4] == b"\x0a\x0d\x0d\x0a":
            order = "<" if head[8:12] == b"\x4d\x3c\x2b\x1a" else ">"
            interfaces = []
        kind, size = struct.unpack(order + "II", head[:8])
        body = _take(data, at, size)[8:-4]
        at += size
        if kind == 1:
            interfaces.append(_interface(order, body))
        elif kind == 6:
            number, high, low, captured, length = struct.unpack(order + "IIIII", body[:20])
            if number < len(interfaces):
                ns = interfaces[number].ns(high << 32 | low)
                frames.append(Frame(ns, interfaces[number].link, _take(body, 20, captured), length))
            else:
                frames.append(Frame(0, UNKNOWN_INTERFACE, _take(body, 20, captured), length))
        elif kind == 2:
            number, _drops, high, low, captured, length = struct.unpack(order + "HHIIII", body[:20])
            if number < len(interfaces):
                ns = interfaces[number].ns(high << 32 | low)
                frames.append(Frame(ns, interfaces[number].link, _take(body, 20, captured), length))
            else:
                frames.append(Frame(0, UNKNOWN_INTERFACE, _take(body, 20, captured), length))
        elif kind == 3:
            (length,) = struct.unpack(order + "I", body[:4])
            captured = min(length, (interfaces and interfaces[0].snaplen) or length, len(body) - 4)
            frames.append(Frame(0, NO_TIME if interfaces else UNKNOWN_INTERFACE, _take(body, 4, captured), length))


def _interface(order: str, body: bytes) -> _Interface:
    link, _, snaplen = struct.unpack(order + "HHI", body[:8])
    unit, offset = Fraction(1, 10**6), 0
    at = 8
    while at + 4 <= len(body):
        code, size = struct.unpack(order + "HH", body[at : at + 4])
        value = body[at + 4 : at + 4 + size]
        at += 4 + size + -size % 4
        if code == 0:
            break
        if code == 9:
            unit = Fraction(1, 2 ** (value[0] & 0x7F)) if value[0] & 0x80 else Fraction(1, 10 ** value[0])
        elif code == 14:
            (offset,) = struct.unpack(order + "q", value)
    return _Interface(link, snaplen, unit, offset)
