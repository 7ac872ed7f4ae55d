"""One line about what a query waits for while no results come."""

from __future__ import annotations

import time
from contextlib import ExitStack

from lowmark.app.config.file import Config
from lowmark.app.config.queries import plan_queries
from lowmark.app.config.toml_tables import ConfigError
from lowmark.app.progress.feed import ProgressFeed
from lowmark.app.progress.query_progress import QueryProgress
from lowmark.wire.kafka.clients import KafkaUnavailable

__all__ = ["Quiet", "waiting_text"]

_AT_MOST_S = 1.0
"""Limit for reading what has come since the last look."""


class Quiet:
    """Opens its reader at the first call, because most queries have results and need none. The reader ends with the
    `stack`."""

    def __init__(self, config: Config, query: str, stack: ExitStack) -> None:
        self._config = config
        self._query = query
        self._stack = stack
        self._feed: ProgressFeed | None = None

    def progress(self) -> QueryProgress | None:
        """The present progress. None: not known, because the topics have not been read to their end yet, the broker is
        away, or the configuration has no such query (any more)."""
        if self._feed is None:
            try:
                feed = ProgressFeed(self._config, plan_queries(self._config, [self._query]), lambda text: None)
                self._feed = self._stack.enter_context(feed)
            except (ConfigError, KafkaUnavailable):
                return None
        until = time.monotonic() + _AT_MOST_S
        for took in self._feed.taking(lambda: time.monotonic() > until, wait_s=0.05):
            if not took and self._feed.caught_up:
                break
        if not self._feed.caught_up:
            return None
        (found,) = self._feed.progress(time.time_ns())
        return found


def waiting_text(found: QueryProgress) -> str:
    first = found.waiting[0].brief if found.waiting else None
    if first is None:
        return "all sources have ended: nothing more comes" if found.ended else "nothing holds it up: it has no rows"
    more = f", and {len(found.waiting) - 1} more" if len(found.waiting) > 1 else ""
    what = f"the window to {found.open[0].end}" if found.open else "it"
    return f"{what} waits for {first}{more}"
