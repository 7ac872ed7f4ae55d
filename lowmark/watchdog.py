"""Limits the time of calls: a call that has not returned in time ends the process, with the reason.

For calls into libraries that may hang in spite of their own time limits. Only the end of the process ends such a call,
so this is for processes that lose nothing by ending.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lowmark.helpers import Helper

__all__ = ["Watchdog"]

_LOOK_EVERY_S = 0.25


@dataclass(frozen=True, slots=True)
class _Call:
    what: str
    since_s: float
    limit_s: float


class Watchdog:
    """Inert outside a `with` block. The watchdog's thread calls `end` with the reason; `end` ends the process."""

    def __init__(self, end: Callable[[str], None], now_s: Callable[[], float] = time.monotonic) -> None:
        self.helper = Helper("watchdog", self._run)
        self._end = end
        self._now_s = now_s
        self._numbers = itertools.count()
        self._calls: dict[int, _Call] = {}

    def __enter__(self) -> Watchdog:
        self.helper.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.helper.stop()

    @contextmanager
    def within(self, limit_s: float, what: str) -> Iterator[None]:
        """Limit the time of the block. `what` names its work in messages."""
        number = self.begin(limit_s, what)
        try:
            yield
        finally:
            del self._calls[number]

    def begin(self, limit_s: float, what: str) -> int:
        """Limit the time until the process ends. A signal handler may call this."""
        number = next(self._numbers)
        self._calls[number] = _Call(what, self._now_s(), limit_s)
        return number

    def slow(self, after_s: float) -> str | None:
        """The call that has taken longest and its time, as text, if it has taken longer than `after_s`."""
        now_s = self._now_s()
        longest = min(self._under_way(), key=lambda call: call.since_s, default=None)
        if longest is None or now_s - longest.since_s <= after_s:
            return None
        return f"{longest.what}, for {now_s - longest.since_s:.0f} s"

    def look(self) -> None:
        """End the process if a call is overdue."""
        now_s = self._now_s()
        for call in self._under_way():
            if now_s - call.since_s > call.limit_s:
                self._end(f"{call.what} took longer than {call.limit_s:.0f} s")
                return

    def _under_way(self) -> list[_Call]:
        return list(self._calls.values())  # atomic for other threads

    def _run(self, stopping: threading.Event) -> None:
        while not stopping.wait(_LOOK_EVERY_S):
            self.look()
