"""Where a checkpoint's files are: a folder of this machine, or any file system that Spark knows, through Hadoop.

Paths are relative to the job's folder, with `/`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from highlevel.spark.errors import JobFailed, TakenOver

__all__ = ["CheckpointFiles", "HadoopFiles", "LocalFiles", "sync"]


class CheckpointFiles(Protocol):
    """Raises OSError where a file system fails."""

    @property
    def place(self) -> str:
        """For people, and for Spark."""

    @property
    def durable(self) -> bool:
        """Whether a file is durable once it has been closed."""

    def lock(self) -> None:
        """Keep other processes away, where that is possible. TakenOver when one is there, JobFailed when nothing can
        be written."""

    def release(self) -> None: ...

    def read(self, path: str) -> bytes:
        """Raises FileNotFoundError when it is not there."""

    def replace(self, path: str, content: bytes) -> None:
        """A reader sees the file of before or this one. Durable on return."""

    def names(self, folder: str) -> list[str]:
        """What is in a folder; none if it is not there."""

    def size(self, path: str) -> int:
        """Bytes of a file; 0 if it is not there."""

    def make_durable(self, paths: Iterable[str]) -> None:
        """These files and their folders, on return; those that have gone are left out."""

    def remove(self, path: str) -> None:
        """A file, which may have gone, or a folder with all that is in it."""


class LocalFiles:
    """A folder of this machine, or one that is mounted here. A lock keeps two processes apart."""

    durable = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._lock: int | None = None

    @property
    def place(self) -> str:
        return str(self.folder)

    def lock(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise JobFailed(f"the checkpoint {self.folder} cannot be written: {error.strerror}") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(lock, 100, 0).decode(errors="replace").strip()
            os.close(lock)
            raise TakenOver(f"the checkpoint {self.folder} is in use by process {holder}: end that job first") from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        self._lock = lock

    def release(self) -> None:
        assert self._lock is not None
        os.close(self._lock)

    def read(self, path: str) -> bytes:
        return (self.folder / path).read_bytes()

    def replace(self, path: str, content: bytes) -> None:
        file = self.folder / path
        staged = file.with_suffix(".new")
        with staged.open("wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        os.replace(staged, file)
        sync(file.parent)

    def names(self, folder: str) -> list[str]:
        try:
            return os.listdir(self.folder / folder)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def size(self, path: str) -> int:
        try:
            return (self.folder / path).stat().st_size
        except FileNotFoundError:
            return 0

    def make_durable(self, paths: Iterable[str]) -> None:
        files = [self.folder / path for path in paths]
        for file in files:
            with contextlib.suppress(FileNotFoundError):  # Spark removes what it does not need any more
                sync(file)
        for parent in {file.parent for file in files if file.parent.is_dir()}:
            sync(parent)

    def remove(self, path: str) -> None:
        if (self.folder / path).is_dir():
            shutil.rmtree(self.folder / path)
        else:
            (self.folder / path).unlink(missing_ok=True)


class HadoopFiles:
    """A file system that Spark reaches by a URL. No lock: a second process takes the job over, by Kafka's fencing."""

    durable = True

    def __init__(self, url: str, spark: SparkSession) -> None:
        self.place = url.rstrip("/")
        jvm = spark._jvm
        assert jvm is not None
        self._path = jvm.org.apache.hadoop.fs.Path
        self._io = jvm.org.apache.hadoop.io.IOUtils
        with _as_os_errors(self.place):
            # With the session's settings, so that it is the class by which Spark writes the checkpoint, too.
            settings = spark._jsparkSession.sessionState().newHadoopConf()
            root = self._path(self.place)
            self._system = root.getFileSystem(settings)
            packages = jvm.org.apache.spark.sql.execution.streaming.checkpointing
            managers = getattr(getattr(packages, "CheckpointFileManager$"), "MODULE$")
            self._manager = managers.create(root, settings)

    def lock(self) -> None:
        try:
            with _as_os_errors(self.place):
                self._manager.mkdirs(self._path(self.place))
        except OSError as error:
            raise JobFailed(f"the checkpoint {self.place} cannot be written: {error.strerror}") from None

    def release(self) -> None:
        pass

    def read(self, path: str) -> bytes:
        with _as_os_errors(self._at(path)):
            opened = self._system.open(self._path(self._at(path)))
            try:
                return bytes(self._io.readFullyToByteArray(opened))
            finally:
                opened.close()

    def replace(self, path: str, content: bytes) -> None:
        with _as_os_errors(self._at(path)):
            opened = self._manager.createAtomic(self._path(self._at(path)), True)
            try:
                opened.write(content)
            except BaseException:
                opened.cancel()
                raise
            opened.close()
        if self.read(path) != content:  # the manager for file systems without an atomic replacement does not say so
            raise OSError(errno.EIO, "this file system does not replace a file as a whole", self._at(path))

    def names(self, folder: str) -> list[str]:
        try:
            with _as_os_errors(self._at(folder)):
                found = self._system.listStatus(self._path(self._at(folder)))
                return [status.getPath().getName() for status in found]
        except FileNotFoundError:
            return []

    def size(self, path: str) -> int:
        try:
            with _as_os_errors(self._at(path)):
                return int(self._system.getFileStatus(self._path(self._at(path))).getLen())
        except FileNotFoundError:
            return 0

    def make_durable(self, paths: Iterable[str]) -> None:
        pass

    def remove(self, path: str) -> None:
        with _as_os_errors(self._at(path)):
            self._system.delete(self._path(self._at(path)), True)

    def _at(self, path: str) -> str:
        return f"{self.place}/{path}" if path else self.place


@contextlib.contextmanager
def _as_os_errors(place: str) -> Iterator[None]:
    """Turns what Java says of a file into an OSError."""
    try:
        yield
    except Py4JJavaError as error:
        cause = error.java_exception
        said = cause.toString()
        if "FileNotFoundException" in said:
            raise FileNotFoundError(errno.ENOENT, "it is not there", place) from None
        while cause.getCause() is not None:
            cause = cause.getCause()
        raise OSError(errno.EIO, cause.toString().splitlines()[0], place) from None


def sync(path: Path) -> None:
    """Make a file's content durable, or which files a folder has."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
