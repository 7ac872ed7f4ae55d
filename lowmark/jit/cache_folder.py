"""The user's own folder for files that any process can make again. Storing is best effort: if a file cannot be
written, the next process makes it again."""

from __future__ import annotations

import logging
import os
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

__all__ = ["cache_root", "load_cached", "store_cached"]

_MOST_BYTES = 256 << 20
_MOST_IDLE = 60 * 86_400.0  # seconds
_TOUCHED = 86_400.0  # seconds; a file's use is recorded once in this time

logger = logging.getLogger("lowmark.cache")


def cache_root() -> Path:
    """$LOWMARK_CACHE, else lowmark/ in $XDG_CACHE_HOME, else in ~/.cache; it may not exist yet. A user without a home
    gets a folder that is deleted with the process."""
    if chosen := os.environ.get("LOWMARK_CACHE"):
        return Path(chosen).absolute()
    # The XDG specification says that a relative path in its variables must be ignored.
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if base.is_absolute():
        return base / "lowmark"
    try:
        return Path.home() / ".cache" / "lowmark"
    except RuntimeError:  # an arbitrary uid, as in containers, with neither $HOME nor an entry in passwd
        return Path(_private().name)


def load_cached(kind: str, name: str) -> bytes | None:
    """The content given to `store_cached` by this process or an earlier one; None if it is not there."""
    path = cache_root() / kind / name
    try:
        if not _is_ours(path.parent):
            return None
        content = path.read_bytes()
    except OSError:
        return None
    with suppress(OSError):  # the folder may be part of an image, mounted read-only
        if time.time() - path.stat().st_mtime > _TOUCHED:
            os.utime(path)  # the least recently used files are removed first
    return content


def store_cached(kind: str, name: str, content: bytes) -> Path | None:
    """Write the file atomically, so several processes may do it at once. None if it cannot be written; the log says so
    once. A folder that others can write to is not used, because the content may be run as code."""
    folder = cache_root() / kind
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_ours(folder):
            raise PermissionError(0, "others own it or may write to it")
        _write(folder / name, content)
    except OSError as error:
        _warn(folder, error.strerror or str(error))
        return None
    _prune(folder)
    return folder / name


def _is_ours(folder: Path) -> bool:
    status = folder.stat()
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _write(path: Path, content: bytes) -> None:
    with tempfile.NamedTemporaryFile("wb", dir=path.parent, suffix=".tmp", delete=False) as file:
        try:
            file.write(content)
            file.flush()
            os.replace(file.name, path)
        except OSError:
            os.unlink(file.name)
            raise


def _prune(folder: Path) -> None:
    """Remove files not used for `_MOST_IDLE`; while the rest is too large, remove the least recently used."""
    files = []
    for path in folder.iterdir():
        with suppress(OSError):  # another process may prune too
            status = path.stat()
            files.append((status.st_mtime, status.st_size, path))
    room = _MOST_BYTES
    oldest = time.time() - _MOST_IDLE
    for used, size, path in sorted(files, reverse=True):
        room -= size
        if used < oldest or room < 0:
            with suppress(OSError):
                path.unlink()


@cache
def _warn(folder: Path, why: str) -> None:
    logger.warning(
        "nothing can be kept in %s (%s): each start compiles its queries again; LOWMARK_CACHE names another folder",
        folder, why,
    )  # fmt: skip


@cache
def _private() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="lowmark-")
