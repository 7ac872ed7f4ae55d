"""A TPACKET_V3 ring: blocks of frames that the kernel writes into memory shared with this process."""

from __future__ import annotations

import contextlib
import errno
import mmap
import select
import socket
import struct
import threading
import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ingest.config import RingConfig
from ingest.live.bpf_programs import NOTHING, Instruction, attach
from ingest.live.interfaces import Interface, InterfaceError, NotPermitted

__all__ = ["RETIRED_MS", "Fanout", "Ring", "RingBlocks"]

_LEAST_BLOCK = 16 << 10
_FRAME_HEAD = 128  # most bytes of the ring before a frame, and up to the next one
_AT_ONCE = 4 << 20  # most bytes of blocks lent together: fewer but larger steps when much arrives

_GATHERED = 256 << 10
_GATHER_S = 0.005
"""Blocks with few bytes wait this long for more, because each step has a fixed cost."""

_RETIRE_MS = 20
RETIRED_MS = 3 * _RETIRE_MS
"""A frame older than this has been handed over: the kernel closes a block that holds frames at the second tick of a
timer at the latest; a third one allows for the timer's own delay."""

_SOL_PACKET = 263
_MEMBERSHIP, _RX_RING, _STATISTICS, _VERSION, _FANOUT = 1, 5, 6, 10, 18
_TPACKET_V3 = 2
_ALL_PROTOCOLS = 3
_PROMISCUOUS = 1
_HASH, _UNIQUE_ID = 0, 0x2000
_FRAME = 2048  # bytes: nominal, because the blocks of version 3 have frames of any size
_STATUS, _FRAMES = 2, 3  # words of a block's header: its owner, and its number of frames
_OURS = 1


class Fanout:
    """The group of rings among which the kernel divides an interface's packets, by a hash of their addresses."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._id: int | None = None

    def join(self, ring: socket.socket) -> None:
        """Add the ring's socket to the group; from now on it gets its share."""
        with self._lock:
            kind = (_HASH | _UNIQUE_ID) << 16 if self._id is None else _HASH << 16 | self._id
            ring.setsockopt(_SOL_PACKET, _FANOUT, kind)
            if self._id is None:
                self._id = ring.getsockopt(_SOL_PACKET, _FANOUT) & 0xFFFF


@dataclass(frozen=True, slots=True, eq=False)
class RingBlocks:
    """Adjacent blocks in one piece of memory, borrowed until the ring is asked for the next ones."""

    size: int  # size of each block, in bytes
    bytes_: npt.NDArray[np.uint8]
    words: npt.NDArray[np.uint32]
    frames: npt.NDArray[np.int64]  # number of frames in each block


def _block_size(snaplen: int) -> int:
    """The block size of a ring for frames of this many bytes. A timer hands over even a nearly empty block: the ring
    lasts as many ticks as it has blocks, so blocks should be small. Two frames fit in any case."""
    return max(_LEAST_BLOCK, 1 << (2 * (snaplen + _FRAME_HEAD)).bit_length())


class Ring:
    """Frames gather in it from `begin()` on. One thread requests blocks. Reading a block after its status relies on
    loads that are not reordered, as on x86."""

    def __init__(
        self, at: Interface, config: RingConfig, *, promiscuous: bool = False, fanout: Fanout | None = None
    ) -> None:
        """Raises InterfaceError."""
        self.interface = at
        self._size = _block_size(config.snaplen)
        self._socket = _packet_socket(at)
        try:
            self._open(config, promiscuous, fanout)
        except OSError as error:
            self._socket.close()
            raise _refused(at.name, config, error) from None
        except BaseException:
            self._socket.close()
            raise

    def begin(self, program: tuple[Instruction, ...]) -> None:
        """Begin to capture the frames that the program accepts."""
        attach(self._socket, program)

    def _open(self, config: RingConfig, promiscuous: bool, fanout: Fanout | None) -> None:
        name = self.interface.name
        if fanout is not None and not self.interface.up:
            raise InterfaceError(
                f"{name} is down, and the packets of an interface can be divided among threads only when it is up: "
                f"ip link set dev {name} up"
            )
        ring, size, blocks = self._socket, self._size, config.ring_bytes // self._size
        ring.setsockopt(_SOL_PACKET, _VERSION, _TPACKET_V3)
        # The socket accepts nothing until it has joined the fanout: before that, every sharing ring gets each frame.
        attach(ring, NOTHING)
        shape = struct.pack("7I", size, blocks, _FRAME, size // _FRAME * blocks, _RETIRE_MS, 0, 0)
        ring.setsockopt(_SOL_PACKET, _RX_RING, shape)
        if promiscuous:
            ring.setsockopt(
                _SOL_PACKET, _MEMBERSHIP, struct.pack("iHH8s", self.interface.index, _PROMISCUOUS, 0, bytes(8))
            )
        self._bytes = np.frombuffer(mmap.mmap(ring.fileno(), size * blocks), np.uint8)
        self._words = self._bytes.view(np.uint32)
        self._status = self._words[_STATUS :: size // 4]  # one word per block
        self._blocks = blocks
        self._at = 0
        self._lent = 0
        self._poll = select.poll()
        self._poll.register(ring, select.POLLIN | select.POLLERR)
        if self.interface.index:
            ring.bind((name, _ALL_PROTOCOLS))
        if fanout is not None:
            fanout.join(ring)

    def next_blocks(self, within_ms: int) -> RingBlocks | None:
        """Return the blocks lent last, and wait for the next ones. None: no block came in time; this may be returned
        early if the interface went down."""
        self._status[self._at : self._at + self._lent] = 0
        self._at = (self._at + self._lent) % self._blocks
        self._lent = 0
        if not self._status[self._at] & _OURS:
            self._poll.poll(within_ms)
        if 0 < self._ready() * self._size < _GATHERED:
            time.sleep(_GATHER_S)
        self._lent = self._ready()
        return self._piece(self._lent) if self._lent else None

    def _ready(self) -> int:
        """The adjacent blocks from here on that the kernel has handed over."""
        most = min(_AT_ONCE // self._size, self._blocks - self._at)
        ready = 0
        while ready < most and self._status[self._at + ready] & _OURS:
            ready += 1
        return ready

    def no_frames(self) -> RingBlocks:
        """A result of `next_blocks` without any blocks."""
        return self._piece(0)

    def _piece(self, blocks: int) -> RingBlocks:
        begin, end = self._at * self._size, (self._at + blocks) * self._size
        bytes_, words = self._bytes[begin:end], self._words[begin // 4 : end // 4]
        bytes_.flags.writeable = False
        return RingBlocks(self._size, bytes_, words, words[_FRAMES :: self._size // 4].astype(np.int64))

    def take_losses(self) -> tuple[int, int]:
        """The frames that found no room in the ring since the last call, and how often the ring filled up."""
        answer = self._socket.getsockopt(_SOL_PACKET, _STATISTICS, 12)
        _, dropped, freezes = struct.unpack("3I", answer)
        return int(dropped), int(freezes)

    @property
    def ring_bytes(self) -> int:
        return len(self._bytes)

    @property
    def filled_bytes(self) -> int:
        """Bytes of the blocks that the kernel has handed over, full or not, and that are not returned yet. Any thread
        may call this."""
        return int(np.count_nonzero(self._status & _OURS)) * self._size

    def take_fault(self) -> bool:
        """Whether the interface went down since the last call. Frames come again when it is up, unless it was
        removed."""
        return self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ENETDOWN

    @property
    def removed(self) -> bool:
        """Whether the interface no longer exists. A new interface of the same name needs a new ring."""
        if not self.interface.index:
            return False
        with contextlib.suppress(OSError):
            return socket.if_nametoindex(self.interface.name) != self.interface.index
        return True

    def close(self) -> None:
        """Stop receiving. The memory is freed with the last block that refers to it."""
        self._socket.close()


def _packet_socket(at: Interface) -> socket.socket:
    # With protocol 0 nothing arrives before the socket is bound; a socket bound to no interface receives from all of
    # them.
    protocol = 0 if at.index else socket.htons(_ALL_PROTOCOLS)
    try:
        return socket.socket(socket.AF_PACKET, socket.SOCK_RAW, protocol)
    except PermissionError:
        raise NotPermitted(at.name) from None


def _refused(name: str, config: RingConfig, error: OSError) -> InterfaceError:
    if error.errno == errno.EPERM:
        return NotPermitted(name)
    if error.errno == errno.ENOMEM:
        size = config.ring_bytes >> 20
        return InterfaceError(f"{name}: the kernel has no {size} MiB for the ring: give a smaller ring_bytes")
    return InterfaceError(f"{name}: it cannot be captured from: {error.strerror}")
