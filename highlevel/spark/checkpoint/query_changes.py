"""What becomes of a checkpoint when the job's queries are others than those that it knows.

A query goes on if its plan is the same: its state, its results and its generation stay. Each other one *joins*: it is
new, or has another text, or was quarantined and is released. It begins with empty state, in a generation of its own,
and does not tell again what the result topic already has. Of a stage that is read for the first time it gets all that
Kafka still has; in one that other queries have read, it begins at the frontier. A query that has *left* takes its
state with it, and its stage, if nobody else reads that.

A change takes effect between two micro-batches. If the last one was written and Spark did not commit it, it must be run
once more exactly as before, so the queries of before have to run first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from highlevel.spark.checkpoint.checkpoint import BucketKey, Checkpoint, Completed
from highlevel.spark.checkpoint.placement import placed
from highlevel.spark.sink.results_history import History
from lowmark.query.plan.nodes import Stage

__all__ = ["QueryChanges", "applied", "changes"]


@dataclass(frozen=True, slots=True)
class QueryChanges:
    """Names of queries."""

    added: frozenset[str] = frozenset()
    dropped: frozenset[str] = frozenset()
    changed: frozenset[str] = frozenset()
    released: frozenset[str] = frozenset()

    @property
    def joining(self) -> frozenset[str]:
        return self.added | self.changed | self.released

    def __bool__(self) -> bool:
        return bool(self.joining or self.dropped)

    def sentences(self) -> list[str]:
        """What happens, for people."""
        said = {
            "is new": self.added, "is dropped": self.dropped, "has another plan now": self.changed,
            "is released": self.released,
        }  # fmt: skip
        return [f"query {name} {what}" for what, names in said.items() for name in sorted(names)]


def changes(stored: Checkpoint, queries: Mapping[str, str], release: Collection[str] = ()) -> QueryChanges:
    """`queries`: digests of the plans to run, by name; `release`: those of them whose quarantine ends."""
    known = stored.queries
    changed = {name for name in known.keys() & queries.keys() if known[name] != queries[name]}
    return QueryChanges(
        added=frozenset(queries.keys() - known.keys()),
        dropped=frozenset(known.keys() - queries.keys()),
        changed=frozenset(changed),
        released=frozenset(stored.quarantined.keys() & queries.keys() & set(release)) - changed,
    )


def applied(
    stored: Checkpoint, queries: Mapping[str, str], stages: Iterable[Stage], now: QueryChanges, history: History,
    told: Mapping[BucketKey, int],
) -> Checkpoint:  # fmt: skip
    """The checkpoint with the changes. `history`: of the queries that join; `told`: of those without windows over time,
    up to where their partials had been read for what is already written.

    A stage that has left keeps its numbers until its buckets have dropped their state (`ended`)."""
    read = {stage.fingerprint: stage for stage in stages}
    gone = {stage for stage, _ in stored.placements} - read.keys()
    cleared = {stage for stage in gone if _cleared(stored, stage)}
    placements = {key: number for key, number in stored.placements.items() if key[0] not in cleared}
    keys = [(name, bucket) for name, stage in read.items() for bucket in range(stage.buckets)]
    fresh = [key for key in keys if key not in placements]
    numbers = placed(tuple(placements.values()), len(fresh), stored.shuffle_partitions)
    placements |= dict(zip(fresh, numbers, strict=True))
    generation = max(stored.newest, history.generation) + 1
    lives = {name: life for name, life in stored.lives.items() if name in queries}
    lives |= dict.fromkeys(now.joining, generation)
    other = now.joining | now.dropped
    suppressed = {key: of for key, of in stored.suppressed.items() if key[0] not in other}
    suppressed |= {key: _latest(of, stored.suppressed.get(key)) for key, of in history.completed.items()}
    return replace(
        stored,
        queries=dict(queries),
        placements=placements,
        suppressed=suppressed,
        told={key: upto for key, upto in stored.told.items() if key[0] not in other} | dict(told),
        ended=frozenset(
            key for key in stored.ended if key in placements and (key[0] in read) != (key[0] in stored.leaving)
        ),
        quarantined={name: why for name, why in stored.quarantined.items() if name not in other},
        lives=lives,
        begun=generation if now.joining else stored.begun,
        leaving={stage: stored.leaving.get(stage, stored.newest) for stage in sorted(gone - cleared)},
        needed={stage: time for stage, time in stored.needed.items() if stage in read},
    )


def _cleared(stored: Checkpoint, stage: str) -> bool:
    """Whether all buckets of a stage that has left have dropped their state."""
    keys = [key for key in stored.placements if key[0] == stage]
    return stage in stored.leaving and all(key in stored.ended for key in keys)


def _latest(found: Completed, known: Completed | None) -> Completed:
    return found if known is None or known.bound <= found.bound else known
