"""What kernels need and Python has no words for: unaligned loads, prefetch, arithmetic that wraps, bits of a double.

All values in kernels are int64, unsigned ones too (their bits): numba makes doubles of mixed signedness.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any  # of llvmlite's untyped values, inside this module alone

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

__all__ = [
    "be16", "be32", "be64", "double_of", "fold_product", "prefetch", "word_of", "wrap_add", "wrap_mul", "wrap_sub",
]  # fmt: skip

_I64 = ir.IntType(64)


def _pointer(context: Any, builder: Any, signature: Any, arguments: Any, index: Any) -> Any:
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    return builder.gep(array.data, [index])


def _big_endian(bits: int) -> Callable[..., Any]:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        at = _pointer(context, builder, signature, arguments, arguments[1])
        word = builder.load(builder.bitcast(at, ir.IntType(bits).as_pointer()), align=1)
        swapped = builder.bswap(word)
        return swapped if bits == 64 else builder.zext(swapped, _I64)

    return generate


# Loads of big-endian numbers at any position of an array of bytes. They do not look at its bounds.


@intrinsic
def be16(typing, data, at):  # type: ignore[no-untyped-def]
    return types.int64(data, types.int64), _big_endian(16)


@intrinsic
def be32(typing, data, at):  # type: ignore[no-untyped-def]
    return types.int64(data, types.int64), _big_endian(32)


@intrinsic
def be64(typing, data, at):  # type: ignore[no-untyped-def]
    return types.int64(data, types.int64), _big_endian(64)


@intrinsic
def prefetch(typing, table, row, word):  # type: ignore[no-untyped-def]
    """Bring the cache line of table[row, word] near, to be written. `table` is C-contiguous, of 64-bit words."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        width = builder.extract_value(array.shape, 1)
        index = builder.add(builder.mul(arguments[1], width), arguments[2])
        at = builder.bitcast(builder.gep(array.data, [index]), ir.IntType(8).as_pointer())
        i32 = ir.IntType(32)
        function = builder.module.declare_intrinsic(
            "llvm.prefetch", [at.type], ir.FunctionType(ir.VoidType(), [at.type, i32, i32, i32])
        )
        builder.call(function, [at, i32(1), i32(3), i32(1)])
        return context.get_dummy_value()

    return types.void(table, types.int64, types.int64), generate


# Arithmetic that wraps. Numba's own on int64 promises its compiler that it never overflows, and then a check of whether
# it did is compiled to nothing.


@intrinsic
def wrap_add(typing, a, b):  # type: ignore[no-untyped-def]
    return types.int64(types.int64, types.int64), lambda context, builder, signature, args: builder.add(*args)


@intrinsic
def wrap_sub(typing, a, b):  # type: ignore[no-untyped-def]
    return types.int64(types.int64, types.int64), lambda context, builder, signature, args: builder.sub(*args)


@intrinsic
def wrap_mul(typing, a, b):  # type: ignore[no-untyped-def]
    return types.int64(types.int64, types.int64), lambda context, builder, signature, args: builder.mul(*args)


@intrinsic
def fold_product(typing, a, b):  # type: ignore[no-untyped-def]
    """The two halves of the unsigned 128-bit product, one xor the other."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        wide = ir.IntType(128)
        product = builder.mul(*(builder.zext(argument, wide) for argument in arguments))
        return builder.trunc(builder.xor(product, builder.lshr(product, wide(64))), _I64)

    return types.int64(types.int64, types.int64), generate


@intrinsic
def word_of(typing, value):  # type: ignore[no-untyped-def]
    """The bits of a double."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.bitcast(arguments[0], _I64)

    return types.int64(types.float64), generate


@intrinsic
def double_of(typing, word):  # type: ignore[no-untyped-def]
    """The double that has these bits."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), generate
