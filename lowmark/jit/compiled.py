"""The one place in which kernels are compiled: native code is kept on disk, and runs without the GIL.

Code that was compiled before is loaded without numba, whose import takes longer than the rest of a start. A kernel that
needs numba at run time, because it allocates or raises exceptions that Python can catch, is called through numba.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

import numpy as np

from lowmark.jit.native_code import (
    Argument,
    Laid,
    NativeFunction,
    Result,
    digest_of,
    flat,
    load_native,
    mark_of,
    store_native,
)
from lowmark.jit.slow_compiles import compiling

if TYPE_CHECKING:
    from numba.core.dispatcher import Dispatcher

__all__ = ["Intrinsic", "compiled"]

P = ParamSpec("P")
R = TypeVar("R")

_lock = threading.RLock()


class Intrinsic:
    """A function written in LLVM's terms, for compiled functions to call. numba sees it when it compiles a caller."""

    def __init__(self, define: Callable[..., object]) -> None:
        self.file = cast(FunctionType, define).__code__.co_filename
        self._define = define
        self._made: object = None

    def __call__(self, *arguments: object) -> None:
        raise TypeError("only compiled functions can call an intrinsic")

    def made(self) -> object:
        if self._made is None:
            from numba.extending import intrinsic

            self._made = intrinsic(self._define)
        return self._made


class Compiled:
    """A function as native code, one version for each combination of argument kinds. A version is compiled at its first
    call, or loaded if an earlier process stored it. Consecutive arguments may be given as one `Laid`."""

    def __init__(self, function: FunctionType) -> None:
        self.__wrapped__ = function
        self.__doc__ = function.__doc__
        self._natives: dict[tuple[object, ...], NativeFunction] = {}
        self._dispatchers: dict[bool, Dispatcher] = {}

    def __call__(self, *arguments: Argument | Laid) -> Result:
        marks = tuple(map(mark_of, arguments))
        native = self._natives.get(marks)
        if native is None:
            with _lock:
                native = self._natives[marks] = self._load(tuple(flat(arguments)))
        return native(*arguments)

    def dispatcher(self, inner: bool) -> Dispatcher:
        """numba's dispatcher. `inner`: only compiled functions call it, so it has no entry point for Python."""
        if inner not in self._dispatchers:
            from numba import njit

            # numba does not cache it on disk: its cache depends on the function's file, not on the functions it calls.
            options = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": False} if inner else {}
            self._dispatchers[inner] = njit(nogil=True, boundscheck=False, **options)(self._linked())
        return self._dispatchers[inner]

    def parts(self) -> Iterator[bytes]:
        """Everything that determines the native code: name, source files of all its functions, and their constants."""
        yield f"{self.__wrapped__.__module__}.{self.__wrapped__.__qualname__}".encode()
        files: set[str] = set()
        constants: set[str] = set()
        self._collect(files, constants)
        yield from (Path(file).read_bytes() for file in sorted(files))
        yield from (constant.encode() for constant in sorted(constants))

    def _collect(self, files: set[str], constants: set[str]) -> None:
        files.add(self.__wrapped__.__code__.co_filename)
        for name, value in self._globals().items():
            if isinstance(value, Compiled):
                value._collect(files, constants)
            elif isinstance(value, Intrinsic):
                files.add(value.file)
            elif isinstance(value, int | float | np.generic):
                constants.add(f"{name}={value!r}")
            elif isinstance(value, np.ndarray):
                constants.add(f"{name}={value.dtype}{value.shape}{value.tobytes().hex()}")
            elif value is not np:
                # Without this error, a change of the value would load stale code: the digest does not cover it.
                named = f"{self.__wrapped__.__module__}.{self.__wrapped__.__qualname__}"
                raise TypeError(f"{named} names {name}: compiled code can name numbers, arrays and compiled code only")

    def _globals(self) -> dict[str, object]:
        """The globals that the function uses, with their values."""
        module = self.__wrapped__.__globals__
        return {name: module[name] for name in _names(self.__wrapped__.__code__) if name in module}

    def _linked(self) -> FunctionType:
        """The function with numba's objects in place of `Compiled` and `Intrinsic` ones."""
        function = self.__wrapped__
        names = dict(function.__globals__)
        for name, value in self._globals().items():
            if isinstance(value, Compiled):
                names[name] = value.dispatcher(inner=True)
            elif isinstance(value, Intrinsic):
                names[name] = value.made()
        linked = FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
        linked.__qualname__, linked.__module__ = function.__qualname__, function.__module__
        return linked

    def _load(self, arguments: tuple[Argument, ...]) -> NativeFunction:
        kinds = tuple(map(_kind, arguments))
        digest = digest_of(repr(kinds).encode(), *self.parts())
        code = load_native(digest)
        if code is None:
            with compiling():
                from numba import typeof

                from lowmark.jit.compiler import native_code

                code = native_code(self._linked(), [typeof(argument) for argument in arguments], "python")
            if code is None:
                dispatcher = self.dispatcher(inner=False)
                return lambda *given: cast(Result, dispatcher(*flat(given)))
            store_native(digest, code)
        return code.load()


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """The function as native code, compiled at its first call and stored for later processes."""
    return cast(Callable[P, R], Compiled(cast(FunctionType, function)))


def _kind(argument: Argument) -> object:
    """The properties of an argument by which numba compiles different code."""
    if isinstance(argument, np.ndarray):
        flags = argument.flags
        order = "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A"
        return argument.dtype.str, argument.ndim, order, flags.writeable, flags.aligned
    if isinstance(argument, np.generic):
        return argument.dtype.str
    if type(argument) is int:
        return int if -(1 << 63) <= argument < 1 << 63 else "<u8"
    return type(argument)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
