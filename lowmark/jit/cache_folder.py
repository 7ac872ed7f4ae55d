"""Where this machine keeps what it can make again: a folder of the user's own. Keeping is best effort: what cannot be
written is made again by the next process."""

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
_TOUCHED = 86_400.0  # seconds within which a file that is used again is not marked as used again

logger = logging.getLogger("lowmark.cache")


def cache_root() -> Path:
    """$LOWMARK_CACHE, else lowmark/ in $XDG_CACHE_HOME, else in ~/.cache; it need not be there. A user without a home
    gets a folder that ends with the process."""
    if chosen := os.environ.get("LOWMARK_CACHE"):
        return Path(chosen).absolute()
    # The specification of XDG says that a relative path in its variables is to be ignored.
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if base.is_absolute():
        return base / "lowmark"
    try:
        return Path.home() / ".cache" / "lowmark"
    except RuntimeError:  # an arbitrary uid, as containers have them, with neither $HOME nor an entry in passwd
        return Path(_private().name)


def load_cached(kind: str, name: str) -> bytes | None:
    """What `store_cached` was given, by this process or an earlier one; None where it is not there."""
    path = cache_root() / kind / name
    try:
        if not _is_ours(path.parent):
            return None
        content = path.read_bytes()
    except OSError:
        return None
    with suppress(OSError):  # the folder may be another's image, mounted to be read
        if time.time() - path.stat().st_mtime > _TOUCHED:
            os.utime(path)  # files that nobody uses leave first
    return content


def store_cached(kind: str, name: str, content: bytes) -> Path | None:
    """Writes the file whole, though several processes do it at once; None, which the log says once, where it cannot be
    written. What lies there may be run: a folder that others can write to is not used."""
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
    """Removes what has not been used for long and, while the rest takes too much room, what was used longest ago."""
    files = []
    for path in folder.iterdir():
        with suppress(OSError):  # another process prunes, too
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
