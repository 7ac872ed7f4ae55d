"""What `lowmark checkpoint` says of a job's checkpoint. Locks and writes nothing: the job may be running."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial

from highlevel.spark.checkpoint.checkpoint import Checkpoint, CheckpointFolder, plan_digests
from highlevel.spark.errors import CheckpointRefused
from highlevel.spark.sink.transaction import read_notes
from lowmark.app.errors import StartRefused
from lowmark.app.job.start import JobStart
from lowmark.wire.kafka.clients import KafkaProblem
from lowmark.wire.records.sink_token import Token

__all__ = ["damage", "describe"]

Row = Mapping[str, object]


def folder_of(start: JobStart) -> CheckpointFolder:
    if start.folder is None:
        raise StartRefused(
            f"the checkpoint {start.place} is where only Spark reaches it", "copy it into a folder, and name that one"
        )
    return CheckpointFolder(start.folder)


def describe(start: JobStart) -> tuple[Row, list[Row]]:
    """The job, and each of its queries. CheckpointRefused when there is no checkpoint, or it makes no sense."""
    folder, stored = folder_of(start), _stored(start)
    try:
        written = start.written(partial(read_notes, start.config.kafka), stored)
        token: Token | str | None = start.standing(folder, written).newest
    except KafkaProblem as problem:
        token = str(problem)
    buckets = Counter(stage for stage, _ in stored.placements)
    job = {
        "job": start.name,
        "checkpoint": stored.id,
        "at": folder.place,
        "generation": stored.generation,
        "run": stored.run,
        "batches": folder.batches(stored),
        "planned": folder.planned(stored),
        "token": _token(token),
        "stages": dict(sorted(buckets.items())),
        "leaving": sorted(stored.leaving),
        "ended": len(stored.ended),
        "damage": damage(start),
    }
    digests = plan_digests(start.plans)
    queries: list[Row] = [
        {
            "query": name,
            "plan": stored.queries.get(name),
            "generation": stored.lives.get(name, stored.generation),
            "state": _state(stored, name, digests.get(name)),
            "quarantined": stored.quarantined.get(name),
        }
        for name in sorted(stored.queries.keys() | digests.keys())
    ]
    return job, queries


def damage(start: JobStart) -> str | None:
    """What keeps the job from starting on the checkpoint's files; None: nothing."""
    return folder_of(start).damage(_stored(start))


def _stored(start: JobStart) -> Checkpoint:
    folder = folder_of(start)
    stored = folder.read()
    if stored is None:
        raise CheckpointRefused(f"there is no checkpoint of job {start.name} in {folder.place}")
    return stored


def _token(token: Token | str | None) -> object:
    if isinstance(token, Token):
        return {"checkpoint": token.checkpoint, "run": token.run, "batch": token.batch}
    return token


def _state(stored: Checkpoint, name: str, digest: str | None) -> str:
    if name not in stored.queries:
        return "not begun"
    if name in stored.quarantined:
        return "quarantined"
    if digest is None:
        return "not in the configuration"
    return "in use" if stored.queries[name] == digest else "has another plan now"
