"""The Community ID of a packet's flow, version 1 with seed 0: a SHA-1 of its ends. Written into every kernel
(`assemble`), as `layers` is.

What is hashed fits into one block: seed (2 bytes), the two addresses in order (4 or 16 bytes each), protocol, a zero,
and the two ports, where there are any.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lowlevel.kernel.bytewise import be16, byte
from lowlevel.kernel.inlined.arithmetic import unsigned_less
from lowlevel.kernel.inlined.tunnels import conversation

__all__ = ["SCHEDULE", "community_id", "flow_ports", "sha1"]

SCHEDULE = 16
"""Words of scratch memory of the hash."""

NO_PORTS = -1


def flow_ports(data: npt.NDArray[np.uint8], at: int, stop: int, proto: int) -> tuple[int, bool]:
    """The ports of a flow as one number, the source's first, and whether the flow has one direction only. For ICMP they
    are the type and the type that answers it, else type and code. `NO_PORTS` if the protocol has no ports, or if they
    were not captured."""
    if (proto == 6 or proto == 17 or proto == 132) and stop - at >= 4:
        return be16(data, at) << 16 | be16(data, at + 2), False
    if (proto == 1 or proto == 58) and stop - at >= 2:
        kind = byte(data, at)
        answer = conversation(proto, kind)
        if answer < 0:
            return kind << 16 | byte(data, at + 1), True
        return kind << 16 | answer, False
    return NO_PORTS, False


def community_id(
    schedule: npt.NDArray[np.int64], version: int, from_high: int, from_low: int, to_high: int, to_low: int,
    proto: int, ports: int, one_way: bool,
) -> tuple[int, int, int]:  # fmt: skip
    """The 160 bits of the Community ID, in three words."""
    a_high, a_low, b_high, b_low = from_high, from_low, to_high, to_low
    turned = unsigned_less(b_high, a_high) or (b_high == a_high and unsigned_less(b_low, a_low))
    turned = turned or (b_high == a_high and b_low == a_low and ports & 0xFFFF < ports >> 16)
    if turned and not one_way:
        a_high, a_low, b_high, b_low = to_high, to_low, from_high, from_low
        if ports >= 0:
            ports = (ports & 0xFFFF) << 16 | ports >> 16
    last = 0
    if version == 4:
        schedule[0] = a_low >> 16
        schedule[1] = (a_low & 0xFFFF) << 16 | b_low >> 16
        last = 2
    else:
        schedule[0] = a_high >> 48 & 0xFFFF
        schedule[1] = a_high >> 16 & 0xFFFFFFFF
        schedule[2] = (a_high & 0xFFFF) << 16 | (a_low >> 48 & 0xFFFF)
        schedule[3] = a_low >> 16 & 0xFFFFFFFF
        schedule[4] = (a_low & 0xFFFF) << 16 | (b_high >> 48 & 0xFFFF)
        schedule[5] = b_high >> 16 & 0xFFFFFFFF
        schedule[6] = (b_high & 0xFFFF) << 16 | (b_low >> 48 & 0xFFFF)
        schedule[7] = b_low >> 16 & 0xFFFFFFFF
        last = 8
    schedule[last] = (b_low & 0xFFFF) << 16 | proto << 8
    size = last + 1
    if ports >= 0:
        schedule[size] = ports
        size += 1
    schedule[size] = 0x80000000
    for word in range(size + 1, SCHEDULE - 1):
        schedule[word] = 0
    schedule[SCHEDULE - 1] = size * 32
    return sha1(schedule)


def sha1(schedule: npt.NDArray[np.int64]) -> tuple[int, int, int]:
    """The hash of a message of one block, with its padding and length. Overwrites the block."""
    a, b, c, d, e = 0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0
    for step in range(80):
        place = step & 15
        if step >= 16:
            mixed = schedule[(step + 13) & 15] ^ schedule[(step + 8) & 15] ^ schedule[(step + 2) & 15] ^ schedule[place]
            schedule[place] = (mixed << 1 | mixed >> 31) & 0xFFFFFFFF
        if step < 20:
            mixed, constant = (b & c) | (~b & d), 0x5A827999
        elif step < 40:
            mixed, constant = b ^ c ^ d, 0x6ED9EBA1
        elif step < 60:
            mixed, constant = (b & c) | (b & d) | (c & d), 0x8F1BBCDC
        else:
            mixed, constant = b ^ c ^ d, 0xCA62C1D6
        added = ((a << 5 | a >> 27) & 0xFFFFFFFF) + mixed + e + constant + schedule[place]
        a, b, c, d, e = added & 0xFFFFFFFF, a, (b << 30 | b >> 2) & 0xFFFFFFFF, c, d
    first, second = (a + 0x67452301) & 0xFFFFFFFF, (b + 0xEFCDAB89) & 0xFFFFFFFF
    third, fourth = (c + 0x98BADCFE) & 0xFFFFFFFF, (d + 0x10325476) & 0xFFFFFFFF
    return first, second << 32 | third, fourth << 32 | ((e + 0xC3D2E1F0) & 0xFFFFFFFF)
