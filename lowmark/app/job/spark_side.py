"""A job's Spark: its session, where its checkpoint lies, and whether the hosts of its cluster can do the work."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from types import TracebackType

from highlevel.spark.checkpoint.checkpoint import CheckpointFolder
from highlevel.spark.checkpoint.files import CheckpointFiles, HadoopFiles, LocalFiles
from highlevel.spark.preflight import Asked, ask, await_executors
from highlevel.spark.session import Spark, has_launcher
from highlevel.spark.spark_options import MOVES_BYTES, SparkSettings, scheme_of
from lowmark.app.errors import StartRefused
from lowmark.app.job.start import JobStart
from lowmark.app.kafka.jars import S3A, SPARK_KAFKA, obtain
from lowmark.app.kafka.java import Progress, find_java, spark_java_home
from lowmark.watchdog import Watchdog

__all__ = ["JobSpark", "KeptSpark"]

_START_WITHIN_S = 300.0  # limit for each step; some seconds are usual

_END_WITHIN_S = 25.0  # as a job that was told to end

_LISTS = ("spark.jars", "spark.archives", "spark.files", "spark.submit.pyFiles")
"""Settings that list files: a path in them is relative to the configuration file."""


class KeptSpark:
    """Spark's session from one life of the job in a process to the next, if `keep` is set before the first ends."""

    def __init__(self) -> None:
        self.keep = False
        self.spark: Spark | None = None

    def leave(self, spark: Spark) -> None:
        if self.keep:
            self.keep, self.spark = False, spark
        else:
            spark.stop()

    def stop(self) -> None:
        """End what nobody has taken over; by force if Java does not answer."""
        if self.spark is None:
            return
        patience = threading.Timer(_END_WITHIN_S, self.spark.kill)
        patience.daemon = True
        patience.start()
        try:
            self.spark.stop()
        finally:
            patience.cancel()


class JobSpark:
    """Inactive until `files` or `start`. `master` None: the configuration's. In a process that spark-submit has
    started, or that has a session, it is that session. `told` gets the session when it is there; it may be `kept`
    by a former life of the job in this process."""

    def __init__(
        self, start: JobStart, master: str | None, watchdog: Watchdog, told: Callable[[Spark], None],
        progress: Progress, kept: KeptSpark | None = None,
    ) -> None:  # fmt: skip
        self._start = start
        self._launched = has_launcher()
        if self._launched and master is not None:
            raise StartRefused(
                f"--master {master} cannot change the session that this process is started in",
                "give the master to spark-submit",
            )
        self._master = None if self._launched else master or start.config.job.master
        self._watchdog = watchdog
        self._told = told
        self._progress = progress
        self._kept = kept or KeptSpark()
        self._spark: Spark | None = None

    @property
    def spark(self) -> Spark:
        assert self._spark is not None, "not started"
        return self._spark

    @property
    def is_cluster(self) -> bool:
        """Whether executors are processes of their own, which may be on other hosts."""
        master = self.spark.session.sparkContext.master if self._master is None else self._master
        return master.partition("[")[0] != "local"

    def files(self, stack: ExitStack) -> CheckpointFiles:
        """The files of the checkpoint. Starts Spark if only Spark reads them."""
        folder = self._start.folder
        if folder is not None:
            return LocalFiles(folder)
        self.start(stack)
        return HadoopFiles(self._start.place, self.spark.session)

    def start(self, stack: ExitStack) -> Spark:
        """Once; raises JobFailed when Spark cannot be started."""
        if self._spark is None and self._kept.spark is not None:
            self._spark, self._kept.spark = self._kept.spark, None
            stack.callback(self._kept.leave, self._spark)
            self._told(self._spark)
        if self._spark is None:
            settings = self._settings(stack)
            self._progress("starting Spark" if not self._launched else "joining Spark's session")
            self._spark = Spark(settings)
            self._told(self._spark)
            with self._watchdog.within(_START_WITHIN_S, "Spark's start"):
                self._spark.start()
            stack.callback(self._kept.leave, self._spark)
        return self._spark

    def admitted(self, stack: ExitStack, folder: CheckpointFolder) -> Asked | None:
        """Checks that each host of the cluster has what the job needs there, and returns that; HostRefused names a host
        that lacks it. None: there is no cluster."""
        if self._master is not None and not self.is_cluster:
            return None
        session = self.start(stack).session
        if not self.is_cluster:
            return None
        asked = Asked.by(self._start.config.kafka, folder.place)
        with self._watchdog.within(_START_WITHIN_S, "the wait for executors"):
            self._progress("waiting for executors")
            slots = await_executors(session)
        with self._watchdog.within(_START_WITHIN_S, "the check of the executors"):
            hosts = ask(session, slots, folder, asked)
        self._progress(f"{slots} slots on {', '.join(hosts)}")
        return asked

    @cached_property
    def _work(self) -> Path:
        """Local scratch space."""
        folder = self._start.folder
        return Path(tempfile.mkdtemp(prefix="lowmark-job-")) if folder is None else folder / "work"

    def _settings(self, stack: ExitStack) -> SparkSettings:
        start, job = self._start, self._start.config.job
        java = None if self._launched else find_java()
        sets = (SPARK_KAFKA, S3A) if scheme_of(start.place) == "s3a" else (SPARK_KAFKA,)
        jars = [] if java is None else [jar for of in sets for jar in obtain(of, java=java, progress=self._progress)]
        log = self._work / "spark.log"
        if start.folder is not None:
            shutil.rmtree(self._work, ignore_errors=True)  # left by a killed job; the lock proves that it is gone
            log = start.folder / "spark.log"
        elif java is not None:
            self._progress(f"Spark's log is {log}")
            stack.push(self._clean)
        return SparkSettings(
            master=self._master,
            java_home=Path() if java is None else spark_java_home(java),
            jars=jars,
            shuffle_partitions=job.shuffle_partitions,
            heap=job.heap,
            work_dir=self._work,
            log=log,
            checkpoint=start.place,
            java_options=MOVES_BYTES,
            extra={name: self._placed(name, value) for name, value in job.spark.items()},
        )

    def _clean(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Of a job that has failed, the log stays."""
        if kind is None:
            shutil.rmtree(self._work, ignore_errors=True)

    def _placed(self, name: str, value: str) -> str:
        if name not in _LISTS:
            return value
        beside = self._start.config.path.parent.absolute()
        parts = (part.strip() for part in value.split(","))
        return ",".join(part if ":" in part else str(beside / part) for part in parts)
