"""The part of a kernel that derives fields: a flow's Community ID, the ends of a connection, and the packet inside a
tunnel."""

from __future__ import annotations

from lowlevel.kernel.codegen.source_text import SourceText

__all__ = ["write_community_id", "write_connection", "write_inner"]


def write_community_id(source: SourceText) -> None:
    """Call this after the statements for addresses, `proto` and `fragment`."""
    source.lines("""
        flow, one_way = NO_PORTS, False
        if later == 0:
            flow, one_way = flow_ports(data, upper, stop, proto)
        id_high, id_middle, id_low = community_id(
            schedule, version, src_high, src_low, dest_high, dest_low, proto, flow, one_way
        )
    """)


def write_connection(source: SourceText) -> None:
    """Call this after the statements for addresses, ports and `proto`."""
    source.lines("""
        a_high, a_low, b_high, b_low = src_high, src_low, dest_high, dest_low
        a_port, b_port = src_port, dest_port
        turned = number_less(version, b_high, b_low, version, a_high, a_low)
        turned = turned or (a_high == b_high and a_low == b_low and b_port < a_port)
        if (proto == 1 or proto == 58) and later == 0 and stop - upper >= 2:
            a_port = byte(data, upper)
            b_port = conversation(proto, a_port)
            turned = turned or (a_high == b_high and a_low == b_low and b_port < a_port)
            if b_port < 0:
                b_port = byte(data, upper + 1)
                turned = False
        if turned:
            a_high, a_low, b_high, b_low = b_high, b_low, a_high, a_low
            a_port, b_port = b_port, a_port
    """)


def write_inner(source: SourceText) -> None:
    """Call this after the statements for `proto` and `fragment`. `outermost` is true if the packet carries no other
    packet."""
    source.lines("""
        inner_version = 0
        if later == 0:
            inner_at, inner_version = find_inner(data, upper, stop, proto)
        outermost = inner_version == 0
        inner_src_high, inner_src_low, inner_dest_high, inner_dest_low = 0, 0, 0, 0
        inner_src_port, inner_dest_port, inner_proto, inner_later, inner_upper = 0, 0, 0, 0, 0
        inner_ip_len, inner_tos, inner_ttl, inner_tcp_flags = 0, 0, 0, 0
        if inner_version == 4:
            inner_src_low, inner_dest_low = be32(data, inner_at + 12), be32(data, inner_at + 16)
            inner_ip_len, inner_tos = be16(data, inner_at + 2), byte(data, inner_at + 1)
            inner_ttl, inner_proto = byte(data, inner_at + 8), byte(data, inner_at + 9)
            inner_later = 1 if be16(data, inner_at + 6) & 0x1FFF else 0
            inner_upper = inner_at + (byte(data, inner_at) & 15) * 4
        elif inner_version == 6:
            inner_src_high, inner_src_low = be64(data, inner_at + 8), be64(data, inner_at + 16)
            inner_dest_high, inner_dest_low = be64(data, inner_at + 24), be64(data, inner_at + 32)
            inner_ip_len, inner_tos = be16(data, inner_at + 4) + 40, (be16(data, inner_at) >> 4) & 0xFF
            inner_ttl = byte(data, inner_at + 7)
            inner_proto, inner_upper, _, inner_later = walk_extensions(
                data, inner_at + 40, stop, byte(data, inner_at + 6)
            )
        if inner_version != 0 and inner_later == 0 and stop - inner_upper >= 4:
            if (
                inner_proto == 6 or inner_proto == 17 or inner_proto == 33 or inner_proto == 132 or inner_proto == 136
            ):
                inner_src_port, inner_dest_port = be16(data, inner_upper), be16(data, inner_upper + 2)
            if inner_proto == 6 and stop - inner_upper >= 14:
                inner_tcp_flags = byte(data, inner_upper + 13)
    """)
