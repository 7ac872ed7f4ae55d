"""A job's own part of its checkpoint, beside Spark's files: a small JSON file, replaced as a whole.

It fixes what must not change for a replay: the queries, the shuffle partitions, and the number that stands for each
bucket as Spark's key.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from highlevel.rosters.roster import Roster
from highlevel.spark.errors import CheckpointRefused, JobFailed, TakenOver
from lowmark.query.plan.nodes import QueryPlan

__all__ = [
    "BucketKey", "Checkpoint", "CheckpointFolder", "Completed", "differences", "plan_digests", "sync",
]  # fmt: skip

_VERSION = 4

_LOGS = ("offsets", "commits")

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
    predecessor: str | None  # the checkpoint whose token was in Kafka when this one began
    shuffle_partitions: int
    queries: Mapping[str, str]  # by name: the digest of the plan
    roster: Roster  # with which the buckets began; control records have changed it since
    placements: Mapping[BucketKey, int]  # by stage and bucket: Spark's key
    suppressed: Mapping[BucketKey, Completed]  # by query and bucket
    told: Mapping[BucketKey, int]  # by query and bucket: up to this offset of its partials all results were written
    ended: frozenset[BucketKey] = frozenset()  # stages' buckets that will output nothing more
    topics: Mapping[str, str] = field(default_factory=dict)  # of results, by name: Kafka's id of each
    quarantined: Mapping[str, str] = field(default_factory=dict)  # by query: why it gets no records any more


def plan_digests(plans: Iterable[QueryPlan]) -> dict[str, str]:
    """By query: a digest that stays the same as long as the query can continue with its state."""
    return {
        plan.name: _digest((plan.stage, plan.steps, plan.output, plan.window, plan.ordered, plan.exchanges))
        for plan in plans
    }


def _digest(part: object) -> str:
    return hashlib.sha256(repr(part).encode()).hexdigest()[:16]


def differences(stored: Checkpoint, queries: Mapping[str, str], shuffle_partitions: int) -> list[str]:
    """How the job that is to run differs from the job of the checkpoint."""
    found = []
    for name in sorted(stored.queries.keys() | queries.keys()):
        if name not in queries:
            found.append(f"query {name} is missing now")
        elif name not in stored.queries:
            found.append(f"query {name} is new")
        elif stored.queries[name] != queries[name]:
            found.append(f"query {name} has another plan now")
    if stored.shuffle_partitions != shuffle_partitions:
        found.append(f"shuffle_partitions was {stored.shuffle_partitions} and is {shuffle_partitions} now")
    return found


class CheckpointFolder:
    """A job's folder: `lowmark.json`, and Spark's checkpoint in a folder named after the checkpoint's id."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._file = self.path / "lowmark.json"
        self._lock: int | None = None
        self._snapshots: set[Path] = set()  # that are durable

    def __enter__(self) -> CheckpointFolder:
        """Raises TakenOver when a process of this machine holds the folder, JobFailed when nothing can be written."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise JobFailed(f"the checkpoint {self.path} cannot be written: {error.strerror}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._lock, 100, 0).decode(errors="replace").strip()
            os.close(self._lock)
            raise TakenOver(f"the checkpoint {self.path} is in use by process {holder}: end that job first") from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._lock is not None
        os.close(self._lock)

    def spark(self, checkpoint: Checkpoint) -> Path:
        return self.path / checkpoint.id

    def batches(self, checkpoint: Checkpoint) -> int:
        """How many batches Spark has committed; 0 before it has committed batch 0."""
        return max((int(file.name) + 1 for file in _numbered(self.spark(checkpoint) / "commits")), default=0)

    def planned(self, checkpoint: Checkpoint) -> int:
        """The last batch whose input Spark has chosen; -1 before the first."""
        return max((int(file.name) for file in _numbered(self.spark(checkpoint) / "offsets")), default=-1)

    def make_durable(self, checkpoint: Checkpoint, batch: int) -> None:
        """Durable on return: what Spark needs to run this batch again, whatever happens to the machine."""
        folder = self.spark(checkpoint)
        files = [folder / "metadata", folder / "offsets" / str(batch), folder / "commits" / str(batch - 1)]
        version = re.compile(rf"{batch}(_.*)?\.(changelog|zip)")  # version 1 of the state is what batch 0 has left
        there = [file for shard in (folder / "state").glob("*/*/") for file in shard.iterdir()]
        files += [file for file in there if self._undurable(file, version)]
        self._snapshots.intersection_update(there)  # Spark removes old ones
        for file in files:
            with contextlib.suppress(FileNotFoundError):  # Spark removes what it does not need any more
                sync(file)
        for parent in {file.parent for file in files if file.parent.is_dir()}:
            sync(parent)

    def _undurable(self, file: Path, version: re.Pattern[str]) -> bool:
        """Spark writes a snapshot of the state, a .zip, at any time, and needs the newest from then on."""
        if file.suffix == ".zip" and file not in self._snapshots:
            self._snapshots.add(file)
            return True
        return version.fullmatch(file.name) is not None

    def check(self, checkpoint: Checkpoint) -> None:
        """Raise CheckpointRefused if a file that Spark needs is cut off; Spark's own message would not help."""
        folder = self.spark(checkpoint)
        logs = [max(_numbered(folder / log), default=None, key=lambda file: int(file.name)) for log in _LOGS]
        for file in (folder / "metadata", *logs):
            if file is None:
                continue
            try:
                text = file.read_text(encoding="utf-8")
                for part in text.splitlines()[file.name.isdecimal() :]:  # the first line of a log entry is its version
                    if part != "-":
                        json.loads(part)
                damaged = not text
            except FileNotFoundError:
                continue  # Spark has not begun
            except (OSError, ValueError):
                damaged = True
            if damaged:
                raise CheckpointRefused(
                    f"{file}, of Spark's checkpoint, is damaged. Restore the checkpoint, or begin a new generation "
                    "with --new-generation"
                )

    @property
    def there(self) -> bool:
        """Whether a checkpoint exists."""
        return self._file.exists()

    @property
    def readable(self) -> bool:
        return os.access(self._file, os.R_OK)

    def read(self) -> Checkpoint | None:
        """None when there is no checkpoint yet; CheckpointRefused when it makes no sense, JobFailed when the disk or
        its rights keep it from being read."""
        try:
            text = self._file.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise JobFailed(f"{self._file} cannot be read: {error.strerror}") from None
        try:
            return _parse(json.loads(text))
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointRefused(
                f"{self._file} is damaged, or of another version of lowmark ({error}). Restore it, or begin a new "
                "generation with --new-generation"
            ) from None

    def write(self, checkpoint: Checkpoint) -> None:
        """Durable on return."""
        staged = self._file.with_suffix(".new")
        with staged.open("w", encoding="utf-8") as file:
            json.dump(_form(checkpoint), file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(staged, self._file)
        sync(self.path)

    def forget_others(self, checkpoint: Checkpoint) -> None:
        """Remove the files that former generations' Spark has left."""
        for folder in self.path.iterdir():
            if (folder / "metadata").is_file() and folder != self.spark(checkpoint):
                shutil.rmtree(folder)


def sync(path: Path) -> None:
    """Make a file's content durable, or which files a folder has."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _numbered(folder: Path) -> list[Path]:
    """Spark's entries for its batches."""
    return [file for file in folder.glob("*") if file.name.isdecimal()]


def _rows(values: Mapping[BucketKey, int]) -> list[list[str | int]]:
    return [[subject, bucket, value] for (subject, bucket), value in sorted(values.items())]


def _form(checkpoint: Checkpoint) -> dict[str, object]:
    return {
        "version": _VERSION,
        "id": checkpoint.id,
        "run": checkpoint.run,
        "generation": checkpoint.generation,
        "predecessor": checkpoint.predecessor,
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
        "topics": dict(checkpoint.topics),
        "quarantined": dict(checkpoint.quarantined),
    }


def _read_rows(rows: Sequence[tuple[str, int, int]]) -> dict[BucketKey, int]:
    return {(subject, bucket): value for subject, bucket, value in rows}


def _parse(form: dict[str, object]) -> Checkpoint:
    version = form.pop("version")
    if version != _VERSION:
        raise ValueError(f"its version is {version}, this program reads {_VERSION}")
    fields = dict(form)
    fields["roster"] = Roster.decode(json.dumps(form["roster"]).encode())
    fields["placements"] = _read_rows(form["placements"])  # type: ignore[arg-type]  # checked by unpacking
    fields["told"] = _read_rows(form["told"])  # type: ignore[arg-type]  # checked by unpacking
    fields["suppressed"] = {
        (query, bucket): Completed(bound, tuple(since))
        for query, bucket, bound, since in form["suppressed"]  # type: ignore[attr-defined]
    }
    fields["ended"] = frozenset((stage, bucket) for stage, bucket in form["ended"])  # type: ignore[attr-defined]
    return Checkpoint(**fields)  # type: ignore[arg-type]
