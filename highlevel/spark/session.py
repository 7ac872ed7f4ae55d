"""The Spark session of a job: a JVM of its own, with the settings that measurably matter.

The output of the JVM and its Python workers is kept off the terminal; Spark's log is a file in the work folder.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from highlevel.spark.errors import JobFailed

__all__ = ["MOVES_BYTES", "Spark", "SparkSettings"]

MOVES_BYTES = ("-XX:TieredStopAtLevel=1",)
"""Java options of a job whose work is done in Python's workers. Java's second compiler takes most of a JVM's time while
it warms up (60 % after 20 s). Where the JVM only passes bytes on, its code is no faster than the first compiler's."""

_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {file}
appender.file.filePattern = {file}.%i
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %p %c{{1}}: %m%n%ex
"""

_LINES_KEPT = 40
_END_WITHIN_S = 20.0
_NEWS_WITHIN_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """`java_home` and `jars` are of this machine; on a cluster the executors find the jars under the same paths."""

    master: str
    java_home: Path
    jars: Sequence[Path]
    shuffle_partitions: int  # fixed in a checkpoint by its first batch
    heap: str  # heap of the driver JVM, which is everything in local mode; for example `1g`
    work_dir: Path  # scratch space, local
    log: Path  # Spark's log file
    java_options: Sequence[str] = ()  # of the driver's JVM and of the executors'
    extra: Mapping[str, str] = field(default_factory=dict)  # the user's own settings; they take precedence


class Spark:
    """Inactive until `start`; `stop` ends the JVM and its workers. Only one at a time in a process."""

    def __init__(self, settings: SparkSettings) -> None:
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._session: SparkSession | None = None
        self._printed: deque[str] = deque(maxlen=_LINES_KEPT)

    def __enter__(self) -> Spark:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    @property
    def session(self) -> SparkSession:
        assert self._session is not None, "not started"
        return self._session

    def start(self) -> None:
        """Takes seconds. Raises JobFailed when Spark cannot be started."""
        settings = self._settings
        settings.work_dir.mkdir(parents=True, exist_ok=True)
        log_settings = settings.work_dir / "log4j2.properties"
        log_settings.write_text(_LOG4J.format(file=settings.log))
        logging.getLogger("py4j").setLevel(logging.CRITICAL)  # a failure there is raised, too …
        logging.getLogger().addFilter(_not_py4j)  # … and part of it is logged without a logger's name
        os.environ["JAVA_HOME"] = str(settings.java_home)
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        conf = SparkConf(loadDefaults=False).setAppName("lowmark").setMaster(settings.master)
        for name, value in (_options(settings, log_settings) | dict(settings.extra)).items():
            conf.set(name, value)
        handler = signal.getsignal(signal.SIGINT)
        try:
            gateway = self._launch(conf)
            self._session = SparkSession(SparkContext(conf=conf, gateway=gateway))
        except JobFailed:
            raise
        except Exception as error:  # py4j raises many types for a JVM that has gone
            gone = self.gone(wait=True)
            if gone is None and not isinstance(error, PySparkException | Py4JError):
                self.stop()
                raise
            said = f"its process {gone}" if gone else _reason(str(error))  # asks the JVM, so before it is ended
            self.stop()
            raise JobFailed(f"Spark could not be started: {said}. Its log is {settings.log}") from None
        except BaseException:
            self.stop()
            raise
        finally:
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGINT, handler)  # Spark has set its own, which ends jobs without our knowledge

    def _launch(self, conf: SparkConf) -> JavaGateway:
        """Start the JVM in a session of its own, so that Ctrl-C reaches this process alone; it ends with its input."""
        reading, writing = os.pipe()
        drain = threading.Thread(target=self._drain, args=(os.fdopen(reading, "rb"),), name="spark-output", daemon=True)
        drain.start()
        try:
            with os.fdopen(writing, "wb") as output:
                gateway = launch_gateway(conf, {"stdout": output, "stderr": output, "start_new_session": True})
        except (PySparkException, Py4JError, OSError, EOFError):
            drain.join(_END_WITHIN_S)
            raise JobFailed(f"Spark could not be started: {_trouble(list(self._printed))}") from None
        self._process = gateway.proc
        return gateway

    def stop(self) -> None:
        """End the session and the JVM, by force after 20 s; does nothing when there is none."""
        session, self._session = self._session, None
        process = self._process
        if process is None:
            return
        try:
            if session is not None and process.poll() is None:
                session.stop()
            if SparkContext._gateway is not None:
                SparkContext._gateway.shutdown()
        except (Py4JError, OSError):
            pass  # the JVM has died by itself
        finally:
            SparkContext._gateway = SparkContext._jvm = None
            assert process.stdin is not None
            process.stdin.close()  # the JVM ends when its input closes
            try:
                process.wait(_END_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self._process = None

    def gone(self, wait: bool = False) -> str | None:
        """How the JVM's process has ended, as the end of a sentence; None while it runs. With `wait` this may take two
        seconds: a lost connection is noticed before the process has ended."""
        process = self._process
        if process is None:
            return None
        try:
            status = process.wait(_NEWS_WITHIN_S if wait else 0)
        except subprocess.TimeoutExpired:
            return None
        if status < 0:
            return f"was killed by {signal.Signals(-status).name}: by somebody, or because the machine is out of memory"
        said = f": {'; '.join(list(self._printed)[-2:])}" if self._printed else ""
        return f"ended with exit code {status}, mostly for want of memory (job.heap){said}"

    def kill(self) -> None:
        """End the JVM at once, from any thread; the caller must end, too."""
        process = self._process
        if process is not None:
            process.kill()

    def _drain(self, output: IO[bytes]) -> None:
        with output:
            for line in output:
                self._printed.append(line.decode(errors="replace").rstrip())


def _not_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname


def _trouble(printed: list[str]) -> str:
    """The error that a JVM printed when it did not start."""
    first = next((at for at, line in enumerate(printed) if "Error" in line or "Exception" in line), None)
    if first is None:
        return "its process ended and did not say why: it was killed, or the machine is out of memory"
    return "; ".join(printed[first : first + 2])


def _reason(text: str) -> str:
    """The cause in Java's words. py4j's own line, which names the failed call, comes before it."""
    lines = [line.strip(": ") for line in text.splitlines() if line.strip()]
    return next((line for line in lines if not line.startswith("An error occurred")), "no reason is given")


def _options(settings: SparkSettings, log_settings: Path) -> dict[str, str]:
    classpath, java = os.pathsep.join(str(jar) for jar in settings.jars), settings.java_options
    options = {
        "spark.driver.extraClassPath": classpath,
        "spark.executor.extraClassPath": classpath,
        "spark.driver.memory": settings.heap,
        "spark.driver.extraJavaOptions": " ".join([f"-Dlog4j2.configurationFile={log_settings.as_uri()}", *java]),
        "spark.executor.extraJavaOptions": " ".join(java),
        "spark.local.dir": str(settings.work_dir),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # A record has up to half a MiB: with ten thousand records, the other limit, an Arrow batch would not fit.
        "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
        "spark.speculation": "false",  # a second attempt at a task would give the same result at twice the cost
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",  # only records make time pass
        "spark.sql.streaming.stopTimeout": "10s",
    }
    if settings.master.startswith("local"):
        options |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        options |= {"spark.shuffle.compress": "false"}  # shuffled data stays on this machine
        # The checkpoint is on a drive of this machine, where a rename is atomic: the checksummed, slower manager is
        # for object stores.
        options |= {
            "spark.sql.streaming.checkpointFileManagerClass": (
                "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
            ),
            "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
        }
    return options
