"""`python -m bench.peers.nfstream_loop CAPTURE`: packets and bytes of each pair of addresses, from nfstream's flows.

The packages of `bench.peers.programs.PEER_MODULES` are put in front of this program's own.
"""

from __future__ import annotations

import sys
from importlib import import_module

from bench.peers.programs import PEER_MODULES

_LINK_LAYER = 0  # lengths are those of frames


def main(path: str) -> None:
    sys.path.insert(0, str(PEER_MODULES))
    streamer = import_module("nfstream").NFStreamer
    groups: dict[tuple[str, str], list[int]] = {}
    for flow in streamer(
        source=path, snapshot_length=96, n_dissections=0, statistical_analysis=False, accounting_mode=_LINK_LAYER
    ):
        for ends, packets, size in (
            ((flow.src_ip, flow.dst_ip), flow.src2dst_packets, flow.src2dst_bytes),
            ((flow.dst_ip, flow.src_ip), flow.dst2src_packets, flow.dst2src_bytes),
        ):
            group = groups.setdefault(ends, [0, 0])
            group[0] += packets
            group[1] += size
    for (source, destination), (packets, size) in groups.items():
        if packets:
            print(0, source, destination, packets, size)


if __name__ == "__main__":
    main(sys.argv[1])
