"""Kernels on disk: their native code, named after all that it is made of, so that a warm start compiles nothing; and,
for people to read, the module that it was made from."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import cast

from lowlevel.config import Order
from lowlevel.kernel.assemble import Build, assemble
from lowmark.query import expressions, plan
from lowmark.query.plan import Reduction
from lowmark.wire import schema
from lowmark.wire.cachefolder import cache_folder, put_in_place
from lowmark.wire.native import Argument, Laid, NativeCode, digest_of, flat, keep, kept

__all__ = ["Kernel", "kernel", "prepare"]

Kernel = Callable[..., bool]
"""`run` of a generated module: its parameters are those of `assemble`, some of them perhaps `Laid`. True: the block is
finished; False: an output buffer is full, and it is to be called again with the same block when they are empty."""


def kernel(
    reductions: Sequence[Reduction],
    build: Build = Build.FAST,
    send_late: Sequence[bool] | None = None,
    order: Order = Order.ANY,
) -> Kernel:
    """The compiled kernel of these nodes, from the cache if it is there. `send_late` as for `assemble`."""
    return _kernel(tuple(reductions), build, tuple(send_late or [False] * len(reductions)), order)


def prepare(reductions: Sequence[Reduction], send_late: Sequence[bool], order: Order) -> None:
    """Sees to it that `kernel` will find it compiled; for a process of its own."""
    kernel(reductions, send_late=send_late, order=order)


@cache
def _kernel(reductions: tuple[Reduction, ...], build: Build, send_late: tuple[bool, ...], order: Order) -> Kernel:
    digest = digest_of(repr((reductions, build, send_late, order)).encode(), *_sources())
    code = kept(digest) if build is Build.FAST else None
    if code is None:
        module = _module(f"lowmark_kernel_{digest}", assemble(reductions, build, send_late, order))
        code = _native(module) if build is Build.FAST else None
        if code is None:
            return _dispatched(module)
        keep(digest, code)
    return cast(Kernel, code.load())


def _native(module: ModuleType) -> NativeCode | None:
    from lowmark.wire.compiling import native_code

    return native_code(module.run, module.PARAMETERS, "numpy")


def _dispatched(module: ModuleType) -> Kernel:
    """Through numba, which can tell of an index out of bounds."""
    from numba import njit, types

    run: Kernel = njit(types.boolean(*module.PARAMETERS), **module.OPTIONS)(module.run)

    def call(*arguments: Argument | Laid) -> bool:
        return run(*flat(arguments))

    return call


@cache
def _sources() -> tuple[bytes, ...]:
    """What a kernel's text is made by."""
    makers = (expressions.__file__, plan.__file__, schema.__file__)
    files = [*sorted(Path(__file__).parent.glob("*.py")), *map(Path, makers)]
    return tuple(file.read_bytes() for file in files)


def _module(name: str, text: str) -> ModuleType:
    path = cache_folder("kernels") / f"{name}.py"
    content = text.encode()
    try:
        written = path.read_bytes() == content
    except OSError:
        written = False
    if not written:
        put_in_place(path, content)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where numba looks for it
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
