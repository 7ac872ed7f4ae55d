"""Small random captures: few hosts and ports, times on the borders of windows, disorder, several sources."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from random import Random

from hypothesis import strategies as st

from tests.naive.frames import Spec, frame, write_pcap

START = 1_714_564_800  # 2024-05-01T12:00:00Z, in seconds
NS = 10**9
HOSTS = ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.1.1")
HOSTS6 = ("2001:db8::1", "::ffff:10.0.0.2", "2001:db8:1::1")  # a mapped one, which is no other host's
PORTS = (0, 53, 79, 80, 81, 443, 40000, 65535)

Captures = list[tuple[str, Path]]


@dataclass(frozen=True)
class Traffic:
    """What files to write. Equal ones are equal files; fewer packets are the first ones of more."""

    seed: int
    sizes: tuple[tuple[str, int], ...]  # packets of each source, with the stream that it feeds
    disorder_s: int  # a packet may stand so much behind later ones
    nanoseconds: bool

    @property
    def sources(self) -> dict[str, list[list[Spec]]]:
        streams: dict[str, list[list[Spec]]] = {}
        for i, (name, size) in enumerate(self.sizes):
            random = Random(f"{self.seed}/{i}")
            packets = [_packet(random) for _ in range(size)]
            packets.sort(key=lambda packet: packet.ts + random.randint(0, self.disorder_s) * NS)
            streams.setdefault(name, []).append(packets)
        return streams

    def write(self, folder: Path) -> Captures:
        """The files, as `-r` names them."""
        captures = []
        for name, files in self.sources.items():
            for i, packets in enumerate(files):
                order, path = "<>"[i % 2], folder / f"{name}-{i}.pcap"
                write_pcap(path, map(frame, packets), order=order, nanoseconds=self.nanoseconds)
                captures.append((name, path))
        return captures


def _packet(random: Random) -> Spec:
    version = random.choice((4, 4, 4, 6))
    hosts = HOSTS if version == 4 else HOSTS6
    return Spec(
        ts=_time(random),
        source=random.choice(hosts),
        destination=random.choice(hosts),
        proto=random.choice((6, 6, 6, 17, 17, 1, 47) if version == 4 else (6, 17, 58)),
        ports=(random.choice(PORTS), random.choice(PORTS)),
        flags=random.choice((0, 2, 18, 16, 17, 24, 255)),
        icmp=random.choice(((8, 0), (0, 0), (3, 1), (128, 0))),
        payload=random.choice((0, 0, 1, 7, 20, 100, 512, 1400, 40000)),
        tos=random.choice((0, 0, 184, 255)),
        ttl=random.choice((64, 64, 1, 255)),
        vlan=random.choice((0, 0, 5, 4094)),
        offset=random.choice((0,) * 9 + (185,)),
        more=random.random() < 0.1,
        source_mac=random.choice((0x020000000001, 0x0200000000FF)),
        junk=random.random() < 0.05,
    )


def _time(random: Random) -> int:
    """Mostly whole seconds or a nanosecond beside one, where windows have their borders."""
    near = (START + random.randint(0, 90)) * NS
    return random.choice((near, near, near - 1, near + 1, near + 500_000_000, near + random.randrange(NS)))


@st.composite
def traffic(draw: st.DrawFn) -> Traffic:
    """One to three sources of the stream A and one or two of B, each of up to 120 packets."""
    names = ("A",) * draw(st.integers(1, 3)) + ("B",) * draw(st.integers(1, 2))
    size = st.one_of(st.integers(20, 120), st.integers(0, 20))
    return Traffic(
        seed=draw(st.integers(0, 2**32)),
        sizes=tuple((name, draw(size)) for name in names),
        disorder_s=draw(st.sampled_from((0, 2, 30, 200))),
        nanoseconds=draw(st.booleans()),
    )


def cut(path: Path) -> None:
    """Ends a little-endian capture in the middle of one packet more."""
    with path.open("ab") as file:
        file.write(struct.pack("<IIII", START, 0, 60, 60) + bytes(17))
