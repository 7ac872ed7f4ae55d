"""`primitives` for the checked build, which numba compiles: arithmetic that wraps, bits of a double. Its loads and
copies are in `bytewise`.

All values in kernels are int64, unsigned ones too (their bits): numba makes doubles of mixed signedness.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core.imputils import impl_ret_borrowed
from numba.extending import intrinsic

__all__ = [
    "double_of", "fold_product", "high_product", "high_unsigned", "of_width", "prefetch", "word_of", "wrap_add",
    "wrap_mul", "wrap_sub",
]  # fmt: skip

_I64 = ir.IntType(64)


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


@intrinsic(prefer_literal=True)
def of_width(typing, rows, words):  # type: ignore[no-untyped-def]
    """The matrix, whose rows are known to have so many words: places in it take no multiplication by a variable."""
    if not isinstance(words, types.IntegerLiteral):
        return None

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        width, count = _I64(words.literal_value), builder.extract_value(array.shape, 0)
        array.shape = builder.insert_value(array.shape, width, 1)
        array.strides = builder.insert_value(array.strides, _I64(8 * words.literal_value), 0)
        array.nitems = builder.mul(count, width)
        return impl_ret_borrowed(context, builder, signature.return_type, array._getvalue())

    return rows(rows, words), generate


# Arithmetic that wraps. Numba declares its own int64 arithmetic free of overflow, so the compiler would remove every
# overflow check.


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
def high_product(typing, a, b):  # type: ignore[no-untyped-def]
    """The upper half of the signed 128-bit product."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        wide = ir.IntType(128)
        product = builder.mul(*(builder.sext(argument, wide) for argument in arguments))
        return builder.trunc(builder.ashr(product, wide(64)), _I64)

    return types.int64(types.int64, types.int64), generate


@intrinsic
def high_unsigned(typing, a, b):  # type: ignore[no-untyped-def]
    """The upper half of the unsigned 128-bit product."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        wide = ir.IntType(128)
        product = builder.mul(*(builder.zext(argument, wide) for argument in arguments))
        return builder.trunc(builder.lshr(product, wide(64)), _I64)

    return types.int64(types.int64, types.int64), generate


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
