"""Whether a job may run on its checkpoint: the checkpoint, Kafka's token, the results and the queries must agree."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from highlevel.spark.checkpoint import BucketKey, Checkpoint, Completed, differences
from highlevel.spark.errors import CheckpointRefused, TopicsDeleted
from highlevel.spark.placement import placements
from highlevel.spark.sinkhistory import History
from lowmark.query.plan import Stage
from lowmark.wire.sinktoken import Token

__all__ = ["Standing", "begun_anew", "carried_on", "same_topics"]

_WAYS_OUT = (
    "Point job.checkpoint at the right one; or start with --new-generation, which reads again what Kafka still has "
    "and leaves out the windows that have been completed"
)


@dataclass(frozen=True, slots=True)
class Standing:
    """What is to run, and what a start finds. `batches`: how many of the stored checkpoint Spark has committed."""

    queries: Mapping[str, str]  # digests of plans, by name
    stages: Sequence[Stage]
    shuffle_partitions: int
    stored: Checkpoint | None
    batches: int
    token: Token | None
    where: str  # the checkpoint, for people


def carried_on(standing: Standing, history: Callable[[], History]) -> Checkpoint:
    """The next run on the stored checkpoint, or the first one where nothing has run before. CheckpointRefused when the
    results in Kafka are of another checkpoint, or the checkpoint is of other queries. `history` is asked if needed."""
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
        return _first(standing, 1, {})
    other = differences(stored, standing.queries, standing.shuffle_partitions)
    if other:
        raise CheckpointRefused(
            f"the checkpoint {standing.where} is of another job: {'; '.join(other)}. Change it back, give the job a "
            "checkpoint of its own, or start with --new-generation"
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
    return replace(stored, run=stored.run + 1)


def same_topics(stored: Checkpoint, ids: Mapping[str, str], names: Iterable[str]) -> None:
    """TopicsDeleted where one of these topics of results is not the one that the checkpoint's job has written to.
    `ids`: of the topics that are there, by name."""
    other = [name for name in names if name not in ids or stored.topics.get(name, ids[name]) != ids[name]]
    if other:
        raise TopicsDeleted(other)


def begun_anew(standing: Standing, history: History) -> Checkpoint:
    """A fresh checkpoint, whatever there was before; what has been told of completed windows is left out."""
    former = standing.stored.generation if standing.stored is not None else 0
    told = dict(standing.stored.suppressed) if standing.stored is not None else {}
    for key, completed in history.completed.items():
        if key not in told or told[key].bound <= completed.bound:
            told[key] = completed
    return _first(standing, max(former, history.generation) + 1, told)


def _first(standing: Standing, generation: int, suppressed: Mapping[BucketKey, Completed]) -> Checkpoint:
    keys = [(stage.fingerprint, bucket) for stage in standing.stages for bucket in range(stage.buckets)]
    return Checkpoint(
        id=uuid.uuid4().hex,
        run=1,
        generation=generation,
        predecessor=None if standing.token is None else standing.token.checkpoint,
        shuffle_partitions=standing.shuffle_partitions,
        queries=standing.queries,
        placements=dict(zip(keys, placements(len(keys), standing.shuffle_partitions), strict=True)),
        suppressed=suppressed,
    )
