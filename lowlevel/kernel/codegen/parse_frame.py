"""The part of a kernel that parses one frame: source text for the needed fields only."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from lowlevel.kernel.codegen.derived_fields import write_community_id, write_connection, write_inner
from lowlevel.kernel.codegen.source_text import SourceText

__all__ = ["FIELDS", "KNOWN", "NULLS", "write_parser"]

# The variables that hold a field's words.
FIELDS: Mapping[str, tuple[str, ...]] = {
    "ts": ("time",),
    "srcIP": ("version", "src_high", "src_low"),
    "destIP": ("version", "dest_high", "dest_low"),
    "srcPort": ("src_port",),
    "destPort": ("dest_port",),
    "proto": ("proto",),
    "len": ("length[j]",),
    "ip_len": ("ip_len",),
    "payload_len": ("payload_len",),
    "tos": ("tos",),
    "ttl": ("ttl",),
    "tcp_flags": ("tcp_flags",),
    "icmp_type": ("icmp_type",),
    "icmp_code": ("icmp_code",),
    "ip_version": ("version",),
    "fragment": ("fragment",),
    "vlan": ("tag",),
    "srcMAC": ("src_mac",),
    "destMAC": ("dest_mac",),
    "link": ("link_code",),
    "row_num": ("position",),
    "arrival_ts": ("time",),  # the time of capture in a file; on a ring the kernel stamps both
    "_rank": ("rank",),
    "_position": ("position",),
    "community_id": ("id_high", "id_middle", "id_low"),
    "conn.aIP": ("version", "a_high", "a_low"),
    "conn.aPort": ("a_port",),
    "conn.bIP": ("version", "b_high", "b_low"),
    "conn.bPort": ("b_port",),
    "conn.proto": ("proto",),
    "inner.srcIP": ("inner_version", "inner_src_high", "inner_src_low"),
    "inner.destIP": ("inner_version", "inner_dest_high", "inner_dest_low"),
    "inner.srcPort": ("inner_src_port",),
    "inner.destPort": ("inner_dest_port",),
    "inner.proto": ("inner_proto",),
    "inner.ip_len": ("inner_ip_len",),
    "inner.tos": ("inner_tos",),
    "inner.ttl": ("inner_ttl",),
    "inner.tcp_flags": ("inner_tcp_flags",),
    "inner.ip_version": ("inner_version",),
}
"""Every field that a plan may name: the packet's fields, and the two that sort several sources into one order."""

NULLS: Mapping[str, str] = {name: "outermost" for name in FIELDS if name.startswith("inner.")}
"""The variables that say whether a field is null, for those that can be."""

KNOWN = frozenset(FIELDS)

_PORTS = {"srcPort": ("src_port", 0), "destPort": ("dest_port", 2)}
_TRANSPORT = {"srcPort", "destPort", "tcp_flags", "icmp_type", "icmp_code", "payload_len"}
_WITH_PORTS = (6, 17, 33, 132, 136)


def write_parser(source: SourceText, needed: Collection[str]) -> None:
    """Statements for frame j of a loop. Skipped frames are counted there and end in `continue`. After the statements,
    the variables of the needed fields are set, and `time` and `position` in any case."""
    fields = set(needed)
    inner, conn = ({name for name in fields if name.startswith(group)} for group in ("inner.", "conn."))
    if inner or "community_id" in fields:
        fields |= {"proto", "fragment"}
    if "community_id" in fields:
        fields |= {"srcIP", "destIP"}
    if conn:
        fields |= {"srcIP", "destIP", "srcPort", "destPort", "proto"}
    # Nearly all frames are IP directly after an Ethernet header: they need no call.
    source.lines("""
        start = offset[j]
        stop = start + captured[j]
        if start < 0 or stop < start or stop > data.shape[0]:
            progress[2] = 1
            return True
        at = start + 14
        version = 4
        tag = -1
        kind = be16(data, start + 12) if link[j] == 1 and stop - start >= 34 else 0
        if kind == 0x86DD and stop - start >= 54:
            version = 6
    """)
    with source.block("elif kind != 0x0800:"):
        source.line("at, version, tag = find_ip(data, start, stop, link[j])")
        with source.block("if version < 0:"):
            source.line("skipped[-1 - version] += 1", "continue")
    source.line("first = byte(data, at)")
    with source.block("if version == 4:"):
        _write_ipv4(source, fields)
    with source.block("else:"):
        _write_ipv6(source, fields)
    source.line("time = ts[j]")
    with source.block("if time > latest:"):
        source.line("skipped[FUTURE] += 1", "continue")
    source.line("position += 1")
    if "vlan" in fields:
        with source.block("if vlan.shape[0] != 0 and vlan[j] >= 0:"):
            source.line("tag = np.int64(vlan[j]) & 0xFFF")
        with source.block("if tag < 0:"):
            source.line("tag = 0")
    _write_macs(source, fields)
    _write_transport(source, fields)
    if "community_id" in fields:
        write_community_id(source)
    if conn:
        write_connection(source)
    if inner:
        write_inner(source)


def _malformed(source: SourceText, condition: str) -> None:
    with source.block(f"if {condition}:"):
        source.line("skipped[-1 - MALFORMED] += 1", "continue")


def _write_ipv4(source: SourceText, fields: set[str]) -> None:
    source.line("header = (first & 15) * 4", "ip_len = be16(data, at + 2)")
    # 0x45 is the version with a header that has no options.
    _malformed(source, "(first != 0x45 and (first >> 4 != 4 or header < 20)) or (ip_len < header and ip_len != 0)")
    if "srcIP" in fields:
        source.line("src_high = 0", "src_low = be32(data, at + 12)")
    if "destIP" in fields:
        source.line("dest_high = 0", "dest_low = be32(data, at + 16)")
    if "tos" in fields:
        source.line("tos = byte(data, at + 1)")
    if "ttl" in fields:
        source.line("ttl = byte(data, at + 8)")
    if fields & {"proto", *_TRANSPORT}:
        source.line("proto = byte(data, at + 9)")
    if fields & {"fragment", *_TRANSPORT}:
        source.line("offset_field = be16(data, at + 6)")
        source.line("fragment = 1 if offset_field & 0x3FFF else 0", "later = 1 if offset_field & 0x1FFF else 0")
    if fields & {*_TRANSPORT, "fragment"}:
        source.line("upper = at + header")


def _write_ipv6(source: SourceText, fields: set[str]) -> None:
    _malformed(source, "first >> 4 != 6")
    source.line("ip_len = be16(data, at + 4) + 40")
    for name in ("src", "dest"):
        if f"{name}IP" in fields:
            base = 8 if name == "src" else 24
            source.line(f"{name}_high = be64(data, at + {base})", f"{name}_low = be64(data, at + {base + 8})")
    if "tos" in fields:
        source.line("tos = (be16(data, at) >> 4) & 0xFF")
    if "ttl" in fields:
        source.line("ttl = byte(data, at + 7)")
    if fields & {"proto", "fragment", *_TRANSPORT}:
        source.line("proto, upper, fragment, later = walk_extensions(data, at + 40, stop, byte(data, at + 6))")
        source.line("header = upper - at")


def _write_macs(source: SourceText, fields: set[str]) -> None:
    if fields & {"srcMAC", "destMAC"}:
        source.line("dest_mac = 0", "src_mac = 0")
        with source.block("if link[j] == 1:"):
            source.line("dest_mac = be32(data, start) << 16 | be16(data, start + 4)")
            source.line("src_mac = be32(data, start + 6) << 16 | be16(data, start + 10)")


def _write_transport(source: SourceText, fields: set[str]) -> None:
    for name in sorted(fields & set(_PORTS)):
        source.line(f"{_PORTS[name][0]} = 0")
    if fields & set(_PORTS):
        protocols = " or ".join(f"proto == {number}" for number in _WITH_PORTS)
        with source.block(f"if later == 0 and stop - upper >= 4 and ({protocols}):"):
            for name in sorted(fields & set(_PORTS)):
                variable, place = _PORTS[name]
                source.line(f"{variable} = be16(data, upper + {place})")
    if "tcp_flags" in fields:
        source.line("tcp_flags = 0")
        with source.block("if proto == 6 and later == 0 and stop - upper >= 14:"):
            source.line("tcp_flags = byte(data, upper + 13)")
    if fields & {"icmp_type", "icmp_code"}:
        source.line("icmp_type = 0", "icmp_code = 0")
        with source.block("if (proto == 1 or proto == 58) and later == 0 and stop - upper >= 2:"):
            source.line("icmp_type = byte(data, upper)", "icmp_code = byte(data, upper + 1)")
    if "payload_len" in fields:
        source.line("payload_len = ip_len - header")
        with source.block("if proto == 6 and later == 0:"):
            source.line("tcp_header = 20")
            with source.block("if stop - upper >= 13:"):
                source.line("tcp_header = (byte(data, upper + 12) >> 4) * 4")
            source.line("payload_len -= tcp_header")
        with source.block("elif proto == 17 and later == 0:"):
            source.line("payload_len -= 8")
        source.line("payload_len = max(payload_len, 0)")
