"""Checks for `lowmark check` whether the job of all queries would start. Locks, writes and takes over nothing: the job
may be running."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cache, partial

from highlevel.spark.checkpoint.checkpoint import Checkpoint, CheckpointFolder
from highlevel.spark.checkpoint.start_conditions import StartState, begun_anew, carried_on
from highlevel.spark.errors import RELEASE, CheckpointRefused, RowsWouldRepeat
from highlevel.spark.sink.results_history import History
from highlevel.spark.sink.transaction import read_notes
from lowmark.app.config.file import Config
from lowmark.app.job.names import job_name
from lowmark.app.job.ruler import read_rulings, rules_of
from lowmark.app.job.start import JobStart
from lowmark.query.plan.nodes import QueryPlan
from lowmark.wire.kafka.topics import Topic, TopicKind
from lowmark.wire.rows.values import NEVER, show

__all__ = ["foresee_job"]


def foresee_job(config: Config, plans: Sequence[QueryPlan], there: Collection[str]) -> str:
    """Says how the job would start; CheckpointRefused if it would not. A checkpoint that is not here may be on another
    host. `there`: the topics that exist."""
    start = JobStart(config, tuple(plans), job_name(config.job.name, None), there)
    name = f"job {start.name}"
    if start.folder is None:
        return f"{name}: only its start reads the checkpoint {start.place}, by Spark"
    folder = CheckpointFolder(start.folder)
    if folder.there and not folder.readable:
        return f"{name}: this user may not read the checkpoint {folder.place}"
    standing = start.standing(folder, start.written(partial(read_notes, config.kafka), folder.read()))
    history = cache(start.history)  # reads the ends of all result topics: once
    try:
        checkpoint = carried_on(standing, history)
        anew = checkpoint.run == 1
    except CheckpointRefused as refused:
        said = f"{refused}{_repeated(standing, history)}"
        if folder.there:
            raise CheckpointRefused(said) from None
        return f"{name}: not here, for {said}"
    moves = "" if anew else _changes(standing, checkpoint, start)
    stopped = {} if standing.stored is None or anew else standing.stored.quarantined
    notes = "".join(f"\n     query {query} is quarantined: {why}. {RELEASE}" for query, why in sorted(stopped.items()))
    goes = "begins" if anew else "goes on"
    return f"{name}: it {goes}, with the checkpoint {folder.place}{notes}{moves}{_moves(start, there)}"


def _changes(standing: StartState, checkpoint: Checkpoint, start: JobStart) -> str:
    """What the change of queries does, and from which window on."""
    now, said = standing.changes(), []
    assert standing.stored is not None
    known = {stage for stage, _ in standing.stored.placements}
    for name in sorted(now.joining):
        plan = next(plan for plan in start.plans if plan.name == name)
        ends = [checkpoint.suppressed[key].bound for key in checkpoint.suppressed if key[0] == name]
        ends = [end for end in ends if end > NEVER]
        what = "is new" if name in now.added else "has another plan"
        since = "from the frontier of its stage on, partial until full if no former query has made them"
        if plan.stage.fingerprint not in known:
            since = "from the first partials of its new stage on"
        after = (
            f", after the window that ended at {show(plan.window.axis.kind, min(ends))}" if ends and plan.window else ""
        )
        said.append(f"query {name} {what}: it tells windows {since}{after}, in generation {checkpoint.lives[name]}")
    said += [f"query {name} is dropped: it tells no more windows, and its state goes" for name in sorted(now.dropped)]
    return "".join(f"\n     {each}" for each in said)


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
    """The rows that a new generation would write again, where only a new generation can start."""
    try:
        begun_anew(standing, history())
    except RowsWouldRepeat as repeated:
        return f"\n     Of that, {repeated}"
    return ""
