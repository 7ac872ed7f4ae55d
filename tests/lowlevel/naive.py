"""The packet fields straight from their definitions, one frame at a time, and groups in a dictionary."""

from __future__ import annotations

import struct
from collections.abc import Iterable

import numpy as np

from lowmark.wire.frames import FrameBlock

V4, V6 = 4 << 128, 6 << 128  # the version stands above an address
EXTENSIONS = (0, 43, 44, 51, 60, 135, 139, 140)


class Skip(Exception):
    """Its argument is the reason."""


def u16(data: bytes) -> int:
    (value,) = struct.unpack(">H", data)
    return int(value)


def take(data: bytes, at: int, size: int) -> bytes:
    if len(data) < at + size:
        raise Skip("TRUNCATED")
    return data[at : at + size]


def locate(data: bytes, link: int) -> tuple[int, int, int | None]:
    """Place and version of the IP header, and the outermost tag."""
    if link in (12, 14, 101):
        return 0, 6 if take(data, 0, 1)[0] >> 4 == 6 else 4, None
    if link in (228, 229):
        return 0, 4 if link == 228 else 6, None
    if link in (0, 108):
        family = take(data, 0, 4)
        for order in ("<I", ">I"):
            (number,) = struct.unpack(order, family)
            if number in (2, 10, 24, 28, 30):
                return 4, 4 if number == 2 else 6, None
        raise Skip("NOT_IP")
    if link == 1:
        take(data, 0, 14)
        at, kind = 14, u16(data[12:14])
    elif link == 113:
        take(data, 0, 16)
        at, kind = 16, u16(data[14:16])
    elif link == 276:
        take(data, 0, 20)
        at, kind = 20, u16(data[:2])
    else:
        raise Skip({-1: "MALFORMED", -2: "NO_TIME", -3: "UNKNOWN_INTERFACE"}.get(link, "LINK_TYPE"))
    tags: list[int] = []
    while kind in (0x8100, 0x88A8, 0x9100) or (kind <= 1500 and link == 1):
        if kind <= 1500:
            if data[at : at + 6] != b"\xaa\xaa\x03\0\0\0"[: len(data) - at]:
                raise Skip("NOT_IP")
            take(data, at, 8)
            kind, at = u16(data[at + 6 : at + 8]), at + 8
            if kind <= 1500:
                raise Skip("NOT_IP")
            continue
        if len(tags) == 4:
            raise Skip("NOT_IP")
        tag = take(data, at, 4)
        tags.append(u16(tag[:2]) & 0xFFF)
        kind, at = u16(tag[2:]), at + 4
    tag_id = tags[0] if tags else None
    if kind in (0x8847, 0x8848):
        for _ in range(8):
            label = take(data, at, 4)
            at += 4
            if label[2] & 1:
                break
        else:
            raise Skip("NOT_IP")
        version = take(data, at, 1)[0] >> 4
        if version not in (4, 6):
            raise Skip("NOT_IP")
        return at, version, tag_id
    if kind == 0x8864:
        protocol = u16(take(data, at, 8)[6:])
        if protocol not in (0x21, 0x57):
            raise Skip("NOT_IP")
        return at + 8, 4 if protocol == 0x21 else 6, tag_id
    if kind not in (0x0800, 0x86DD):
        raise Skip("NOT_IP")
    return at, 4 if kind == 0x0800 else 6, tag_id


def decode(data: bytes, wire: int, link: int, vlan: int = -1) -> dict[str, int]:
    """The fields that the frame alone decides; raises Skip."""
    at, version, tag = locate(data, link)
    head = take(data, at, 20 if version == 4 else 40)
    if head[0] >> 4 != version:
        raise Skip("MALFORMED")
    fields = {"len": wire, "ip_version": version, "vlan": vlan if vlan >= 0 else tag or 0}
    fields["destMAC"] = int.from_bytes(data[:6], "big") if link == 1 else 0
    fields["srcMAC"] = int.from_bytes(data[6:12], "big") if link == 1 else 0
    if version == 4:
        size, total = (head[0] & 15) * 4, u16(head[2:4])
        if size < 20 or (total < size and total != 0):
            raise Skip("MALFORMED")
        fragment = u16(head[6:8])
        fields |= {"srcIP": V4 + int.from_bytes(head[12:16], "big"), "destIP": V4 + int.from_bytes(head[16:20], "big")}
        fields |= {"tos": head[1], "ttl": head[8], "ip_len": total, "fragment": int(fragment & 0x3FFF != 0)}
        proto, later = head[9], fragment & 0x1FFF != 0
    else:
        fields |= {"srcIP": V6 + int.from_bytes(head[8:24], "big"), "destIP": V6 + int.from_bytes(head[24:40], "big")}
        fields |= {"tos": u16(head[:2]) >> 4 & 255, "ttl": head[7], "ip_len": u16(head[4:6]) + 40, "fragment": 0}
        size, proto, later, walked = 40, head[6], False, 0
        while proto in EXTENSIONS and walked < 8 and not later:
            rest = data[at + size :]
            if len(rest) < (4 if proto == 44 else 2):
                break
            walked += 1
            if proto == 44:
                later = u16(rest[2:4]) >> 3 != 0
                fields["fragment"] = max(fields["fragment"], int(later or rest[3] & 1))
                size += 8
            else:
                size += (rest[1] + 2) * 4 if proto == 51 else (rest[1] + 1) * 8
            proto = rest[0]
    upper = b"" if later else data[at + size :]
    fields["proto"] = proto
    ported = proto in (6, 17, 33, 132, 136) and len(upper) >= 4
    fields["srcPort"], fields["destPort"] = (u16(upper[:2]), u16(upper[2:4])) if ported else (0, 0)
    fields["tcp_flags"] = upper[13] if proto == 6 and len(upper) >= 14 else 0
    icmp = proto in (1, 58) and len(upper) >= 2
    fields["icmp_type"], fields["icmp_code"] = (upper[0], upper[1]) if icmp else (0, 0)
    inner = 0
    if proto == 6 and not later:
        inner = (upper[12] >> 4) * 4 if len(upper) >= 13 else 20
    elif proto == 17 and not later:
        inner = 8
    fields["payload_len"] = max(0, fields["ip_len"] - size - inner)
    return fields


def block(
    frames: Iterable[bytes],
    *,
    ts: Iterable[int] | None = None,
    link: int | Iterable[int] = 1,
    low: Iterable[int] | None = None,
    low_after: int = -(2**63),
    extra: int = 0,
    vlan: Iterable[int] | None = None,
) -> FrameBlock:
    """Frames behind each other, `extra` bytes longer on the wire than captured. Without `low` nothing is promised."""
    frames = list(frames)
    captured = np.array([len(frame) for frame in frames], np.int64)
    times = np.arange(len(frames), dtype=np.int64) if ts is None else np.array(list(ts), np.int64)
    links = np.full(len(frames), link, np.int32) if isinstance(link, int) else np.array(list(link), np.int32)
    return FrameBlock(
        data=np.frombuffer(b"".join(frames), np.uint8),
        offset=np.concatenate(([0], np.cumsum(captured)))[:-1].astype(np.int64),
        captured=captured,
        length=captured + extra,
        ts=times,
        link=links,
        low=np.full(len(frames), -(2**63), np.int64) if low is None else np.array(list(low), np.int64),
        low_after=low_after,
        vlan=None if vlan is None else np.array(list(vlan), np.int32),
    )
