"""Finds the packet inside a tunnel, one level down.

These functions are written into every kernel (`assemble`), so they use nothing but the names listed there. No byte at
or after `stop` is read.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lowlevel.kernel.bytewise import be16, byte
from lowlevel.kernel.inlined.layers import find_ip

__all__ = ["conversation", "find_inner"]


def find_inner(data: npt.NDArray[np.uint8], at: int, stop: int, proto: int) -> tuple[int, int]:
    """The start of the inner IP header and its IP version. The outer IP headers end at `at`, and name `proto`. The
    version is 0 if there is no inner header, or if its fixed part was not captured whole."""
    version = 0
    if proto == 4:
        version = 4
    elif proto == 41:
        version = 6
    elif proto == 47:  # GRE
        if stop - at < 4:
            return at, 0
        flags, kind = be16(data, at), be16(data, at + 2)
        if flags & 0x4007:  # has a list of routes, or is another version of GRE
            return at, 0
        at += 4 + (4 if flags & 0x8000 else 0) + (4 if flags & 0x2000 else 0) + (4 if flags & 0x1000 else 0)
        if kind == 0x0800:
            version = 4
        elif kind == 0x86DD:
            version = 6
        elif kind == 0x6558 and at < stop:  # a frame of Ethernet
            at, version, _ = find_ip(data, at, stop, 1)
    elif proto == 17 and stop - at >= 16:
        port = be16(data, at + 2)
        if port == 4789 and byte(data, at + 8) & 8:  # VXLAN
            at, version, _ = find_ip(data, at + 16, stop, 1)
        elif port == 2152 and byte(data, at + 8) & 0xF0 == 0x30 and byte(data, at + 9) == 255:  # GTP-U
            flags = byte(data, at + 8)
            at += 16
            if flags & 7:
                if stop - at < 4:
                    return at, 0
                following = byte(data, at + 3) if flags & 4 else 0
                at += 4
                headers = 0
                while following != 0:
                    if headers == 8 or stop - at < 1 or byte(data, at) == 0 or stop - at < byte(data, at) * 4:
                        return at, 0
                    at += byte(data, at) * 4
                    following = byte(data, at - 1)
                    headers += 1
            if at < stop:
                version = byte(data, at) >> 4
    if version == 4:
        if stop - at >= 20 and byte(data, at) >> 4 == 4:
            header = (byte(data, at) & 15) * 4
            total = be16(data, at + 2)
            if header >= 20 and (total >= header or total == 0):
                return at, 4
    elif version == 6 and stop - at >= 40 and byte(data, at) >> 4 == 6:
        return at, 6
    return at, 0


def conversation(proto: int, kind: int) -> int:
    """The ICMP type of the answer to this type, or of the request that it answers; -1 if there is none."""
    if proto == 1:
        if kind == 8 or kind == 0:  # echo
            return 8 - kind
        if 13 <= kind <= 18:  # timestamp, information, address mask: request and reply
            return kind + 1 if kind % 2 == 1 else kind - 1
        if kind == 9 or kind == 10:  # routers
            return 19 - kind
        return -1
    if kind == 128 or kind == 129:  # echo
        return 257 - kind
    if kind == 130 or kind == 131:  # groups
        return 261 - kind
    if 133 <= kind <= 136:  # routers, neighbours: solicitation and advertisement
        return kind + 1 if kind % 2 == 1 else kind - 1
    if kind == 139 or kind == 140:  # node information
        return 279 - kind
    if kind == 144 or kind == 145:  # home agents
        return 289 - kind
    return -1
