"""Compiles functions to native code that can be loaded again without numba. This is the only module that drives the
compiler; it is imported only when something must be compiled."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any  # for untyped values of numba and llvmlite, inside this module alone

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import compiler, errors
from numba.core.registry import cpu_target

from lowmark.jit.native_code import ENTRY, NativeCode

__all__ = ["native_code", "room_to_recurse"]

_I32, _I64, _POINTER = ir.IntType(32), ir.IntType(64), ir.IntType(8).as_pointer()
_LETTERS = {types.int64: "q", types.uint64: "Q", types.float64: "d"}
_FOREIGN = ("NRT_", "numba_", "Py")
"""Prefixes of symbols that need numba in the process, or the GIL."""

_DEPTH = 50_000
_deepening = threading.RLock()


@contextmanager
def room_to_recurse() -> Iterator[None]:
    """Raise Python's recursion limit: numba recurses along a function's branches, two calls each, and the default of
    1,000 calls is too few for the kernel of a few dozen nodes."""
    with _deepening:
        before = sys.getrecursionlimit()
        sys.setrecursionlimit(max(before, _DEPTH))
        try:
            yield
        finally:
            sys.setrecursionlimit(before)


def native_code(function: Callable[..., object], arguments: Sequence[Any], error_model: str) -> NativeCode | None:
    """The function compiled for these numba types; None if it needs numba at run time (because it allocates, say) or
    has results other than numbers."""
    flags = compiler.Flags()
    flags.no_cpython_wrapper = True
    flags.no_cfunc_wrapper = True
    flags.nrt = False  # the caller owns the arrays: nothing counts references to them
    flags.error_model = error_model
    typing_context, target_context = cpu_target.typing_context, cpu_target.target_context
    typing_context.refresh()
    target_context.refresh()
    try:
        with room_to_recurse():
            made = compiler.compile_extra(typing_context, target_context, function, tuple(arguments), None, flags, {})
    except errors.NumbaError:  # it allocates; or it is wrong, and its dispatcher will report that
        return None
    results = _results(made.signature.return_type)
    library = made.library
    needed = [item.name for item in library._final_module.functions if item.is_declaration]
    needed += [item.name for item in library._final_module.global_variables if item.is_declaration]
    if results is None or any(name.startswith(_FOREIGN) for name in needed):
        return None
    _, _, (code, _) = library.serialize_using_object_code()
    shape = target_context.call_conv.get_function_type(made.fndesc.restype, made.fndesc.argtypes)
    entry = _entry(shape, made.fndesc.llvm_func_name, len(results))
    single = not isinstance(made.signature.return_type, types.BaseTuple)
    return NativeCode(results, single, (code, entry))


def _results(kind: Any) -> str | None:
    if kind == types.none:
        return ""
    if kind == types.boolean:
        return "?"
    kinds = tuple(kind) if isinstance(kind, types.BaseTuple) else (kind,)
    letters = [_LETTERS.get(types.unliteral(item)) for item in kinds]
    return None if None in letters else "".join(letter for letter in letters if letter)


def _entry(shape: Any, name: str, results: int) -> bytes:
    """Object code of the entry point: it unpacks words for a function with numba's calling convention."""
    module = ir.Module()
    module.triple = llvm.get_process_triple()
    callee = ir.Function(module, shape, name)
    function = ir.Function(module, ir.FunctionType(_I32, [_I64.as_pointer()]), ENTRY)
    builder = ir.IRBuilder(function.append_basic_block())
    (words,) = function.args
    returned, failure, *kinds = shape.args
    actual = [builder.bitcast(words, returned), builder.alloca(failure.pointee)]
    for place, kind in enumerate(kinds, results):
        word = builder.load(builder.gep(words, [_I64(place)]))
        actual.append(_as(builder, word, kind))
    builder.ret(builder.call(callee, actual))
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    machine = llvm.Target.from_default_triple().create_target_machine(codemodel="large", jit=True)
    return bytes(machine.emit_object(parsed))


def _as(builder: Any, word: Any, kind: Any) -> Any:
    if isinstance(kind, ir.PointerType):
        return builder.inttoptr(word, kind)
    if isinstance(kind, ir.DoubleType):
        return builder.bitcast(word, kind)
    return word if kind.width == 64 else builder.trunc(word, kind)
