"""The Spark session of a job: in a JVM of its own, or in the one that has started this process.

The output of a JVM of its own and of its Python workers is kept off the terminal; Spark's log is a file in the work
folder. A session that spark-submit, an operator or a notebook set up keeps its log, its master and its memory; it gets
the settings on which answers depend.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from collections import deque
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
from highlevel.spark.spark_options import CONNECTOR_CLASS, SparkSettings, attached_options, options, refusals

__all__ = ["LAST_WORDS", "Spark", "has_launcher"]

_GATEWAY = "PYSPARK_GATEWAY_PORT"
"""Where spark-submit's JVM listens; spark-submit leaves it in the environment of the Python process that it starts."""

LAST_WORDS = "lowmark: "
"""Begins the line that a Python worker prints before it ends itself."""

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


class Spark:
    """Inactive until `start`; `stop` ends the JVM and its workers. Only one at a time in a process."""

    def __init__(self, settings: SparkSettings) -> None:
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._owned = True  # whether this has made the session, and ends it
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
        logging.getLogger("py4j").setLevel(logging.CRITICAL)  # a failure there is raised, too …
        logging.getLogger().addFilter(_not_py4j)  # … and part of it is logged without a logger's name
        handler = signal.getsignal(signal.SIGINT)
        try:
            self._session = self._attach() if self._settings.master is None else self._begin()
        except JobFailed:
            raise
        except Exception as error:  # py4j raises many types for a JVM that has gone
            gone = self.gone(wait=True)
            if gone is None and not isinstance(error, PySparkException | Py4JError):
                self.stop()
                raise
            said = f"its process {gone}" if gone else _reason(str(error))  # asks the JVM, so before it is ended
            self.stop()
            log = "" if self._settings.master is None else f". Its log is {self._settings.log}"
            raise JobFailed(f"Spark could not be started: {said}{log}") from None
        except BaseException:
            self.stop()
            raise
        finally:
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGINT, handler)  # Spark has set its own, which ends jobs without our knowledge

    def _begin(self) -> SparkSession:
        settings = self._settings
        settings.work_dir.mkdir(parents=True, exist_ok=True)
        log_settings = settings.work_dir / "log4j2.properties"
        log_settings.write_text(_LOG4J.format(file=settings.log))
        os.environ["JAVA_HOME"] = str(settings.java_home)
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ["PYSPARK_PYTHON"] = python = settings.extra.get("spark.pyspark.python", sys.executable)
        _provide(python, settings.work_dir)
        conf = SparkConf(loadDefaults=False).setAppName("lowmark").setMaster(settings.master)
        for name, value in options(settings, log_settings).items():
            conf.set(name, value)
        context = SparkContext(conf=conf, gateway=self._launch(conf))
        # It reads from the JVM, and would print a traceback when that is killed; `gone` says so in a sentence.
        context._accumulatorServer.handle_error = lambda request, address: None
        return SparkSession(context)

    def _attach(self) -> SparkSession:
        """The session of the process that has started this one, with our settings."""
        settings, found = self._settings, SparkSession.getActiveSession()
        self._owned = found is None and SparkContext._active_spark_context is None
        SparkContext._ensure_initialized()
        given = SparkConf() if self._owned else SparkContext.getOrCreate().getConf()
        refused = refusals(dict(given.getAll()) | dict(settings.extra), attached=True)
        if refused:
            raise JobFailed(f"the Spark session that this process is started in does not fit: {'; '.join(refused)}")
        wanted = attached_options(settings, dict(given.getAll()))
        if self._owned:
            for name, value in wanted.items():
                given.set(name, value)
            context = SparkContext(conf=given)
            session = SparkSession(context)
        else:
            context = SparkContext.getOrCreate()
            session = SparkSession(context) if found is None else found.newSession()
            for name, value in wanted.items():
                if name.startswith("spark.sql."):
                    session.conf.set(name, value)
        _provide(context.pythonExec, Path.cwd())
        try:
            java = context._jvm.java.lang
            java.Class.forName(CONNECTOR_CLASS, True, java.Thread.currentThread().getContextClassLoader())
        except Py4JError:
            raise JobFailed(
                "Spark's driver does not find its Kafka connector: start it with the properties and jars that "
                "`lowmark pack` writes, or with spark-submit --jars and the jars that `lowmark fetch` names"
            ) from None
        return session

    def _launch(self, conf: SparkConf) -> JavaGateway:
        """Start the JVM in a session of its own, so that Ctrl-C reaches this process alone; it ends with its input."""
        reading, writing = os.pipe()
        drain = threading.Thread(target=self._drain, args=(os.fdopen(reading, "rb"),), name="spark-output", daemon=True)
        drain.start()
        try:
            with os.fdopen(writing, "wb") as output:
                place = {"cwd": self._settings.work_dir, "start_new_session": True}
                gateway = launch_gateway(conf, {"stdout": output, "stderr": output, **place})
        except (PySparkException, Py4JError, OSError, EOFError):
            drain.join(_END_WITHIN_S)
            raise JobFailed(f"Spark could not be started: {_trouble(list(self._printed))}") from None
        self._process = gateway.proc
        return gateway

    def stop(self) -> None:
        """End the session and the JVM, by force after 20 s; does nothing when there is none. What this has not started
        goes on."""
        session, self._session = self._session, None
        process = self._process
        if process is None:
            if session is not None and self._settings.master is None and self._owned:
                with contextlib.suppress(Py4JError, OSError):  # the JVM has died by itself
                    session.stop()
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
            return None if self._answers() else "has gone: the program that started this one knows why"
        try:
            status = process.wait(_NEWS_WITHIN_S if wait else 0)
        except subprocess.TimeoutExpired:
            return None
        if status < 0:
            return f"was killed by {signal.Signals(-status).name}: by somebody, or because the machine is out of memory"
        said = f": {'; '.join(list(self._printed)[-2:])}" if self._printed else ""
        return f"ended with exit code {status}, mostly for want of memory (job.heap){said}"

    def last_words(self) -> str | None:
        """Why a Python worker of this machine has ended itself."""
        said = (line for line in reversed(list(self._printed)) if line.startswith(LAST_WORDS))
        return next((line.removeprefix(LAST_WORDS) for line in said), None)

    def _answers(self) -> bool:
        """Whether a JVM that this has not started is there; true when there is none to ask."""
        jvm = SparkContext._jvm
        if self._session is None or jvm is None:
            return True
        try:
            jvm.java.lang.System.nanoTime()
        except (Py4JError, OSError):
            return False
        return True

    def kill(self) -> None:
        """End the JVM at once, from any thread; the caller must end, too. spark-submit ends with the caller."""
        process = self._process
        if process is not None:
            process.kill()

    def _drain(self, output: IO[bytes]) -> None:
        with output:
            for line in output:
                self._printed.append(line.decode(errors="replace").rstrip())


def has_launcher() -> bool:
    """Whether this process was started by spark-submit or has a session, so that it needs no JVM of its own."""
    return _GATEWAY in os.environ or SparkContext._active_spark_context is not None


def _provide(python: str, folder: Path) -> None:
    """Spark's driver starts Python, too, by the executors' name for it: where that is a path in an unpacked archive, it
    is this Python. `folder`: where the driver works."""
    top, *below = Path(python).parts
    if not below or Path(python).is_absolute() or (folder / python).exists():
        return
    if below != ["bin", Path(python).name] or (folder / top).exists():
        raise JobFailed(
            f"spark.pyspark.python is {python!r}, which is not there in {folder}: give ./NAME/bin/python, where NAME "
            "is the folder that spark.archives names behind #"
        )
    (folder / top).symlink_to(sys.prefix)


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
