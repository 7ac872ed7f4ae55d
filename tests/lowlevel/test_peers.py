"""Other decoders read the same in the same packets: tshark in every encapsulation, dpkt in random packets."""

from __future__ import annotations

from pathlib import Path

import dpkt
from hypothesis import given, settings
from hypothesis import strategies as st

from lowlevel.kernel.codegen.assemble import Build
from tests.lowlevel.frames import IP_PACKETS, encapsulations
from tests.lowlevel.naive import Skip, block, decode
from tests.lowlevel.test_fields import SCHEMA, run, values
from tests.lowlevel.tshark import NEEDED, ask, is_whole_llc

_V4, _V6 = 4 << 128, 6 << 128


def _decodable() -> dict[str, tuple[int, bytes]]:
    found = {}
    for packet_name, packet in IP_PACKETS.items():
        for name, (link, frame) in encapsulations(packet).items():
            try:
                decode(frame, len(frame), link, -1)
            except Skip:
                continue
            found[f"{packet_name} in {name}"] = (link, frame)
    return found


@NEEDED
def test_tshark_reads_the_same(tmp_path: Path) -> None:
    frames = _decodable()
    links, data = [link for link, _ in frames.values()], [frame for _, frame in frames.values()]
    rows, skipped = run(block(data, link=links), Build.FAST)
    assert not skipped
    wrong = []
    for name, row, said in zip(frames, rows, ask(tmp_path, list(frames.values())), strict=True):
        ours = values(SCHEMA, row)
        if name.startswith("offloaded "):
            # The length in the header is 0, and tshark shows what it will be.
            assert (ours["ip_len"], ours["payload_len"]) == (0, 0)
            said = {field: value for field, value in said.items() if field not in ("ip_len", "payload_len")}
        wrong += [(name, field, ours[field], value) for field, value in said.items() if ours[field] != value]
    assert not wrong


@NEEDED
def test_what_tshark_finds_whole_is_not_truncated(tmp_path: Path) -> None:
    """Frames of LLC of any length: a header that is whole is enough to tell that no IP follows."""
    heads = [bytes.fromhex(head) for head in ("0001af810100000000", "aaab03000000080045", "aaaa03000000080645")]
    frames = [bytes(12) + bytes([0, size]) + head[:size] for head in heads for size in range(1, 10)]
    whole = is_whole_llc(tmp_path, frames)
    assert any(whole)
    assert not all(whole)
    for frame, is_whole in zip(frames, whole, strict=True):
        _, skipped = run(block([frame], link=[1]), Build.FAST)
        assert not is_whole or skipped == {"NOT_IP": 1}, frame.hex()


_PORT, _BYTE = st.integers(0, 65535), st.integers(0, 255)


@st.composite
def _upper(draw: st.DrawFn) -> tuple[int, dpkt.Packet | bytes]:
    body = draw(st.binary(max_size=40))
    ports = {"sport": draw(_PORT), "dport": draw(_PORT)}
    match draw(st.sampled_from(["tcp", "udp", "icmp", "other"])):
        case "tcp":
            options = draw(st.binary(max_size=10)) * 4
            return 6, dpkt.tcp.TCP(**ports, flags=draw(_BYTE), off=5 + len(options) // 4, opts=options, data=body)
        case "udp":
            return 17, dpkt.udp.UDP(**ports, ulen=8 + len(body), data=body)
        case "icmp":
            return 1, dpkt.icmp.ICMP(type=draw(_BYTE), code=draw(_BYTE), data=body)
    return draw(st.sampled_from([47, 89, 112, 255])), body


@st.composite
def _packets(draw: st.DrawFn) -> bytes:
    proto, upper = draw(_upper())
    data = bytes(upper)
    if draw(st.booleans()):
        options = draw(st.binary(max_size=10)) * 4
        ip = dpkt.ip.IP(
            src=draw(st.binary(min_size=4, max_size=4)), dst=draw(st.binary(min_size=4, max_size=4)), p=proto,
            tos=draw(_BYTE), ttl=draw(_BYTE), opts=options, hl=5 + len(options) // 4, data=data,
            len=20 + len(options) + len(data),
        )  # fmt: skip
        kind = 0x0800
    else:
        ip = dpkt.ip6.IP6(
            src=draw(st.binary(min_size=16, max_size=16)), dst=draw(st.binary(min_size=16, max_size=16)), nxt=proto,
            hlim=draw(_BYTE), plen=len(data), data=data,
        )  # fmt: skip
        ip.fc = draw(_BYTE)
        kind = 0x86DD
    tags = b"".join(b"\x81\0" + draw(st.binary(min_size=2, max_size=2)) for _ in range(draw(st.integers(0, 2))))
    macs = draw(st.binary(min_size=12, max_size=12))
    return bytes(macs + tags + kind.to_bytes(2, "big") + bytes(ip))


@given(st.lists(_packets(), min_size=1, max_size=30))
@settings(deadline=None, max_examples=60)
def test_dpkt_reads_the_same_in_random_packets(frames: list[bytes]) -> None:
    rows, skipped = run(block(frames), Build.FAST)
    assert not skipped
    for frame, row in zip(frames, rows, strict=True):
        ours = values(SCHEMA, row)
        said = _said(dpkt.ethernet.Ethernet(frame))
        assert {name: ours[name] for name in said} == said


def _said(ethernet: dpkt.ethernet.Ethernet) -> dict[str, int]:
    ip = ethernet.data
    four = isinstance(ip, dpkt.ip.IP)
    tags = getattr(ethernet, "vlan_tags", [])
    said = {
        "srcMAC": int.from_bytes(ethernet.src, "big"),
        "destMAC": int.from_bytes(ethernet.dst, "big"),
        "vlan": tags[0].id if tags else 0,
        "srcIP": int.from_bytes(ip.src, "big") | (_V4 if four else _V6),
        "destIP": int.from_bytes(ip.dst, "big") | (_V4 if four else _V6),
        "ip_version": ip.v,
        "proto": ip.p,
        "tos": ip.tos if four else ip.fc,
        "ttl": ip.ttl if four else ip.hlim,
        "ip_len": ip.len if four else ip.plen + 40,
    }
    upper = ip.data
    if isinstance(upper, dpkt.tcp.TCP | dpkt.udp.UDP):
        said |= {"srcPort": upper.sport, "destPort": upper.dport, "payload_len": len(upper.data)}
    if isinstance(upper, dpkt.tcp.TCP):
        said["tcp_flags"] = upper.flags & 0xFF
    if isinstance(upper, dpkt.icmp.ICMP):
        said |= {"icmp_type": upper.type, "icmp_code": upper.code}
    return said
