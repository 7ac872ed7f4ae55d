"""Why a job ends, for a person. Spark and the bridge to it report only which of their own calls failed."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from pathlib import Path

from pyspark.errors import PySparkException

from highlevel.spark.errors import (
    CheckpointRefused,
    JobFailed,
    JobStopped,
    QueriesFailed,
    TakenOver,
    TopicsDeleted,
)
from highlevel.spark.session import Spark

__all__ = ["explained", "failed_queries"]

_FULL = ("No space left on device", "Disk quota exceeded")
_OF_DISKS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES, errno.EPERM}
_LITTLE_BYTES = 1 << 20

_BUCKET = re.compile(r"(?:Bucket|Query)Failure: (.+)")
_SINK = re.compile(r"SinkStopped: (\w+): (.+)")
_QUERY = re.compile(r"QueryFailure: (\w+ in bucket \d+ of stage \w+ \(queries: ([^)]+)\): .+)")
_HOST = re.compile(r"HostRefused: (.+)")
_REFUSED = "StateRefused in bucket "
_CAUSE = re.compile(r"^\s*Caused by: (.+)$", re.MULTILINE)
_CLASS = re.compile(r"^(?:[\w$]+\.)+[\w$]+(?:: |$)")
_STREAM = re.compile(r"^\[[A-Z_.]+\] (?:Query \[.*?\] terminated with exception: )?")
_KAFKAS = re.compile(r"org\.apache\.kafka\.(?:common\.errors|common|clients)\.[\w.$]+(?:: (.+))?")

_NOTHING_LOST = "Nothing is lost: the job goes on when it is started again"


def explained(error: Exception, spark: Spark | None, folder: Path | None) -> Exception:
    """The error in a sentence, if it comes from Spark, its process or the disk; else the error itself. `folder` is the
    job's, if it is on a disk of this machine: its checkpoint and all its working files lie in it."""
    if isinstance(error, JobStopped):
        return error
    text, where = str(error), folder or "the checkpoint"
    bridge = isinstance(error, PySparkException) or type(error).__module__.partition(".")[0] == "py4j"
    full = _full_folder(folder)
    # Spark reports a full disk in other words, too: null pointers, closed streams.
    if any(words in text for words in _FULL) or (bridge and full is not None):
        return JobFailed(f"no space is left in {full or where}: make room there. {_NOTHING_LOST}")
    gone = None if spark is None else spark.gone(wait=bridge or isinstance(error, OSError | EOFError))
    if gone is not None:
        return JobFailed(f"Spark's process {gone}. {_NOTHING_LOST}")
    if isinstance(error, OSError) and error.errno in _OF_DISKS:
        return JobFailed(f"{error.filename or where}: {error.strerror}. {_NOTHING_LOST}")
    if not bridge:
        return error
    words = None if spark is None else spark.last_words()  # Spark tells of its end in many ways
    if words is not None:
        return JobFailed(f"a worker process has ended itself: {words}. {_NOTHING_LOST}")
    if found := _SINK.search(text):
        kind, said = found.groups()
        if kind == TopicsDeleted.__name__:
            return TopicsDeleted(said.partition(":")[0].split(", "))
        return {each.__name__: each for each in (CheckpointRefused, TakenOver)}.get(kind, JobFailed)(said)
    if found := _BUCKET.search(text):
        if found[1].startswith(_REFUSED):
            return CheckpointRefused(f"{found[1]}. The job has stopped, and has lost nothing")
        failed = QueriesFailed if _QUERY.search(text) else JobFailed
        return failed(f"{found[1]}. The job has stopped, and has lost nothing")
    if found := _HOST.search(text):
        return JobFailed(f"{found[1]}. {_NOTHING_LOST}")
    if found := _KAFKAS.search(text):
        return JobFailed(f"Kafka does not answer Spark, or refuses it: {found[1] or found[0]}. {_NOTHING_LOST}")
    return JobFailed(f"Spark ended the job: {_first_words(text)}")


def failed_queries(error: Exception) -> tuple[tuple[str, ...], str]:
    """The queries that an operator's failure concerns, and what it said. No query: it was something else."""
    found = _QUERY.search(str(error))
    return ((), "") if found is None else (tuple(found[2].split(", ")), found[1])


def _first_words(text: str) -> str:
    """The root cause in Java's words, without the code location."""
    causes = _CAUSE.findall(text)
    lines = causes[-1:] or [line.strip(": ") for line in text.splitlines() if line.strip()]
    said = next(
        (line for line in lines if not line.startswith("An error occurred while calling")), "no reason is given"
    )
    said = _STREAM.sub("", said)
    return _CLASS.sub("", said) or said.rpartition(".")[2]


def _full_folder(folder: Path | None) -> Path | None:
    """The job's folder, or the one for temporary files, if its disk is full now."""
    for candidate in filter(None, (folder, Path(tempfile.gettempdir()))):
        try:
            disk = os.statvfs(candidate)
        except OSError:
            continue
        if disk.f_bavail * disk.f_frsize < _LITTLE_BYTES:
            return candidate
    return None
