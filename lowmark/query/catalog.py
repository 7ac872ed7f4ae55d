"""What the language knows by name: the fields of a packet tuple and the units of time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from types import MappingProxyType

from lowmark.wire.rows.schema import Kind


@dataclass(frozen=True, slots=True)
class PacketField:
    """A field of packet tuples. `unit` is empty for names and for numbers without a unit."""

    name: str
    kind: Kind
    definition: str
    unit: str = ""
    aliases: tuple[str, ...] = ()
    nullable: bool = False
    range: tuple[int, int] | None = None  # of integers: the least and the greatest value


_BYTE = (0, 255)
_PORT = (0, 65_535)
_IP_LENGTH = (0, 65_575)  # IPv6's payload length field, and its header
_FRAME_LENGTH = (0, 2**32 + 3)  # captures state it in 32 bits; a ring adds the tag that the kernel took out


# In the order of `SELECT *`.
PACKET_FIELDS = (
    PacketField(
        "ts", Kind.TIME, "Time of capture since 1970-01-01T00:00:00Z; finer resolutions are rounded down.", "ns"
    ),
    PacketField("srcIP", Kind.IP, "Source address of the outermost IP header.", aliases=("src",)),
    PacketField("destIP", Kind.IP, "Destination address of the outermost IP header.", aliases=("dstIP", "dst")),
    PacketField(
        "srcPort",
        Kind.INT,
        "Source port of TCP (6), UDP (17), DCCP (33), SCTP (132) and UDP-Lite (136); 0 for other protocols, in "
        "fragments but the first, and where the four bytes of the ports were not captured.",
        aliases=("sport",),
        range=_PORT,
    ),
    PacketField(
        "destPort",
        Kind.INT,
        "Destination port of TCP (6), UDP (17), DCCP (33), SCTP (132) and UDP-Lite (136); 0 for other protocols, in "
        "fragments but the first, and where the four bytes of the ports were not captured.",
        aliases=("dport",),
        range=_PORT,
    ),
    PacketField(
        "proto",
        Kind.INT,
        "Number of the upper-layer protocol: IPv4's protocol field; in IPv6 the next header behind the extension "
        "headers hop-by-hop (0), routing (43), fragment (44), AH (51), destination options (60), mobility (135), "
        "HIP (139) and shim6 (140), of which at most 8 are walked; in a fragment but the first what its fragment "
        "header names; where the chain is longer, or not captured, the number of the first header not walked.",
        range=_BYTE,
    ),
    PacketField(
        "len",
        Kind.INT,
        "Length of the frame on the wire, link layer included, as the capture states it.",
        "bytes",
        ("length",),
        range=_FRAME_LENGTH,
    ),
    PacketField(
        "ip_len",
        Kind.INT,
        "Length of the IP packet: IPv4's total length field (0 as it stands, from segmentation offload), IPv6's "
        "payload length field + 40.",
        "bytes",
        range=_IP_LENGTH,
    ),
    PacketField(
        "payload_len",
        Kind.INT,
        "ip_len less the IP headers (options and walked extension headers included) and, unless a fragment but the "
        "first, less TCP's header (by its data offset; 20 if that was not captured) or UDP's 8 bytes; never below 0.",
        "bytes",
        range=_IP_LENGTH,
    ),
    PacketField("tos", Kind.INT, "IPv4's type-of-service byte or IPv6's traffic class, all 8 bits.", range=_BYTE),
    PacketField("ttl", Kind.INT, "IPv4's time to live or IPv6's hop limit.", "hops", range=_BYTE),
    PacketField(
        "tcp_flags",
        Kind.INT,
        "The low 8 bits of TCP's flags (FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128); 0 if not TCP, "
        "not the first fragment, or not captured.",
        range=_BYTE,
    ),
    PacketField(
        "icmp_type",
        Kind.INT,
        "Type of ICMP (1) and ICMPv6 (58); 0 for other protocols, in fragments but the first, and where the two bytes "
        "of type and code were not captured.",
        range=_BYTE,
    ),
    PacketField(
        "icmp_code",
        Kind.INT,
        "Code of ICMP (1) and ICMPv6 (58); 0 for other protocols, in fragments but the first, and where the two bytes "
        "of type and code were not captured.",
        range=_BYTE,
    ),
    PacketField("ip_version", Kind.INT, "4 or 6.", range=(4, 6)),
    PacketField(
        "fragment",
        Kind.INT,
        "1 if the packet is a fragment (IPv4: more-fragments set or an offset above 0; IPv6: a fragment header that "
        "says so), else 0.",
        range=(0, 1),
    ),
    PacketField(
        "vlan", Kind.INT, "VLAN id (12 bits) of the outermost 802.1Q or 802.1ad tag; 0 if untagged.", range=(0, 4095)
    ),
    PacketField("srcMAC", Kind.MAC, "Source Ethernet address of the frame; all zero on other link types."),
    PacketField("destMAC", Kind.MAC, "Destination Ethernet address of the frame; all zero on other link types."),
    PacketField("link", Kind.STR, "Name of the stream that the packet was captured for."),
    PacketField(
        "row_num",
        Kind.INT,
        "Position of the packet in its stream, from 1; frames that are skipped have none.",
        "rows",
        ("row-num",),
        range=(1, 2**60),  # 36 years at a thousand million packets a second
    ),
    PacketField("arrival_ts", Kind.TIME, "Time of arrival since 1970; for files the same as ts.", "ns"),
)

_INNER = (
    ("srcIP", Kind.IP, "Source address", "", ("src",), None),
    ("destIP", Kind.IP, "Destination address", "", ("dstIP", "dst"), None),
    ("srcPort", Kind.INT, "Source port, as srcPort,", "", ("sport",), _PORT),
    ("destPort", Kind.INT, "Destination port, as destPort,", "", ("dport",), _PORT),
    ("proto", Kind.INT, "Upper-layer protocol, as proto,", "", (), _BYTE),
    ("ip_len", Kind.INT, "Length, as ip_len,", "bytes", (), _IP_LENGTH),
    ("tos", Kind.INT, "Type-of-service byte or traffic class", "", (), _BYTE),
    ("ttl", Kind.INT, "Time to live or hop limit", "hops", (), _BYTE),
    ("tcp_flags", Kind.INT, "TCP's flags, as tcp_flags,", "", (), _BYTE),
    ("ip_version", Kind.INT, "Version (4 or 6)", "", (), (4, 6)),
)

DERIVED_FIELDS = (
    PacketField(
        "community_id",
        Kind.COMMUNITY_ID,
        "Community ID of the flow, version 1 with seed 0, as other tools show it: the same for both directions. It "
        "goes by the addresses, proto, and the ports of TCP, UDP and SCTP, or the type (and code) of ICMP and ICMPv6; "
        "by the addresses and proto alone in fragments but the first and where ports or type were not captured.",
    ),
    PacketField(
        "conn.aIP",
        Kind.IP,
        "Of the connection's two ends, a is the one with the lesser address (of equal ones the lesser port), whichever "
        "of them sent the packet. Of an ICMP message that no other one answers a is the source.",
    ),
    PacketField(
        "conn.aPort",
        Kind.INT,
        "Port of that end. Of ICMP the type of what it sends: echo requests and their replies are one connection.",
        range=_PORT,
    ),
    PacketField("conn.bIP", Kind.IP, "Address of the other end."),
    PacketField(
        "conn.bPort", Kind.INT, "Its port; of an ICMP message that no other one answers the code.", range=_PORT
    ),
    PacketField("conn.proto", Kind.INT, "proto.", range=_BYTE),
    *(
        PacketField(
            f"inner.{name}",
            kind,
            f"{what} of the packet inside a tunnel.",
            unit,
            tuple(f"inner.{alias}" for alias in aliases),
            nullable=True,
            range=of,
        )
        for name, kind, what, unit, aliases, of in _INNER
    ),
)
"""Fields that `*` does not show: derived from other fields, or present in some packets only."""

_BY_FOLDED_NAME = MappingProxyType(
    {name.casefold(): field for field in (*PACKET_FIELDS, *DERIVED_FIELDS) for name in (field.name, *field.aliases)}
)

_UNITS_NS = MappingProxyType(
    {
        word: ns
        for ns, words in (
            (1, "ns nsec nsecs nanosecond nanoseconds"),
            (10**3, "us μs usec usecs microsecond microseconds"),
            (10**6, "ms msec msecs millisecond milliseconds"),
            (10**9, "s sec secs second seconds"),
            (60 * 10**9, "m min mins minute minutes"),
            (3600 * 10**9, "h hr hrs hour hours"),
            (86400 * 10**9, "d day days"),
            (7 * 86400 * 10**9, "w week weeks"),
        )
        for word in words.split()
    }
)


def packet_field(name: str) -> PacketField | None:
    """The field with this name or alias, in any case; None if there is none."""
    return _BY_FOLDED_NAME.get(name.casefold())


def unit_ns(word: str) -> int:
    """Nanoseconds of a unit of time that grammar.lark knows (its DURATION), in any case."""
    # Upper case first: it unites the letters that a regular expression treats as equal (µ and μ, s and ſ, i and ı).
    return _UNITS_NS[word.upper().lower()]


def field_table(fields: Iterable[PacketField] = PACKET_FIELDS) -> str:
    """The fields as an aligned Markdown table, for the guide and for `lowmark explain`."""
    rows = [("field", "kind", "unit", "also called", "definition"), *(_row(field) for field in fields)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    lines = ["| " + " | ".join((*map(str.ljust, row, widths), row[-1])) + " |" for row in rows]
    rule = "|" + "|".join("-" * (width + 2) for width in (*widths, len(rows[0][-1]))) + "|"
    return "\n".join((lines[0], rule, *lines[1:]))


def _row(field: PacketField) -> tuple[str, str, str, str, str]:
    return field.name, field.kind.value, field.unit, ", ".join(field.aliases), field.definition
