"""SIGHUP to `lowmark run`, or a change of its configuration: has the job take the queries in the file.

A configuration that makes no sense, or changes what only a new process can take, is refused with the reason, and the
job goes on as before; so it does if nothing has changed that concerns it. Otherwise the streaming query ends between
two micro-batches (`change_timing.py` says when) and begins again with the new queries, in the same Spark session.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from lowmark.app.config.changes import ConfigChanges
from lowmark.app.config.file import Config, load_config
from lowmark.app.config.queries import plan_queries
from lowmark.app.config.toml_tables import ConfigError
from lowmark.query.plan.nodes import QueryPlan

__all__ = ["Reload", "ReloadRequests", "unchanged"]

_LOG = logging.getLogger("lowmark.job")


@dataclass(frozen=True, slots=True)
class Reload:
    """A configuration that the job is to take, and the plans of its queries."""

    config: Config
    plans: tuple[QueryPlan, ...]

    def runs_as(self, other: Reload) -> bool:
        """Whether a job runs both in the same way."""
        return self.plans == other.plans and self._settings() == other._settings()

    def _settings(self) -> object:
        """The settings of what the plans read and write."""
        config = self.config
        streams = {stream for plan in self.plans for node in plan.stage.nodes for stream in node.streams}
        rosters = {stream: (config.streams[stream], config.roster(stream)) for stream in streams}
        kinds = {source: config.kinds.get(source) for _, roster in rosters.values() for source in roster}
        return {plan.name: config.queries[plan.name] for plan in self.plans}, rosters, kinds


class ReloadRequests:
    """`queries`: the subset that the job runs; None: all. `changes`: each is a request, too. Enter `listening` in the
    main thread."""

    def __init__(self, queries: Sequence[str] | None, changes: ConfigChanges | None = None) -> None:
        self._queries = queries
        self._changes = changes
        self.refused: str | None = None
        """Why the present configuration is not in use."""
        self._asked = threading.Event()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """In this block, SIGHUP asks for a reload."""

        before = signal.signal(signal.SIGHUP, lambda number, frame: self.ask())
        try:
            yield
        finally:
            signal.signal(signal.SIGHUP, before)

    def ask(self) -> None:
        """Ask for a reload, as SIGHUP does."""
        self._asked.set()

    def take(self, config: Config) -> Reload | None:
        """What is to be taken in the place of this configuration, if somebody has asked. Asks no broker."""
        if self._changes is not None and self._changes.found():
            self.ask()
        if not self._asked.is_set():
            return None
        self._asked.clear()
        try:
            found = load_config(config.path)
            plans = plan_queries(found, self._queries)
            _check(config, found)
        except ConfigError as error:
            self.refuse(error)
            return None
        self.refused = None
        return Reload(found, plans)

    def refuse(self, error: Exception) -> None:
        self.refused = str(error)
        _LOG.error("the configuration was refused, and the old one stays in use: %s", error)


def _check(before: Config, now: Config) -> None:
    job = replace(now.job, overlap=before.job.overlap)  # the next change of a query uses it
    same = replace(now, queries=before.queries, streams=before.streams, sources=before.sources, job=job)
    if same != before:
        raise ConfigError(
            "more than queries, streams, sources and job.overlap has changed; restart the job to apply it"
        )


def unchanged() -> None:
    _LOG.warning("the configuration was read again: nothing has changed that concerns the job")
