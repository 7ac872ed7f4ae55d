"""Frames to packet tuples, straight from the definitions of the packet fields, one byte after the other."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import NamedTuple

from tests.naive.readers import NO_TIME, UNKNOWN_INTERFACE, Frame, read_capture
from tests.naive.values import Address, CommunityId, Mac, Time, Value, order

FIELDS = (
    "ts", "srcIP", "destIP", "srcPort", "destPort", "proto", "len", "ip_len", "payload_len", "tos", "ttl", "tcp_flags",
    "icmp_type", "icmp_code", "ip_version", "fragment", "vlan", "srcMAC", "destMAC", "link", "row_num", "arrival_ts",
)  # fmt: skip

CONN = tuple(f"conn.{name}" for name in ("aIP", "aPort", "bIP", "bPort", "proto"))
INNER = tuple(
    f"inner.{name}"
    for name in ("srcIP", "destIP", "srcPort", "destPort", "proto", "ip_len", "tos", "ttl", "tcp_flags", "ip_version")
)
DERIVED = ("community_id", *CONN, *INNER)
"""Fields that `*` leaves out."""

IPV4, IPV6 = 0x0800, 0x86DD
TAGS = (0x8100, 0x88A8, 0x9100)
MPLS = (0x8847, 0x8848)
PPPOE = 0x8864
FAMILIES = {2: IPV4, 10: IPV6, 24: IPV6, 28: IPV6, 30: IPV6}
WITH_PORTS = (6, 17, 33, 132, 136)
FRAGMENT, AH = 44, 51
UNTIMED = {NO_TIME: "no_time", UNKNOWN_INTERFACE: "unknown_interface"}
EXTENSIONS = (0, 43, FRAGMENT, AH, 60, 135, 139, 140)


class Skipped(Exception):
    """A frame that is no packet tuple; its argument is the reason."""


class _Link(NamedTuple):
    """What stands before the IP header."""

    packet: bytes
    version: int | None  # that the link layer announces
    vlan: int = 0
    source: int = 0
    destination: int = 0


def decode(link_type: int, data: bytes, length: int) -> dict[str, Value]:
    """The fields of a frame but ts, link, row_num and arrival_ts. Raises Skipped."""
    link = _link_layer(link_type, data)
    fields: dict[str, Value] = {"len": length, "vlan": link.vlan}
    fields |= {"srcMAC": Mac(link.source), "destMAC": Mac(link.destination)}
    fields |= _ip(link.packet, link.version)
    fields |= {"community_id": _community_id(fields)} | _conn(fields) | _inside(link.packet)
    return {name: fields[name] for name in (*FIELDS, *DERIVED) if name in fields}


def _link_layer(link_type: int, data: bytes) -> _Link:
    if link_type in UNTIMED:
        raise Skipped(UNTIMED[link_type])
    if link_type in (12, 14, 101):
        return _Link(data, None)
    if link_type == 228:
        return _Link(data, 4)
    if link_type == 229:
        return _Link(data, 6)
    if link_type in (0, 108):
        head = _head(data, 4)
        family = FAMILIES.get(int.from_bytes(head, "little")) or FAMILIES.get(int.from_bytes(head, "big"))
        if family is None:
            raise Skipped("not_ip")
        return _Link(data[4:], 4 if family == IPV4 else 6)
    if link_type == 113:
        return _ether_type(int.from_bytes(_head(data, 16)[14:], "big"), data[16:], snap=False)
    if link_type == 276:
        return _ether_type(int.from_bytes(_head(data, 20)[:2], "big"), data[20:], snap=False)
    if link_type == 1:
        head = _head(data, 14)
        link = _ether_type(int.from_bytes(head[12:], "big"), data[14:], snap=True)
        return link._replace(source=int.from_bytes(head[6:12], "big"), destination=int.from_bytes(head[:6], "big"))
    raise Skipped("link_type")


def _head(data: bytes, size: int) -> bytes:
    if len(data) < size:
        raise Skipped("truncated")
    return data[:size]


def _ether_type(kind: int, data: bytes, *, snap: bool) -> _Link:
    vlan, tags = 0, 0
    while True:
        if kind == IPV4:
            return _Link(data, 4, vlan)
        if kind == IPV6:
            return _Link(data, 6, vlan)
        if kind in TAGS:
            tags += 1
            if tags > 4:
                raise Skipped("not_ip")
            head = _head(data, 4)
            if tags == 1:
                vlan = int.from_bytes(head[:2], "big") & 0xFFF
            kind, data = int.from_bytes(head[2:], "big"), data[4:]
        elif kind in MPLS:
            return _Link(*_labels(data), vlan)
        elif kind == PPPOE:
            protocol = int.from_bytes(_head(data, 8)[6:], "big")
            if protocol not in (0x0021, 0x0057):
                raise Skipped("not_ip")
            return _Link(data[8:], 4 if protocol == 0x0021 else 6, vlan)
        elif kind <= 1500 and snap:
            if not b"\xaa\xaa\x03\x00\x00\x00".startswith(data[:6]):
                raise Skipped("not_ip")
            head = _head(data, 8)
            kind, data, snap = int.from_bytes(head[6:], "big"), data[8:], False
        else:
            raise Skipped("not_ip")


def _labels(data: bytes) -> tuple[bytes, int]:
    for _label in range(8):
        bottom = _head(data, 4)[2] & 1
        data = data[4:]
        if bottom:
            version = _head(data, 1)[0] >> 4
            if version not in (4, 6):
                raise Skipped("not_ip")
            return data, version
    raise Skipped("not_ip")


def _ip(data: bytes, announced: int | None) -> dict[str, Value]:
    stated = _head(data, 1)[0] >> 4
    version = announced or stated
    _head(data, 40 if version == 6 else 20)
    if version not in (4, 6) or stated != version:
        raise Skipped("malformed")
    return _ipv4(data) if version == 4 else _ipv6(data)


def _ipv4(data: bytes) -> dict[str, Value]:
    header = (data[0] & 15) * 4
    ip_len = int.from_bytes(data[2:4], "big")
    if header < 20 or (ip_len < header and ip_len != 0):
        raise Skipped("malformed")
    flags = int.from_bytes(data[6:8], "big")
    more, offset = bool(flags & 0x2000), flags & 0x1FFF
    return {
        "srcIP": IPv4Address(data[12:16]),
        "destIP": IPv4Address(data[16:20]),
        "proto": data[9],
        "ip_len": ip_len,
        "tos": data[1],
        "ttl": data[8],
        "ip_version": 4,
        "fragment": int(more or offset > 0),
        "later": offset > 0,
        "ip_headers": header,
    } | _upper(data[9], data[header:], ip_len - header, offset == 0)


def _ipv6(data: bytes) -> dict[str, Value]:
    ip_len = int.from_bytes(data[4:6], "big") + 40
    proto, at, walked = data[6], 40, 0
    fragment, first = False, True
    while proto in EXTENSIONS and walked < 8 and first:
        # A fragment header is of use with its offset, the others with their length.
        if len(data) < at + (4 if proto == FRAGMENT else 2):
            break
        size = (data[at + 1] + 2) * 4 if proto == AH else 8 if proto == FRAGMENT else (data[at + 1] + 1) * 8
        if proto == FRAGMENT:
            field = int.from_bytes(data[at + 2 : at + 4], "big")
            fragment = fragment or bool(field & 1) or field >> 3 > 0
            first = field >> 3 == 0
        proto, at, walked = data[at], at + size, walked + 1
    return {
        "srcIP": IPv6Address(data[8:24]),
        "destIP": IPv6Address(data[24:40]),
        "proto": proto,
        "ip_len": ip_len,
        "tos": int.from_bytes(data[:2], "big") >> 4 & 0xFF,
        "ttl": data[7],
        "ip_version": 6,
        "fragment": int(fragment),
        "later": not first,
        "ip_headers": at,
    } | _upper(proto, data[at:], ip_len - at, first)


def _upper(proto: int, data: bytes, length: int, first: bool) -> dict[str, Value]:
    """`length`: bytes behind the IP headers, as those state it; `data` those of them that were captured, and more."""
    fields: dict[str, Value] = dict.fromkeys(("srcPort", "destPort", "tcp_flags", "icmp_type", "icmp_code"), 0)
    fields["has_ports"] = first and len(data) >= 4
    if first:
        if proto in WITH_PORTS and len(data) >= 4:
            fields["srcPort"] = int.from_bytes(data[:2], "big")
            fields["destPort"] = int.from_bytes(data[2:4], "big")
        if proto in (1, 58) and len(data) >= 2:
            fields["icmp_type"], fields["icmp_code"] = data[0], data[1]
        if proto == 6:
            fields["tcp_flags"] = data[13] if len(data) >= 14 else 0
            length -= (data[12] >> 4) * 4 if len(data) >= 13 else 20
        if proto == 17:
            length -= 8
    fields["payload_len"] = max(0, length)
    fields["has_icmp"] = len(data) >= 2
    return fields


# Derived fields


_PAIRS = {1: ((0, 8), (9, 10), (13, 14), (15, 16), (17, 18)),
          58: ((128, 129), (130, 131), (133, 134), (135, 136), (139, 140), (144, 145))}  # fmt: skip


def _conn(fields: dict[str, Value]) -> dict[str, Value]:
    ends = [(fields["srcIP"], fields["srcPort"]), (fields["destIP"], fields["destPort"])]
    one_way = False
    proto = fields["proto"]
    if proto in _PAIRS and not fields["later"] and fields["has_icmp"]:
        kind = fields["icmp_type"]
        answers = [sum(pair) - kind for pair in _PAIRS[proto] if kind in pair]
        one_way = not answers
        ends = [(fields["srcIP"], kind), (fields["destIP"], answers[0] if answers else fields["icmp_code"])]
    if not one_way:
        ends.sort(key=lambda end: (order(end[0]), end[1]))
    return dict(zip(CONN, (*ends[0], *ends[1], proto), strict=True))


def _community_id(fields: dict[str, Value]) -> CommunityId:
    ends = [(value.packed, b"") for name in ("srcIP", "destIP") if isinstance(value := fields[name], Address)]
    proto, one_way = fields["proto"], False
    ports: tuple[int, int] | None = None
    if proto in (6, 17, 132) and fields["has_ports"]:
        ports = fields["srcPort"], fields["destPort"]
    if proto in _PAIRS and not fields["later"] and fields["has_icmp"]:
        kind = fields["icmp_type"]
        answers = [sum(pair) - kind for pair in _PAIRS[proto] if kind in pair]
        ports, one_way = (kind, answers[0] if answers else fields["icmp_code"]), not answers
    if ports is not None:
        ends = [(address, port.to_bytes(2, "big")) for (address, _), port in zip(ends, ports, strict=True)]
    if not one_way:
        ends.sort()
    hashed = bytes(2) + ends[0][0] + ends[1][0] + bytes([proto, 0]) + ends[0][1] + ends[1][1]
    return CommunityId(hashlib.sha1(hashed).digest())


def _inside(data: bytes) -> dict[str, Value]:
    packet = _tunnelled(*_behind_ip(data))
    try:
        found = None if packet is None else _ip(*packet)
    except Skipped:
        found = None
    return {name: None if found is None else found[name.split(".")[1]] for name in INNER}


def _behind_ip(data: bytes) -> tuple[int | None, bytes]:
    """Protocol (None in later fragments) and bytes of what an IP packet carries."""
    ip = _ip(data, None)
    size = (data[0] & 15) * 4 if data[0] >> 4 == 4 else ip["ip_headers"]
    return None if ip["later"] else ip["proto"], data[size:]


def _tunnelled(proto: int | None, data: bytes) -> tuple[bytes, int] | None:
    """An IP packet one level down, and the version that it is announced to be of."""
    if proto in (4, 41):
        return data, 4 if proto == 4 else 6
    if proto == 47 and len(data) >= 4:
        flags, kind = int.from_bytes(data[:2], "big"), int.from_bytes(data[2:4], "big")
        size = 4 + 4 * sum(1 for bit in (15, 13, 12) if flags >> bit & 1)
        if flags & 7 or flags >> 14 & 1:
            return None
        return _carried(kind, data[size:])
    port = int.from_bytes(data[2:4], "big")
    if proto != 17 or len(data) < 16:
        return None
    if port == 4789 and data[8] & 8:
        return _carried(0x6558, data[16:])
    if port == 2152 and data[8] >> 5 == 1 and data[8] & 16 and data[9] == 255:
        return _gtp(data[8], data[16:])
    return None


def _carried(kind: int, data: bytes) -> tuple[bytes, int] | None:
    if kind in (IPV4, IPV6):
        return data, 4 if kind == IPV4 else 6
    if kind != 0x6558:
        return None
    try:
        link = _link_layer(1, data)
    except Skipped:
        return None
    return None if link.version is None else (link.packet, link.version)


def _gtp(flags: int, data: bytes) -> tuple[bytes, int] | None:
    if flags & 7:
        if len(data) < 4:
            return None
        following, data = data[3] if flags & 4 else 0, data[4:]
        for _header in range(8):
            if following == 0:
                break
            size = 4 * data[0] if data else 0
            if size == 0 or len(data) < size:
                return None
            following, data = data[size - 1], data[size:]
        if following:
            return None
    return (data, data[0] >> 4) if data else None


# Streams


class Arrival(NamedTuple):
    """Where a tuple stands among those of several sources."""

    ts: int
    stream: str
    capture: int  # among those of the stream
    position: int


@dataclass(frozen=True)
class Packet:
    fields: dict[str, Value]
    arrival: Arrival


@dataclass(frozen=True)
class Source:
    packets: list[Packet]
    skipped: Counter[str]
    whole: bool


def read_source(stream: str, capture: int, path: Path | str) -> Source:
    read = read_capture(path)
    packets, skipped = decode_frames(stream, capture, read.frames)
    return Source(packets, skipped, read.whole)


def decode_frames(stream: str, capture: int, frames: Iterable[Frame]) -> tuple[list[Packet], Counter[str]]:
    """In the order of the file, without row_num."""
    packets: list[Packet] = []
    skipped: Counter[str] = Counter()
    for frame in frames:
        try:
            fields = decode(frame.link, frame.data, frame.length)
            if not -(2**63) <= frame.ts < 2**63:
                raise Skipped("malformed")
        except Skipped as reason:
            skipped[str(reason)] += 1
            continue
        fields |= {"ts": Time(frame.ts), "arrival_ts": Time(frame.ts), "link": stream}
        packets.append(Packet(fields, Arrival(frame.ts, stream, capture, len(packets))))
    return packets, skipped


def arrive(sources: Sequence[Sequence[Packet]]) -> list[Packet]:
    """The packets of a stream or union in the order in which they arrive, numbered."""
    if len(sources) == 1:
        packets = list(sources[0])
    else:
        packets = sorted((packet for source in sources for packet in source), key=lambda packet: packet.arrival)
    return [Packet(packet.fields | {"row_num": i}, packet.arrival) for i, packet in enumerate(packets, 1)]
