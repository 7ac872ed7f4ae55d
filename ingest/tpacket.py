"""The layout of a TPACKET_V3 ring (linux/if_packet.h), and the walk over the frames of one of its blocks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ingest.columns import Columns
from ingest.native import prefetch
from lowmark.wire.compiled import compiled
from lowmark.wire.frames import NO_VLAN

__all__ = ["walk_block"]

_FIRST = 4  # word of a block's header: the offset in bytes of its first frame

_NEXT, _SECONDS, _NANOSECONDS, _CAPTURED, _LENGTH, _STATUS = range(6)  # words of a frame's header
_MAC, _NETWORK = 24, 26  # bytes of it: where the frame begins, and where its network header does
_TAG = 32
_PROTOCOL, _HARDWARE = 50, 56  # of the address behind it
_TAGGED = 1 << 4  # of a frame's status: the kernel took a VLAN tag out
_TAG_SIZE = 4

_ETHERNET, _LOOPBACK = 1, 772  # hardware types whose frames begin with an Ethernet header
_LINK_ETHERNET, _LINK_RAW, _LINK_OTHER = 1, 101, -2  # the last is no link type at all: skipped as such
_IPV4, _IPV6 = 0x0800, 0x86DD


def walk_block(
    block: npt.NDArray[np.uint8], words: npt.NDArray[np.uint32], out: Columns, vlan: npt.NDArray[np.int32], limit: int
) -> int:
    """Fills the columns, which have the block's number of entries, from a block of the ring (`words` are the same
    bytes). Where the kernel took a VLAN tag out its id is in `vlan` and its bytes count in the length, as in a file of
    the same traffic. Returns how many frames are longer than `limit`."""
    longer: int = _walk(
        block, words, int(words[_FIRST]), limit, out.offset, out.captured, out.length, out.ts, out.link, vlan
    )
    return longer


@compiled
def _walk(block, words, at, limit, offsets, captureds, lengths, times, links, vlans):  # type: ignore[no-untyped-def]
    longer = 0
    for j in range(len(times)):
        base = at >> 2
        following = at + np.int64(words[base + _NEXT])
        prefetch(block, following)
        mac = np.int64(block[at + _MAC]) | np.int64(block[at + _MAC + 1]) << 8
        captured = np.int64(words[base + _CAPTURED])
        length = np.int64(words[base + _LENGTH])
        hardware = block[at + _HARDWARE] | np.int64(block[at + _HARDWARE + 1]) << 8
        link = _LINK_ETHERNET
        if hardware != _ETHERNET and hardware != _LOOPBACK:
            # Whatever stands in front of the packet there, the kernel knows where the packet begins.
            protocol = np.int64(block[at + _PROTOCOL]) << 8 | block[at + _PROTOCOL + 1]
            link = _LINK_RAW if protocol in (_IPV4, _IPV6) else _LINK_OTHER
            network = np.int64(block[at + _NETWORK]) | np.int64(block[at + _NETWORK + 1]) << 8
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
        longer += length > limit
        at = following
    return longer
