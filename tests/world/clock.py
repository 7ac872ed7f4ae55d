"""The world's time. Nothing in it waits: a wait moves the clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

__all__ = ["SECOND", "Clock"]

SECOND = 10**9
_BEGIN_NS = 1_760_000_000 * SECOND


class Clock:
    """One clock for all hosts: nothing of lowmark compares the clocks of two hosts but a record's time of append."""

    def __init__(self) -> None:
        self.now_ns = _BEGIN_NS

    def monotonic(self) -> float:
        return (self.now_ns - _BEGIN_NS) / SECOND

    def time(self) -> float:
        return self.now_ns / SECOND

    def pass_by(self, seconds: float) -> None:
        self.now_ns += round(seconds * SECOND)

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """In this block, all that asks for the time or waits uses this clock."""
        with (
            mock.patch.object(time, "monotonic", self.monotonic),
            mock.patch.object(time, "time", self.time),
            mock.patch.object(time, "sleep", self.pass_by),
        ):
            yield
