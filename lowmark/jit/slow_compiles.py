"""Reports slow compilation to the user. Only the first run of a query compiles."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Timer

__all__ = ["compiling", "watched"]


@dataclass(slots=True)
class _Watch:
    patience_s: float  # of compiling, left until `tell` is called
    tell: Callable[[bool], None]


_watches: list[_Watch] = []


@contextmanager
def watched(patience_s: float, tell: Callable[[bool], None]) -> Iterator[None]:
    """Once compilations together have taken `patience_s`, call `tell(True)` from another thread while one runs, and
    `tell(False)` at its end."""
    watch = _Watch(patience_s, tell)
    _watches.append(watch)
    try:
        yield
    finally:
        _watches.remove(watch)


@contextmanager
def compiling() -> Iterator[None]:
    """Wraps each compilation, to measure its time."""
    begun = time.monotonic()
    timers = [(watch, Timer(max(0.0, watch.patience_s), watch.tell, [True])) for watch in _watches]
    for _, timer in timers:
        timer.daemon = True
        timer.start()
    try:
        yield
    finally:
        for watch, timer in timers:
            timer.cancel()
            timer.join()
            watch.patience_s -= time.monotonic() - begun
            if watch.patience_s <= 0:
                watch.tell(False)
