"""A generator of packets for live readers, in a network namespace that vanishes with the run. At a given rate frames
leave a ring that the kernel sends from (PACKET_TX_RING), at one end of a veth pair; as fast as it goes they begin at
the other end (`flood`). It takes root."""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import socket
import struct
import subprocess
import sys
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from bench.host.flood import flood

__all__ = ["BURST", "Generator", "enter_namespace"]

_NEW_NETWORK = 0x40000000
_SOL_PACKET, _VERSION, _TX_RING, _QDISC_BYPASS = 263, 10, 13, 20
BURST = 2048
"""Packets that are sent at a time, each of a pair of addresses of its own."""
_FRAME, _BLOCK = 256, 1 << 20
_DATA, _SEND = 32, 1  # where a frame begins behind its header; the status by which it is sent


class Generator:
    """A process that sends so many packets a second, or as many as it can (0) with so much idling in between; `ended`
    waits for it."""

    def __init__(self, rate: int, seconds: float, idle: int = 0) -> None:
        ours, theirs = get_context("fork").Pipe()
        self._answer: Connection = ours
        self._process = get_context("fork").Process(target=_send, args=(rate, seconds, idle, theirs))
        self._process.start()

    def ended(self) -> tuple[int, float]:
        """Packets that were sent, and the seconds that it took."""
        sent, took = self._answer.recv()
        self._process.join()
        return sent, took


def _send(rate: int, seconds: float, idle: int, answer: Connection) -> None:
    answer.send(_sent_at(rate, seconds) if rate else flood("near", _frame(0), BURST, seconds, idle))


def _sent_at(rate: int, seconds: float) -> tuple[int, float]:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sender:
        sender.setsockopt(_SOL_PACKET, _VERSION, 1)
        sender.setsockopt(_SOL_PACKET, _QDISC_BYPASS, 1)
        size = BURST * _FRAME
        shape = struct.pack("4I", min(size, _BLOCK), max(1, size // _BLOCK), _FRAME, BURST)
        sender.setsockopt(_SOL_PACKET, _TX_RING, shape)
        ring = np.frombuffer(mmap.mmap(sender.fileno(), size), np.uint8).reshape(BURST, _FRAME)
        words = ring.view(np.uint32)
        for place in range(BURST):
            frame = _frame(place)
            words[place, 1] = len(frame)
            ring[place, _DATA : _DATA + len(frame)] = np.frombuffer(frame, np.uint8)
        sender.bind(("far", 0))
        sent, began = 0, time.monotonic()
        while (passed := time.monotonic() - began) < seconds:
            if sent > rate * passed:
                time.sleep(0.0005)
                continue
            words[:, 0] = _SEND
            sender.send(b"")
            sent += BURST
        return sent, time.monotonic() - began


def _frame(place: int) -> bytes:
    """60 bytes of UDP, as a pair of addresses of its own."""
    head = struct.pack(">BBHHHBBH", 0x45, 0, 46, 0, 0, 64, 17, 0)
    addresses = struct.pack(">II", 0x0A000000 + place, 0x0A010000 + place % 64)
    return bytes(12) + b"\x08\x00" + head + addresses + struct.pack(">HHHH", 40_000, 53, 26, 0) + bytes(18)


def enter_namespace() -> None:
    """SystemExit where that cannot be. The reader's end of the pair is `near`; the loopback is up, too."""
    if shutil.which("ip") is None:
        sys.exit("the command ip is not installed: apt-get install iproute2")
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_NETWORK):
        sys.exit(f"network namespaces cannot be made here: {os.strerror(ctypes.get_errno())}")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["ip", "link", "add", "far", "type", "veth", "peer", "name", "near"], check=True)
    for name in ("far", "near"):
        Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1")
        subprocess.run(["ip", "link", "set", name, "up"], check=True)
