"""`python -m bench.live`: packets a second that a live reader takes without loss, against tcpdump to /dev/null.

A generator of its own process sends from one end of a veth pair, in a network namespace that vanishes with the run; it
takes root. Frames lie in a ring that the kernel sends from, so that one core makes as many as it can. bench/README.md
says what the figures show.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from bench.reports import RESULTS, Figure, describe_machine, write_csv
from ingest.config import LiveConfig
from ingest.live import LiveSource
from lowlevel.node import SourceNodes
from lowmark.query.compile import compile_query

_NEW_NETWORK = 0x40000000
_SOL_PACKET, _VERSION, _TX_RING, _QDISC_BYPASS = 263, 10, 13, 20
_FRAMES, _FRAME, _BLOCK = 2048, 256, 1 << 20
_DATA, _SEND = 32, 1  # where a frame begins behind its header; the status by which it is sent
_SILENT = 10  # empty blocks after which the generator has ended
_PAIRS = "SELECT srcIP, destIP, count(*), sum(len) [RANGE 10 seconds] FROM Main GROUP BY srcIP, destIP"
_DROPPED = re.compile(r"(\d+) packets? dropped by kernel")
_CAPTURED = re.compile(r"(\d+) packets? captured")


@dataclass(frozen=True, slots=True)
class _Run:
    reader: str
    rate: float  # packets a second that were sent
    sent: int
    received: int
    dropped: int
    cpu: float | None  # share of a core that reading took, where it is known

    @property
    def lost(self) -> float:
        return self.dropped / self.sent


def measure_live(results: Path, seconds: float, rates: Sequence[int]) -> None:
    """At each rate (0: as fast as it goes) each reader alone. SystemExit where namespaces or tcpdump are missing."""
    _enter_namespace()
    runs = []
    for rate in rates:
        for reader in (_by_lowmark, _by_tcpdump):
            run = reader(rate, seconds)
            runs.append(run)
            cpu = "" if run.cpu is None else f", {100 * run.cpu:.0f}% of a core"
            print(f"{run.reader:8} {run.rate:12,.0f} packets/s sent, {100 * run.lost:6.3f}% lost{cpu}")
            if run.received + run.dropped != run.sent:
                print(f"         {run.sent - run.received - run.dropped} packets are in no count")
    header = ("reader", "rate", "sent", "received", "dropped", "cpu")
    write_csv(results, "live", header, [(r.reader, r.rate, r.sent, r.received, r.dropped, r.cpu or "") for r in runs])
    with Figure(results, "live", "Packets lost by a live reader") as axes:
        for name in ("lowmark", "tcpdump"):
            points = sorted((run.rate, 100 * run.lost) for run in runs if run.reader == name)
            axes.plot(*zip(*points, strict=True), marker="o", label=name)
        axes.set_xlabel("packets a second that were sent")
        axes.set_ylabel("lost, %")
        axes.legend()


def _by_lowmark(rate: int, seconds: float) -> _Run:
    """Ring, kernel and table of a query of addresses, in this process."""
    source = LiveSource(LiveConfig(name="near", stream="Main", interface="near"))
    nodes = SourceNodes(compile_query(_PAIRS).stage.nodes, stream="Main")
    source.start()
    nodes.start()
    source.begin()
    generator = _Generator(rate, seconds)
    first = last = 0.0
    silent, began = 0, time.thread_time()
    for block in source.blocks():
        for _ in nodes.take(block):
            pass
        silent = 0 if len(block) else silent + 1
        if len(block):
            last = time.monotonic()
            first = first or last
        elif first and silent > _SILENT:
            break
    cpu = (time.thread_time() - began) / (last - first)
    source.close()
    sent, took = generator.ended()
    return _Run("lowmark", sent / took, sent, source.received, nodes.dropped, cpu)


def _by_tcpdump(rate: int, seconds: float) -> _Run:
    command = ["tcpdump", "-i", "near", "-n", "-s", "96", "-w", "/dev/null"]
    reader = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert reader.stderr is not None
    reader.stderr.readline()  # it listens
    sent, took = _Generator(rate, seconds).ended()
    time.sleep(1)  # what it has in its buffer is read, but it does not say when
    reader.send_signal(signal.SIGINT)
    said = reader.stderr.read()
    reader.wait()
    counted = [int(found[1]) if (found := pattern.search(said)) else 0 for pattern in (_CAPTURED, _DROPPED)]
    return _Run("tcpdump", sent / took, sent, counted[0], counted[1], None)


class _Generator:
    """A process that sends; `ended` waits for it."""

    def __init__(self, rate: int, seconds: float) -> None:
        ours, theirs = get_context("fork").Pipe()
        self._answer: Connection = ours
        self._process = get_context("fork").Process(target=_send, args=(rate, seconds, theirs))
        self._process.start()

    def ended(self) -> tuple[int, float]:
        """Packets that were sent, and the seconds that it took."""
        sent, took = self._answer.recv()
        self._process.join()
        return sent, took


def _send(rate: int, seconds: float, answer: Connection) -> None:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sender:
        sender.setsockopt(_SOL_PACKET, _VERSION, 1)
        sender.setsockopt(_SOL_PACKET, _QDISC_BYPASS, 1)
        size = _FRAMES * _FRAME
        shape = struct.pack("4I", min(size, _BLOCK), max(1, size // _BLOCK), _FRAME, _FRAMES)
        sender.setsockopt(_SOL_PACKET, _TX_RING, shape)
        ring = np.frombuffer(mmap.mmap(sender.fileno(), size), np.uint8).reshape(_FRAMES, _FRAME)
        words = ring.view(np.uint32)
        for place in range(_FRAMES):
            frame = _frame(place)
            words[place, 1] = len(frame)
            ring[place, _DATA : _DATA + len(frame)] = np.frombuffer(frame, np.uint8)
        sender.bind(("far", 0))
        sent, began = 0, time.monotonic()
        while (passed := time.monotonic() - began) < seconds:
            if rate and sent > rate * passed:
                time.sleep(0.0005)
                continue
            words[:, 0] = _SEND
            sender.send(b"")
            sent += _FRAMES
        answer.send((sent, time.monotonic() - began))


def _frame(place: int) -> bytes:
    """60 bytes of UDP, as a pair of addresses of its own."""
    head = struct.pack(">BBHHHBBH", 0x45, 0, 46, 0, 0, 64, 17, 0)
    addresses = struct.pack(">II", 0x0A000000 + place, 0x0A010000 + place % 64)
    return bytes(12) + b"\x08\x00" + head + addresses + struct.pack(">HHHH", 40_000, 53, 26, 0) + bytes(18)


def _enter_namespace() -> None:
    for command in ("ip", "tcpdump"):
        if shutil.which(command) is None:
            sys.exit(f"the command {command} is not installed")
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_NETWORK):
        sys.exit(f"network namespaces cannot be made here: {os.strerror(ctypes.get_errno())}")
    subprocess.run(["ip", "link", "add", "far", "type", "veth", "peer", "name", "near"], check=True)
    for name in ("far", "near"):
        Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1")
        subprocess.run(["ip", "link", "set", name, "up"], check=True)


def _main(
    seconds: Annotated[float, typer.Option(help="How long each reader is tried at each rate.")] = 5.0,
    rate: Annotated[list[int] | None, typer.Option(help="Packets a second; 0 is as fast as it goes.")] = None,
    results: Annotated[Path, typer.Option(help="Where CSV files and plots go.")] = RESULTS,
) -> None:
    describe_machine(results)
    measure_live(results, seconds, rate or [100_000, 200_000, 400_000, 800_000, 0])


if __name__ == "__main__":
    typer.run(_main)
