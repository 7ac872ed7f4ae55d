"""Classic BPF programs on a capture's socket. They decide how much of a frame is kept, and which frames are not even
copied."""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["NOTHING", "Instruction", "accepting", "attach"]

_SO_ATTACH_FILTER = 26
_LOAD_WORD = 0x20
_JUMP_EQUAL = 0x15
_RETURN = 0x06
_ANCILLARY = 0xFFFF_F000  # the kernel's data about a packet are loaded from offsets above this one
_PACKET_TYPE, _INTERFACE = _ANCILLARY + 4, _ANCILLARY + 8
_OUTGOING = 4


class Instruction(NamedTuple):
    code: int
    if_true: int  # instructions to jump over
    if_false: int
    operand: int


NOTHING = (Instruction(_RETURN, 0, 0, 0),)
"""Accepts no frame."""


def accepting(snaplen: int, loopback: int | None) -> tuple[Instruction, ...]:
    """Keep the first `snaplen` bytes of every frame. On the interface with index `loopback` each packet passes twice,
    out and in again: the outgoing copy is dropped."""
    keep = Instruction(_RETURN, 0, 0, snaplen)
    if loopback is None:
        return (keep,)
    return (
        Instruction(_LOAD_WORD, 0, 0, _INTERFACE),
        Instruction(_JUMP_EQUAL, 0, 2, loopback),
        Instruction(_LOAD_WORD, 0, 0, _PACKET_TYPE),
        Instruction(_JUMP_EQUAL, 1, 0, _OUTGOING),
        keep,
        *NOTHING,
    )


def attach(to: socket.socket, program: Sequence[Instruction]) -> None:
    """Replace the socket's current program."""
    text = b"".join(struct.pack("HBBI", *instruction) for instruction in program)
    held = ctypes.create_string_buffer(text, len(text))
    to.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", len(program), ctypes.addressof(held)))
