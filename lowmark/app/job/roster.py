"""The sources that a job waits for. A job keeps the sources that it began with, whatever the configuration says now.
Its completions name them: a completion names every source that could have held its frontier."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from highlevel.spark.sink.results_history import last_completions
from lowmark.app.config.file import Config
from lowmark.app.config.queries import plan_queries, result_topics
from lowmark.app.config.toml_tables import ConfigError
from lowmark.query.plan.nodes import QueryPlan
from lowmark.wire.kafka.clients import KafkaProblem, admin
from lowmark.wire.records.verdicts import Complete

__all__ = ["listed_now", "listing", "roster_of_job"]

Rosters = Mapping[str, tuple[str, ...]]
"""By stream: its sources."""


def roster_of_job(configured: Rosters, named: Collection[str], registered: Mapping[str, str]) -> Rosters:
    """`named`: the sources that completions of the present generation name; empty: the job has written nothing yet, and
    is assumed to wait for the configured ones. `registered`: each source's stream, by its own registration."""
    if not named:
        return configured
    streams = {source: stream for stream, sources in configured.items() for source in sources}
    found: dict[str, list[str]] = {stream: [] for stream in configured}
    for source in sorted(named):
        stream = streams.get(source) or registered.get(source)
        if stream in found:
            found[stream].append(source)
    return {stream: tuple(sources) for stream, sources in found.items()}


Listed = Callable[[str, str], bool | None]
"""Whether a job lists a source of a stream; None: not known."""


def listed_now(config: Config) -> Listed:
    """Reads the result topics. If a query is wrong, or this user may not read them, the answer is always None."""
    try:
        plans = plan_queries(config)
        return listing(plans, named_sources(config, plans))
    except (ConfigError, KafkaProblem):
        return lambda source, stream: None


def named_sources(config: Config, plans: Sequence[QueryPlan]) -> dict[str, frozenset[str]]:
    """By query: the sources that the last completions of its buckets name. A query without completions is left out."""
    there = admin(config.kafka).list_topics(timeout=10).topics
    names = result_topics(config, plans)
    topics = {plan.name: (names[plan.name], plan.stage.buckets) for plan in plans if names[plan.name] in there}
    found: dict[str, list[Complete]] = {}
    for (query, _), complete in last_completions(config.kafka, topics).items():
        found.setdefault(query, []).append(complete)
    return {query: _latest(told) for query, told in found.items()}


def _latest(told: Iterable[Complete]) -> frozenset[str]:
    generation = max(complete.generation for complete in told)
    return frozenset(name for complete in told if complete.generation == generation for name in complete.covered_by)


def listing(plans: Sequence[QueryPlan], named: Mapping[str, frozenset[str]]) -> Listed:
    """`named`: by query, the sources that its job names. A source is listed if the job of a query that reads its stream
    names it; not known if no such query has completions."""
    readers: dict[str, set[str]] = {}
    for plan in plans:
        for node in plan.stage.nodes:
            for stream in node.streams:
                readers.setdefault(stream, set()).update({plan.name} & named.keys())

    def listed(source: str, stream: str) -> bool | None:
        queries = readers.get(stream)
        return any(source in named[query] for query in queries) if queries else None

    return listed
