"""The layout of a TPACKET_V3 ring (linux/if_packet.h), and the walk over the frames of its blocks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ingest.columns import Columns
from ingest.files.prefetch import prefetch
from ingest.live.ring import RingBlocks
from lowmark.jit.compiled import compiled
from lowmark.wire.frames import NO_VLAN

__all__ = ["walk_blocks"]

_FIRST = 4  # word of a block's header: the offset in bytes of its first frame

_NEXT, _SECONDS, _NANOSECONDS, _CAPTURED, _LENGTH, _STATUS = range(6)  # words of a frame's header
_MAC, _NETWORK = 24, 26  # byte offsets in it of where the frame and its network header begin
_TAG = 32
_PROTOCOL, _HARDWARE = 50, 56  # byte offsets of the protocol and the hardware type in the address after it
_TAGGED = 1 << 4  # bit of a frame's status: the kernel removed a VLAN tag
_TAG_SIZE = 4

_ETHERNET, _LOOPBACK = 1, 772  # hardware types whose frames begin with an Ethernet header
_LINK_ETHERNET, _LINK_RAW, _LINK_OTHER = 1, 101, -2  # the last is no link type; its frames are skipped
_IPV4, _IPV6 = 0x0800, 0x86DD


def walk_blocks(blocks: RingBlocks, limit: int) -> tuple[Columns, npt.NDArray[np.int32], int]:
    """The frames' columns, the ids of VLAN tags that the kernel removed (their bytes count in the length, as in a file
    of the same traffic), and the number of frames longer than `limit`, for interfaces that lead out of this host."""
    count = int(blocks.frames.sum())
    out, vlan = Columns.of_size(count), np.empty(count, np.int32)
    longer = _walk(
        blocks.bytes_, blocks.words, blocks.frames, blocks.size, limit,
        out.offset, out.captured, out.length, out.ts, out.link, vlan,
    )  # fmt: skip
    return out, vlan, longer


@compiled
def _walk(data, words, frames, size, limit, offsets, captureds, lengths, times, links, vlans):  # type: ignore[no-untyped-def]
    longer = j = 0
    for place in range(len(frames)):
        at = place * size + np.int64(words[place * size // 4 + _FIRST])
        for _ in range(frames[place]):
            base = at >> 2
            following = at + np.int64(words[base + _NEXT])
            prefetch(data, following)
            mac = np.int64(data[at + _MAC]) | np.int64(data[at + _MAC + 1]) << 8
            captured = np.int64(words[base + _CAPTURED])
            length = np.int64(words[base + _LENGTH])
            hardware = data[at + _HARDWARE] | np.int64(data[at + _HARDWARE + 1]) << 8
            link = _LINK_ETHERNET
            if hardware != _ETHERNET and hardware != _LOOPBACK:
                # The header before the packet is of an unknown type; the kernel tells where the packet begins.
                protocol = np.int64(data[at + _PROTOCOL]) << 8 | data[at + _PROTOCOL + 1]
                link = _LINK_RAW if protocol in (_IPV4, _IPV6) else _LINK_OTHER
                network = np.int64(data[at + _NETWORK]) | np.int64(data[at + _NETWORK + 1]) << 8
                captured = max(np.int64(0), captured - (network - mac))
                mac = network
            vlan = np.int64(NO_VLAN)
            if words[base + _STATUS] & _TAGGED:
                vlan = np.int64(words[base + (_TAG >> 2)]) & 0xFFF
                length += _TAG_SIZE
            offsets[j] = at + mac
            captureds[j] = captured
            lengths[j] = length
            times[j] = np.int64(words[base + _SECONDS]) * 1_000_000_000 + np.int64(words[base + _NANOSECONDS])
            links[j] = link
            vlans[j] = vlan
            longer += length > limit and hardware != _LOOPBACK
            at = following
            j += 1
    return longer
