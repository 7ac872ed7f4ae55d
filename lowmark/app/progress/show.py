"""`lowmark watch --progress`: how far each query is, read from the topics themselves."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from rich.console import Console
from rich.live import Live
from rich.text import Text

from lowmark.app.config.file import Config
from lowmark.app.config.queries import plan_queries
from lowmark.app.progress.feed import ProgressFeed
from lowmark.app.progress.query_progress import QueryProgress
from lowmark.app.progress.view import ProgressView

__all__ = ["watch_progress"]

_EVERY_S = 1.0

Show = Callable[[Sequence[QueryProgress]], None]


def watch_progress(
    config: Config,
    queries: Sequence[str] | None,
    *,
    once: bool,
    as_json: bool,
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """Until `stop`, or with `once` until all that stood there at the start has been read. JSON: a line for each query,
    and again when it has changed; else a view that is kept current."""
    plans = plan_queries(config, queries)
    notes = Console(stderr=True, highlight=False)
    with ExitStack() as stack:
        live = None if as_json else stack.enter_context(Live(console=Console(), auto_refresh=False))
        feed = stack.enter_context(ProgressFeed(config, plans, notes.print))
        show = _lines() if live is None else lambda found: live.update(ProgressView(found), refresh=True)
        said_s = time.monotonic() - _EVERY_S
        for took in feed.taking(stop):
            now_s = time.monotonic()
            if took and now_s - said_s < _EVERY_S:
                continue
            if feed.caught_up:
                show(feed.progress(time.time_ns()))
                if once:
                    return
            elif live is not None:
                # A state read by half would show windows waiting for records that came long ago.
                live.update(Text(f"reading what the topics hold: {feed.left:,} records are left"), refresh=True)
            said_s = now_s


def _lines() -> Show:
    told: dict[str, QueryProgress] = {}

    def write(found: Sequence[QueryProgress]) -> None:
        for progress in found:
            if told.get(progress.query) != progress:
                told[progress.query] = progress
                sys.stdout.write(json.dumps(progress.json, ensure_ascii=False) + "\n")
        sys.stdout.flush()

    return write
