"""`python -m bench.peers.scapy_loop CAPTURE`: packets and bytes of each pair of addresses in each minute, by scapy."""

from __future__ import annotations

import sys

from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6
from scapy.utils import PcapReader


def main(path: str) -> None:
    groups: dict[tuple[int, str, str], list[int]] = {}
    with PcapReader(path) as packets:
        for packet in packets:
            layer = packet.getlayer(IP) or packet.getlayer(IPv6)
            if layer is not None:
                group = groups.setdefault((int(packet.time) // 60, layer.src, layer.dst), [0, 0])
                group[0] += 1
                group[1] += packet.wirelen or 0
    for (minute, source, destination), (count, size) in groups.items():
        print(minute * 60, source, destination, count, size)


if __name__ == "__main__":
    main(sys.argv[1])
