"""Operations that kernels need and Python cannot express, as LLVM instructions: unaligned loads, prefetch, products of
128 bits, the bits of a double. The checked build has `machine` and `bytewise` instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lowmark.jit.llvm_values import FLOAT, SIGNED, Array, Const, Scalar, TranslationError, Value, Writer
from lowmark.jit.translate import Primitive

__all__ = ["PRIMITIVES"]

_Write = Callable[[Writer, Sequence[Value]], Value]


def _array(value: Value) -> Array:
    if not isinstance(value, Array):
        raise TranslationError("an array is needed here")
    return value


def _big_endian(bits: int) -> _Write:
    """Loads a number at any position of an array of bytes."""

    def write(writer: Writer, arguments: Sequence[Value]) -> Value:
        data, at = _array(arguments[0]), arguments[1]
        always = ", !invariant.load !0" if data.constant else ""
        word = writer.let(f"load i{bits}, ptr {writer.place(data, (at,))}, align 1{always}")
        swapped = writer.let(f"call i{bits} @llvm.bswap.i{bits}(i{bits} {word})")
        return Scalar(SIGNED, swapped if bits == 64 else writer.let(f"zext i{bits} {swapped} to i64"))

    return write


def _prefetch(writer: Writer, arguments: Sequence[Value]) -> Value:
    """Bring the cache line of table[row, word] near, to be written."""
    table, row, word = arguments
    writer.do(f"call void @llvm.prefetch.p0(ptr {writer.place(_array(table), (row, word))}, i32 1, i32 3, i32 1)")
    return None


def _of_width(writer: Writer, arguments: Sequence[Value]) -> Value:
    """The matrix, whose rows are known to have so many words: places in it take no multiplication by a variable."""
    rows, words = _array(arguments[0]), arguments[1]
    if not isinstance(words, Const):
        raise TranslationError("a width is constant")
    return Array(rows.element, rows.constant, rows.data, (rows.shape[0], words))


def _copy_row(writer: Writer, arguments: Sequence[Value]) -> Value:
    """The first words of source[row] to target[to]: the two do not overlap."""
    target, to, source, row, words = arguments
    if not isinstance(words, Const):
        raise TranslationError("a width is constant")
    into, from_ = writer.place(_array(target), (to, Const(0))), writer.place(_array(source), (row, Const(0)))
    size = 8 * int(words.value)
    writer.do(f"call void @llvm.memcpy.p0.p0.i64(ptr align 8 {into}, ptr align 8 {from_}, i64 {size}, i1 false)")
    return None


def _wrapping(sign: str) -> _Write:
    return lambda writer, arguments: writer.computed(sign, *arguments)


def _wide(writer: Writer, extension: str, arguments: Sequence[Value]) -> str:
    """The product of 128 bits."""
    factors = [writer.let(f"{extension} i64 {writer.scalar(value, SIGNED).text} to i128") for value in arguments]
    return writer.let(f"mul i128 {factors[0]}, {factors[1]}")


def _high_product(writer: Writer, arguments: Sequence[Value]) -> Value:
    """The upper half of the signed 128-bit product."""
    high = writer.let(f"ashr i128 {_wide(writer, 'sext', arguments)}, 64")
    return Scalar(SIGNED, writer.let(f"trunc i128 {high} to i64"))


def _high_unsigned(writer: Writer, arguments: Sequence[Value]) -> Value:
    """The upper half of the unsigned 128-bit product."""
    high = writer.let(f"lshr i128 {_wide(writer, 'zext', arguments)}, 64")
    return Scalar(SIGNED, writer.let(f"trunc i128 {high} to i64"))


def _fold_product(writer: Writer, arguments: Sequence[Value]) -> Value:
    """The two halves of the unsigned 128-bit product, one xor the other."""
    product = _wide(writer, "zext", arguments)
    folded = writer.let(f"xor i128 {product}, {writer.let(f'lshr i128 {product}, 64')}")
    return Scalar(SIGNED, writer.let(f"trunc i128 {folded} to i64"))


def _word_of(writer: Writer, arguments: Sequence[Value]) -> Value:
    """The bits of a double."""
    return Scalar(SIGNED, writer.let(f"bitcast double {writer.scalar(arguments[0], FLOAT).text} to i64"))


def _double_of(writer: Writer, arguments: Sequence[Value]) -> Value:
    """The double that has these bits."""
    return Scalar(FLOAT, writer.let(f"bitcast i64 {writer.scalar(arguments[0], SIGNED).text} to double"))


PRIMITIVES: Mapping[str, Primitive] = {
    "be16": Primitive(_big_endian(16)), "be32": Primitive(_big_endian(32)), "be64": Primitive(_big_endian(64)),
    "prefetch": Primitive(_prefetch), "of_width": Primitive(_of_width, frozenset({1})),
    "copy_row": Primitive(_copy_row, frozenset({4})), "wrap_add": Primitive(_wrapping("+")),
    "wrap_sub": Primitive(_wrapping("-")), "wrap_mul": Primitive(_wrapping("*")),
    "high_product": Primitive(_high_product), "high_unsigned": Primitive(_high_unsigned),
    "fold_product": Primitive(_fold_product), "word_of": Primitive(_word_of), "double_of": Primitive(_double_of),
}  # fmt: skip
