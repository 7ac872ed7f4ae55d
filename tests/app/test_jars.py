"""The lockfile of jars, and that what is obtained is what it says."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowmark.app.errors import EnvironmentNotReady
from lowmark.app.kafka import jars as module
from lowmark.app.kafka.jars import (
    BROKER,
    LOCKFILE,
    SETS,
    SPARK_KAFKA,
    JarCoordinates,
    JarSet,
    Lock,
    fetch,
    kept,
    obtain,
    read_lock,
    write_lock,
)
from lowmark.app.kafka.java import Java, find_java
from lowmark.jit.cache_folder import cache_root
from tests.acceptance.command import lowmark

SMALL = JarSet("small", "a test", (JarCoordinates("org.apache.commons", "commons-pool2", "2.13.1", transitive=False),))
POOL = "commons-pool2-2.13.1.jar"

names = st.text("az09_.-", min_size=1, max_size=8)
digests = st.binary(min_size=32, max_size=32).map(bytes.hex)
locks = st.dictionaries(
    names, st.dictionaries(names.map(lambda n: n + ".jar"), digests, min_size=1, max_size=4), max_size=4
)


def small_lock(digest: str | None = None) -> Lock:
    pinned = read_lock(LOCKFILE.read_text())["spark-kafka"][POOL]
    return {"small": {POOL: digest or pinned}}


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Fetching replaced by a copy of a local file, so that failures can be staged; returns the sets fetched so far."""
    fetched: list[str] = []

    def resolve(jar_set: JarSet, total: int, java: Java, cache: Path, staging: Path, progress: object) -> Path:
        fetched.append(jar_set.name)
        (staging / "jars").mkdir()
        (staging / "jars" / POOL).write_bytes(b"a jar")
        return staging / "jars"

    monkeypatch.setattr(module, "_resolve", resolve)
    return fetched


A_JAR = hashlib.sha256(b"a jar").hexdigest()


@given(locks)
def test_a_lock_survives_its_text(lock: dict[str, dict[str, str]]) -> None:
    assert read_lock(write_lock(lock)) == MappingProxyType(lock)


def test_the_package_s_lock_covers_every_set_and_names_no_address() -> None:
    text = LOCKFILE.read_text()
    lock = read_lock(text)
    assert text == write_lock(lock)
    assert set(lock) == {jar_set.name for jar_set in SETS}
    assert "://" not in text
    assert {"kafka_2.13-4.2.1.jar", "log4j-slf4j-impl-2.25.4.jar"} <= lock["broker"].keys()
    assert len(lock["broker"]) == 46
    assert set(lock["spark-kafka"]) == {f"{module.name}-{module.revision}.jar" for module in SPARK_KAFKA.modules}


@pytest.mark.parametrize(
    "line", ["broker a.jar", "broker a.jar xyz", f"broker ../a.jar {'0' * 64}", f"b a.zip {'0' * 64}"]
)
def test_a_line_that_is_no_lock_line_is_shown_with_its_number(line: str) -> None:
    with pytest.raises(ValueError) as caught:
        read_lock("# comment\n" + line)
    assert "line 2" in str(caught.value)
    assert repr(line) in str(caught.value)


def test_a_file_locked_twice_is_refused() -> None:
    with pytest.raises(ValueError) as caught:
        read_lock(f"a x.jar {'0' * 64}\na x.jar {'1' * 64}\n")
    assert "line 2" in str(caught.value)


def test_what_is_there_is_not_fetched_again(registry: list[str], tmp_path: Path) -> None:
    first = obtain(SMALL, cache=tmp_path, lock=small_lock(A_JAR))
    assert obtain(SMALL, cache=tmp_path, lock=small_lock(A_JAR)) == first
    assert [path.name for path in first] == [POOL]
    assert registry == ["small"]


def test_a_jar_that_differs_from_the_lock_is_refused_and_not_kept(registry: list[str], tmp_path: Path) -> None:
    with pytest.raises(EnvironmentNotReady) as caught:
        obtain(SMALL, cache=tmp_path, lock=small_lock("0" * 64))
    assert caught.value.details == (f"{POOL}: expected {'0' * 64}, seen {A_JAR}",)
    assert list((tmp_path / "jars").glob("*/*")) == []


def test_a_jar_that_the_lock_does_not_know_is_refused(registry: list[str], tmp_path: Path) -> None:
    with pytest.raises(EnvironmentNotReady) as caught:
        obtain(SMALL, cache=tmp_path, lock={"small": {"other.jar": "0" * 64}})
    assert caught.value.details == (
        f"{POOL}: expected no such file, seen {A_JAR}",
        f"other.jar: expected {'0' * 64}, seen no such file",
    )


def test_a_cached_jar_that_was_changed_is_refused(registry: list[str], tmp_path: Path) -> None:
    (jar,) = obtain(SMALL, cache=tmp_path, lock=small_lock(A_JAR))
    jar.write_bytes(b"another")
    with pytest.raises(EnvironmentNotReady) as caught:
        obtain(SMALL, cache=tmp_path, lock=small_lock(A_JAR))
    assert f"remove {jar.parent}" in caught.value.hint


JAVA = Java(Path("/nowhere"), 17, bundled=False)


def test_fetching_again_fetches_nothing(registry: list[str], tmp_path: Path) -> None:
    assert fetch(SMALL, java=JAVA, cache=tmp_path, lock=small_lock(A_JAR))
    (jar,) = kept(SMALL, cache=tmp_path, lock=small_lock(A_JAR))
    assert not fetch(SMALL, java=JAVA, cache=tmp_path, lock=small_lock(A_JAR))
    assert obtain(SMALL, cache=tmp_path, lock=small_lock(A_JAR)) == (jar,)
    assert registry == ["small"]


def test_fetching_replaces_what_is_not_whole(registry: list[str], tmp_path: Path) -> None:
    (jar,) = obtain(SMALL, cache=tmp_path, lock=small_lock(A_JAR))
    jar.write_bytes(b"a j")
    with pytest.raises(EnvironmentNotReady, match="`lowmark fetch` replaces them"):
        kept(SMALL, cache=tmp_path, lock=small_lock(A_JAR))
    assert fetch(SMALL, java=JAVA, cache=tmp_path, lock=small_lock(A_JAR))
    assert kept(SMALL, cache=tmp_path, lock=small_lock(A_JAR)) == (jar,)


def test_what_cannot_be_fetched_leaves_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "jars" / f"small-{hashlib.sha256(repr([(POOL, A_JAR)]).encode()).hexdigest()[:16]}"
    folder.mkdir(parents=True)
    (folder / POOL).write_bytes(b"a j")

    def resolve(*arguments: object) -> Path:
        raise EnvironmentNotReady("no network", "none")

    monkeypatch.setattr(module, "_resolve", resolve)
    with pytest.raises(EnvironmentNotReady, match="no network"):
        fetch(SMALL, java=JAVA, cache=tmp_path, lock=small_lock(A_JAR))
    assert (folder / POOL).read_bytes() == b"a j"


def test_what_a_killed_process_has_left_is_no_jar_and_leaves(registry: list[str], tmp_path: Path) -> None:
    left = tmp_path / "jars" / "fetching-abc" / "jars"
    left.mkdir(parents=True)
    (left / POOL).write_bytes(b"a j")
    with pytest.raises(EnvironmentNotReady, match=f"the jars of a test are not in {tmp_path}/jars"):
        kept(SMALL, cache=tmp_path, lock=small_lock(A_JAR))
    assert fetch(SMALL, java=JAVA, cache=tmp_path, lock=small_lock(A_JAR))
    (jar,) = kept(SMALL, cache=tmp_path, lock=small_lock(A_JAR))
    assert {path.name for path in (tmp_path / "jars").iterdir()} == {jar.parent.name, ".lock"}


def test_another_lock_has_a_folder_of_its_own(registry: list[str], tmp_path: Path) -> None:
    (old,) = obtain(SMALL, cache=tmp_path, lock=small_lock(A_JAR))
    with pytest.raises(EnvironmentNotReady):
        obtain(SMALL, cache=tmp_path, lock=small_lock("1" * 64))
    assert obtain(SMALL, cache=tmp_path, lock=small_lock(A_JAR)) == (old,)


def test_callers_at_once_fetch_once(registry: list[str], tmp_path: Path) -> None:
    results: list[tuple[Path, ...]] = []
    start = threading.Barrier(4)

    def call() -> None:
        start.wait()
        results.append(obtain(SMALL, cache=tmp_path, lock=small_lock(A_JAR)))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert len(set(results)) == 1
    assert registry == ["small"]


def test_a_cache_that_cannot_be_written_is_named(registry: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentNotReady, match="LOWMARK_JARS"):
        obtain(SMALL, cache=tmp_path / "file", lock=small_lock(A_JAR))


@pytest.mark.slow
def test_ivy_fetches_what_is_locked_into_a_folder_with_odd_letters(tmp_path: Path) -> None:
    said: list[str] = []
    cache = tmp_path / "it's [odd] (1)"
    assert fetch(SMALL, java=find_java(), cache=cache, lock=small_lock(), progress=said.append)
    (jar,) = kept(SMALL, cache=cache, lock=small_lock())
    assert jar.name == POOL
    assert said[-1] == "fetching the jars of a test: 1 of 1"
    assert {path.name for path in jar.parent.parent.iterdir()} == {jar.parent.name, ".lock"}


@pytest.mark.slow
def test_a_jar_that_does_not_exist_shows_what_ivy_says(tmp_path: Path) -> None:
    missing = JarSet("small", "a test", (JarCoordinates("org.apache.commons", "no-such-thing", "0", transitive=False),))
    with pytest.raises(EnvironmentNotReady) as caught:
        obtain(missing, cache=tmp_path, lock=small_lock())
    assert any("no-such-thing" in line for line in caught.value.details)


@pytest.mark.slow
@pytest.mark.parametrize("jar_set", SETS, ids=lambda jar_set: jar_set.name)
def test_the_registry_still_serves_every_set(jar_set: JarSet) -> None:
    jars = obtain(jar_set)
    assert [jar.name for jar in jars] == sorted(read_lock(LOCKFILE.read_text())[jar_set.name])


@pytest.mark.slow
def test_the_command_says_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that is stated has all that its environment needs: nothing more is fetched."""
    for jar_set in SETS:
        obtain(jar_set)
    (tmp_path / "jars").symlink_to(cache_root() / "jars")
    outcome = lowmark("fetch", str(tmp_path))
    assert outcome.code == 0, outcome.error
    *each, java, use = outcome.out.splitlines()
    assert [line.partition(", ")[0] for line in each] == [
        "there already: 46 jars of the Kafka broker", "there already: 5 jars of Spark's Kafka connector"
    ]  # fmt: skip
    assert java.startswith("Java ")
    assert use == f"to use them: LOWMARK_JARS={tmp_path}"
    monkeypatch.setenv("LOWMARK_JARS", str(tmp_path))
    assert [len(kept(jar_set)) for jar_set in SETS] == [46, 5]


@pytest.mark.slow
def test_the_broker_s_jars_are_a_whole_classpath(tmp_path: Path) -> None:
    """Kafka's own tool starts from the broker's jars and from nothing else."""
    command = [
        find_java().executable,
        "-cp",
        module.classpath(obtain(BROKER)),
        "kafka.tools.StorageTool",
        "random-uuid",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert len(done.stdout.strip()) == 22


def test_the_command_explains_itself() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lowmark.app.kafka.jars", "--help"], capture_output=True, text=True, check=True
    )
    assert "--lock" in done.stdout
