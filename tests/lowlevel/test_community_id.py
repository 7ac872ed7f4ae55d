"""Community IDs: the known ones of the published specification, and those that tshark shows."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.sctp import SCTP
from scapy.packet import Packet, Raw

from lowlevel.kernel.codegen.assemble import Build
from lowlevel.node import SourceNodes
from lowmark.wire.rows.text import text_column
from tests.lowlevel.frames import IP_PACKETS, MACS
from tests.lowlevel.naive import block
from tests.lowlevel.plans import selection
from tests.lowlevel.tshark import NEEDED

NODE = selection("community_id")


def ids(packets: Sequence[Packet], build: Build = Build.FAST) -> list[str]:
    nodes = SourceNodes([NODE], stream="Main", build=build)
    nodes.start()
    frames = [bytes(MACS / packet) for packet in packets]
    words = np.concatenate([output.rows for output in (*nodes.take(block(frames)), *nodes.finish())])
    found: list[str] = text_column(NODE.reduction.schema, words, "community_id").to_pylist()
    return found


def icmp6(source: str, target: str, kind: int, code: int) -> Packet:
    return IPv6(src=source, dst=target, nh=58) / Raw(bytes([kind, code, 0, 0]) + bytes(28))


KNOWN = [
    (
        IP(src="128.232.110.120", dst="66.35.250.204") / TCP(sport=34855, dport=80),
        IP(src="66.35.250.204", dst="128.232.110.120") / TCP(sport=80, dport=34855),
        "1:LQU9qZlK+B5F3KDmev6m5PMibrg=",
    ),
    (
        IP(src="192.168.1.52", dst="8.8.8.8") / UDP(sport=54585, dport=53),
        IP(src="8.8.8.8", dst="192.168.1.52") / UDP(sport=53, dport=54585),
        "1:d/FP5EW3wiY1vCndhwleRRKHowQ=",
    ),
    (
        IP(src="192.168.170.8", dst="192.168.170.56") / SCTP(sport=7, dport=80),
        IP(src="192.168.170.56", dst="192.168.170.8") / SCTP(sport=80, dport=7),
        "1:jQgCxbku+pNGw8WPbEc/TS/uTpQ=",
    ),
    (
        IP(src="192.168.0.89", dst="192.168.0.1") / ICMP(type=8),
        IP(src="192.168.0.1", dst="192.168.0.89") / ICMP(type=0),
        "1:X0snYXpgwiv9TZtqg64sgzUn6Dk=",
    ),
    (
        icmp6("fe80::200:86ff:fe05:80da", "fe80::260:97ff:fe07:69ea", 135, 0),
        icmp6("fe80::260:97ff:fe07:69ea", "fe80::200:86ff:fe05:80da", 136, 0),
        "1:dGHyGvjMfljg6Bppwm3bg0LO8TY=",
    ),
]


@pytest.mark.parametrize("build", Build)
def test_the_known_ids_in_both_directions(build: Build) -> None:
    packets = [packet for there, back, _ in KNOWN for packet in (there, back)]
    assert ids(packets, build) == [text for *_, text in KNOWN for _ in range(2)]


@NEEDED
def test_tshark_shows_the_same(tmp_path: Path) -> None:
    # In the first it sees no ICMP, and of UDP-Lite it takes the ports, which are no part of the published definition.
    unlike = ("icmp6 in ipv4", "udp-lite", "udp-lite6")
    packets = [packet for name, packet in IP_PACKETS.items() if name not in unlike]
    packets += [IP(src="10.1.2.3", dst="10.0.0.1") / ICMP(type=kind, code=3) for kind in range(20) if kind != 5]
    packets += [icmp6("fe80::2", "2001:db8::1", kind, 2) for kind in (*range(126, 150), 0, 255)]
    # Protocols without ports there, but for UDP-Lite (136).
    packets += [
        IP(src=src, dst=dst, proto=proto) / Raw(bytes(range(60)))
        for proto in (2, 33, 47, 50, 89, 103, 255)
        for src, dst in (("9.9.9.9", "200.8.8.8"), ("200.8.8.8", "9.9.9.9"), ("9.9.9.9", "9.9.9.9"))
    ]
    packets += [
        layer(src=one, dst=one) / upper(sport=sport, dport=dport)
        for layer, one in ((IP, "10.0.0.1"), (IPv6, "2001:db8::1"))
        for upper in (TCP, UDP, SCTP)
        for sport, dport in ((1000, 80), (80, 1000), (7, 7))
    ]
    frames = [bytes(MACS / packet) for packet in packets]
    path = tmp_path / "flows.pcap"
    records = (struct.pack("<IIII", place, 0, len(frame), len(frame)) + frame for place, frame in enumerate(frames))
    path.write_bytes(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1) + b"".join(records))
    command = ["tshark", "-n", "-r", str(path), "--enable-protocol", "communityid", "-o", "ip.defragment:FALSE", "-o",
               "ipv6.defragment:FALSE", "-T", "fields", "-e", "communityid"]  # fmt: skip
    said = subprocess.run(command, capture_output=True, check=True, timeout=60, text=True).stdout.splitlines()
    compared = [
        (place, ours, theirs) for place, (ours, theirs) in enumerate(zip(ids(packets), said, strict=True)) if theirs
    ]
    assert len(compared) > 0.8 * len(packets)  # it shows none where it finds a packet's contents broken
    assert [(frames[place].hex(), ours, theirs) for place, ours, theirs in compared if ours != theirs] == []
