"""Synthetic captures are what they say they are, as another reader sees them."""

from __future__ import annotations

import socket
from collections import Counter
from dataclasses import replace
from pathlib import Path

import dpkt
import pytest

from lowmark.app.traffic import Handshakes, TrafficSpec, write_capture, write_links

SMALL = TrafficSpec(packets=5_000, duration_ns=10_000_000_000, groups=400, ipv6=0.3, udp=0.2, icmp=0.1)
Packet = tuple[float, dpkt.ethernet.Ethernet, bytes]


def read(path: Path) -> list[Packet]:
    with path.open("rb") as file:
        return [(float(t), dpkt.ethernet.Ethernet(data), data) for t, data in dpkt.pcap.Reader(file)]


def ends(ethernet: dpkt.ethernet.Ethernet) -> tuple[bytes, bytes]:
    return ethernet.data.src, ethernet.data.dst


@pytest.mark.parametrize("nanoseconds", [False, True])
def test_packets_times_and_lengths(tmp_path: Path, nanoseconds: bool) -> None:
    path = tmp_path / "a.pcap"
    write_capture(path, replace(SMALL, nanoseconds=nanoseconds))
    packets = read(path)
    assert len(packets) == 5_000
    times = [t for t, *_ in packets]
    assert times == sorted(times)
    assert SMALL.start_ns / 1e9 <= times[0] < times[-1] < (SMALL.start_ns + SMALL.duration_ns) / 1e9
    assert max(len(data) for *_, data in packets) == 96
    assert min(len(data) for *_, data in packets) == 60


def test_headers_are_sound(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    write_capture(path, SMALL)
    protocols: Counter[int] = Counter()
    for _, ethernet, data in read(path):
        ip = ethernet.data
        if isinstance(ip, dpkt.ip.IP):
            assert dpkt.in_cksum(data[14:34]) == 0
            protocols[ip.p] += 1
            if ip.p == 17:
                assert int.from_bytes(data[38:40], "big") == ip.len - 20
        else:
            assert isinstance(ip, dpkt.ip6.IP6)
            protocols[ip.nxt] += 1
    assert set(protocols) == {1, 6, 17, 58}
    assert 0.6 < protocols[6] / 5_000 < 0.8


def test_groups_are_pairs_of_addresses(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    write_capture(path, replace(SMALL, packets=20_000))
    uniform = Counter(ends(e) for _, e, _ in read(path))
    assert len(uniform) == 400
    assert max(uniform.values()) < 4 * 20_000 / 400
    write_capture(path, replace(SMALL, packets=20_000, zipf=1.2))
    zipf = Counter(ends(e) for _, e, _ in read(path))
    assert max(zipf.values()) > 20 * 20_000 / 400
    assert len({e.data.src for _, e, _ in read(path)}) <= 200  # four groups to a host, of either version


def test_equal_specifications_make_equal_files(tmp_path: Path) -> None:
    for name, spec in (("a", SMALL), ("b", SMALL), ("c", replace(SMALL, seed=2))):
        write_capture(tmp_path / name, spec)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert (tmp_path / "a").read_bytes() != (tmp_path / "c").read_bytes()


def test_jitter_is_bounded_disorder(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    write_capture(path, replace(SMALL, jitter_ns=50_000_000))
    newest, steps_back = 0.0, 0
    for t, *_ in read(path):
        assert t >= newest - 0.0501
        steps_back += t < newest
        newest = max(newest, t)
    assert steps_back > 500


def test_handshakes_are_found_across_the_links(tmp_path: Path) -> None:
    first, second = tmp_path / "main1.pcap", tmp_path / "main2.pcap"
    shakes = Handshakes(count=300, answered=0.8, rtt_ns=20_000_000, skew_ns=2_000_000_000)
    write_links(first, second, SMALL, shakes)

    def flagged(path: Path, flags: int) -> dict[tuple[bytes, bytes, int, int], float]:
        found = {}
        for t, ethernet, _ in read(path):
            tcp = ethernet.data.data
            if isinstance(tcp, dpkt.tcp.TCP) and tcp.flags & 0x02:
                assert tcp.flags == flags
                found[(*ends(ethernet), tcp.sport, tcp.dport)] = t
        return found

    syns, answers = flagged(first, 0x02), flagged(second, 0x12)
    assert len(syns) == 300
    assert 200 < len(answers) < 280
    for (source, destination, sport, dport), t in answers.items():
        waited = t - syns[destination, source, dport, sport]
        assert 2.0 - 1e-5 <= waited < 2.5
    assert len(read(first)) == 5_300
    times = [t for t, *_ in read(second)]
    assert times == sorted(times)
    pairs = {ends(e) for _, e, _ in read(first)}
    assert {(b, a) for a, b in (ends(e) for _, e, _ in read(second))} <= pairs


def test_an_empty_capture(tmp_path: Path) -> None:
    write_capture(tmp_path / "a.pcap", TrafficSpec(packets=0))
    assert read(tmp_path / "a.pcap") == []


def test_addresses_are_private_or_for_documentation(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    write_capture(path, SMALL)
    for _, ethernet, _ in read(path):
        for address in ends(ethernet):
            if len(address) == 4:
                assert socket.inet_ntoa(address).startswith(("10.", "172."))
            else:
                assert socket.inet_ntop(socket.AF_INET6, address).startswith("2001:db8:")


@pytest.mark.parametrize(
    "wrong",
    [{"packets": -1}, {"groups": 0}, {"snaplen": 10}, {"ipv6": 1.5}, {"zipf": 0.0}, {"start_ns": -1}],
)
def test_impossible_specifications_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError):
        replace(SMALL, **wrong)  # type: ignore[arg-type]
