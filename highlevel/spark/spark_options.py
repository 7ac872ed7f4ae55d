"""Spark's settings for a job: lowmark's own, and those that a user may not set otherwise, with the reason."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

__all__ = ["CONNECTOR_CLASS", "MOVES_BYTES", "SparkSettings", "options", "refusals", "scheme_of"]

MOVES_BYTES = ("-XX:TieredStopAtLevel=1",)
"""Java options of a job whose work is done in Python's workers. Java's second compiler takes most of a JVM's time while
it warms up (60 % after 20 s). Where the JVM only passes bytes on, its code is no faster than the first compiler's."""

CONNECTOR_CLASS = "org.apache.spark.sql.kafka010.KafkaSourceProvider"

_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_BY_RENAME = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_BY_UPLOAD = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"

_NOT_HERE = {
    "spark.master": "set job.master, or give it to spark-submit",
    "spark.submit.deployMode": "spark-submit sets it",
    "spark.driver.memory": "set job.heap, or give it to spark-submit",
    "spark.sql.shuffle.partitions": "set job.shuffle_partitions, which the checkpoint keeps",
    "spark.sql.streaming.checkpointLocation": "set job.checkpoint",
}
"""Settings that have a key of their own."""

_ONLY: Mapping[str, tuple[Callable[[str], bool], str, str]] = {
    "spark.speculation": (
        lambda value: value == "false", "false",
        "a second attempt at a task would fence the first, which writes the same results",
    ),
    "spark.sql.streaming.stateStore.providerClass": (
        lambda value: value == _ROCKSDB, _ROCKSDB,
        "state lies in RocksDB: another store keeps it in the JVM's heap, and cannot read a checkpoint of this one",
    ),
    "spark.sql.streaming.stateStore.commitValidation.enabled": (
        lambda value: value == "true", "true",
        "it finds a batch whose state was not written",
    ),
    "spark.sql.streaming.noDataMicroBatches.enabled": (
        lambda value: value == "false", "false",
        "only records make time pass: a batch without records would be work for nothing, again and again",
    ),
    "spark.sql.streaming.minBatchesToRetain": (
        lambda value: value.isdecimal() and int(value) >= 2, "2 or more",
        "a start repeats the last batch, and needs the state before it",
    ),
    "spark.sql.session.timeZone": (lambda value: value == "UTC", "UTC", "lowmark's times are UTC"),
}  # fmt: skip
"""By setting: whether a value is right, which one is, and why no other."""

_JOINED = {
    "spark.jars": ",",
    "spark.driver.extraClassPath": os.pathsep,
    "spark.executor.extraClassPath": os.pathsep,
    "spark.driver.extraJavaOptions": " ",
    "spark.executor.extraJavaOptions": " ",
}
"""Settings to which a user's value is added, and the sign between the two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """`master` None: that of the session which this process is started in. `jars` are of this machine; a cluster's
    executors get them from the driver."""

    master: str | None
    java_home: Path
    jars: Sequence[Path]
    shuffle_partitions: int  # fixed in a checkpoint by its first batch
    heap: str  # heap of the driver JVM, which is everything in local mode; for example `1g`
    work_dir: Path  # scratch space, local
    log: Path  # Spark's log file
    checkpoint: str = ""  # where it lies: its scheme decides how Spark writes it
    java_options: Sequence[str] = ()  # of the driver's JVM and of the executors'
    extra: Mapping[str, str] = field(default_factory=dict)  # the user's own settings; they take precedence

    @property
    def local(self) -> bool:
        return self.master is not None and self.master.partition("[")[0] == "local"


def scheme_of(location: str) -> str:
    """The file system of a checkpoint: `file` for a plain path."""
    return urlsplit(location).scheme or "file"


def refusals(settings: Mapping[str, str], *, attached: bool = False) -> list[str]:
    """Why a job cannot run with these settings, a sentence each. `attached`: they are a session's and not the user's,
    so that what has a key of its own may stand there."""
    found = []
    for name, value in sorted(settings.items()):
        if name.lower().rpartition(".")[2] == "failondataloss":
            found.append(
                f"{name}: lowmark finds lost records by their numbers, and the windows that miss them say so; with "
                "true the job would stop instead"
            )
        elif not attached and not name.startswith("spark."):
            found.append(f"{name}: names of Spark's settings begin with spark.")
        elif not attached and name in _NOT_HERE:
            found.append(f"{name}: {_NOT_HERE[name]}")
        elif name in _ONLY:
            right, only, why = _ONLY[name]
            if not right(value.strip()):
                found.append(f"{name} is {value!r} and has to be {only}: {why}")
    return found


def options(settings: SparkSettings, log_settings: Path) -> dict[str, str]:
    """All settings of a session whose JVM is ours."""
    ours = session_options(settings)
    ours |= {
        "spark.driver.memory": settings.heap,
        "spark.driver.extraJavaOptions": " ".join(
            [f"-Dlog4j2.configurationFile={log_settings.as_uri()}", *settings.java_options]
        ),
        "spark.executor.extraJavaOptions": " ".join(settings.java_options),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if settings.local:
        ours["spark.driver.extraClassPath"] = os.pathsep.join(map(str, settings.jars))
        ours["spark.local.dir"] = str(settings.work_dir)
        if _has(settings, "hadoop-bare-naked-local-fs"):
            # Without Hadoop's native library, its own class starts a `chmod` for each file: eight in a micro-batch.
            ours["spark.hadoop.fs.file.impl"] = "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem"
        ours |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        ours["spark.shuffle.compress"] = "false"  # shuffled data stays on this machine
    else:
        ours["spark.jars"] = ",".join(map(str, settings.jars))
    return _with(ours, settings.extra)


def session_options(settings: SparkSettings) -> dict[str, str]:
    """The settings on which answers or their delay depend, whoever has started the JVM."""
    ours = {
        # A record has up to half a MiB: with ten thousand records, the other limit, an Arrow batch would not fit.
        "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
        "spark.speculation": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
        "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.stopTimeout": "10s",
    }
    scheme = scheme_of(settings.checkpoint)
    if settings.local and scheme == "file":
        # On a drive of this machine a rename is atomic: the checksummed, slower manager is for shared ones.
        ours |= {_MANAGER: _BY_RENAME, "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false"}
    elif scheme == "s3a" and _has(settings, "spark-hadoop-cloud"):
        ours[_MANAGER] = _BY_UPLOAD  # a rename in an object store copies; an upload is whole or not there
    return ours


def _has(settings: SparkSettings, jar: str) -> bool:
    return any(each.name.startswith(jar) for each in settings.jars)


def attached_options(settings: SparkSettings, given: Mapping[str, str]) -> dict[str, str]:
    """What a session that somebody else sets up gets. `given`: what it has."""
    theirs = {name: given[name] for name in session_options(settings) if name in given and name not in _NOT_HERE}
    return session_options(settings) | theirs | dict(settings.extra)


def _with(ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, str]:
    joined = {
        name: sign.join(part for part in (ours.get(name), theirs[name]) if part)
        for name, sign in _JOINED.items()
        if name in theirs
    }
    return {**ours, **theirs, **joined}
