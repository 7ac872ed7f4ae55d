"""The queries of a configuration as plans, and the topics that they need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lowmark.app.config.file import Config
from lowmark.app.config.toml_tables import ConfigError
from lowmark.app.kafka.rights import Role, kinds_of
from lowmark.query.compile import compile_query
from lowmark.query.optimize.stream_statistics import UnknownInput
from lowmark.query.options import Late
from lowmark.query.parse.errors import QueryError
from lowmark.query.plan.nodes import QueryPlan
from lowmark.query.plan.sharing import CannotShare, share
from lowmark.query.result_names import NameClash, result_names
from lowmark.wire.kafka.topics import Topic, TopicKind, TopicSettings, settings_of

__all__ = ["MOST_EXCHANGING", "plan_queries", "result_topics", "topics_of"]


MOST_EXCHANGING = 128
"""Most buckets of a query whose rows change their bucket: what they send each other grows with their square."""


def plan_queries(config: Config, names: Sequence[str] | None = None) -> tuple[QueryPlan, ...]:
    """The plans of these queries, or of all, in the order of the file. ConfigError says which query is wrong.

    A plan does not depend on `names`: queries that share its stage are always planned with it.
    """
    for name in names or ():
        if name not in config.queries:
            valid = ", ".join(config.queries) or "none"
            raise ConfigError(f"{config.path}: there is no query {name!r}; queries there: {valid}")
    chosen = [name for name in config.queries if names is None or name in names]
    if not chosen:
        raise ConfigError(f"{config.path}: there is no query; add [queries.NAME] with its `sql`")
    plans: dict[str, QueryPlan] = {}
    for name in chosen:
        if name not in plans:
            plans |= {plan.name: plan for plan in _with_those_beside(config, name)}
    return tuple(plans[name] for name in chosen)


def _with_those_beside(config: Config, name: str) -> tuple[QueryPlan, ...]:
    """The plans of a query and of all queries with the same `share`."""
    called = config.queries[name].share
    if called is None:
        return (_plan(config, name),)
    beside = [other for other, query in config.queries.items() if query.share == called]
    try:
        return share([_plan(config, other) for other in beside])
    except CannotShare as error:
        raise ConfigError(
            f"{config.path}: queries.{error.query}.share: it cannot share {called!r} with {beside[0]}, since {error}. "
            "Leave `share` out, or give another name"
        ) from None


def _plan(config: Config, name: str) -> QueryPlan:
    query = config.queries[name]
    streams = {stream: config.source_count(stream) for stream in config.streams}
    try:
        plan = compile_query(
            config.sql(name), name=name, streams=streams, buckets=query.buckets or config.job.buckets, late=query.late,
            expected=query.expected, strategy=query.strategy, limits=query.limits.of(config.job.limits),
            joins=query.join,
        )  # fmt: skip
        result_names(plan, query.names)  # refuses names that clash
    except QueryError as error:
        raise ConfigError(f"{config.path}: query {name}: {error.render()}") from None
    except NameClash as error:
        raise ConfigError(f"{config.path}: queries.{name}.names: {error}") from None
    except UnknownInput as error:
        raise ConfigError(f"{config.path}: queries.{name}: {error}") from None
    if plan.exchanges is not None and plan.stage.buckets > MOST_EXCHANGING:
        buckets = plan.stage.buckets
        raise ConfigError(
            f"{config.path}: queries.{name}.buckets: its rows change their bucket on the way, for which each of the "
            f"{buckets} buckets sends its promises to every other, {buckets**2:,} a round; at most {MOST_EXCHANGING}"
        )
    return plan


def result_topics(config: Config, plans: Iterable[QueryPlan]) -> dict[str, str]:
    """The name of each query's result topic, by query."""
    return {plan.name: Topic(TopicKind.RESULTS, plan.name, config.prefix).name for plan in plans}


def topics_of(
    config: Config, plans: Sequence[QueryPlan], roles: Iterable[Role] = tuple(Role)
) -> tuple[TopicSettings, ...]:  # fmt: skip
    """The topics that captures and jobs of these plans read and write, or those of one role: a user with the rights of
    one role cannot see the topics of the other."""
    wanted = {Topic(kind, None, config.prefix): 1 for kind in (TopicKind.SOURCES, TopicKind.DEAD)}
    for plan in plans:
        wanted[Topic(TopicKind.PARTIALS, plan.stage.fingerprint, config.prefix)] = plan.stage.buckets
        if plan.exchanges is not None:
            wanted[Topic(TopicKind.EXCHANGE, plan.exchanges.fingerprint, config.prefix)] = plan.stage.buckets
        wanted[Topic(TopicKind.RESULTS, plan.name, config.prefix)] = plan.stage.buckets
        if plan.late is Late.EMIT:
            wanted[Topic(TopicKind.LATE, plan.name, config.prefix)] = plan.stage.buckets
    kinds = kinds_of(roles)
    return tuple(
        settings_of(topic, partitions, config.topics) for topic, partitions in wanted.items() if topic.kind in kinds
    )
