"""Keeps a log readable while Kafka's client repeats a message many times a second."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable

__all__ = ["Seldom", "Unheard"]

_AGAIN_S = 60.0
_NUMBERS = re.compile(r"\d+")
_MOST = 1000


class Seldom(logging.Filter):
    """Passes a message once a minute. Messages that differ only in numbers count as the same message."""

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


_OF_CONNECTIONS = frozenset({"FAIL", "ERROR", "REQTMOUT", "GETPID", "METADATAUPDATE", "COORD", "CONNECT"})
"""Log facilities of the client for failing connections, which it also reports as problems, and for requests that it
repeats by itself."""

_ON_PURPOSE = "enable.gapless.guarantee is experimental"


class Unheard(logging.Filter):
    """Drops log messages of Kafka's client about its connections, and its warning about an option that lowmark sets on
    purpose."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        return text.partition(" [")[0] not in _OF_CONNECTIONS and _ON_PURPOSE not in text
