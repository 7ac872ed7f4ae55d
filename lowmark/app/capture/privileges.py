"""Lets a process that root has started run as another user: it is root only while it needs to be, and never after
that."""

from __future__ import annotations

import ctypes
import os
import pwd
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import lowmark
from lowmark.app.errors import EnvironmentNotReady, StartRefused

__all__ = ["User", "act_as", "last_as_root", "user_called"]

_NO_NEW_PRIVS, _AMBIENT, _CLEAR_ALL = 38, 47, 4  # of prctl
_CAPABILITIES_VERSION = 0x20080522
_CAPABILITIES = ("CapInh", "CapPrm", "CapEff", "CapAmb")  # lines of /proc/…/status


@dataclass(frozen=True, slots=True)
class User:
    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str


def user_called(name: str) -> User:
    """StartRefused if this host has no such user, or the user is root."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise StartRefused(
            f"there is no user {name!r} on this host", "name an existing user; `useradd --system NAME` creates one"
        ) from None
    if entry.pw_uid == 0:
        raise StartRefused(
            f"the user {name!r} is root, which has every privilege", "name another user, or leave --user out"
        )
    groups = os.getgrouplist(name, entry.pw_gid)
    return User(name, entry.pw_uid, entry.pw_gid, tuple(groups), entry.pw_dir)


def act_as(user: User) -> User:
    """Acts as this user from now on. StartRefused if this process may not, EnvironmentNotReady if the user may not load
    modules."""
    try:
        os.setgroups(user.groups)
        os.setresgid(user.gid, user.gid, user.gid)
        os.seteuid(user.uid)
    except PermissionError:
        raise StartRefused(
            f"this process may not become the user {user.name!r}: it was not started by root",
            "start it as root, or leave --user out: a user other than root needs only CAP_NET_RAW",
        ) from None
    os.environ |= {"HOME": user.home, "USER": user.name, "LOGNAME": user.name}
    for path in (sys.executable, os.__file__, lowmark.__file__):
        if path and not os.access(path, os.R_OK, effective_ids=True):
            os.seteuid(0)  # what tells the error has yet to be loaded
            raise EnvironmentNotReady(
                f"the user {user.name!r} may not read {path}, and a capture loads modules while it runs",
                "install Python and lowmark where every user may read them, such as /opt or /usr/local",
            )
    return user


@contextmanager
def last_as_root(user: User, priority: int) -> Iterator[None]:
    """Becomes root again for the block. After it, all threads and the programs they start are this user, without any
    privileges, and cannot get them back. SCHED_FIFO priorities up to `priority` stay allowed."""
    os.seteuid(0)
    try:
        if priority:
            with suppress(ValueError):  # not allowed even for this root: the threads that need it report that
                resource.setrlimit(resource.RLIMIT_RTPRIO, (priority, priority))
        yield
    finally:
        os.setresuid(user.uid, user.uid, user.uid)
        _clear_capabilities()


def _clear_capabilities() -> None:
    """Makes sure that no capability is left: the kernel clears them when root becomes another user."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, nothing = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION, 0), (ctypes.c_uint32 * 6)()
    done = (
        libc.prctl(_AMBIENT, _CLEAR_ALL, 0, 0, 0),
        libc.capset(header, nothing),
        libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0),
    )
    if any(done):
        raise OSError(ctypes.get_errno(), "privileges could not be dropped")
    for thread in Path("/proc/self/task").iterdir():
        lines = dict(line.split(":", 1) for line in (thread / "status").read_text().splitlines() if ":" in line)
        if any(int(lines[name], 16) for name in _CAPABILITIES):
            raise RuntimeError(f"a thread has kept capabilities: {lines['Name'].strip()}")
