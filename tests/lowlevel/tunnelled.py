"""Packets inside of packets, built by scapy."""

from __future__ import annotations

import struct

from scapy.contrib.gtp import GTP_U_Header, GTPPDUSessionContainer
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop
from scapy.layers.l2 import ARP, GRE, Dot1Q, Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet, Raw

from tests.lowlevel.frames import BODY, MACS, TCP_SYN, V4, V6

_IN4 = IP(src="172.16.0.1", dst="172.16.0.2", ttl=9, tos=4)
_IN6 = IPv6(src="fd00::1", dst="fd00::2", hlim=5, tc=8)
_ETHERNET = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
_LEAF = UDP(sport=1111, dport=2222) / BODY

_CARRIED: dict[str, Packet] = {
    "udp": _IN4 / _LEAF,
    "tcp": _IN4 / TCP_SYN / BODY,
    "icmp": _IN4 / ICMP() / BODY,
    "options": IP(src="1.1.1.1", dst="2.2.2.2", options=[b"\x94\x04\0\0"]) / TCP_SYN,
    "later fragment": IP(src="1.1.1.1", dst="2.2.2.2", frag=5, proto=17) / BODY,
    "udp6": _IN6 / _LEAF,
    "chain6": _IN6 / IPv6ExtHdrHopByHop() / TCP_SYN / BODY,
    "later fragment 6": _IN6 / IPv6ExtHdrFragment(offset=12, nh=6) / BODY,
    "tunnel again": _IN4 / IP(src="9.9.9.9", dst="8.8.8.8") / _LEAF,
}


def _around(inner: Packet, six: bool) -> dict[str, Packet]:
    """The tunnels that carry an IP packet."""
    outer = V6 if six else V4
    carried6 = isinstance(inner, IPv6)
    number = {"nh" if six else "proto": 41 if carried6 else 4}
    kind = 0x86DD if carried6 else 0x0800
    plain = outer.copy()
    for name, value in number.items():
        setattr(plain, name, value)
    return {
        "ip in ip": plain / inner,
        "gre": outer / GRE(proto=kind) / inner,
        "gre with all": outer / GRE(proto=kind, chksum_present=1, key_present=1, seqnum_present=1, key=7) / inner,
        "gre ethernet": outer / GRE(proto=0x6558) / _ETHERNET / inner,
        "vxlan": outer / UDP(sport=50000, dport=4789) / VXLAN(vni=5, flags="Instance") / _ETHERNET / inner,
        "vxlan, vlan": outer / UDP(dport=4789) / VXLAN(vni=5, flags="Instance") / _ETHERNET / Dot1Q(vlan=9) / inner,
        "gtp": outer / UDP(sport=2152, dport=2152) / GTP_U_Header(teid=1, gtp_type=255) / inner,
        "gtp with number": outer / UDP(dport=2152) / GTP_U_Header(teid=1, gtp_type=255, S=1, seq=3) / inner,
        "gtp with header": outer
        / UDP(dport=2152)
        / GTP_U_Header(teid=1, gtp_type=255, E=1, next_ex=0x85)
        / GTPPDUSessionContainer(type=0, QFI=9)
        / inner,
    }


def _others() -> dict[str, bytes]:
    """What looks like a tunnel and carries no IP packet, or none that can be seen."""
    first = V4.copy()
    first.frag = 3
    packets: dict[str, Packet] = {
        "no tunnel": V4 / _LEAF,
        "gre keepalive": V4 / GRE(proto=0) / Raw(b"\0" * 30),
        "gre with routes": V4 / GRE(proto=0x0800, routing_present=1) / _CARRIED["udp"],
        "gre of version 1": V4 / GRE(proto=0x880B, version=1) / _CARRIED["udp"],
        "vxlan without network": V4 / UDP(dport=4789) / VXLAN(flags=0) / _ETHERNET / _CARRIED["udp"],
        "vxlan with arp": V4 / UDP(dport=4789) / VXLAN(flags="Instance") / _ETHERNET / ARP(),
        "gtp echo": V4 / UDP(dport=2152) / GTP_U_Header(gtp_type=1) / _CARRIED["udp"],
        "later fragment of a tunnel": IP(src="1.1.1.1", dst="2.2.2.2", frag=3, proto=4) / _CARRIED["udp"],
        "wrong version": IP(src="1.1.1.1", dst="2.2.2.2", proto=4) / _CARRIED["udp6"],
        "inner header too short": IP(src="1.1.1.1", dst="2.2.2.2", proto=4) / Raw(b"\x44" + bytes(40)),
    }
    return {name: bytes(MACS / packet) for name, packet in packets.items()}


def tunnels() -> dict[str, bytes]:
    """Frames of Ethernet that carry a packet in a packet, by name."""
    return {
        f"{name} in {tunnel} in IPv{6 if six else 4}": bytes(MACS / packet)
        for name, inner in _CARRIED.items()
        for six in (False, True)
        for tunnel, packet in _around(inner, six).items()
    }


def frames() -> dict[str, bytes]:
    return tunnels() | _others()


def loop(count: int) -> bytes:
    """A GTP packet with this many extension headers."""
    inner = bytes(_CARRIED["udp"])
    options = b"\0\0\0" + (b"\x85" if count else b"\0")
    headers = b"".join(b"\x01\0\0" + (b"\x85" if place < count - 1 else b"\0") for place in range(count))
    body = struct.pack(">BBHI", 0x34, 255, 0, 1) + options + headers + inner
    return bytes(MACS / V4 / UDP(dport=2152) / Raw(body))


__all__ = ["TCP", "frames", "loop", "tunnels"]
