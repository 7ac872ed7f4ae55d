"""What a process waits for has a time: a call that has not returned in it ends the process, with its reason.

For calls into libraries that may hang whatever time they are given. Nothing but the end of the process ends such a
call, so this is for processes that lose nothing by ending.
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
    """Inert until `start`. `end` is given the reason, by the watchdog's thread, and ends the process."""

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
        """The block has so long. `what`, for a person, is what it does."""
        number = self.begin(limit_s, what)
        try:
            yield
        finally:
            del self._calls[number]

    def begin(self, limit_s: float, what: str) -> int:
        """From now on the process has so long, for something that ends with it. A signal handler may call this."""
        number = next(self._numbers)
        self._calls[number] = _Call(what, self._now_s(), limit_s)
        return number

    def slow(self, after_s: float) -> str | None:
        """What has taken longest, if it has taken longer than this, and for how long: for a person."""
        now_s = self._now_s()
        longest = min(self._under_way(), key=lambda call: call.since_s, default=None)
        if longest is None or now_s - longest.since_s <= after_s:
            return None
        return f"{longest.what}, for {now_s - longest.since_s:.0f} s"

    def look(self) -> None:
        """End the process if something is overdue."""
        now_s = self._now_s()
        for call in self._under_way():
            if now_s - call.since_s > call.limit_s:
                self._end(f"{call.what} has not come to an end within {call.limit_s:.0f} s")
                return

    def _under_way(self) -> list[_Call]:
        return list(self._calls.values())  # one step for other threads

    def _run(self, stopping: threading.Event) -> None:
        while not stopping.wait(_LOOK_EVERY_S):
            self.look()
