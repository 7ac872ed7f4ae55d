"""The Spark session of a job: a JVM of its own, with the settings that were measured to matter.

What the JVM and its Python workers print is kept apart from the terminal; Spark's log is a file in the work folder.
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
it warms up (60 % after 20 s); where the JVM only passes bytes on, its code is no faster than that of the first."""

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
    shuffle_partitions: int  # pinned in a checkpoint by its first batch
    heap: str  # of the driver, and so of all in local mode: as Java writes sizes
    work_dir: Path  # scratch space, local
    log: Path  # the file that Spark writes its log into
    java_options: Sequence[str] = ()  # of the driver's JVM and of the executors'
    extra: Mapping[str, str] = field(default_factory=dict)  # the user's own settings; they win


class Spark:
    """Inert until `start`; `stop` ends the JVM and its workers. One at a time in a process."""

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
        """Takes seconds. JobFailed when Spark cannot be started."""
        settings = self._settings
        settings.work_dir.mkdir(parents=True, exist_ok=True)
        log_settings = settings.work_dir / "log4j2.properties"
        log_settings.write_text(_LOG4J.format(file=settings.log))
        logging.getLogger("py4j").setLevel(logging.CRITICAL)  # what fails there is raised, too …
        logging.getLogger().addFilter(_not_py4j)  # … though some of it is logged as nobody's
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
        except Exception as error:  # whatever the bridge makes of a JVM that is no more
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
                signal.signal(signal.SIGINT, handler)  # Spark has put its own there, which ends jobs behind our back

    def _launch(self, conf: SparkConf) -> JavaGateway:
        """The JVM. In a session of its own, so that Ctrl-C reaches this process alone; it ends when its input does."""
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
            process.stdin.close()  # the JVM ends with its input
            try:
                process.wait(_END_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self._process = None

    def gone(self, wait: bool = False) -> str | None:
        """How the JVM's process has ended, as the end of a sentence; None while it runs. With `wait` it may take two
        seconds for it: who has just lost the connection to it is ahead of the news."""
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
        """End the JVM at once, from any thread; whoever calls it ends, too."""
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
    """What a JVM that did not come up has printed of it."""
    first = next((at for at, line in enumerate(printed) if "Error" in line or "Exception" in line), None)
    if first is None:
        return "its process ended and did not say why: it was killed, or the machine is out of memory"
    return "; ".join(printed[first : first + 2])


def _reason(text: str) -> str:
    """py4j's own line names the call that failed; what Java said follows it."""
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
        # A record has up to half a MiB: ten thousand, which is the other limit, would not fit.
        "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
        "spark.speculation": "false",  # two attempts at a task would both be right, and cost twice
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",  # time passes only by records
        "spark.sql.streaming.stopTimeout": "10s",
    }
    if settings.master.startswith("local"):
        options |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        options |= {"spark.shuffle.compress": "false"}  # what is shuffled stays on this machine
        # The checkpoint is on a drive of this machine, where a rename is atomic: the checksummed, slower manager is
        # for object stores.
        options |= {
            "spark.sql.streaming.checkpointFileManagerClass": (
                "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
            ),
            "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
        }
    return options
