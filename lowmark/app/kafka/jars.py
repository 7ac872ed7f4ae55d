"""Fetches the pinned jars of the broker and of Spark's Kafka connector, and checks them against jars.lock.

The Ivy that ships inside pyspark resolves them. To change a version: edit it below, then
`python -m lowmark.app.kafka.jars --lock` rewrites the lockfile, which has one line a jar: set, file name, sha256.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple
from xml.sax.saxutils import quoteattr

from lowmark.app.errors import EnvironmentNotReady
from lowmark.app.kafka.java import Java, Progress, find_java, trust_options
from lowmark.jit.cache_folder import cache_root

_HERE = Path(__file__).parent
LOCKFILE = _HERE / "jars.lock"
_STAGING = "fetching-"
_DEADLINE = 900.0  # seconds: 30 are usual; a slow line needs more


class JarCoordinates(NamedTuple):
    """Coordinates of a jar in the registry."""

    organisation: str
    name: str
    revision: str
    transitive: bool
    """Fetch its dependencies too, in the versions that its own description names."""


@dataclass(frozen=True)
class JarSet:
    """The jars that one classpath needs."""

    name: str
    purpose: str
    modules: tuple[JarCoordinates, ...]


BROKER = JarSet(
    name="broker",
    purpose="the Kafka broker",
    modules=(
        # Brokers of 4.3.0 and 4.3.1 that are killed lose ends of transactions (KAFKA-20734).
        JarCoordinates("org.apache.kafka", "kafka_2.13", "4.2.1", transitive=True),
        # Kafka's own description names no logger, and without one Kafka logs nothing.
        JarCoordinates("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4", transitive=False),
    ),
)
SPARK_KAFKA = JarSet(
    name="spark-kafka",
    purpose="Spark's Kafka connector",
    modules=(
        JarCoordinates("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0", transitive=False),
        # Not every registry has the provider of the connector's own version; this one works with it.
        JarCoordinates("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0", transitive=False),
        JarCoordinates("org.apache.kafka", "kafka-clients", "3.9.2", transitive=False),
        JarCoordinates("org.apache.commons", "commons-pool2", "2.13.1", transitive=False),
        # Beside the connector: Hadoop's class for local files, but without a `chmod` process for each file.
        JarCoordinates("com.globalmentor", "hadoop-bare-naked-local-fs", "0.1.0", transitive=False),
    ),
)
_AWS = (
    "annotations apache-client arns auth aws-core aws-query-protocol aws-xml-protocol checksums checksums-spi crt-core "
    "endpoints-spi http-auth http-auth-aws http-auth-aws-eventstream http-auth-spi http-client-spi identity-spi "
    "json-utils metrics-spi netty-nio-client profiles protocol-core regions retries retries-spi s3 s3-transfer-manager "
    "sdk-core third-party-jackson-core utils utils-lite"
)
S3A = JarSet(
    name="s3a",
    purpose="Hadoop's client of S3",
    modules=(
        # Of pyspark's own version of Hadoop. The parts of Amazon's client that it needs have 10 MB, all of them 600.
        JarCoordinates("org.apache.hadoop", "hadoop-aws", "3.5.0", transitive=False),
        JarCoordinates("software.amazon.s3.analyticsaccelerator", "analyticsaccelerator-s3", "1.3.1", transitive=False),
        *(JarCoordinates("software.amazon.awssdk", name, "2.35.4", transitive=False) for name in _AWS.split()),
        JarCoordinates("software.amazon.eventstream", "eventstream", "1.0.1", transitive=False),
        JarCoordinates("org.reactivestreams", "reactive-streams", "1.0.4", transitive=False),
        # Writes a checkpoint's files by uploads instead of renames. Not every registry has Spark's own version.
        JarCoordinates("org.apache.spark", "spark-hadoop-cloud_2.13", "4.1.1", transitive=False),
    ),
)
SETS = (BROKER, SPARK_KAFKA)
"""What `lowmark fetch` gets."""

_LOCKFILES = {S3A.name: "s3a.lock"}
"""Sets with a lockfile of their own. Few installations need them, so each is fetched when it is needed."""

Lock = Mapping[str, Mapping[str, str]]
"""Set name -> file name -> sha256 in hex."""


def read_lock(text: str) -> Lock:
    """The lockfile's content; raises ValueError with the line's number for anything that is not a lock line."""
    lock: dict[str, dict[str, str]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        if not re.fullmatch(r"\S+ [^\s/]+\.jar [0-9a-f]{64}", line):
            raise ValueError(f"line {number} of the jars' lockfile is not `set file.jar sha256`: {line!r}")
        set_name, file_name, digest = line.split(" ")
        if lock.setdefault(set_name, {}).setdefault(file_name, digest) != digest:
            raise ValueError(f"line {number} of the jars' lockfile repeats {file_name} with another sha256")
    return MappingProxyType(lock)


def write_lock(lock: Lock) -> str:
    """The text that `read_lock` reads back as `lock`."""
    lines = ["# Made by `python -m lowmark.app.kafka.jars --lock`: set, file name, sha256."]
    lines += [f"{name} {file} {digest}" for name in sorted(lock) for file, digest in sorted(lock[name].items())]
    return "\n".join(lines) + "\n"


def obtain(
    jar_set: JarSet,
    *,
    java: Java | None = None,
    cache: Path | None = None,
    progress: Progress = lambda text: None,
    lock: Lock | None = None,
) -> tuple[Path, ...]:
    """Paths of the set's jars, in a fixed order, fetched if missing; each matches the lockfile.

    Safe for concurrent processes and threads: one fetches, the others wait for it.
    """
    expected, folder = _place(jar_set, cache, lock)
    if not folder.is_dir():
        with _alone(folder.parent, progress):
            if not folder.is_dir():
                _fetch(jar_set, expected, folder, java or find_java(), progress)
    return kept(jar_set, cache=cache, lock=lock)


def kept(jar_set: JarSet, *, cache: Path | None = None, lock: Lock | None = None) -> tuple[Path, ...]:
    """As `obtain`, but never fetches: EnvironmentNotReady if the jars are not on this host."""
    expected, folder = _place(jar_set, cache, lock)
    if not folder.is_dir():
        raise EnvironmentNotReady(
            f"the jars of {jar_set.purpose} are not in {folder.parent}",
            "`lowmark fetch` gets them; on a host without a network, set LOWMARK_JARS to a folder that "
            "`lowmark fetch` has filled on another host",
        )
    hint = f"`lowmark fetch` replaces them; or remove {folder} to fetch the jars again"
    _check(_digests(folder), expected, jar_set, hint)
    return tuple(folder / name for name in sorted(expected))


def fetch(
    jar_set: JarSet, *, java: Java, cache: Path, progress: Progress = lambda text: None, lock: Lock | None = None
) -> bool:
    """Fetches the set's jars unless they are there and match the lockfile. Returns whether it fetched."""
    expected, folder = _place(jar_set, cache, lock)
    if _digests(folder) == expected:
        return False
    with _alone(folder.parent, progress):
        if _digests(folder) == expected:
            return False
        _fetch(jar_set, expected, folder, java, progress)
    return True


def _place(jar_set: JarSet, cache: Path | None, lock: Lock | None) -> tuple[Mapping[str, str], Path]:
    """Expected digests, and the folder named after them: each release on a machine has its own folder."""
    expected = (lock if lock is not None else read_lock(_lockfile(jar_set).read_text()))[jar_set.name]
    content = hashlib.sha256(repr(sorted(expected.items())).encode()).hexdigest()[:16]
    return expected, (cache or jars_root()) / "jars" / f"{jar_set.name}-{content}"


def _lockfile(jar_set: JarSet) -> Path:
    return _HERE / _LOCKFILES.get(jar_set.name, LOCKFILE.name)


def jars_root() -> Path:
    """$LOWMARK_JARS, a folder that `lowmark fetch` has filled and that may be read-only; else the cache."""
    return Path(chosen).absolute() if (chosen := os.environ.get("LOWMARK_JARS")) else cache_root()


def classpath(jars: Sequence[Path]) -> str:
    """The jars as one argument of a JVM."""
    return os.pathsep.join(str(jar) for jar in jars)


@contextmanager
def _alone(root: Path, progress: Progress) -> Iterator[None]:
    try:
        root.mkdir(parents=True, exist_ok=True)
        handle = (root / ".lock").open("w")
    except OSError as error:
        raise EnvironmentNotReady(
            f"the folder of the jars cannot be written: {root}: {error.strerror}",
            "set LOWMARK_JARS to a folder that can be written, or to one that `lowmark fetch` has filled",
        ) from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another process that fetches jars")
            fcntl.flock(handle, fcntl.LOCK_EX)
        for left in root.glob(f"{_STAGING}*"):  # left by processes that were killed
            shutil.rmtree(left, ignore_errors=True)
        yield


def _fetch(jar_set: JarSet, expected: Mapping[str, str], folder: Path, java: Java, progress: Progress) -> None:
    cache = folder.parent.parent
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=_STAGING) as staging:
        fetched = _resolve(jar_set, len(expected), java, cache, Path(staging), progress)
        hint = "the registry, or a proxy on the way to it, serves other files; none of them was kept"
        _check(_digests(fetched), expected, jar_set, hint)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(fetched, folder)


def _resolve(jar_set: JarSet, total: int, java: Java, cache: Path, staging: Path, progress: Progress) -> Path:
    """Downloads the set's jars into a folder of `staging`; `total` (0: unknown) is for `progress`."""
    (staging / "ivy.xml").write_text(_description(jar_set))
    # Relative to `staging`, since Ivy would read brackets in an absolute path as a part of its pattern.
    pattern = "jars/[artifact]-[revision](-[classifier]).[ext]"
    command: list[str | Path] = [java.executable, *trust_options(java, cache)]
    command += [f"-Divy.default.ivy.user.dir={staging}", "-jar", _ivy(), "-cache", "ivy", "-ivy", "ivy.xml"]
    command += ["-confs", "default", "-retrieve", pattern, "-types", "jar", "bundle", "maven-plugin"]
    with subprocess.Popen(
        command, cwd=staging, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as ivy:
        deadline = threading.Timer(_DEADLINE, ivy.kill)
        deadline.start()
        try:
            last = _follow(ivy, jar_set, total, progress)
        except BaseException:
            ivy.kill()
            raise
        finally:
            deadline.cancel()
    if ivy.returncode:
        raise EnvironmentNotReady(
            f"the jars of {jar_set.purpose} could not be fetched",
            "check the network; a proxy is named by JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT'; "
            "without a network, set LOWMARK_JARS to a folder that `lowmark fetch` has filled on another host",
            tuple(last),
        )
    return staging / "jars"


def _follow(ivy: subprocess.Popen[str], jar_set: JarSet, total: int, progress: Progress) -> Sequence[str]:
    """Turns Ivy's output into progress; returns its last lines, for an error message."""
    assert ivy.stdout is not None
    last: deque[str] = deque(maxlen=12)
    of_total = f" of {total}" if total else ""
    found = fetched = 0
    for line in ivy.stdout:
        if line.strip(" .\t\n"):
            last.append(line.strip())
        if line.startswith("\tfound "):
            found += 1
            progress(f"looking up the jars of {jar_set.purpose}: {found}{of_total}")
        elif line.startswith("\t[SUCCESSFUL ]"):
            fetched += 1
            progress(f"fetching the jars of {jar_set.purpose}: {fetched}{of_total}")
    return last


def _description(jar_set: JarSet) -> str:
    dependencies = "".join(
        f'<dependency conf="default->default" org={quoteattr(module.organisation)} name={quoteattr(module.name)} '
        f'rev={quoteattr(module.revision)} transitive="{str(module.transitive).lower()}"/>'
        for module in jar_set.modules
    )
    return (
        f'<ivy-module version="2.0"><info organisation="lowmark" module={quoteattr(jar_set.name)}/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )


def _ivy() -> Path:
    spark = find_spec("pyspark")
    for place in (spark.submodule_search_locations or ()) if spark else ():
        for jar in Path(place).glob("jars/ivy-*.jar"):
            return jar
    raise EnvironmentNotReady(
        "Ivy, which fetches jars, was not found in pyspark", "install pyspark again with its jars"
    )


def _digests(folder: Path) -> dict[str, str]:
    found = {}
    for jar in sorted(folder.glob("*.jar")):
        with jar.open("rb") as content:
            found[jar.name] = hashlib.file_digest(content, "sha256").hexdigest()
    return found


def _check(seen: Mapping[str, str], expected: Mapping[str, str], jar_set: JarSet, hint: str) -> None:
    wrong = [
        f"{name}: expected {expected.get(name, 'no such file')}, seen {seen.get(name, 'no such file')}"
        for name in sorted(seen.keys() | expected.keys())
        if seen.get(name) != expected.get(name)
    ]
    if wrong:
        raise EnvironmentNotReady(
            f"the jars of {jar_set.purpose} differ from the lockfile in {len(wrong)} of {len(expected)}",
            hint,
            tuple(wrong),
        )


def resolve_lock(java: Java, progress: Progress, sets: Sequence[JarSet] = SETS) -> Lock:
    """Digests of the sets as the registry has them now, resolved without any earlier download."""
    lock = {}
    for jar_set in sets:
        with tempfile.TemporaryDirectory() as folder:
            jars = _resolve(jar_set, 0, java, cache_root(), Path(folder), progress)
            lock[jar_set.name] = _digests(jars)
    return lock


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the lockfiles of jars anew."""
    parser = argparse.ArgumentParser(prog="python -m lowmark.app.kafka.jars", description=main.__doc__)
    parser.add_argument("--lock", action="store_true", required=True, help="rewrite the lockfiles from the registry")
    parser.parse_args(arguments)

    def show(text: str) -> None:
        print(text, file=sys.stderr)

    try:
        for sets in (SETS, (S3A,)):
            _lockfile(sets[0]).write_text(write_lock(resolve_lock(find_java(), show, sets)))
    except EnvironmentNotReady as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
