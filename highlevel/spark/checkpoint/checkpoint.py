"""A job's own part of its checkpoint, beside Spark's files: a small JSON file, replaced as a whole.

It fixes what must not change for a replay: the queries, the shuffle partitions, and the number that stands for each
bucket as Spark's key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from highlevel.rosters.roster import Roster
from highlevel.spark.checkpoint.files import CheckpointFiles, LocalFiles
from highlevel.spark.errors import CheckpointRefused, JobFailed
from lowmark.query.plan.fingerprint import plan_digest
from lowmark.query.plan.nodes import QueryPlan

__all__ = [
    "BucketKey", "Checkpoint", "CheckpointFolder", "Completed", "plan_digests",
]  # fmt: skip

_VERSION = 8

_FILE = "lowmark.json"
_LOGS = ("offsets", "commits")

_SCHEMA_PATH = re.compile(r'"([^"]*)(/state/0/_stateSchema/[^"]*)"')

BucketKey = tuple[str, int]
"""A stage's fingerprint or a query's name, and a bucket."""


@dataclass(frozen=True, slots=True)
class Completed:
    """How far former generations have announced a query's windows in a bucket."""

    bound: int  # windows that end at or before this had been completed; NEVER: none had
    since: tuple[str, ...] = ()  # digests of the amendments and corrections after the last completion


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    id: str
    run: int  # how many times a job has been started on it
    generation: int
    predecessors: tuple[str, ...]  # the checkpoints whose tokens were in Kafka when this one began
    shuffle_partitions: int
    queries: Mapping[str, str]  # by name: the digest of the plan
    roster: Roster  # with which the buckets began; control records have changed it since
    placements: Mapping[BucketKey, int]  # by stage and bucket: Spark's key
    suppressed: Mapping[BucketKey, Completed]  # by query and bucket
    told: Mapping[BucketKey, int]  # by query and bucket: up to this offset of its partials all results were written
    ended: frozenset[BucketKey] = frozenset()  # stages' buckets that will output nothing more
    noted: int = -1  # the last batch that has changed `ended`, before Spark committed it
    topics: Mapping[str, str] = field(default_factory=dict)  # of results, by name: Kafka's id of each
    quarantined: Mapping[str, str] = field(default_factory=dict)  # by query: why it gets no records any more
    lives: Mapping[str, int] = field(default_factory=dict)  # by query that began later: the generation of its results
    begun: int = 0  # the last of those generations, also if its queries have left
    leaving: Mapping[str, int] = field(default_factory=dict)
    """By stage that no query reads and whose buckets still have state: the last generation that has read it."""
    needed: Mapping[str, int] = field(default_factory=dict)
    """By stage that this generation has not read from its beginning: the least time of tuples that it needed."""

    @property
    def newest(self) -> int:
        """The greatest generation that has begun."""
        return max(self.generation, self.begun)


def plan_digests(plans: Iterable[QueryPlan]) -> dict[str, str]:
    """By query: a digest that stays the same as long as the query can continue with its state."""
    return {plan.name: plan_digest(plan) for plan in plans}


class CheckpointFolder:
    """A job's folder: `lowmark.json`, and Spark's checkpoint in a folder named after the checkpoint's id."""

    def __init__(self, files: CheckpointFiles | Path) -> None:
        self._files = LocalFiles(files) if isinstance(files, Path) else files
        self._snapshots: set[str] = set()  # that are durable

    def __enter__(self) -> CheckpointFolder:
        """Raises TakenOver when a process of this machine holds the folder, JobFailed when nothing can be written."""
        self._files.lock()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._files.release()

    @property
    def place(self) -> str:
        """For people, and for Spark."""
        return self._files.place

    def spark(self, checkpoint: Checkpoint) -> str:
        """Where Spark's checkpoint is."""
        return f"{self.place}/{checkpoint.id}"

    def batches(self, checkpoint: Checkpoint) -> int:
        """How many batches Spark has committed; 0 before it has committed batch 0."""
        return max((number + 1 for number in self._numbered(checkpoint, "commits")), default=0)

    def planned(self, checkpoint: Checkpoint) -> int:
        """The last batch whose input Spark has chosen; -1 before the first. What is cut off does not count."""
        last = max(self._numbered(checkpoint, "offsets"), default=-1)
        return last - 1 if self._cut(checkpoint, f"offsets/{last}") else last

    def _numbered(self, checkpoint: Checkpoint, log: str) -> list[int]:
        """Spark's entries for its batches."""
        return [int(name) for name in self._files.names(f"{checkpoint.id}/{log}") if name.isdecimal()]

    def make_durable(self, checkpoint: Checkpoint, batch: int) -> None:
        """Make durable what Spark needs to run this batch again after a crash of the machine."""
        if self._files.durable:
            return
        folder = checkpoint.id
        files = [f"{folder}/metadata", f"{folder}/offsets/{batch}", f"{folder}/commits/{batch - 1}"]
        if batch == 0:
            readers = self._files.names(f"{folder}/sources")
            files += [f"{folder}/sources/{reader}/0" for reader in readers]  # where each begins
        version = _state_file(batch)  # version 1 of the state is what batch 0 has left
        there = [f"{shard}/{name}" for shard in self._shards(checkpoint) for name in self._files.names(shard)]
        files += [file for file in there if self._undurable(file, version)]
        self._snapshots.intersection_update(there)  # Spark removes old ones
        self._files.make_durable(files)

    def _shards(self, checkpoint: Checkpoint) -> list[str]:
        state = f"{checkpoint.id}/state"
        operators = [f"{state}/{operator}" for operator in self._files.names(state)]
        return [f"{operator}/{shard}" for operator in operators for shard in self._files.names(operator)]

    def _undurable(self, file: str, version: re.Pattern[str]) -> bool:
        """Whether the file may be lost in a crash and is needed: it is of this version, or a snapshot of the state (a
        .zip), which Spark writes at any time and needs from then on."""
        if file.endswith(".zip") and file not in self._snapshots:
            self._snapshots.add(file)
            return True
        return version.fullmatch(file.rpartition("/")[2]) is not None

    def check(self, checkpoint: Checkpoint) -> None:
        """Raise CheckpointRefused if a file that Spark needs is cut off; Spark's own message would not help. Removes
        what a crash of the machine has left in halves of the last batch, and follows the checkpoint to where it lies
        now. Call it when no other process runs this checkpoint, and Kafka holds no results of a batch that is not
        planned."""
        self._follow_move(checkpoint)
        self._withdraw_plan(checkpoint)
        self._withdraw_commit(checkpoint)
        if (found := self.damage(checkpoint)) is not None:
            raise CheckpointRefused(found)

    def damage(self, checkpoint: Checkpoint) -> str | None:
        """Which file that Spark needs is cut off, as a sentence. Changes nothing."""
        logs = [(log, max(self._numbered(checkpoint, log), default=None)) for log in _LOGS]
        for file in ("metadata", *(f"{log}/{last}" for log, last in logs if last is not None)):
            if self._damaged(checkpoint, file):
                return (
                    f"{self.spark(checkpoint)}/{file}, of Spark's checkpoint, is damaged. Restore the checkpoint, or "
                    "begin a new generation with --new-generation"
                )
        return None

    def _follow_move(self, checkpoint: Checkpoint) -> None:
        """Spark's metadata name the file of the state's schema by the path at which it was written."""
        log, here = f"{checkpoint.id}/state/0/_metadata/v2", self.spark(checkpoint)

        def moved(path: re.Match[str]) -> str:
            return f'"{json.dumps(here)[1:-1]}{path[2]}"'

        for name in filter(str.isdecimal, self._files.names(log)):
            text = self._files.read(f"{log}/{name}").decode(errors="replace")
            if any(place.removeprefix("file:") != here for place, _ in _SCHEMA_PATH.findall(text)):
                self._files.remove(f"{log}/.{name}.crc")
                self._files.replace(f"{log}/{name}", _SCHEMA_PATH.sub(moved, text).encode())

    def _withdraw_plan(self, checkpoint: Checkpoint) -> None:
        """Remove the offsets of a batch that has not begun, if they are cut off: Spark then chooses them again."""
        batch = self.planned(checkpoint) + 1
        if batch >= self.batches(checkpoint):
            self._remove_entry(f"{checkpoint.id}/offsets", batch)

    def _withdraw_commit(self, checkpoint: Checkpoint) -> None:
        """Remove the last batch's commit if it is cut off, or the state that the batch has left is not there: Spark
        then runs the batch again. Neither file is durable before the next batch begins, so a crash of the machine may
        take one of the two."""
        batch, folder = self.batches(checkpoint) - 1, checkpoint.id
        if batch not in self._numbered(checkpoint, "offsets"):
            return  # there is no batch, or it cannot be run again
        shards = [f"{folder}/state/0/{shard}" for shard in range(checkpoint.shuffle_partitions)]
        if self._cut(checkpoint, f"commits/{batch}") or not all(self._has(shard, batch + 1) for shard in shards):
            self._remove_entry(f"{folder}/commits", batch)

    def _remove_entry(self, log: str, batch: int) -> None:
        for name in (f".{batch}.crc", str(batch)):
            self._files.remove(f"{log}/{name}")

    def _has(self, shard: str, version: int) -> bool:
        """Whether a version of the state is there. A crash may leave a file without content."""
        names = (name for name in self._files.names(shard) if _state_file(version).fullmatch(name))
        return any(self._files.size(f"{shard}/{name}") for name in names)

    def _cut(self, checkpoint: Checkpoint, file: str) -> bool:
        """Raises OSError when it is there and cannot be read."""
        try:
            text = self._files.read(f"{checkpoint.id}/{file}").decode()
            for part in text.splitlines()[file != "metadata" :]:  # the first line of a log entry is its version
                if part != "-":
                    json.loads(part)
        except FileNotFoundError:
            return False  # Spark has not begun
        except ValueError:
            return True
        return not text

    def _damaged(self, checkpoint: Checkpoint, file: str) -> bool:
        try:
            return self._cut(checkpoint, file)
        except OSError:
            return True

    @property
    def there(self) -> bool:
        """Whether a checkpoint exists."""
        try:
            self._files.read(_FILE)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            pass  # it is there, and cannot be read
        return True

    @property
    def readable(self) -> bool:
        try:
            self._files.read(_FILE)
        except OSError:
            return False
        return True

    def read(self) -> Checkpoint | None:
        """None when there is no checkpoint yet; CheckpointRefused when it makes no sense, JobFailed when the disk or
        its rights keep it from being read."""
        try:
            text = self._files.read(_FILE)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise JobFailed(f"{self.place}/{_FILE} cannot be read: {error.strerror}") from None
        try:
            return _parse(json.loads(text))
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointRefused(
                f"{self.place}/{_FILE} is damaged, or of another version of lowmark ({error}). Restore it, or begin a "
                "new generation with --new-generation"
            ) from None

    def write(self, checkpoint: Checkpoint) -> None:
        """Durable on return."""
        self._files.replace(_FILE, json.dumps(_form(checkpoint), indent=1).encode())

    def put(self, name: str, content: bytes) -> str:
        """Write a file beside the checkpoint; returns where it is."""
        self._files.replace(name, content)
        return f"{self.place}/{name}"

    def forget_others(self, checkpoint: Checkpoint) -> None:
        """Remove the files that former generations' Spark has left."""
        for name in self._files.names(""):
            if name != checkpoint.id and "metadata" in self._files.names(name):
                self._files.remove(name)


def _state_file(version: int) -> re.Pattern[str]:
    return re.compile(rf"{version}(_.*)?\.(changelog|zip)")


def _rows(values: Mapping[BucketKey, int]) -> list[list[str | int]]:
    return [[subject, bucket, value] for (subject, bucket), value in sorted(values.items())]


def _form(checkpoint: Checkpoint) -> dict[str, object]:
    return {
        "version": _VERSION,
        "id": checkpoint.id,
        "run": checkpoint.run,
        "generation": checkpoint.generation,
        "predecessors": list(checkpoint.predecessors),
        "shuffle_partitions": checkpoint.shuffle_partitions,
        "queries": dict(checkpoint.queries),
        "roster": json.loads(checkpoint.roster.encode()),
        "placements": _rows(checkpoint.placements),
        "suppressed": [
            [query, bucket, told.bound, list(told.since)]
            for (query, bucket), told in sorted(checkpoint.suppressed.items(), key=lambda item: item[0])
        ],
        "told": _rows(checkpoint.told),
        "ended": [list(key) for key in sorted(checkpoint.ended)],
        "noted": checkpoint.noted,
        "topics": dict(checkpoint.topics),
        "quarantined": dict(checkpoint.quarantined),
        "lives": dict(checkpoint.lives),
        "begun": checkpoint.begun,
        "leaving": dict(checkpoint.leaving),
        "needed": dict(checkpoint.needed),
    }


def _read_rows(rows: Sequence[tuple[str, int, int]]) -> dict[BucketKey, int]:
    return {(subject, bucket): value for subject, bucket, value in rows}


_UPGRADES: dict[int, Callable[[dict[str, object]], dict[str, object]]] = {7: lambda form: {**form, "needed": {}}}
"""By version: how its form becomes that of the next version."""


def _parse(form: dict[str, object]) -> Checkpoint:
    version = form.pop("version")
    while isinstance(version, int) and version in _UPGRADES:
        form, version = _UPGRADES[version](form), version + 1
    if version != _VERSION:
        raise ValueError(f"its version is {version}, this program reads {_VERSION}")
    fields = dict(form)
    fields["predecessors"] = tuple(form["predecessors"])  # type: ignore[arg-type]  # checked by unpacking
    fields["roster"] = Roster.decode(json.dumps(form["roster"]).encode())
    fields["placements"] = _read_rows(form["placements"])  # type: ignore[arg-type]  # checked by unpacking
    fields["told"] = _read_rows(form["told"])  # type: ignore[arg-type]  # checked by unpacking
    fields["suppressed"] = {
        (query, bucket): Completed(bound, tuple(since))
        for query, bucket, bound, since in form["suppressed"]  # type: ignore[attr-defined]
    }
    fields["ended"] = frozenset((stage, bucket) for stage, bucket in form["ended"])  # type: ignore[attr-defined]
    return Checkpoint(**fields)  # type: ignore[arg-type]
