"""The fastest generator of packets on one machine: an XDP program that the kernel runs over and over on a frame, which
goes up from an interface each time as if it had arrived there (BPF_PROG_TEST_RUN with live frames, Linux 5.18)."""

from __future__ import annotations

import ctypes
import os
import platform
import socket
import struct
import time

__all__ = ["flood"]

_RUN_LENGTH = 250_000
"""Packets that are sent at a time: beginning and ending take as long as some ten thousand packets do."""

_SYSCALL = {"x86_64": 321, "aarch64": 280}
_LOAD, _RUN = 5, 10
_XDP, _LIVE, _PASS = 6, 2, 2
_BATCH = 64
_RANDOM = 7  # the helper bpf_get_prandom_u32
_SOURCE = 14 + 14  # the low half of the IPv4 source address in a frame


def flood(interface: str, frame: bytes, pairs: int, seconds: float, idle: int = 0) -> tuple[int, float]:
    """Sends IPv4 frames from at most so many source addresses (a power of two): how many frames, in how many seconds.
    `idle` random numbers are drawn and thrown away before each, so that they come less quickly and as evenly. OSError
    where the kernel does not do that."""
    program = _load(pairs, idle)
    data = ctypes.create_string_buffer(frame, len(frame))
    # struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex
    place = struct.pack("6I", 0, len(frame), 0, socket.if_nametoindex(interface), 0, 0)
    context = ctypes.create_string_buffer(place, len(place))
    run = struct.pack(
        "4I2Q4I2Q4I", program, 0, len(frame), 0, ctypes.addressof(data), 0, _RUN_LENGTH, 0, len(place), 0,
        ctypes.addressof(context), 0, _LIVE, 0, _BATCH, 0,
    )  # fmt: skip
    sent, began = 0, time.monotonic()
    try:
        while (passed := time.monotonic() - began) < seconds:
            _bpf(_RUN, run)
            sent += _RUN_LENGTH
    finally:
        os.close(program)
    return sent, passed


def _load(pairs: int, idle: int) -> int:
    """The file descriptor of a program that gives the frame a source address by chance, and passes it on."""
    code = (
        (0xBF, 6, 1, 0, 0),  # r6 = context
        *[(0x85, 0, 0, 0, _RANDOM)] * (idle + 1),  # r0 = a random number
        (0x61, 2, 6, 0, 0),  # r2 = data
        (0x61, 3, 6, 4, 0),  # r3 = its end
        (0xBF, 4, 2, 0, 0),  # r4 = r2
        (0x07, 4, 0, 0, _SOURCE + 2),  # r4 += …
        (0x2D, 4, 3, 2, 0),  # past the next two if r4 > r3
        (0x57, 0, 0, 0, pairs - 1),  # r0 &= …
        (0x6B, 2, 0, _SOURCE, 0),  # the half of the address = r0
        (0xB7, 0, 0, 0, _PASS),  # r0 = pass
        (0x95, 0, 0, 0, 0),  # exit
    )
    text = b"".join(
        struct.pack("<BBhi", code, target | source << 4, offset, number)
        for code, target, source, offset, number in code
    )
    instructions, license_ = ctypes.create_string_buffer(text, len(text)), ctypes.create_string_buffer(b"GPL")
    load = struct.pack(
        "2I2Q2IQ2I16s", _XDP, len(code), ctypes.addressof(instructions), ctypes.addressof(license_), 0, 0, 0, 0, 0, b""
    )  # fmt: skip
    return _bpf(_LOAD, load)


def _bpf(command: int, attributes: bytes) -> int:
    buffer = ctypes.create_string_buffer(attributes, 128)
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(_SYSCALL[platform.machine()], command, buffer, len(buffer))
    if result < 0:
        raise OSError(ctypes.get_errno(), f"bpf({command}): {os.strerror(ctypes.get_errno())}")
    return int(result)
