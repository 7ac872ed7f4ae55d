"""Network interfaces and those of their properties that decide how a capture is read."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import socket
import struct
from dataclasses import dataclass

__all__ = ["ANY", "ANY_PROMISCUOUS", "Interface", "InterfaceError", "NotPermitted", "interface"]

ANY = "any"
"""The name that stands for all interfaces at once."""

ANY_PROMISCUOUS = (
    f"the kernel has a promiscuous mode for each interface, and none for {ANY}: make each one a source of its own, by "
    "its name, or leave promiscuous out"
)

_FLAGS, _MTU, _HARDWARE, _ETHTOOL = 0x8913, 0x8921, 0x8927, 0x8946  # SIOCGIFFLAGS, SIOCGIFMTU, …
_UP, _LOOPBACK = 0x1, 0x8
_ETHERNET = (1, 772)  # ARPHRD_ETHER, ARPHRD_LOOPBACK
_NAME_SIZE = 16
_OFFLOADS = {"gro": (0x2B, 1), "lro": (0x25, 1 << 15), "tso": (0x1E, 1), "gso": (0x23, 1)}  # ethtool command and bit


class InterfaceError(Exception):
    """An interface that cannot be captured from. The text says why and what would be right."""

    exit_code = 1


class NotPermitted(InterfaceError):
    """The kernel does not permit this process a ring."""

    def __init__(self, name: str) -> None:
        # Setcap on the interpreter's file is no option: it would permit the capture to all scripts of all users.
        super().__init__(
            f"capturing from {name} takes the capability CAP_NET_RAW, which this process does not have; start it with "
            "that one alone:\n"
            "    sudo setpriv --reuid=USER --regid=GROUP --init-groups --inh-caps=+net_raw --ambient-caps=+net_raw "
            "lowmark …\n"
            "    sudo systemd-run --pty -p User=USER -p AmbientCapabilities=CAP_NET_RAW lowmark …\n"
            "`sudo lowmark capture --user USER` gives up all rights once it captures"
        )


@dataclass(frozen=True, slots=True)
class Interface:
    """An interface as it is now. `any` has the interfaces that are up as `members`, and the largest MTU of those that
    lead out of this host."""

    name: str
    index: int  # its number in the kernel; 0: any
    up: bool = True
    loopback: bool = False
    ethernet: bool = False  # its frames begin with an Ethernet header
    mtu: int | None = None  # bytes after the link header
    merging: tuple[str, ...] = ()  # active offloads that merge several packets into one frame
    members: tuple[Interface, ...] = ()

    @property
    def merging_note(self) -> str | None:
        """One line about offloads for people."""
        merging = [member for member in self.members or (self,) if member.merging]
        if not merging:
            return None
        which = ", ".join(f"{member.name}: {', '.join(member.merging)}" for member in merging)
        off = "; ".join(
            f"ethtool -K {member.name} {' '.join(f'{name} off' for name in member.merging)}" for member in merging
        )
        return (
            f"{which} may merge packets before they are seen, which then count as one, of their joint length; "
            f"`{off}` prevents it"
        )


def interface(name: str) -> Interface:
    """Look an interface up. Raises InterfaceError if none has this name."""
    if name == ANY:
        return _all_of_them()
    try:
        index = socket.if_nametoindex(name)
    except OSError:
        raise InterfaceError(f"there is no interface {name!r}; there are: {_present()}, and {ANY} for all") from None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            (flags,) = struct.unpack("H", _asked(asking, _FLAGS, name)[:2])
            (mtu,) = struct.unpack("i", _asked(asking, _MTU, name)[:4])
            (hardware,) = struct.unpack("H", _asked(asking, _HARDWARE, name)[:2])
        except OSError as error:
            raise InterfaceError(f"{name}: it cannot be looked at: {error.strerror}") from None
        merging = tuple(word for word, (command, bit) in _OFFLOADS.items() if _offload(asking, name, command) & bit)
    ethernet = hardware in _ETHERNET
    return Interface(name, index, bool(flags & _UP), bool(flags & _LOOPBACK), ethernet, mtu, merging)


def _all_of_them() -> Interface:
    members = []
    for _, name in socket.if_nameindex():
        with contextlib.suppress(InterfaceError):  # it has vanished meanwhile
            members.append(interface(name))
    up = tuple(member for member in members if member.up)
    known = [member.mtu for member in up if member.mtu is not None and not member.loopback]
    return Interface(ANY, 0, mtu=max(known, default=None), members=up)


def _present() -> str:
    return ", ".join(sorted(name for _, name in socket.if_nameindex()))


def _asked(asking: socket.socket, request: int, name: str) -> bytes:
    """The part of the answer after the name."""
    question = name.encode()[: _NAME_SIZE - 1].ljust(_NAME_SIZE, b"\0") + bytes(24)
    return fcntl.ioctl(asking.fileno(), request, question)[_NAME_SIZE:]


def _offload(asking: socket.socket, name: str, command: int) -> int:
    value = (ctypes.c_uint32 * 2)(command, 0)
    question = name.encode()[: _NAME_SIZE - 1].ljust(_NAME_SIZE, b"\0") + struct.pack("P", ctypes.addressof(value))
    try:
        fcntl.ioctl(asking.fileno(), _ETHTOOL, question.ljust(_NAME_SIZE + 24, b"\0"))
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EPERM, errno.EINVAL, errno.ENODEV):
            return 0  # a driver without the feature does not merge by it
        raise
    return int(value[1])
