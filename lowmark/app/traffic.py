"""Synthetic captures for the demo, tests and benchmarks. Writes whole columns: millions of packets in seconds."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

__all__ = ["Handshakes", "TrafficSpec", "write_capture", "write_links"]

_CHUNK = 131_072  # packets made at a time
_RECORD = 16  # bytes of the pcap record before each frame; column numbers of a frame start after them
_ETHERNET = 14
_TCP, _UDP, _ICMP, _ICMP6 = 6, 17, 1, 58
_FIN_ACK, _SYN, _RST, _PSH_ACK, _ACK, _SYN_ACK = 0x11, 0x02, 0x04, 0x18, 0x10, 0x12
_SERVICES = np.array([443, 443, 443, 80, 53, 22, 25, 8080], np.uint16)

_Rows = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficSpec:
    """Describes a capture to make; equal specifications make equal files. ValueError for impossible values."""

    packets: int = 1_000_000
    duration_ns: int = 60_000_000_000
    start_ns: int = 1_714_564_800_000_000_000  # since 1970
    groups: int = 10_000  # pairs of source and destination address
    zipf: float | None = None  # Zipf exponent of the groups' popularity; None: all equal
    ipv6: float = 0.1  # shares of the groups
    udp: float = 0.15
    icmp: float = 0.01
    syn: float = 0.03  # share of TCP's packets that open a connection; as many close one
    snaplen: int = 96  # most bytes captured of a frame
    jitter_ns: int = 0  # a packet may be written this long after later ones
    nanoseconds: bool = False  # resolution of the file's timestamps; else microseconds
    seed: int = 1

    def __post_init__(self) -> None:
        if self.packets < 0 or self.duration_ns <= 0 or not 1 <= self.groups <= 1 << 24 or self.jitter_ns < 0:
            raise ValueError("packets and jitter_ns are at least 0, duration_ns is above 0, groups are 1 to 2^24")
        if not 0 <= self.start_ns <= self.start_ns + self.duration_ns < 2**32 * 1_000_000_000:
            raise ValueError("a pcap holds times from 1970 to 2106")
        if not 54 <= self.snaplen <= 1514:
            raise ValueError("snaplen is 54 to 1514 bytes")
        if not all(0 <= share <= 1 for share in (self.ipv6, self.udp + self.icmp, self.udp, self.icmp, 2 * self.syn)):
            raise ValueError("shares are between 0 and 1")
        if self.zipf is not None and not 0 < self.zipf <= 4:
            raise ValueError("zipf is above 0 and at most 4")


@dataclass(frozen=True, slots=True, kw_only=True)
class Handshakes:
    """Connections opened across two links: a SYN on the first, its SYN-ACK on the second."""

    count: int = 1_000
    answered: float = 0.9  # share of the SYNs
    rtt_ns: int = 30_000_000  # time from a SYN to its answer, on average (exponential)
    skew_ns: int = 0  # how far the second link's clock is ahead


@dataclass(frozen=True, slots=True, eq=False)
class _Packets:
    """Packets to write, ordered by time."""

    ts: npt.NDArray[np.int64]
    group: npt.NDArray[np.int64]
    flags: npt.NDArray[np.uint8]  # used for TCP packets
    port: npt.NDArray[np.uint16]  # port of the side that opened the connection; 0: the group's own

    def part(self, which: slice | npt.NDArray[np.int64]) -> _Packets:
        return _Packets(self.ts[which], self.group[which], self.flags[which], self.port[which])

    def and_(self, other: _Packets) -> _Packets:
        def both(name: str) -> npt.NDArray[np.int64]:
            joined: npt.NDArray[np.int64] = np.concatenate([getattr(self, name), getattr(other, name)])
            return joined

        ts = both("ts")
        order = np.argsort(ts, kind="stable")
        port, flags = both("port").astype(np.uint16), both("flags").astype(np.uint8)
        return _Packets(ts, both("group"), flags, port).part(order)


def write_capture(path: Path | str, spec: TrafficSpec) -> None:
    """Writes one link's traffic as pcap."""
    _write(Path(path), spec, _Groups.of(spec), _none())


def write_links(first: Path | str, second: Path | str, spec: TrafficSpec, handshakes: Handshakes) -> None:
    """Writes two links of `spec.packets` packets each (the second holds the reverse direction of the same groups), plus
    the handshakes, the only packets with SYN set."""
    spec = replace(spec, syn=0.0)
    forth, back = _Groups.of(spec), _Groups.of(spec).reversed()
    random = np.random.default_rng([spec.seed, 1])
    tcp = np.flatnonzero(forth.proto == _TCP)
    count = handshakes.count if len(tcp) else 0
    syns = _Packets(
        np.sort(spec.start_ns + random.integers(0, spec.duration_ns, count)),
        random.choice(tcp, count) if count else np.empty(0, np.int64),
        np.full(count, _SYN, np.uint8),
        (20_000 + np.arange(count) % 45_000).astype(np.uint16),
    )
    answered = np.flatnonzero(random.random(count) < handshakes.answered)
    delay = random.exponential(handshakes.rtt_ns, len(answered)).astype(np.int64) + handshakes.skew_ns
    answers = replace(
        syns.part(answered), ts=syns.ts[answered] + delay, flags=np.full(len(answered), _SYN_ACK, np.uint8)
    )
    answers = answers.part(np.argsort(answers.ts, kind="stable"))
    later = replace(spec, start_ns=spec.start_ns + handshakes.skew_ns, seed=spec.seed + 1)
    _write(Path(first), spec, forth, syns)
    _write(Path(second), later, back, answers)


@dataclass(frozen=True, slots=True, eq=False)
class _Groups:
    """A template frame for each group, after room for the pcap record; packets fill in only what differs."""

    frame: _Rows
    ipv6: npt.NDArray[np.bool_]
    proto: npt.NDArray[np.uint8]
    backward: bool = False  # from the side that was connected to

    @classmethod
    def of(cls, spec: TrafficSpec) -> _Groups:
        random = np.random.default_rng([spec.seed, 2])
        ids = np.arange(spec.groups, dtype=np.int64)
        ipv6 = random.random(spec.groups) < spec.ipv6
        kind = random.random(spec.groups)
        proto = np.where(kind < spec.udp, _UDP, _TCP).astype(np.uint8)
        icmp = kind >= 1 - spec.icmp
        proto[icmp] = np.where(ipv6[icmp], _ICMP6, _ICMP)

        # Four destinations for each source; odd multipliers give distinct pairs in scattered order.
        source = ids // 4
        servers = max(4, min(spec.groups // 8, 1 << 20))
        client = (source * 10_736_441 + 257) % (1 << 24)
        server = ((source * 5 + ids % 4) % servers * 409_999 + 1) % (1 << 20)

        frame = np.zeros((spec.groups, _RECORD + max(spec.snaplen, 74)), np.uint8)
        ethernet = frame[:, _RECORD:]
        ethernet[:, 0:6] = (0x02, 0, 0, 0, 0, 0x02)
        ethernet[:, 6:12] = (0x02, 0, 0, 0, 0, 0x01)
        ip = ethernet[:, _ETHERNET:]
        ttl = random.choice(np.array([64, 63, 57, 52, 128, 117], np.uint8), spec.groups)
        ports = np.stack([random.integers(32_768, 61_000, spec.groups), random.choice(_SERVICES, spec.groups)], 1)

        of = np.flatnonzero(~ipv6)
        ethernet[of, 12:14] = (0x08, 0x00)
        ip[of, 0], ip[of, 6], ip[of, 8], ip[of, 9] = 0x45, 0x40, ttl[of], proto[of]
        ip[of, 12:16] = _bytes((10 << 24) + client[of], 4)
        ip[of, 16:20] = _bytes((172 << 24) + (16 << 16) + server[of], 4)
        of = np.flatnonzero(ipv6)
        ethernet[of, 12:14] = (0x86, 0xDD)
        ip[of, 0], ip[of, 6], ip[of, 7] = 0x60, proto[of], ttl[of]
        for at, net, host in ((8, 1, client), (24, 2, server)):
            ip[of, at : at + 6] = (0x20, 0x01, 0x0D, 0xB8, 0, net)
            ip[of, at + 8 : at + 16] = _bytes(host[of], 8)

        groups = cls(frame, ipv6, proto)
        for version6, start in ((False, 20), (True, 40)):
            of = np.flatnonzero((ipv6 == version6) & ~icmp)
            ip[of, start : start + 2] = _bytes(ports[of, 0], 2)
            ip[of, start + 2 : start + 4] = _bytes(ports[of, 1], 2)
            of = np.flatnonzero((ipv6 == version6) & (proto == _TCP))
            ip[of, start + 12], ip[of, start + 14] = 0x50, 0xFF
            of = np.flatnonzero((ipv6 == version6) & icmp)
            ip[of, start] = 128 if version6 else 8
        return groups

    def reversed(self) -> _Groups:
        """The same groups in the reverse direction."""
        frame = self.frame.copy()
        ip, old = frame[:, _RECORD + _ETHERNET :], self.frame[:, _RECORD + _ETHERNET :]
        for version6, first, size, start in ((False, 12, 4, 20), (True, 8, 16, 40)):
            of = np.flatnonzero(self.ipv6 == version6)
            middle, end = first + size, first + 2 * size
            ip[of, first:middle], ip[of, middle:end] = old[of, middle:end], old[of, first:middle]
            of = np.flatnonzero((self.ipv6 == version6) & ((self.proto == _TCP) | (self.proto == _UDP)))
            ip[of, start : start + 2] = old[of, start + 2 : start + 4]
            ip[of, start + 2 : start + 4] = old[of, start : start + 2]
            of = np.flatnonzero((self.ipv6 == version6) & (self.proto != _TCP) & (self.proto != _UDP))
            ip[of, start] = 129 if version6 else 0
        return replace(self, frame=frame, backward=True)


def _write(path: Path, spec: TrafficSpec, groups: _Groups, extra: _Packets) -> None:
    with path.open("wb") as file:
        magic = 0xA1B23C4D if spec.nanoseconds else 0xA1B2C3D4
        file.write(struct.pack("<IHHiIII", magic, 2, 4, 0, 0, spec.snaplen, 1))
        random = np.random.default_rng([spec.seed, 3])
        written = 0
        for packets, until_ns in _background(spec, groups, random):
            ready = int(np.searchsorted(extra.ts, until_ns)) if until_ns is not None else len(extra.ts)
            _write_rows(file, spec, groups, packets.and_(extra.part(slice(written, ready))), random)
            written = ready


def _background(
    spec: TrafficSpec, groups: _Groups, random: np.random.Generator
) -> Iterator[tuple[_Packets, int | None]]:
    """Yields packets in chunks, each with the time before which all packets have come; None for the last."""
    popularity = None
    if spec.zipf is not None:
        popularity = np.cumsum(np.arange(1, spec.groups + 1, dtype=np.float64) ** -spec.zipf)
    for first in range(0, max(spec.packets, 1), _CHUNK):
        count = min(_CHUNK, spec.packets - first)
        begin, end = (spec.start_ns + spec.duration_ns * n // max(spec.packets, 1) for n in (first, first + count))
        ts = np.sort(random.integers(begin, max(end, begin + 1), count))
        if popularity is None:
            group = random.integers(0, spec.groups, count)
        else:
            group = np.searchsorted(popularity, random.random(count) * popularity[-1], side="right")
            group = np.minimum(group, spec.groups - 1)
        kind = random.random(count)
        flags = np.where(kind < 0.3, _PSH_ACK, _ACK).astype(np.uint8)
        flags[kind > 1 - 2 * spec.syn] = _FIN_ACK
        flags[kind > 1 - spec.syn] = _SYN_ACK if groups.backward else _SYN
        flags[(kind > 0.3) & (kind < 0.305)] = _RST
        last = first + count >= spec.packets
        yield _Packets(ts, group, flags, np.zeros(count, np.uint16)), None if last else end


def _write_rows(
    file: IO[bytes], spec: TrafficSpec, groups: _Groups, packets: _Packets, random: np.random.Generator
) -> None:
    count = len(packets.ts)
    if spec.jitter_ns:
        packets = packets.part(np.argsort(packets.ts + random.integers(0, spec.jitter_ns + 1, count), kind="stable"))
    rows = groups.frame[packets.group]
    ipv6, proto = groups.ipv6[packets.group], groups.proto[packets.group]
    headers = np.where(ipv6, 40, 20) + np.where(proto == _TCP, 20, 8)
    # A third each of bare headers, full frames and anything between; connections open and close without payload.
    kind = random.random(count)
    payload = (random.random(count) * 1400).astype(np.int64)
    payload[kind < 0.35] = 0
    payload = np.where(kind > 0.65, 1500 - headers, payload)
    payload[(proto == _TCP) & ((packets.flags & 0x07) != 0)] = 0
    ip_length = headers + payload
    wire = np.maximum(ip_length + _ETHERNET, 60)
    captured = np.minimum(wire, spec.snaplen)

    record = rows[:, :_RECORD].view("<u4")
    unit = 1 if spec.nanoseconds else 1000
    record[:, 0] = packets.ts // 1_000_000_000
    record[:, 1] = packets.ts % 1_000_000_000 // unit
    record[:, 2] = captured
    record[:, 3] = wire
    ip = rows[:, _RECORD + _ETHERNET :]
    of = np.flatnonzero(~ipv6)
    ip[of, 2:4] = _bytes(ip_length[of], 2)
    ip[of, 10:12] = _bytes(_checksums(ip[of, :20]), 2)
    of = np.flatnonzero(ipv6)
    ip[of, 4:6] = _bytes(ip_length[of] - 40, 2)
    for version6, start in ((False, 20), (True, 40)):
        of = np.flatnonzero((ipv6 == version6) & (proto == _TCP))
        ip[of, start + 13] = packets.flags[of]
        of = np.flatnonzero((ipv6 == version6) & (proto == _UDP))
        ip[of, start + 4 : start + 6] = _bytes(payload[of] + 8, 2)
        of = np.flatnonzero((ipv6 == version6) & (packets.port > 0))
        own = start + (2 if groups.backward else 0)
        ip[of, own : own + 2] = _bytes(packets.port[of], 2)
    kept = np.arange(rows.shape[1]) < (captured + _RECORD)[:, None]
    rows[kept].tofile(file)


def _none() -> _Packets:
    return _Packets(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.uint8), np.empty(0, np.uint16))


def _bytes(values: npt.NDArray[np.integer], size: int) -> _Rows:
    """The values as big-endian bytes, one row each."""
    return values.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 8 - size :]


def _checksums(headers: _Rows) -> npt.NDArray[np.int64]:
    """IPv4's header checksums, the field itself being 0."""
    total: npt.NDArray[np.int64] = np.ascontiguousarray(headers).view(">u2").astype(np.int64).sum(axis=1)
    total = (total & 0xFFFF) + (total >> 16)
    return 0xFFFF - ((total & 0xFFFF) + (total >> 16))
