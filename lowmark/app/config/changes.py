"""Notices that a configuration has changed: its file, or a file with the text of a query."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf
from pathlib import Path

from lowmark.app.config.file import load_config
from lowmark.app.config.toml_tables import ConfigError

__all__ = ["ConfigChanges"]

_LOOK_EVERY_S = 2.0


class ConfigChanges:
    """Compares contents, because an orchestrator replaces a link to a folder and editors write a file in steps. A
    change counts when two looks in a row find the same. Make it before the configuration is loaded: then it misses no
    change."""

    def __init__(self, path: Path, now_s: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._now_s = now_s
        self._looked_s = -inf
        self._text: bytes | None = None
        self._files: tuple[Path, ...] = ()
        self._known = self._last = self._look()

    def found(self) -> bool:
        """Whether it has changed since the last call that said so. Call it often: it looks every 2 s."""
        now_s = self._now_s()
        if now_s < self._looked_s + _LOOK_EVERY_S:
            return False
        self._looked_s = now_s
        before, self._last = self._last, self._look()
        if self._last != before or self._last == self._known:
            return False
        self._known = self._last
        return True

    def _look(self) -> tuple[bytes | None, ...]:
        text = _read(self._path)
        if text != self._text:
            self._text, self._files = text, _query_files(self._path)
        return text, *map(_read, self._files)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:  # whoever loads it says why
        return None


def _query_files(path: Path) -> tuple[Path, ...]:
    try:
        config = load_config(path)
    except ConfigError:  # another text follows
        return ()
    return tuple(path.parent / query.file for query in config.queries.values() if query.file is not None)
