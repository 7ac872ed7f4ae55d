"""Finds the IP packet in a frame, and the end of IPv6's extension headers.

These functions are written into every kernel (`assemble`), so they use nothing but the names listed there. No byte at
or after `stop` is read.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lowlevel.kernel.bytewise import be16, byte

__all__ = [
    "LINK_TYPE", "MALFORMED", "NOT_IP", "NO_TIME", "TRUNCATED", "UNKNOWN_INTERFACE", "find_ip", "walk_extensions",
]  # fmt: skip

LINK_TYPE = -1
TRUNCATED = -2
MALFORMED = -3
NOT_IP = -4
NO_TIME = -6
UNKNOWN_INTERFACE = -7


def find_ip(data: npt.NDArray[np.uint8], start: int, stop: int, kind: int) -> tuple[int, int, int]:
    """The start of the outermost IP header of a frame, the IP version that the header should have (its fixed part was
    captured), and the outermost VLAN id (-1: none). A negative version is the reason why there is no IP header."""
    at = start
    ethertype = 0
    version = 0
    if kind == 1:  # Ethernet
        if stop - start < 14:
            return at, TRUNCATED, -1
        ethertype = be16(data, start + 12)
        at = start + 14
    elif kind == 113:  # Linux cooked v1
        if stop - start < 16:
            return at, TRUNCATED, -1
        ethertype = be16(data, start + 14)
        at = start + 16
    elif kind == 276:  # Linux cooked v2
        if stop - start < 20:
            return at, TRUNCATED, -1
        ethertype = be16(data, start)
        at = start + 20
    elif kind == 12 or kind == 14 or kind == 101:  # raw IP of either version
        if stop - start < 1:
            return at, TRUNCATED, -1
        version = 6 if byte(data, start) >> 4 == 6 else 4
    elif kind == 228:
        version = 4
    elif kind == 229:
        version = 6
    elif kind == 0 or kind == 108:  # NULL, LOOP: a protocol family in the byte order of some host
        if stop - start < 4:
            return at, TRUNCATED, -1
        high, low = be16(data, start), be16(data, start + 2)
        if high == 0:
            family = low
        elif low == 0:
            family = (high & 0xFF) << 8 | high >> 8
        else:
            family = 0
        if family == 2:
            version = 4
        elif family == 10 or family == 24 or family == 28 or family == 30:
            version = 6
        else:
            return at, NOT_IP, -1
        at = start + 4
    elif kind == -1:  # a time outside of int64
        return at, MALFORMED, -1
    elif kind == -2:
        return at, NO_TIME, -1
    elif kind == -3:
        return at, UNKNOWN_INTERFACE, -1
    else:
        return at, LINK_TYPE, -1

    tag = -1
    tags = 0
    llc = kind == 1
    while version == 0:
        if ethertype == 0x0800:
            version = 4
        elif ethertype == 0x86DD:
            version = 6
        elif ethertype == 0x8100 or ethertype == 0x88A8 or ethertype == 0x9100:  # VLAN
            if tags == 4:
                return at, NOT_IP, tag
            if stop - at < 4:
                return at, TRUNCATED, tag
            if tags == 0:
                tag = be16(data, at) & 0xFFF
            tags += 1
            ethertype = be16(data, at + 2)
            at += 4
        elif ethertype == 0x8847 or ethertype == 0x8848:  # MPLS
            labels = 0
            bottom = False
            while not bottom:
                if labels == 8:
                    return at, NOT_IP, tag
                if stop - at < 4:
                    return at, TRUNCATED, tag
                bottom = byte(data, at + 2) & 1 == 1
                labels += 1
                at += 4
            if stop - at < 1:
                return at, TRUNCATED, tag
            version = byte(data, at) >> 4
            if version != 4 and version != 6:
                return at, NOT_IP, tag
        elif ethertype == 0x8864:  # PPPoE session
            if stop - at < 8:
                return at, TRUNCATED, tag
            protocol = be16(data, at + 6)
            at += 8
            if protocol == 0x0021:
                version = 4
            elif protocol == 0x0057:
                version = 6
            else:
                return at, NOT_IP, tag
        elif ethertype <= 1500 and llc:  # a length: LLC, perhaps with SNAP
            # Each byte is checked for itself: frames with another LLC header may have only three of them.
            for place in range(6):
                due = 0xAA if place < 2 else 0x03 if place == 2 else 0x00
                if at + place < stop and byte(data, at + place) != due:
                    return at, NOT_IP, tag
            if stop - at < 8:
                return at, TRUNCATED, tag
            llc = False
            ethertype = be16(data, at + 6)
            at += 8
        else:
            return at, NOT_IP, tag
    if stop - at < (20 if version == 4 else 40):
        return at, TRUNCATED, tag
    return at, version, tag


def walk_extensions(data: npt.NDArray[np.uint8], at: int, stop: int, following: int) -> tuple[int, int, int, int]:
    """Walk the extension headers from the end of IPv6's fixed header, whose next header is `following`. Returns the
    upper-layer protocol (or the first header that is not walked), its start, whether the packet is a fragment, and
    whether it is a fragment other than the first."""
    fragment = 0
    for _ in range(8):
        if following == 44:
            if stop - at < 4:
                break
            field = be16(data, at + 2)
            following = byte(data, at)
            at += 8
            if field & 0xFFF9:
                fragment = 1
            if field & 0xFFF8:
                return following, at, 1, 1
            continue
        if (
            following != 0 and following != 43 and following != 51
            and following != 60 and following != 135 and following != 139 and following != 140
        ):  # fmt: skip
            break
        if stop - at < 2:
            break
        length = byte(data, at + 1)
        size = (length + 2) * 4 if following == 51 else (length + 1) * 8
        following = byte(data, at)
        at += size
    return following, at, fragment, 0
