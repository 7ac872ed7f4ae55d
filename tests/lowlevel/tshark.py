"""What tshark says of a packet, in the words of the packet fields."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path

import pytest

NEEDED = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")

_NEXT = {0: "ipv6.hopopts.nxt", 43: "ipv6.routing.nxt", 44: "ipv6.fraghdr.nxt", 51: "ah.next_header",
         60: "ipv6.dstopts.nxt"}  # fmt: skip
_TRANSPORT = {6: "tcp", 17: "udp", 132: "sctp", 33: "dccp", 136: "udp"}  # it shows UDP-Lite's ports as UDP's
_ASKED = (
    "frame.len", "frame.protocols", "eth.src", "eth.dst", "vlan.id", "ieee8021ad.id", "ip.version", "ip.src", "ip.dst",
    "ip.proto",
    "ip.len", "ip.hdr_len", "ip.dsfield", "ip.ttl", "ip.flags.mf", "ip.frag_offset", "ipv6.src", "ipv6.dst",
    "ipv6.plen", "ipv6.tclass", "ipv6.hlim", "ipv6.nxt", *_NEXT.values(), "ipv6.fraghdr.more", "ipv6.fraghdr.offset",
    "tcp.flags", "tcp.len", "udp.length", "icmp.type", "icmp.code", "icmpv6.type", "icmpv6.code",
    *(f"{name}.{side}port" for name in sorted(set(_TRANSPORT.values())) for side in ("src", "dst")),
)  # fmt: skip


def ask(folder: Path, frames: Sequence[tuple[int, bytes]]) -> list[dict[str, int]]:
    """The packet fields of frames (link type, bytes) that are IP packets, in order; without those it cannot tell."""
    found: dict[int, dict[str, int]] = {}
    for link in sorted({link for link, _ in frames}):
        places = [place for place, frame in enumerate(frames) if frame[0] == link]
        path = folder / f"{link}.pcap"
        body = b"".join(
            struct.pack("<IIII", place, 0, len(frames[place][1]), len(frames[place][1])) + frames[place][1]
            for place in places
        )
        path.write_bytes(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, link) + body)
        found |= dict(zip(places, _lines(path), strict=True))
    return [_fields(found[place]) for place in range(len(frames))]


def _lines(path: Path) -> list[dict[str, list[str]]]:
    command = ["tshark", "-n", "-r", str(path), "-o", "ip.defragment:FALSE", "-o", "ipv6.defragment:FALSE", "-T",
               "fields", "-E", "separator=/t", "-E", "occurrence=a", "-E", "aggregator=,"]  # fmt: skip
    for name in _ASKED:
        command += ["-e", name]
    done = subprocess.run(command, capture_output=True, check=True, timeout=60, text=True)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    return [{name: value.split(",") for name, value in zip(_ASKED, row, strict=True) if value} for row in rows]


def _fields(said: dict[str, list[str]]) -> dict[str, int]:
    def first(name: str, otherwise: int = 0) -> int:
        return _number(said[name][0]) if name in said else otherwise

    four = first("ip.version", 6) == 4 and not ("ipv6.src" in said and "ip.src" not in said)
    prefix = "ip" if four else "ipv6"
    proto, headers = (first("ip.proto"), first("ip.hdr_len")) if four else _chain(said)
    later = (first("ip.frag_offset") if four else first("ipv6.fraghdr.offset")) > 0
    more = first("ip.flags.mf") if four else first("ipv6.fraghdr.more")
    ip_len = first("ip.len") if four else first("ipv6.plen") + 40
    name = _TRANSPORT.get(proto, "") if not later else ""
    icmp = {1: "icmp", 58: "icmpv6"}.get(proto, "") if not later else ""
    payload = {6: first("tcp.len"), 17: first("udp.length") - 8}.get(proto) if name else None
    if payload is None and "ipv6.fraghdr.nxt" not in said:  # of extension headers it shows no sizes
        payload = ip_len - headers
    fields = {
        "srcIP": _address(said[f"{prefix}.src"][0]),
        "destIP": _address(said[f"{prefix}.dst"][0]),
        "srcPort": first(f"{name}.srcport"),
        "destPort": first(f"{name}.dstport"),
        "proto": proto,
        "len": first("frame.len"),
        "ip_len": ip_len,
        "tos": first("ip.dsfield") if four else first("ipv6.tclass"),
        "ttl": first("ip.ttl") if four else first("ipv6.hlim"),
        "tcp_flags": first("tcp.flags") & 0xFF if name == "tcp" else 0,
        "icmp_type": first(f"{icmp}.type"),
        "icmp_code": first(f"{icmp}.code"),
        "ip_version": 4 if four else 6,
        "fragment": int(bool(more) or later),
        "vlan": first("ieee8021ad.id", first("vlan.id")),
        "srcMAC": _mac(said, "eth.src"),
        "destMAC": _mac(said, "eth.dst"),
    }
    return fields if payload is None else {**fields, "payload_len": payload}


def _chain(said: dict[str, list[str]]) -> tuple[int, int]:
    """The upper-layer protocol behind IPv6's extension headers, and the size of the fixed header."""
    rest = {name: list(values) for name, values in said.items()}
    proto = _number(rest["ipv6.nxt"].pop(0))
    while proto in _NEXT and rest.get(_NEXT[proto]):
        proto = _number(rest[_NEXT[proto]].pop(0))
    return proto, 40


def _number(text: str) -> int:
    return int(text == "True") if text in ("True", "False") else int(text, 0)


def _address(text: str) -> int:
    address = ip_address(text)
    return address.version << 128 | int(address)


def _mac(said: dict[str, list[str]], name: str) -> int:
    return int(said[name][0].replace(":", ""), 16) if name in said else 0


def is_whole_llc(folder: Path, frames: Sequence[bytes]) -> list[bool]:
    """Of frames that are captured whole: whether they hold an LLC header and all that it announces."""
    path = folder / "llc.pcap"
    body = b"".join(struct.pack("<IIII", place, 0, len(data), len(data)) + data for place, data in enumerate(frames))
    path.write_bytes(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1) + body)
    command = ["tshark", "-n", "-r", str(path), "-T", "fields", "-e", "frame.protocols", "-e", "_ws.malformed"]
    done = subprocess.run(command, capture_output=True, check=True, timeout=60, text=True)
    said = [line.partition("\t") for line in done.stdout.splitlines()]
    return ["llc" in layers.split(":") and not broken for layers, _, broken in said]


def inner(folder: Path, frames: Sequence[bytes]) -> list[dict[str, int]]:
    """Of packets that carry a packet: the fields of that one."""
    path = folder / "tunnels.pcap"
    body = b"".join(struct.pack("<IIII", place, 0, len(data), len(data)) + data for place, data in enumerate(frames))
    path.write_bytes(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1) + body)
    return [_second(said) for said in _lines(path)]


def _second(said: dict[str, list[str]]) -> dict[str, int]:
    layers = [name for name in said["frame.protocols"][0].split(":") if name in ("ip", "ipv6")]
    family = layers[1]
    place = layers[:2].count(family) - 1
    four = family == "ip"

    def of(name: str) -> int:
        return _number(said[name][place])

    fields = {
        "inner.srcIP": _address(said[f"{family}.src"][place]),
        "inner.destIP": _address(said[f"{family}.dst"][place]),
        "inner.ip_len": of("ip.len") if four else of("ipv6.plen") + 40,
        "inner.tos": of("ip.dsfield" if four else "ipv6.tclass"),
        "inner.ttl": of("ip.ttl" if four else "ipv6.hlim"),
        "inner.ip_version": 4 if four else 6,
    }
    if four:
        fields["inner.proto"] = of("ip.proto")
    name = _TRANSPORT.get(fields.get("inner.proto", 0), "")
    if name and not of("ip.frag_offset"):
        fields["inner.srcPort"] = _number(said[f"{name}.srcport"][-1])
        fields["inner.destPort"] = _number(said[f"{name}.dstport"][-1])
    if name == "tcp":
        fields["inner.tcp_flags"] = _number(said["tcp.flags"][-1]) & 0xFF
    return fields
