"""Stores kernels on disk: the native code, whose name covers everything that it is made of, so that a warm start
compiles nothing; and the module that it was made from, for people to read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import cast

import numpy as np
import numpy.typing as npt

from lowlevel.config import FlushOrder
from lowlevel.kernel.codegen.assemble import Build, assemble, kernel_parameters
from lowmark.jit.cache_folder import store_cached
from lowmark.jit.native_code import Argument, Laid, NativeCode, digest_of, flat, load_native, mark_of, store_native
from lowmark.jit.slow_compiles import compiling
from lowmark.query.plan.nodes import Reduction

__all__ = ["Kernel", "compile_kernel", "kernel", "prepare"]

Kernel = Callable[..., bool]
"""`run` of a generated module: its parameters are those of `assemble`, and some may be `Laid`. Returns True when the
block is finished, False when an output buffer is full: call it again with the same block after emptying the buffers."""


def kernel(
    reductions: Sequence[Reduction],
    build: Build = Build.FAST,
    send_late: Sequence[bool] | None = None,
    order: FlushOrder = FlushOrder.ANY,
) -> tuple[Kernel, npt.NDArray[np.int64]]:
    """The compiled kernel of these nodes, from the cache if it is there, and its argument `literals`. `send_late` as
    for `assemble`."""
    late = send_late or [False] * len(reductions)
    kinds = tuple(kind for _, kind in kernel_parameters(reductions, late))
    text, literals = assemble(reductions, build, late, order)
    return _kernel(text, build, kinds), literals


def prepare(reductions: Sequence[Reduction], send_late: Sequence[bool], order: FlushOrder) -> None:
    """Compile `kernel` into the cache; for a process of its own."""
    kernel(reductions, send_late=send_late, order=order)


@cache
def _kernel(text: str, build: Build, kinds: tuple[str, ...]) -> Kernel:
    forms = [_ARRAYS.get(kind, "int64") for kind in kinds]
    # Everything that the text uses and does not define is in primitives.py.
    digest = digest_of(text.encode(), repr(forms).encode(), Path(__file__).with_name("primitives.py").read_bytes())
    name = f"lowmark_kernel_{digest}"
    if build is Build.CHECKED:
        return _dispatched(_module(name, text))
    code = load_native(digest)
    if code is None:
        store_cached("kernels", f"{name}.py", text.encode())
        code = compile_kernel(text, kinds)
        store_native(digest, code)
    return _checked(cast(Kernel, code.load()), kinds)


_ARRAYS = {
    "bytes_": ("uint8", 1, True), "words": ("int64", 1, True), "codes": ("int32", 1, True),
    "words_out": ("int64", 1, False), "slot_numbers": ("uint32", 1, False), "matrix": ("int64", 2, False),
    "ranges": ("int64", 2, True),
}  # fmt: skip
"""The arrays that the kernel's text names: type of the elements, dimensions, whether the kernel only reads them."""


def _checked(run: Kernel, kinds: Sequence[str]) -> Kernel:
    """Check the arguments' types, because native code takes any memory for what it expects."""
    known: set[tuple[object, ...]] = set()  # types that fit: for all blocks but the first this is one look-up

    def call(*arguments: Argument | Laid) -> bool:
        marks = tuple(map(mark_of, arguments))
        if marks not in known:
            given = list(flat(arguments))
            if len(given) != len(kinds) or not all(map(_fits, given, kinds)):
                raise TypeError("a kernel was called with arguments of another number or form than it was made for")
            known.add(marks)
        return run(*arguments)

    return call


def _fits(argument: Argument, kind: str) -> bool:
    if kind not in _ARRAYS:
        return type(argument) is int
    dtype, dimensions, constant = _ARRAYS[kind]
    if not isinstance(argument, np.ndarray) or argument.dtype != dtype or argument.ndim != dimensions:
        return False
    flags = argument.flags
    return flags.c_contiguous and flags.aligned and (constant or flags.writeable)


def compile_kernel(text: str, kinds: Sequence[str]) -> NativeCode:
    """The native code of `run` of an assembled text, whose parameters are of these kinds."""
    with compiling():
        from lowlevel.kernel.primitives import PRIMITIVES
        from lowmark.jit.llvm_compiler import compile_function

        return compile_function(text, "run", [_ARRAYS.get(kind, "int64") for kind in kinds], PRIMITIVES)


def _dispatched(module: ModuleType) -> Kernel:
    """The text compiled by numba, which detects an index out of bounds."""
    from numba import njit, types

    from lowmark.jit.compiler import room_to_recurse

    with room_to_recurse():
        run: Kernel = njit(types.boolean(*module.PARAMETERS), **module.OPTIONS)(module.run)

    def call(*arguments: Argument | Laid) -> bool:
        return run(*flat(arguments))

    return call


def _module(name: str, text: str) -> ModuleType:
    path = store_cached("kernels", f"{name}.py", text.encode())
    module = ModuleType(name)
    module.__file__ = str(path or f"<{name}>")
    sys.modules[name] = module  # where numba looks for it
    try:
        exec(compile(text, module.__file__, "exec"), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    return module
