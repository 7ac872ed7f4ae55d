"""A prefetch hint to the processor, for the walkers. Numba itself has none."""

from __future__ import annotations

from lowmark.jit.compiled import Intrinsic

__all__ = ["prefetch"]


@Intrinsic
def prefetch(typing_context, array, index):  # type: ignore[no-untyped-def]
    """Asks for the cache line of array[index], which need not exist: a hint reads nothing and cannot fail."""
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils

    def generate(context, builder, _signature, arguments):  # type: ignore[no-untyped-def]
        first = context.make_array(array)(context, builder, arguments[0]).data
        i32, pointer = ir.IntType(32), ir.IntType(8).as_pointer()
        hint = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), [pointer, i32, i32, i32]), "llvm.prefetch.p0"
        )
        builder.call(hint, [builder.gep(first, [arguments[1]]), i32(0), i32(3), i32(1)])
        return context.get_dummy_value()

    return types.void(array, index), generate
