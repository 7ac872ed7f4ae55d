"""Warnings of a running `lowmark capture` about tables that are too small."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from lowlevel.table_pressure import Crowded

__all__ = ["Crowding"]

_LOOK_S = 2.0
_SILENT_S = 60.0  # after a line about a table


class Crowding:
    """Call `step` repeatedly. Warns when a larger table would be faster, and again when a still larger one would, but
    at most once a minute for each table."""

    def __init__(
        self, tables: Callable[[], Iterable[tuple[str, Crowded | None]]], tell: Callable[[str], None],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """`tables`: all present tables, with the names to show."""
        self._tables = tables
        self._tell = tell
        self._now_s = now_s
        self._looked_s = -_LOOK_S
        self._told: dict[str, tuple[float, int]] = {}  # time of the last warning, and the slots it named

    def step(self, at_end: bool = False) -> None:
        now = self._now_s()
        if now - self._looked_s < _LOOK_S and not at_end:
            return
        self._looked_s = now
        for name, crowded in self._tables():
            told_s, wanted = self._told.get(name, (now - _SILENT_S, 0))
            if crowded is not None and crowded.wanted > wanted and (now - told_s >= _SILENT_S or at_end):
                self._told[name] = now, crowded.wanted
                self._tell(f"{name}: {crowded}; slots = {crowded.wanted} in [capture.table] would be faster")
