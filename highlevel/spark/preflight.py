"""Whether a cluster's hosts can do a job's work, asked of each slot before anything is written.

A task on each slot reads the driver's nonce from the checkpoint's file system, and tells what it has. A host that joins
later is asked when its first bucket begins: it must have the nonce, too, before Spark keeps state there.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import socket
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from urllib.parse import urlsplit

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from highlevel.spark.checkpoint.checkpoint import CheckpointFolder
from highlevel.spark.errors import JobFailed
from lowmark.wire.kafka.settings import KafkaSettings, KafkaSettingsError

__all__ = ["Asked", "HostRefused", "admit", "ask", "await_executors"]

NONCE = "nonce"
_LINES = 32  # of the nonce, for each slot: a task's part of the file has whole lines
_PACKAGES = ("lowmark", "numpy", "numba", "pyarrow", "confluent-kafka", "protobuf")
_LOOK_EVERY_S = 0.2
_admitted: set[str] = set()  # in an executor's process: nonces
_TASK = re.compile(r"\((\S+) executor \S+\): (.*)")
_PYTHONS = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception|Refused)): (.+)$", re.MULTILINE)


class HostRefused(JobFailed):
    """A host of the cluster lacks something that the job needs there."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a host must have. `folder`: the checkpoint, if hosts reach it by a path; else None."""

    nonce: str
    versions: Mapping[str, str]
    kafka: KafkaSettings
    folder: str | None

    @classmethod
    def by(cls, kafka: KafkaSettings, place: str) -> Asked:
        """What this process has is what others must have."""
        at = urlsplit(place)
        return cls(uuid.uuid4().hex, versions(), kafka, at.path if at.scheme in ("", "file") else None)


def versions() -> dict[str, str]:
    return {"Python": ".".join(platform.python_version_tuple()[:2]), **{name: _version(name) for name in _PACKAGES}}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def look(asked: Asked) -> list[str]:
    """What is wrong with this host, a sentence each."""
    found = [
        f"it has {name} {here}, and the driver {there}: give it the archive of `lowmark pack`, or one image"
        for (name, there), here in zip(asked.versions.items(), versions().values(), strict=True)
        if here != there
    ]
    try:
        asked.kafka.librdkafka()
        asked.kafka.java()
    except KafkaSettingsError as error:
        found.append(f"{error}: [kafka] names files that each host must have")
    for folder in os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir()).split(","):
        try:
            with tempfile.TemporaryFile(dir=folder) as probe:
                probe.write(b"lowmark")
        except OSError as error:
            found.append(f"its scratch space {folder} cannot be written: {error.strerror}")
    if asked.folder is not None:
        found += _without_nonce(asked)
    return found


def _without_nonce(asked: Asked) -> list[str]:
    try:
        with open(f"{asked.folder}/{NONCE}", encoding="ascii") as file:
            if file.readline().strip() == asked.nonce:
                return []
        wrong = "another file is there"
    except (OSError, UnicodeDecodeError) as error:
        wrong = (isinstance(error, OSError) and error.strerror) or "another file is there"
    return [_unseen(f"{asked.folder} of the driver ({wrong})")]


def admit(asked: Asked) -> None:
    """Raise HostRefused if this process's host cannot do the work. Looks once for a nonce."""
    if asked.nonce in _admitted:
        return
    if wrong := look(asked):
        raise HostRefused(_said(socket.gethostname(), wrong))
    _admitted.add(asked.nonce)


def await_executors(spark: SparkSession) -> int:
    """The slots of the cluster, when there are any. The caller limits the time."""
    context = spark.sparkContext._jsc.sc()
    profile = context.resourceProfileManager().defaultResourceProfile()
    wanted = 1
    instances = spark.sparkContext.getConf().get("spark.executor.instances", "")
    if instances.isdecimal():
        wanted = int(instances) * int(spark.sparkContext.getConf().get("spark.executor.cores", "1"))
    while (slots := int(context.maxNumConcurrentTasks(profile))) < wanted:
        time.sleep(_LOOK_EVERY_S)
    return slots


def ask(spark: SparkSession, slots: int, folder: CheckpointFolder, asked: Asked) -> list[str]:
    """The hosts, when each can do the work. Raises HostRefused, which names a host that cannot."""
    place = folder.put(NONCE, f"{asked.nonce}\n".encode() * _LINES * slots)

    def task(lines: Iterator[str]) -> Iterable[tuple[str, list[str]]]:
        read = set(lines)
        wrong = look(asked)
        if read != {asked.nonce} and not wrong:
            wrong = [f"it reads another file at {place} than the driver has written"]
        yield socket.gethostname(), wrong

    context = spark.sparkContext
    # A path is read by the task itself, which names its host; a URL by Java, which does not.
    lines = context.parallelize([asked.nonce] * slots, slots) if asked.folder else context.textFile(place, slots)
    answers = None
    if context.getConf().get("spark.dynamicAllocation.enabled", "false") != "true":
        with contextlib.suppress(PySparkException, Py4JError):  # without a host's name
            # A barrier has its tasks run at the same time, so that each slot has one.
            answers = lines.barrier().mapPartitions(task).collect()
    try:
        answers = lines.mapPartitions(task).collect() if answers is None else answers
    except (PySparkException, Py4JError) as error:
        raise _refused(str(error)) from None
    wrong = {host: said for host, said in answers if said}
    if wrong:
        raise HostRefused("; ".join(_said(host, said) for host, said in sorted(wrong.items())))
    return sorted({host for host, _ in answers})


def _said(host: str, wrong: Iterable[str]) -> str:
    return f"host {host} cannot work for this job: {'; '.join(wrong)}"


def _unseen(what: str) -> str:
    return (
        f"it does not see the checkpoint {what}: mount it there, or put the checkpoint on a file system that all hosts "
        "reach by a URL (s3a://, hdfs://)"
    )


def _refused(text: str) -> HostRefused:
    """For a task that could not even begin."""
    task = _TASK.search(text)
    host, said = (task[1], task[2]) if task else ("of the cluster", text.strip().splitlines()[0])
    python = _PYTHONS.findall(text.partition("Driver stacktrace")[0])
    if "FileNotFoundException" in said or "does not exist" in said:
        said = _unseen(f"of the driver ({said.strip()})")
    elif "Cannot run program" in text:
        program = re.search(r'Cannot run program "([^"]+)"[^:]*: (.+)', text)
        named = f"{program[1]} cannot be run ({program[2].strip()})" if program else "cannot be run"
        said = f"its Python {named}: set spark.pyspark.python, and spark.archives unless it is in an image"
    elif python and "PythonException" in said:
        kind, words = python[-1]
        said = f"its Python says {kind}: {words}"
    return HostRefused(_said(host, [said.strip()]))
