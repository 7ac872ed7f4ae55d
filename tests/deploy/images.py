"""The images of lowmark, built from the repository's files on a base that is made from this machine's."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from lowmark.app.kafka.jars import S3A, SETS, obtain
from tests.fixtures import docker

ROOT = Path(__file__).parents[2]
_BUILD_S = 900
_SOURCES = (
    "lowmark", "ingest", "lowlevel", "highlevel", "deploy/image", "deploy/systemd", "pyproject.toml", "setup.py",
    "requirements-build.lock", "README.md", "LICENSE", ".dockerignore",
)  # fmt: skip
_NOT_SOURCES = shutil.ignore_patterns("__pycache__", "wheels", "jars")


@dataclass(frozen=True)
class Images:
    engine: str
    tag: str

    @property
    def capture(self) -> str:
        return f"lowmark-test-capture:{self.tag}"

    @property
    def job(self) -> str:
        return f"lowmark-test-job:{self.tag}"

    @property
    def base(self) -> str:
        return f"lowmark-test-base:{self.tag}"

    def docker(self, *arguments: str) -> str:
        """Runs a command of Docker's; what it says, on both channels."""
        command = ["docker", "-H", self.engine, *arguments]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=_BUILD_S)
        assert done.returncode == 0, done.stdout
        return done.stdout

    @contextmanager
    def container(self, image: str, *arguments: str, options: tuple[str, ...] = ()) -> Iterator[Container]:
        """On the host's network, with a root that cannot be written and no capability but those of `options`."""
        name = f"lowmark-test-{uuid4().hex[:8]}"
        run = ["run", "--detach", "--name", name, "--network", "host", "--read-only", "--cap-drop", "ALL", "--init"]
        for path in ("/tmp", "/var/cache/lowmark", "/var/lib/lowmark"):
            run += ["--tmpfs", f"{path}:exec,uid=10001,gid=10001"]
        try:
            self.docker(*run, *options, image, *arguments)
            yield Container(self, name)
        finally:
            with suppress(AssertionError):  # it was never made
                self.docker("rm", "--force", name)


@dataclass(frozen=True)
class Container:
    images: Images
    name: str

    @property
    def said(self) -> str:
        return self.images.docker("logs", self.name)

    def inspect(self, form: str) -> str:
        return self.images.docker("inspect", "--format", form, self.name).strip()

    @property
    def pid(self) -> int:
        return int(self.inspect("{{.State.Pid}}"))

    @property
    def runs(self) -> bool:
        return self.inspect("{{.State.Running}}") == "true"

    def stop(self) -> int:
        """SIGTERM, as an orchestrator sends it; the exit code."""
        self.images.docker("stop", "--time", "60", self.name)
        return int(self.inspect("{{.State.ExitCode}}"))


@contextmanager
def build(engine: str, folder: Path) -> Iterator[Images]:
    """`folder`: for what a build needs. The images are removed at the end."""
    images = Images(engine, uuid4().hex[:8])
    docker.import_image(engine, images.base, _write_base)
    try:
        _gather_sources(folder)
        yield images
    finally:
        for name in (images.capture, images.job, images.base):
            with suppress(AssertionError):  # it was never made
                images.docker("image", "rm", "--force", name)
        # The stages of the build have no names.
        images.docker("image", "prune", "--force", "--filter", f"label=org.opencontainers.image.revision={images.tag}")


def build_image(images: Images, folder: Path, target: str) -> None:
    image = {"capture": images.capture, "job": images.job}[target]
    _gather_packages(folder, target)
    images.docker(
        "build", "--quiet", "--network", "none", "--file", str(folder / "deploy/image/Containerfile"), "--target",
        target, "--tag", image, "--build-arg", f"BASE={images.base}", "--build-arg", f"COMMIT={images.tag}",
        "--build-arg", "PIP_NO_INDEX=1", str(folder),
    )  # fmt: skip


def _write_base(archive: tarfile.TarFile) -> None:
    docker.add_python(archive)
    docker.add_text(archive, "etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")
    docker.add_text(archive, "etc/group", "root:x:0:\n")
    scratch = tarfile.TarInfo("tmp")
    scratch.type, scratch.mode = tarfile.DIRTYPE, 0o1777
    archive.addfile(scratch)


def _gather_sources(folder: Path) -> None:
    for name in _SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=_NOT_SOURCES)
        else:
            shutil.copy(ROOT / name, folder / name)


def _gather_packages(folder: Path, target: str) -> None:
    """All packages and jars: the build gets no network."""
    image = folder / "deploy" / "image"
    wheels = image / "offline" / "wheels"
    for lock in (ROOT / "requirements-build.lock", ROOT / "deploy" / "image" / f"{target}.lock"):
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--require-hashes", "--no-deps"]
        command += ["--no-build-isolation", "--wheel-dir", wheels, "--requirement", lock]
        subprocess.run(command, check=True, timeout=_BUILD_S)
    if target != "job":
        return
    # Spark comes as sources. The wheel that pip has made of them, after checking them, needs a line of its own.
    (spark,) = wheels.glob("pyspark-*.whl")
    with spark.open("rb") as wheel:
        digest = hashlib.file_digest(wheel, "sha256").hexdigest()
    lock = image / "job.lock"
    before, name, after = lock.read_text().partition("pyspark==")
    first, rest = after.split("\n", 1)
    lock.write_text(f"{before}{name}{first}\n    --hash=sha256:{digest} \\\n{rest}")
    for jar_set in (*SETS, S3A):
        jars = obtain(jar_set)
        shutil.copytree(jars[0].parent, image / "offline" / "jars" / jars[0].parent.name)
