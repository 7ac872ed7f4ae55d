"""SIGHUP to `lowmark capture`, or a change of its configuration: replaces the running queries by those in the file.

New kernels are compiled in another process while the old queries run. Each source switches between two blocks, so that
no packet is missed. The former stage of a changed query is served for a while beside the new one (`overlap.py`). A
change that cannot be made this way is refused with the reason, and the old queries go on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from dataclasses import replace
from math import inf
from multiprocessing import get_context

from lowlevel.closed_connections import kernel_reductions
from lowlevel.config import LowLevelConfigError
from lowlevel.emitter import Emitter
from lowlevel.kernel.cache import prepare
from lowmark.app.capture.frame_filter import frame_filter
from lowmark.app.capture.overlap import Overlap
from lowmark.app.capture.source_thread import SourceThread, Work
from lowmark.app.capture.sources import readers_of, work_of
from lowmark.app.capture.table_memory import asked_table, check_tables
from lowmark.app.config.changes import ConfigChanges
from lowmark.app.config.file import Config, load_config
from lowmark.app.config.queries import plan_queries, topics_of
from lowmark.app.config.toml_tables import ConfigError
from lowmark.app.errors import EnvironmentNotReady
from lowmark.app.kafka.rights import Role
from lowmark.query.plan.nodes import QueryPlan
from lowmark.wire.kafka.clients import KafkaProblem, KafkaSettingsError, admin, ensure_topics

__all__ = ["CaptureReload", "check_stages", "ensure_topics_of"]

_LOG = logging.getLogger("lowmark.capture")
_LOOK_S = 0.2
_AGAIN_S = 30.0


def ensure_topics_of(config: Config, plans: Sequence[QueryPlan]) -> None:
    """Creates missing topics of captures. EnvironmentNotReady if an existing one has the wrong settings."""
    problems = ensure_topics(admin(config.kafka), topics_of(config, plans, (Role.CAPTURE,)))
    if problems:
        raise EnvironmentNotReady(
            "topics differ from what the configuration needs",
            "delete the topic, or put its settings into the configuration; `lowmark topics` lists them",
            tuple(str(problem) for problem in problems),
        )


class CaptureReload:
    """Call `ask` from a signal handler, and `step` repeatedly from the main thread."""

    def __init__(
        self, config: Config, plans: Sequence[QueryPlan], threads: Sequence[SourceThread], emitter: Emitter,
        now_s: Callable[[], float] = time.monotonic, changes: ConfigChanges | None = None,
    ) -> None:  # fmt: skip
        """`changes`: each is a request, too, which is repeated while something but the configuration is in its way."""
        self._config = config
        self._emitter = emitter
        self._plans = tuple(plans)
        self._overlap = Overlap(now_s)
        self._now_s = now_s
        self._again_s = -inf  # no overlap is ended before this time: the last attempt failed
        self._changes = changes
        self._repeat_s = inf
        self.refused: str | None = None
        """Why the present configuration is not in use."""
        self._threads = threads
        self._asked = threading.Event()
        self._worker: threading.Thread | None = None

    def ask(self) -> None:
        self._asked.set()

    def step(self) -> None:
        """Begins a requested reload when the previous one is done, and ends overlaps."""
        if self._changes is not None and (self._changes.found() or self._now_s() >= self._repeat_s):
            self._repeat_s = inf
            self.ask()
        if self._worker is not None and self._worker.is_alive():
            return
        if self._asked.is_set():
            self._asked.clear()
            self._begin(self._take)
        elif self._overlap.is_over and self._now_s() >= self._again_s:
            self._begin(self._end_overlap)

    def _begin(self, change: Callable[[], None]) -> None:
        self._worker = threading.Thread(target=self._attempt, args=(change,), name="reloading", daemon=True)
        self._worker.start()

    def _attempt(self, change: Callable[[], None]) -> None:
        try:
            change()
        except Exception:  # a defect must not end a capture that works
            _LOG.exception("the configuration could not be applied")
            self._again_s = self._now_s() + _AGAIN_S

    def _take(self) -> None:
        try:
            config = load_config(self._config.path)
            plans = plan_queries(config)
            if (config, tuple(plans)) == (self._config, self._plans):
                self.refused = None
                _LOG.warning("the configuration was read again: it is as it was")
                return
            check_stages(self._config, self._plans, config, plans)
            work = self._work(config, plans)
            ensure_topics_of(config, plans)
        except (ConfigError, EnvironmentNotReady, KafkaProblem, KafkaSettingsError, LowLevelConfigError) as error:
            _LOG.error("the configuration was refused, and the old one stays in use: %s", error)
            self.refused = str(error)
            if isinstance(error, EnvironmentNotReady | KafkaProblem):
                self._repeat_s = self._now_s() + _AGAIN_S
            return
        overlap = self._overlap.after(self._plans, plans, config.job.overlap_s)
        try:
            both = self._work(config, plans, overlap.plans)
        except LowLevelConfigError as error:
            _LOG.warning("former and new stages do not run side by side: %s", error)
            overlap, both = overlap.after((), (), 0), work
        self._switch(config, [*plans, *overlap.plans], both)
        self._config, self._plans, self._overlap, self.refused = config, plans, overlap, None
        _LOG.warning("the configuration was read again: queries are %s", ", ".join(plan.name for plan in plans))
        if overlap.plans:
            names = ", ".join(sorted({plan.name for plan in overlap.plans}))
            _LOG.warning("the former stage of %s is served for %s more", names, config.job.overlap)

    def _end_overlap(self) -> None:
        former = {plan.name for plan in self._overlap.plans}
        overlap = self._overlap.after((), self._plans, 0)
        self._switch(self._config, [*self._plans, *overlap.plans], self._work(self._config, self._plans, overlap.plans))
        self._overlap = overlap
        ended = former.difference(plan.name for plan in overlap.plans)
        _LOG.warning("the former stage of %s has ended", ", ".join(sorted(ended)))

    def _switch(self, config: Config, plans: Sequence[QueryPlan], work: dict[str, list[Work]]) -> None:
        """Returns when each source has switched."""
        _compile(work, config)
        running = [thread for thread in self._threads if thread.is_alive()]
        successors = [(thread, thread.prepare(work[thread.source.name])) for thread in running]
        readers = readers_of(plans, (item for thread in running for item in work[thread.source.name]))
        ending = {state.topic: state.readers for state in self._emitter.states() if state.readers}
        self._emitter.serve(ending | readers)
        for thread, successor in successors:
            thread.switch_to(successor)
        for thread, successor in successors:
            while thread.is_alive() and not successor.running.wait(_LOOK_S):
                pass
        self._emitter.serve(readers)

    def _work(
        self, config: Config, plans: Sequence[QueryPlan], beside: Sequence[QueryPlan] = ()
    ) -> dict[str, list[Work]]:  # fmt: skip
        """The work of each thread for these queries and those `beside` them, by source name. ConfigError for a change
        that needs a restart, LowLevelConfigError if the tables do not fit into memory."""
        before = self._config
        if replace(config, queries=before.queries, job=before.job) != before:
            raise ConfigError("more than queries has changed; restart the capture to apply it")
        found = {}
        read = {name for name in config.sources if any(thread.source.name in config.members(name)
                for thread in self._threads)}  # fmt: skip
        for name in sorted(read):
            old, new = (work_of(config, of, name) for of in (self._plans, plans))
            served = work_of(config, [*self._plans, *self._overlap.plans], name)
            _check(name, served, new, file=config.sources[name].file is not None)
            if config.sources[name].kernel_filter and _kept(old) != _kept(new):
                raise ConfigError(
                    f"source {name}: its filter in the kernel would change; restart the capture to apply it"
                )
            found.update(dict.fromkeys(config.members(name), work_of(config, [*plans, *beside], name)))
        here = set(config.here()) - read
        if idle := sorted(name for name in here if work_of(config, plans, name) and self._is_new(name)):
            raise ConfigError(f"no query has read source {idle[0]} before; restart the capture to add it")
        nodes = (item.node for thread in self._threads for item in found[thread.source.name])
        check_tables(nodes, config.capture.table, asked_table(config.capture.table))
        return found

    def _is_new(self, name: str) -> bool:
        return not work_of(self._config, self._plans, name)


def check_stages(old: Config, were: Sequence[QueryPlan], new: Config, are: Sequence[QueryPlan]) -> None:
    """An unchanged query must keep its stage: a new stage would hold nothing of the windows that are open now."""
    before = {plan.name: plan for plan in were}
    for plan in are:
        was = before.get(plan.name)
        if was is None or (was.sql, old.queries[plan.name]) != (plan.sql, new.queries[plan.name]):
            continue
        if was.stage.fingerprint != plan.stage.fingerprint:
            raise ConfigError(
                f"query {plan.name} would have another stage and topic, since {_changed(old, new, plan.name)}: its "
                "windows would start again. Restart the capture to apply it"
            )


def _changed(old: Config, new: Config, name: str) -> str:
    """Why an unchanged query would get another stage."""
    called = new.queries[name].share
    beside = {
        other
        for config in (old, new)
        for other, query in config.queries.items()
        if called is not None and query.share == called and other != name
    }
    changed = sorted(other for other in beside if old.queries.get(other) != new.queries.get(other))
    if changed:
        return f"it has share = {called!r}, and so has or had {', '.join(changed)}, which changed"
    if called is None or old.job.buckets != new.job.buckets:
        return "job.buckets has changed"
    return f"another query of share = {called!r} has changed"


def _check(name: str, old: Sequence[Work], new: Sequence[Work], *, file: bool) -> None:
    if not new:
        raise ConfigError(f"no query would read source {name} any more; restart the capture to remove it")
    before = {item.alias: item for item in old}
    for item in new:
        if item.alias not in before and file:
            raise ConfigError(
                f"source {name} is a file: a new query would miss the part already read; restart the capture"
            )
        if item.alias in before and item.send_late != before[item.alias].send_late:
            raise ConfigError(
                f"source {name}: whether late tuples are sent has changed; restart the capture to apply it"
            )


def _kept(work: Iterable[Work]) -> object:
    return frame_filter([item.node for item in work])[0]


def _compile(work: dict[str, list[Work]], config: Config) -> None:
    """Compiles in another process, so that the compiler does not slow these threads; they load the result from disk."""
    try:
        with ProcessPoolExecutor(1, get_context("spawn")) as compiler:
            for items in work.values():
                nodes, sent = [item.node for item in items], [item.send_late for item in items]
                reductions, late = kernel_reductions(nodes, sent)
                compiler.submit(prepare, reductions, late, config.capture.table.order).result()
    except (BrokenExecutor, OSError) as error:
        _LOG.warning("kernels are compiled in this process, because another one could not be started: %s", error)
