"""Frames and captures, built byte by byte from what a test says of them."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

from tests.naive.readers import Frame


@dataclass(frozen=True, kw_only=True)
class Spec:
    """A packet in a frame of Ethernet. Lengths that are not given are those of the bytes that are there."""

    ts: int  # ns since 1970
    source: str = "10.0.0.1"
    destination: str = "10.0.0.2"
    proto: int = 17
    ports: tuple[int, int] = (40000, 80)
    flags: int = 0  # of TCP
    icmp: tuple[int, int] = (8, 0)
    payload: int = 0  # bytes behind the transport header; on the wire, not captured
    tos: int = 0
    ttl: int = 64
    vlan: int = 0  # 0: untagged
    offset: int = 0  # of a fragment of IPv4, in units of 8 bytes
    more: bool = False  # fragments follow
    source_mac: int = 0x020000000001
    junk: bool = False  # no IP: ARP in its place


def frame(spec: Spec) -> Frame:
    upper = _upper(spec)
    size = len(upper) + spec.payload
    source, destination = ip_address(spec.source), ip_address(spec.destination)
    if isinstance(source, IPv4Address) and isinstance(destination, IPv4Address):
        kind = 0x0800
        fragment = spec.offset | (0x2000 if spec.more else 0)
        head = struct.pack(">BBHHHBBH", 0x45, spec.tos, 20 + size, 0, fragment, spec.ttl, spec.proto, 0)
        packet = head + source.packed + destination.packed + upper
    else:
        assert isinstance(source, IPv6Address)
        assert isinstance(destination, IPv6Address)
        kind = 0x86DD
        head = struct.pack(">IHBB", 6 << 28 | spec.tos << 20, size, spec.proto, spec.ttl)
        packet = head + source.packed + destination.packed + upper
    tag = struct.pack(">HH", 0x8100, spec.vlan) if spec.vlan else b""
    ether_type = struct.pack(">H", 0x0806 if spec.junk else kind)
    data = bytes.fromhex("02000000000b") + spec.source_mac.to_bytes(6, "big") + tag + ether_type + packet
    return Frame(spec.ts, 1, data, len(data) + spec.payload)


def _upper(spec: Spec) -> bytes:
    if spec.offset:
        return b""
    if spec.proto == 6:
        return struct.pack(">HHIIBBHHH", *spec.ports, 1, 1, 5 << 4, spec.flags, 1024, 0, 0)
    if spec.proto == 17:
        return struct.pack(">HHHH", *spec.ports, 8 + spec.payload, 0)
    if spec.proto in (1, 58):
        return struct.pack(">BBHI", *spec.icmp, 0, 0)
    return b""


def write_pcap(path: Path, frames: Iterable[Frame], *, order: str = "<", nanoseconds: bool = True) -> Path:
    """All frames have one link type; without nanoseconds their times are rounded down."""
    frames = list(frames)
    link = frames[0].link if frames else 1
    data = bytearray(struct.pack(order + "IHHiIII", 0xA1B23C4D if nanoseconds else 0xA1B2C3D4, 2, 4, 0, 0, 65535, link))
    for item in frames:
        seconds, ns = divmod(item.ts, 10**9)
        data += struct.pack(order + "IIII", seconds, ns if nanoseconds else ns // 1000, len(item.data), item.length)
        data += item.data
    path.write_bytes(data)
    return path
