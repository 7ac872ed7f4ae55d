"""The writes of a task's buckets overlap: most of the time of each is waiting for the broker."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache

__all__ = ["Commits"]

_AT_ONCE = 16

_MOST_BYTES = 64 << 20
"""Results that wait in memory to be written."""


class Commits:
    """Those of one task. What fails is raised by `end` at the latest."""

    def __init__(self) -> None:
        self._under_way: list[Future[object]] = []
        self._bytes = 0

    def begin(self, write: Callable[[], object], size: int) -> None:
        """Write so many bytes, now or later."""
        if self._bytes + size > _MOST_BYTES:
            self.end()
        self._bytes += size
        self._under_way.append(_threads().submit(write))

    def end(self) -> None:
        """Return when nothing is under way any more. Raises the first error."""
        under_way, self._under_way, self._bytes = self._under_way, [], 0
        errors = [error for write in under_way if (error := write.exception()) is not None]
        if errors:
            raise errors[0]


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_AT_ONCE, "commit")
