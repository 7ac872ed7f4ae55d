"""Where this machine keeps what it can make again: a folder of the user's own."""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path

__all__ = ["cache_folder", "cache_root", "put_in_place"]


def cache_root() -> Path:
    """$LOWMARK_CACHE, else lowmark/ in $XDG_CACHE_HOME, else in ~/.cache; it need not be there."""
    if chosen := os.environ.get("LOWMARK_CACHE"):
        return Path(chosen).absolute()
    # The specification of XDG says that a relative path in its variables is to be ignored.
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "lowmark"


def cache_folder(kind: str) -> Path:
    """A folder for things of this kind below the cache's root; where that cannot be, one of this process alone. What
    lies there may be run: nobody else can put anything there."""
    folder = cache_root() / kind
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
        if status.st_uid == os.getuid() and not status.st_mode & 0o022 and os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    folder = Path(_private().name) / kind
    folder.mkdir(exist_ok=True)
    return folder


@cache
def _private() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="lowmark-")


def put_in_place(path: Path, content: bytes) -> None:
    """Writes a file whole: several processes may do it at once."""
    with tempfile.NamedTemporaryFile("wb", dir=path.parent, suffix=".tmp", delete=False) as file:
        file.write(content)
    os.replace(file.name, path)
