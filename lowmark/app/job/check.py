"""Checks for `lowmark check` whether the job of all queries would start. Locks, writes and takes over nothing: the job
may be running."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cache

from highlevel.spark.checkpoint import CheckpointFolder
from highlevel.spark.errors import CheckpointRefused, RowsWouldRepeat
from highlevel.spark.opening import StartState, begun_anew, carried_on
from highlevel.spark.quarantine import RELEASE
from highlevel.spark.sink.results_history import History
from lowmark.app.config.file import Config
from lowmark.app.job.names import job_name
from lowmark.app.job.ruler import read_rulings, rules_of
from lowmark.app.job.start import JobStart
from lowmark.query.plan.nodes import QueryPlan
from lowmark.wire.kafka.topics import Topic, TopicKind

__all__ = ["foresee_job"]


def foresee_job(config: Config, plans: Sequence[QueryPlan], there: Collection[str]) -> str:
    """Says how the job would start; CheckpointRefused if it would not. A checkpoint that is not here may be on another
    host. `there`: the topics that exist."""
    start = JobStart(config, tuple(plans), job_name(config.job.name, None), there)
    folder = CheckpointFolder(start.folder)
    name = f"job {start.name}"
    if folder.there and not folder.readable:
        return f"{name}: this user may not read the checkpoint {folder.path}"
    if start.token_topic not in there:
        return f"{name}: it begins, with the checkpoint {folder.path}"
    standing = start.standing(folder, *start.committed())
    history = cache(start.history)  # reads the ends of all result topics: once
    try:
        anew = carried_on(standing, history).run == 1
    except CheckpointRefused as refused:
        said = f"{refused}{_repeated(standing, history)}"
        if folder.there:
            raise CheckpointRefused(said) from None
        return f"{name}: not here, for {said}"
    stopped = {} if standing.stored is None or anew else standing.stored.quarantined
    told = "".join(f"\n     query {query} is quarantined: {why}. {RELEASE}" for query, why in sorted(stopped.items()))
    return (
        f"{name}: it {'begins' if anew else 'goes on'}, with the checkpoint {folder.path}{told}{_moves(start, there)}"
    )


def _moves(start: JobStart, there: Collection[str]) -> str:
    """The sources that join and leave streams at the start, as far as the configuration and registrations tell."""
    config = start.config
    topic = Topic(TopicKind.SOURCES, None, config.prefix).name
    if topic not in there:
        return ""
    rules = rules_of(config, tuple(start.stages.values()))
    moves = []
    for each, ruling in zip(rules, read_rulings(config.kafka, topic, start.name, rules), strict=True):
        joining, leaving = ruling.difference()
        moves += [f"source {source} joins stream {each.stream}" for source in sorted(joining)]
        moves += [f"source {source} leaves stream {each.stream}" for source in sorted(leaving)]
    return f"\n     At its start, {'; '.join(moves)}" if moves else ""


def _repeated(standing: StartState, history: Callable[[], History]) -> str:
    """The rows that a new generation, which is the way out, would write again."""
    try:
        begun_anew(standing, history())
    except RowsWouldRepeat as repeated:
        return f"\n     Of that, {repeated}"
    return ""
