"""SIGHUP to `lowmark capture`: reads the configuration again and replaces the running queries by those in it.

New kernels are compiled in another process while the old queries run. Each source switches between two blocks, so that
no packet is missed. A change that cannot be made this way is refused with the reason, and the old queries go on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

from lowlevel.closed_connections import kernel_reductions
from lowlevel.config import LowLevelConfigError
from lowlevel.emitter import Emitter
from lowlevel.kernel.cache import prepare
from lowmark.app.capture.frame_filter import frame_filter
from lowmark.app.capture.source_thread import SourceThread, Work
from lowmark.app.capture.sources import readers_of, work_of
from lowmark.app.capture.table_memory import asked_table, check_tables
from lowmark.app.config.file import Config, load_config
from lowmark.app.config.queries import plan_queries, topics_of
from lowmark.app.config.toml_tables import ConfigError
from lowmark.app.errors import EnvironmentNotReady
from lowmark.app.kafka.rights import Role
from lowmark.query.plan.nodes import QueryPlan
from lowmark.wire.kafka.clients import KafkaProblem, KafkaSettingsError, admin, ensure_topics

__all__ = ["Reloading", "check_stages", "ensure_topics_of"]

_LOG = logging.getLogger("lowmark.capture")
_LOOK_S = 0.2


def ensure_topics_of(config: Config, plans: Sequence[QueryPlan]) -> None:
    """Creates missing topics of captures. EnvironmentNotReady if an existing one has the wrong settings."""
    problems = ensure_topics(admin(config.kafka), topics_of(config, plans, (Role.CAPTURE,)))
    if problems:
        raise EnvironmentNotReady(
            "topics differ from what the configuration needs",
            "delete the topic, or put its settings into the configuration; `lowmark topics` lists them",
            tuple(str(problem) for problem in problems),
        )


class Reloading:
    """Call `ask` from a signal handler, and `step` repeatedly from the main thread."""

    def __init__(
        self, config: Config, plans: Sequence[QueryPlan], threads: Sequence[SourceThread], emitter: Emitter
    ) -> None:
        self._config = config
        self._emitter = emitter
        self._plans = tuple(plans)
        self._threads = threads
        self._asked = threading.Event()
        self._worker: threading.Thread | None = None

    def ask(self) -> None:
        self._asked.set()

    def step(self) -> None:
        """Begins a requested reload when the previous one is done."""
        if not self._asked.is_set() or (self._worker is not None and self._worker.is_alive()):
            return
        self._asked.clear()
        self._worker = threading.Thread(target=self._reload, name="reloading", daemon=True)
        self._worker.start()

    def _reload(self) -> None:
        try:
            self._take()
        except Exception:  # a defect must not end a capture that works
            _LOG.exception("the configuration could not be applied")

    def _take(self) -> None:
        try:
            config = load_config(self._config.path)
            plans = plan_queries(config)
            check_stages(self._config, self._plans, config, plans)
            work = self._work(config, plans)
            ensure_topics_of(config, plans)
        except (ConfigError, EnvironmentNotReady, KafkaProblem, KafkaSettingsError, LowLevelConfigError) as error:
            _LOG.error("the configuration was refused, and the old one stays in use: %s", error)
            return
        _compile(work, config)
        running = [thread for thread in self._threads if thread.is_alive()]
        successors = [(thread, thread.prepare(work[thread.source.name])) for thread in running]
        readers = readers_of(plans, (item for thread in running for item in work[thread.source.name]))
        ending = {state.topic: state.readers for state in self._emitter.states() if state.readers}
        self._emitter.serve(ending | readers)
        for thread, successor in successors:
            thread.switch_to(successor)
        self._config, self._plans = config, plans
        for thread, successor in successors:
            while thread.is_alive() and not successor.running.wait(_LOOK_S):
                pass
        self._emitter.serve(readers)
        _LOG.warning("the configuration was read again: queries are %s", ", ".join(plan.name for plan in plans))

    def _work(self, config: Config, plans: Sequence[QueryPlan]) -> dict[str, list[Work]]:
        """The work of each thread, by source name. ConfigError for a change that needs a restart."""
        before = self._config
        if replace(config, queries=before.queries, job=before.job) != before:
            raise ConfigError("more than queries has changed; restart the capture to apply it")
        found = {}
        read = {name for name in config.sources if any(thread.source.name in config.members(name)
                for thread in self._threads)}  # fmt: skip
        for name in sorted(read):
            old, new = (work_of(config, of, name) for of in (self._plans, plans))
            _check(name, old, new, file=config.sources[name].file is not None)
            if config.sources[name].kernel_filter and _kept(old) != _kept(new):
                raise ConfigError(
                    f"source {name}: its filter in the kernel would change; restart the capture to apply it"
                )
            found.update(dict.fromkeys(config.members(name), new))
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
