"""Whether a job may run on its checkpoint: the checkpoint, Kafka's token, the results and the queries must agree."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from highlevel.rosters.roster import Roster
from highlevel.spark.checkpoint.checkpoint import BucketKey, Checkpoint, Completed
from highlevel.spark.checkpoint.placement import placements
from highlevel.spark.checkpoint.query_changes import QueryChanges, applied, changes
from highlevel.spark.checkpoint.replay import Replay
from highlevel.spark.checkpoint.resumption import Lookback, needed_from
from highlevel.spark.errors import WAYS_OUT, CheckpointRefused, RowsWouldRepeat, TopicsDeleted
from highlevel.spark.sink.results_history import History
from lowmark.query.plan.nodes import Stage
from lowmark.wire.records.sink_token import Token, Told

__all__ = ["StartState", "begins", "begun_anew", "carried_on", "same_topics"]


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
    where: str  # the checkpoint, for people
    tokens: Mapping[BucketKey, Token] = field(default_factory=dict)  # by stage and bucket: what is written
    others: Mapping[str, str] = field(default_factory=dict)  # by query: another job that writes its results
    replays: Mapping[str, Replay] = field(default_factory=dict)  # queries without windows over time
    lookbacks: Mapping[str, Sequence[Lookback]] = field(default_factory=dict)
    """By stage whose sources are all live: its queries, or none if a new generation reads it from its beginning."""

    @property
    def newest(self) -> Token | None:
        """The token of the last batch written."""
        return max(self.tokens.values(), key=lambda token: token.batch, default=None)

    def told(self, stage: str, bucket: int) -> Mapping[str, Told]:
        token = self.tokens.get((stage, bucket))
        return {} if token is None else token.told

    def changes(self, release: Collection[str] = ()) -> QueryChanges:
        """How the queries differ from those of the stored checkpoint."""
        return QueryChanges() if self.stored is None else changes(self.stored, self.queries, release)


def carried_on(
    standing: StartState, history: Callable[[], History], release: Collection[str] = (), repeat_rows: bool = False
) -> Checkpoint:  # fmt: skip
    """The next run on the stored checkpoint, with what has changed of the queries, or the first run if nothing has run
    before. `release`: queries whose quarantine ends. Raises CheckpointRefused when the results in Kafka are of another
    checkpoint, or the change cannot be made. Calls `history` only if needed."""
    stored, token = standing.stored, standing.newest
    if standing.others:
        jobs = "; ".join(f"job {job} writes those of {query}" for query, job in sorted(standing.others.items()))
        raise CheckpointRefused(
            f"a query's results are written by one job: {jobs}. End that job, and start this one with "
            "--new-generation, which takes them over"
        )
    if stored is None:
        if token is not None:
            raise CheckpointRefused(
                f"the checkpoint {standing.where} is new, but results have been written from checkpoint "
                f"{token.checkpoint} (batch {token.batch}): it is lost, or elsewhere. {WAYS_OUT}"
            )
        found = history()
        if found.generation:
            raise CheckpointRefused(
                f"the checkpoint {standing.where} is new, but there are results already (generation "
                f"{found.generation}). {WAYS_OUT}"
            )
        return _first(standing, 1, {}, {})
    if stored.shuffle_partitions != standing.shuffle_partitions:
        raise CheckpointRefused(
            f"the checkpoint {standing.where} is of another job: shuffle_partitions was {stored.shuffle_partitions} "
            f"and is {standing.shuffle_partitions} now. Change it back, give the job a checkpoint of its own, or start "
            "with --new-generation"
        )
    read = {stage.fingerprint for stage in standing.stages}
    # Tokens are written before the first batch is planned, and a crash can take Spark's commit of it.
    if standing.planned >= 0 and any(key not in standing.tokens for key in stored.placements if key[0] in read):
        raise CheckpointRefused(
            f"the checkpoint {standing.where} has {standing.planned + 1} batches, but Kafka does not say which of them "
            f"have been written: it is another cluster, or the job has been down for longer than a week. {WAYS_OUT}"
        )
    former = {stored.id} if standing.batches else {stored.id, *stored.predecessors}
    for key, other in standing.tokens.items():
        if key in stored.placements and other.checkpoint not in former:
            raise CheckpointRefused(
                f"the checkpoint {standing.where} is {stored.id}, but the last results were written from checkpoint "
                f"{other.checkpoint} (batch {other.batch}) by job {other.job}. {WAYS_OUT}"
            )
    own = [each for each in standing.tokens.values() if each.checkpoint == stored.id]
    token = max(own, key=lambda each: each.batch, default=None)
    if token is not None and token.batch > standing.planned:
        raise CheckpointRefused(
            f"the checkpoint {standing.where} has planned no batch after {standing.planned}, but results have been "
            f"written up to batch {token.batch}: it is an older copy. {WAYS_OUT}"
        )
    now = standing.changes(release)
    if now:
        stored = _changed(standing, stored, now, history, repeat_rows)
    return replace(stored, run=stored.run + 1)


def _changed(
    standing: StartState, stored: Checkpoint, now: QueryChanges, history: Callable[[], History], repeat_rows: bool
) -> Checkpoint:  # fmt: skip
    written = [token.batch for token in standing.tokens.values() if token.checkpoint == stored.id]
    last = max([stored.noted, *written])
    if last >= standing.batches:
        raise CheckpointRefused(
            f"{'; '.join(now.sentences())}: Spark has not committed batch {last}, of which results may have been "
            "written: it must be run once more as it was. Start the job once with the queries of before, and change "
            "them while it runs (SIGHUP); or start with --new-generation"
        )
    found = history() if now.joining else History(0, {})
    found = History(
        found.generation,
        {key: of for key, of in found.completed.items() if key[0] in now.joining and key[0] not in standing.replays},
        frozenset(key for key in found.told if key[0] in now.joining),
        found.shortened,
    )
    anew = {stage.fingerprint for stage in standing.stages} - {stage for stage, _ in stored.placements}
    unknown = {
        name: why
        for name in sorted(now.added | now.released)
        if (of := standing.replays.get(name)) is not None and of.stage.fingerprint in anew
        if not _of_other_text(name, of, standing)
        if (why := _unknown(name, of, standing, found)) is not None
    }
    if unknown and not repeat_rows:
        raise RowsWouldRepeat(f"{'; '.join(now.sentences())}: {_said_of(unknown)}")
    told = {key: upto for key, upto in _told(standing, unknown).items() if key[0] in now.joining}
    return applied(stored, standing.queries, standing.stages, now, found, told)


def begins(stored: Checkpoint | None, checkpoint: Checkpoint) -> frozenset[BucketKey]:
    """The buckets that have no state when `checkpoint`, made of `stored`, begins to rule."""
    if stored is None or stored.id != checkpoint.id:
        return frozenset(checkpoint.placements)
    back = stored.leaving.keys() - checkpoint.leaving.keys()
    return frozenset(
        key for key in checkpoint.placements if key not in stored.placements or (key[0] in back and key in stored.ended)
    )


def same_topics(stored: Checkpoint, ids: Mapping[str, str], names: Iterable[str]) -> None:
    """Raise TopicsDeleted if one of these result topics is not the one that the checkpoint's job has written to. `ids`:
    of the existing topics, by name."""
    other = [name for name in names if name not in ids or stored.topics.get(name, ids[name]) != ids[name]]
    if other:
        raise TopicsDeleted(other)


def begun_anew(standing: StartState, history: History, repeat_rows: bool = False) -> Checkpoint:
    """A fresh checkpoint, whatever there was before; results already written are left out. Raises RowsWouldRepeat with
    the queries for which that cannot be known; with `repeat_rows` the new generation writes all of their rows again."""
    former = standing.stored.newest if standing.stored is not None else 0
    windows = dict(standing.stored.suppressed) if standing.stored is not None else {}
    for key, completed in history.completed.items():
        if key not in windows or windows[key].bound <= completed.bound:
            windows[key] = completed
    windows = {key: completed for key, completed in windows.items() if key[0] not in standing.replays}
    unknown = {query: why for query, of in standing.replays.items() if (why := _unknown(query, of, standing, history))}
    if unknown and not repeat_rows:
        raise RowsWouldRepeat(_said_of(unknown))
    checkpoint = _first(standing, max(former, history.generation) + 1, windows, _told(standing, unknown))
    return replace(checkpoint, needed=needed_from(standing.lookbacks, windows, history.shortened))


def _of_other_text(query: str, of: Replay, standing: StartState) -> bool:
    """Whether the results that stand there follow from another text, other sources or other kinds of them."""
    known = (standing.told(of.stage.fingerprint, bucket).get(query) for bucket in range(of.stage.buckets))
    laws = {told.law for told in known if told is not None}
    return of.law is not None and bool(laws) and of.law not in laws


def _told(standing: StartState, unknown: Collection[str]) -> dict[BucketKey, int]:
    """By query without windows over time, and bucket: up to where its results have been written, if that is known."""
    return {
        (query, bucket): of[query].upto
        for query, replay in standing.replays.items()
        if query not in unknown
        for bucket in range(replay.stage.buckets)
        if query in (of := standing.told(replay.stage.fingerprint, bucket)) and of[query].law == replay.law
    }


def _unknown(query: str, replay: Replay, standing: StartState, history: History) -> str | None:
    """Why it cannot be known which of a query's results were written already; None: it can be known."""
    stage = replay.stage.fingerprint
    buckets = [bucket for bucket in range(replay.stage.buckets) if (query, bucket) in history.told]
    if not buckets:
        return None
    if replay.law is None:
        return "its rows change their bucket on the way, and come in another order each time"
    known = [standing.told(stage, bucket).get(query) for bucket in buckets]
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
        predecessors=tuple(sorted({token.checkpoint for token in standing.tokens.values()})),
        shuffle_partitions=standing.shuffle_partitions,
        queries=standing.queries,
        roster=Roster({}, {}),
        placements=dict(zip(keys, placements(len(keys), standing.shuffle_partitions), strict=True)),
        suppressed=suppressed,
        told=told,
    )
