"""Kernels on disk: a module named after its text's hash, beside it numba's native code, so that a warm start compiles
nothing."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import llvmlite
import numba

from lowlevel.kernel import machine
from lowlevel.kernel.assemble import Build, assemble
from lowmark.query.plan import Reduction

__all__ = ["Kernel", "kernel", "kernel_folder"]

Kernel = Callable[..., bool]
"""`run` of a generated module: its parameters are those of `assemble`. True: the block is finished; False: an output
buffer is full, and it is to be called again with the same block when they are empty."""


def kernel(reductions: Sequence[Reduction], build: Build = Build.FAST) -> Kernel:
    """The compiled kernel of these nodes, from the cache if it is there."""
    text = assemble(reductions, build)
    # Native code also depends on what the text imports and on who compiles it.
    versions = f"{numba.__version__} {llvmlite.__version__} {sys.version_info[:2]}"
    imported = Path(machine.__file__).read_bytes()
    digest = hashlib.sha256(b"\0".join((text.encode(), imported, versions.encode()))).hexdigest()[:24]
    name = f"lowmark_kernel_{digest}"
    if name not in sys.modules:
        _load(name, _written(kernel_folder() / f"{name}.py", text))
    run: Kernel = sys.modules[name].run
    return run


def kernel_folder() -> Path:
    """Where kernels are kept: $LOWMARK_CACHE, else the user's cache folder, else a folder of this process alone."""
    given = os.environ.get("LOWMARK_CACHE")
    base = Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lowmark"
    folder = base / "kernels"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # What lies there is run: nobody else may put anything there.
        if folder.stat().st_uid == os.getuid() and os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    return _private_folder()


def _private_folder() -> Path:
    global _private
    if _private is None:
        _private = tempfile.TemporaryDirectory(prefix="lowmark-kernels-")
    return Path(_private.name)


_private: tempfile.TemporaryDirectory[str] | None = None


def _written(path: Path, text: str) -> Path:
    """The file with this text. Several processes may write it at once: each puts a whole one in place."""
    try:
        if path.read_text(encoding="utf-8") == text:
            return path
    except (OSError, UnicodeDecodeError):
        pass
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, suffix=".tmp", delete=False) as file:
        file.write(text)
    os.replace(file.name, path)
    return path


def _load(name: str, path: Path) -> None:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
