"""`python -m bench.peers.dpkt_loop CAPTURE`: packets and bytes of each pair of addresses in each minute, by dpkt."""

from __future__ import annotations

import socket
import sys

import dpkt

_FILE_HEADER = 24


def main(path: str) -> None:
    groups: dict[tuple[int, bytes, bytes], list[int]] = {}
    header = dpkt.pcap.LEPktHdr  # as dpkt.pcap.Reader does; but that one keeps the length on the wire to itself
    with open(path, "rb") as file:
        file.seek(_FILE_HEADER)
        while len(raw := file.read(header.__hdr_len__)) == header.__hdr_len__:
            record = header(raw)
            packet = dpkt.ethernet.Ethernet(file.read(record.caplen)).data
            if isinstance(packet, dpkt.ip.IP | dpkt.ip6.IP6):
                group = groups.setdefault((record.tv_sec // 60, packet.src, packet.dst), [0, 0])
                group[0] += 1
                group[1] += record.len
    for (minute, source, destination), (packets, size) in groups.items():
        family = socket.AF_INET if len(source) == 4 else socket.AF_INET6
        print(minute * 60, socket.inet_ntop(family, source), socket.inet_ntop(family, destination), packets, size)


if __name__ == "__main__":
    main(sys.argv[1])
