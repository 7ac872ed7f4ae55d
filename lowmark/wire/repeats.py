"""Keeps a log readable while Kafka's client says the same thing many times a second."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable

__all__ = ["Seldom"]

_AGAIN_S = 30.0
_NUMBERS = re.compile(r"\d+")
_MOST = 1000


class Seldom(logging.Filter):
    """Lets a message through, and others that differ from it in numbers alone only after a while."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._last: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        now, text = self._clock(), _NUMBERS.sub("0", record.getMessage())
        if now - self._last.get(text, now - _AGAIN_S) < _AGAIN_S:
            return False
        if len(self._last) >= _MOST:
            self._last.clear()
        self._last[text] = now
        return True
