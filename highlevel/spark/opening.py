"""Whether a job may run on its checkpoint: the checkpoint, Kafka's token, the results and the queries must agree."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from highlevel.rosters.roster import Roster
from highlevel.spark.checkpoint import BucketKey, Checkpoint, Completed, differences
from highlevel.spark.errors import CheckpointRefused, RowsWouldRepeat, TopicsDeleted
from highlevel.spark.placement import placements
from highlevel.spark.replay import Replay
from highlevel.spark.sink.results_history import History
from lowmark.query.plan.nodes import Stage
from lowmark.wire.records.sink_token import Token, Told

__all__ = ["StartState", "begun_anew", "carried_on", "same_topics"]

_WAYS_OUT = (
    "Point job.checkpoint at the right one; or start with --new-generation, which reads again what Kafka still has "
    "and leaves out what has been told"
)


@dataclass(frozen=True, slots=True)
class StartState:
    """The job to run, and what it finds at start. `batches`: those of the stored checkpoint that Spark committed;
    `planned`: the last one whose input it has chosen."""

    queries: Mapping[str, str]  # digests of plans, by name
    stages: Sequence[Stage]
    shuffle_partitions: int
    stored: Checkpoint | None
    batches: int
    planned: int
    token: Token | None
    where: str  # the checkpoint, for people
    replays: Mapping[str, Replay] = field(default_factory=dict)  # queries without windows over time
    told: Mapping[BucketKey, Mapping[str, Told]] = field(
        default_factory=dict
    )  # by stage and bucket: the content of positions


def carried_on(standing: StartState, history: Callable[[], History]) -> Checkpoint:
    """The next run on the stored checkpoint, or the first run if nothing has run before. Raises CheckpointRefused when
    the results in Kafka are of another checkpoint, or the checkpoint is of other queries. Calls `history` only if
    needed."""
    stored, token = standing.stored, standing.token
    if stored is None:
        if token is not None:
            raise CheckpointRefused(
                f"the checkpoint {standing.where} is new, but results have been written from checkpoint "
                f"{token.checkpoint} (batch {token.batch}): it is lost, or elsewhere. {_WAYS_OUT}"
            )
        found = history()
        if found.generation:
            raise CheckpointRefused(
                f"the checkpoint {standing.where} is new, but there are results already (generation "
                f"{found.generation}). {_WAYS_OUT}"
            )
        return _first(standing, 1, {}, {})
    other = differences(stored, standing.queries, standing.shuffle_partitions)
    if other:
        raise CheckpointRefused(
            f"the checkpoint {standing.where} is of another job: {'; '.join(other)}. Change it back, give "
            "the job a checkpoint of its own, or start with --new-generation"
        )
    if token is None and standing.batches:
        raise CheckpointRefused(
            f"the checkpoint {standing.where} has {standing.batches} batches, but Kafka does not say which of them "
            f"have been written: it is another cluster, or the job has been down for longer than a week. {_WAYS_OUT}"
        )
    if (
        token is not None
        and token.checkpoint != stored.id
        and (standing.batches or token.checkpoint != stored.predecessor)
    ):
        raise CheckpointRefused(
            f"the checkpoint {standing.where} is {stored.id}, but the last results were written from checkpoint "
            f"{token.checkpoint} (batch {token.batch}). {_WAYS_OUT}"
        )
    if token is not None and token.checkpoint == stored.id and token.batch > standing.planned:
        raise CheckpointRefused(
            f"the checkpoint {standing.where} has planned no batch after {standing.planned}, but results have been "
            f"written up to batch {token.batch}: it is an older copy. {_WAYS_OUT}"
        )
    return replace(stored, run=stored.run + 1)


def same_topics(stored: Checkpoint, ids: Mapping[str, str], names: Iterable[str]) -> None:
    """Raise TopicsDeleted if one of these result topics is not the one that the checkpoint's job has written to. `ids`:
    of the existing topics, by name."""
    other = [name for name in names if name not in ids or stored.topics.get(name, ids[name]) != ids[name]]
    if other:
        raise TopicsDeleted(other)


def begun_anew(standing: StartState, history: History, repeat_rows: bool = False) -> Checkpoint:
    """A fresh checkpoint, whatever there was before; results already written are left out. Raises RowsWouldRepeat with
    the queries for which that cannot be known; with `repeat_rows` the new generation writes all of their rows again."""
    former = standing.stored.generation if standing.stored is not None else 0
    windows = dict(standing.stored.suppressed) if standing.stored is not None else {}
    for key, completed in history.completed.items():
        if key not in windows or windows[key].bound <= completed.bound:
            windows[key] = completed
    windows = {key: completed for key, completed in windows.items() if key[0] not in standing.replays}
    unknown = {query: why for query, of in standing.replays.items() if (why := _unknown(query, of, standing, history))}
    if unknown and not repeat_rows:
        raise RowsWouldRepeat(_said_of(unknown))
    told = {
        (query, bucket): of[query].upto
        for query, replay in standing.replays.items()
        if query not in unknown
        for bucket in range(replay.stage.buckets)
        if query in (of := standing.told.get((replay.stage.fingerprint, bucket), {})) and of[query].law == replay.law
    }
    return _first(standing, max(former, history.generation) + 1, windows, told)


def _unknown(query: str, replay: Replay, standing: StartState, history: History) -> str | None:
    """Why it cannot be known which of a query's results were written already; None: it can be known."""
    stage = replay.stage.fingerprint
    buckets = [bucket for bucket in range(replay.stage.buckets) if (query, bucket) in history.told]
    if not buckets:
        return None
    if replay.law is None:
        return "its rows change their bucket on the way, and come in another order each time"
    known = [standing.told.get((stage, bucket), {}).get(query) for bucket in buckets]
    if None in known:
        return "Kafka does not say up to where its partials had been read"
    if any(told is not None and told.law != replay.law for told in known):
        return "its text, its sources or their kind have changed"
    if any((stage, bucket) in history.shortened for bucket in buckets):
        return "Kafka has deleted the beginning of its partials"
    return None


def _said_of(unknown: Mapping[str, str]) -> str:
    each = "; ".join(f"{query}: {why}" for query, why in sorted(unknown.items()))
    return (
        f"a new generation may write rows again that are on the result topics of {', '.join(sorted(unknown))}, which "
        f"have no windows over time to be told apart by ({each}). Add --repeat-rows to have it write all rows of these "
        "queries that follow from what Kafka still has, under its own generation; other queries repeat nothing"
    )


def _first(
    standing: StartState, generation: int, suppressed: Mapping[BucketKey, Completed], told: Mapping[BucketKey, int]
) -> Checkpoint:  # fmt: skip
    keys = [(stage.fingerprint, bucket) for stage in standing.stages for bucket in range(stage.buckets)]
    return Checkpoint(
        id=uuid.uuid4().hex,
        run=1,
        generation=generation,
        predecessor=None if standing.token is None else standing.token.checkpoint,
        shuffle_partitions=standing.shuffle_partitions,
        queries=standing.queries,
        roster=Roster({}, {}),
        placements=dict(zip(keys, placements(len(keys), standing.shuffle_partitions), strict=True)),
        suppressed=suppressed,
        told=told,
    )
