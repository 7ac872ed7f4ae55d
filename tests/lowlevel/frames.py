"""Frames of every encapsulation, built by scapy, with the link type that they are of."""

from __future__ import annotations

import struct

from hypothesis import strategies as st
from scapy.config import conf
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import (
    ICMPv6EchoRequest,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
)
from scapy.layers.ipsec import AH
from scapy.layers.l2 import ARP, LLC, SNAP, CookedLinux, Dot1AD, Dot1Q, Dot3, Ether
from scapy.layers.ppp import PPP, PPPoE
from scapy.layers.sctp import SCTP
from scapy.packet import Packet, Raw

conf.verb = 0

V4 = IP(src="10.1.2.3", dst="192.168.200.9", ttl=61, tos=0xB8)
V6 = IPv6(src="2001:db8::17", dst="fe80::1:2", hlim=7, tc=0x2E)
TCP_SYN = TCP(sport=40001, dport=443, flags="SEC", options=[("MSS", 1460)])
DCCP_REQUEST = struct.pack(">HHBBHBBHII", 5001, 5002, 5, 0, 0, 1, 0, 0, 77, 42)
UDP_LITE = struct.pack(">HHHH", 6001, 6002, 8, 0xBEEF) + b"payload!"
BODY = Raw(b"payload!" * 3)
MACS = Ether(src="02:00:00:00:01:02", dst="02:0a:0b:0c:0d:0e")

IP_PACKETS: dict[str, Packet] = {
    "tcp": V4 / TCP_SYN / BODY,
    "udp": V4 / UDP(sport=53, dport=5353) / BODY,
    "icmp": V4 / ICMP(type=3, code=13) / BODY,
    "sctp": V4 / SCTP(sport=2905, dport=2906) / BODY,
    "dccp": IP(src="10.1.2.3", dst="192.168.200.9", proto=33) / Raw(DCCP_REQUEST),
    "udp-lite": IP(src="10.1.2.3", dst="192.168.200.9", proto=136) / Raw(UDP_LITE),
    "options": IP(src="1.1.1.1", dst="2.2.2.2", options=[b"\x94\x04\0\0"]) / TCP_SYN / BODY,
    "first fragment": IP(src="1.1.1.1", dst="2.2.2.2", flags="MF") / UDP(sport=1, dport=2) / BODY,
    "later fragment": IP(src="1.1.1.1", dst="2.2.2.2", frag=5, proto=17) / BODY,
    "offloaded": IP(src="1.1.1.1", dst="2.2.2.2", len=0) / TCP_SYN / BODY,
    "gre": IP(src="1.1.1.1", dst="2.2.2.2", proto=47) / BODY,
    "icmp6 in ipv4": IP(src="1.1.1.1", dst="2.2.2.2", proto=58) / BODY,
    "tcp6": V6 / TCP_SYN / BODY,
    "dccp6": IPv6(src="2001:db8::17", dst="fe80::1:2", nh=33) / Raw(DCCP_REQUEST),
    "udp-lite6": IPv6(src="2001:db8::17", dst="fe80::1:2", nh=136) / Raw(UDP_LITE),
    "udp6": V6 / UDP(sport=53, dport=5353) / BODY,
    "icmp6": V6 / ICMPv6EchoRequest(code=1) / BODY,
    "chain": V6 / IPv6ExtHdrHopByHop() / IPv6ExtHdrRouting(addresses=["::1"]) / IPv6ExtHdrDestOpt() / TCP_SYN / BODY,
    "ah": V6 / AH(nh=17, payloadlen=4, icv=b"\0" * 12) / UDP(sport=9, dport=10) / BODY,
    "first fragment 6": V6 / IPv6ExtHdrFragment(m=1, nh=17) / UDP(sport=9, dport=10) / BODY,
    "later fragment 6": V6 / IPv6ExtHdrFragment(offset=12, nh=6) / BODY,
    "atomic fragment 6": V6 / IPv6ExtHdrFragment(nh=6) / TCP_SYN / BODY,
    "long chain": IPv6(bytes(V6)[:6] + b"\x3c\x40" + bytes(V6)[8:40] + b"\x3c\0\1\4\0\0\0\0" * 9 + bytes(TCP_SYN)),
    "mapped": IPv6(src="::ffff:10.0.0.1", dst="::ffff:10.0.0.2") / UDP() / BODY,
}


def labels(count: int) -> bytes:
    return b"".join(struct.pack(">I", 17 << 12 | (place == count - 1) << 8 | 64) for place in range(count))


def ethernet(kind: int, rest: bytes) -> bytes:
    return bytes(MACS)[:12] + struct.pack(">H", kind) + rest


def encapsulations(packet: Packet) -> dict[str, tuple[int, bytes]]:
    """(link type, frame) by name."""
    raw = bytes(packet)
    six = raw[0] >> 4 == 6
    kind = 0x86DD if six else 0x0800
    tag = MACS / Dot1Q(vlan=77, prio=5)
    found: dict[str, tuple[int, Packet | bytes]] = {
        "ethernet": (1, MACS / packet),
        "vlan": (1, tag / packet),
        "priority tag": (1, MACS / Dot1Q(vlan=0) / Dot1Q(vlan=9) / packet),
        "qinq": (1, MACS / Dot1AD(vlan=301) / Dot1Q(vlan=12) / packet),
        "four tags": (1, ethernet(0x9100, b"\0\5\x81\0" + b"\0\6\x81\0" * 2 + b"\0\7" + struct.pack(">H", kind) + raw)),
        "five tags": (1, ethernet(0x8100, b"\0\5\x81\0" * 4 + b"\0\7" + struct.pack(">H", kind) + raw)),
        "mpls": (1, ethernet(0x8847, labels(1) + raw)),
        "eight labels": (1, ethernet(0x8848, labels(8) + raw)),
        "nine labels": (1, ethernet(0x8847, labels(9) + raw)),
        "pppoe": (1, MACS / PPPoE(sessionid=9) / PPP(proto=0x57 if six else 0x21) / packet),
        "pppoe control": (1, MACS / PPPoE(sessionid=9) / PPP(proto=0xC021) / packet),
        "snap": (1, Dot3(src=MACS.src, dst=MACS.dst) / LLC(dsap=0xAA, ssap=0xAA, ctrl=3) / SNAP(code=kind) / packet),
        "vlan, snap": (1, ethernet(0x8100, struct.pack(">HH6sH", 33, 8 + len(raw), b"\xaa\xaa\3", kind) + raw)),
        "spanning tree": (1, Dot3(src=MACS.src, dst=MACS.dst) / LLC(dsap=0x42, ssap=0x42, ctrl=3) / Raw(b"\0" * 40)),
        "exchange of identities": (1, ethernet(6, bytes.fromhex("0001af810100"))),
        "arp": (1, MACS / ARP()),
        "cooked": (113, CookedLinux(proto=kind) / packet),
        "cooked v2": (276, struct.pack(">HHiHBB8s", kind, 0, 3, 1, 0, 6, b"\1\2\3\4\5\6") + raw),
        "cooked v2, vlan": (276, struct.pack(">HHiHBB8sHH", 0x8100, 0, 3, 1, 0, 6, b"", 4095, kind) + raw),
        "null": (0, struct.pack("<I", 30 if six else 2) + raw),
        "loop": (108, struct.pack(">I", 24 if six else 2) + raw),
        "null, no ip": (0, struct.pack("<I", 7) + raw),
        "raw 12": (12, raw),
        "raw": (101, raw),
        "ipv4": (228, raw),
        "ipv6": (229, raw),
        "unknown": (147, raw),
        "bad time": (-1, MACS / packet),
    }
    return {name: (link, bytes(frame)) for name, (link, frame) in found.items()}


LINKS = (1, 0, 108, 12, 14, 101, 228, 229, 113, 276, 147, -1, -2, -3)


@st.composite
def damaged_frames(draw: st.DrawFn) -> tuple[int, bytes]:
    """A frame with some bytes overwritten and cut anywhere, or noise; perhaps read as another link type."""
    if draw(st.integers(0, 4)) == 0:
        return draw(st.sampled_from(LINKS)), draw(st.binary(max_size=80))
    packet = IP_PACKETS[draw(st.sampled_from(sorted(IP_PACKETS)))]
    link, frame = _encapsulated[id(packet)][draw(st.sampled_from(sorted(_encapsulated[id(packet)])))]
    changed = bytearray(frame)
    for place, value in draw(st.lists(st.tuples(st.integers(0, 79), st.integers(0, 255)), max_size=4)):
        if place < len(changed):
            changed[place] = value
    if draw(st.integers(0, 9)) == 0:
        link = draw(st.sampled_from(LINKS))
    return link, bytes(changed[: draw(st.integers(0, len(changed)))])


_encapsulated = {id(packet): encapsulations(packet) for packet in IP_PACKETS.values()}
