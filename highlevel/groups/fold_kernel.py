"""The kernels that apply the folds of a `Layout`'s program to rows. Each fold goes over a whole run of rows, so the
program is interpreted once per run.

Row `sources[k]` goes to the group at `places[k]` of a table, unless that is below 0, in the order of k. Rows begin with
`shift` words (0 or 1) that groups do not have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import numpy.typing as npt

from highlevel.groups.layout import (
    ADD,
    ADD_FLOAT,
    ADD_WIDE,
    BIT_AND,
    BIT_OR,
    BY_FLOAT,
    BY_NUMBER,
    END_COMPARISON,
    FIRST_COMPARISON,
    FOLD_AT,
    FOLD_CODE,
    FOLD_NULLS,
    FOLD_WORDS,
    GROUP_NULLS,
    LEAST,
    VALUE_NULL,
)  # fmt: skip
from lowmark.jit.compiled import Intrinsic, compiled

__all__ = ["fold_rows"]

Words = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]

_ZERO = np.uint64(0)


@compiled
def _float_rank(word: np.uint64) -> np.int64:
    """A total order of doubles, given as words: -0.0 before 0.0, any NaN after all numbers."""
    bits = np.int64(word)
    if bits & np.int64(0x7FFFFFFFFFFFFFFF) > np.int64(0x7FF0000000000000):
        return np.int64(0x7FFFFFFFFFFFFFFF)
    return bits if bits >= 0 else bits ^ np.int64(0x7FFFFFFFFFFFFFFF)


def _define_double_of(typing, word):  # type: ignore[no-untyped-def]
    from llvmlite import ir
    from numba import types

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.uint64), generate


def _define_word_of(typing, value):  # type: ignore[no-untyped-def]
    from llvmlite import ir
    from numba import types

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.uint64(types.float64), generate


_double_of = cast("Callable[[np.uint64], np.float64]", Intrinsic(_define_double_of))
_word_of = cast("Callable[[np.float64], np.uint64]", Intrinsic(_define_word_of))


@compiled
def _add_doubles(table: Words, g: int, at: int, high: np.uint64, low: np.uint64) -> None:
    """Add to a sum of doubles, and add its rounding error to the word after it (Knuth's TwoSum). The order of the
    values then hardly ever changes the double that both words add up to."""
    old, new = _double_of(table[g, at]), _double_of(high)
    total = old + new
    part = total - old
    lost = (old - (total - part)) + (new - part)
    table[g, at] = _word_of(total)
    table[g, at + 1] = _word_of(lost + _double_of(table[g, at + 1]) + _double_of(low))


@compiled
def _compare_numbers(rows: Words, i: int, from_word: int, table: Words, g: int, at: int) -> int:
    """Compare values of three words, the most significant first: addresses and Community IDs."""
    for word in range(3):
        a, b = rows[i, from_word + word], table[g, at + word]
        if a != b:
            return -1 if a < b else 1
    return 0


@compiled
def _sum(table: Words, g: int, at: int, value: np.int64, carry: np.int64, subtract: bool) -> int:
    """Add (or subtract) value + carry, where carry is 0 or 1. Returns what the sum then lacks, in units of 2^64."""
    # Unsigned sums may wrap. The compiler assumes that signed sums do not, and would drop the check.
    a = np.int64(table[g, at])
    if subtract:
        wrapped = table[g, at] - np.uint64(value) - np.uint64(carry)
        c = np.int64(wrapped)
        left = (a ^ value) & (a ^ c) < 0
    else:
        wrapped = table[g, at] + np.uint64(value) + np.uint64(carry)
        c = np.int64(wrapped)
        left = (a ^ c) & (value ^ c) < 0
    table[g, at] = wrapped
    if left:
        return 1 if a >= 0 else -1
    return 0


@compiled
def _first_value(table: Words, g: int, rows: Words, i: int, shift: int, program: Ints, fold: int) -> bool:
    """Take the row's columns of a fold whose value is null in the group so far. Returns whether it was null."""
    if table[g, GROUP_NULLS] & np.uint64(program[fold, VALUE_NULL]) == _ZERO:
        return False
    _replace(table, g, rows, i, shift, program, fold)
    return True


@compiled
def _replace(table: Words, g: int, rows: Words, i: int, shift: int, program: Ints, fold: int) -> None:
    for at in range(program[fold, FOLD_AT], program[fold, FOLD_AT] + program[fold, FOLD_WORDS]):
        table[g, at] = rows[i, at + shift]
    bits = np.uint64(program[fold, FOLD_NULLS])
    table[g, GROUP_NULLS] = (table[g, GROUP_NULLS] & ~bits) | (rows[i, GROUP_NULLS] >> np.uint64(shift) & bits)


@compiled
def _fold_sums(
    table: Words, rows: Words, sources: Ints, places: Ints, count: int, shift: int, subtract: bool,
    program: Ints, fold: int, events: Ints, noted: int,
) -> int:  # fmt: skip
    at, wide = program[fold, FOLD_AT], program[fold, FOLD_CODE] == ADD_WIDE
    value_bit = np.uint64(program[fold, VALUE_NULL]) << np.uint64(shift)
    for k in range(count):
        g, i = places[k], sources[k]
        if g < 0 or rows[i, GROUP_NULLS] & value_bit != _ZERO or _first_value(table, g, rows, i, shift, program, fold):
            continue
        carry = np.int64(0)
        if wide:
            low, other = table[g, at + 1], rows[i, at + 1 + shift]
            result = low - other if subtract else low + other
            carry = np.int64(low < other) if subtract else np.int64(result < low)
            table[g, at + 1] = result
        lacks = _sum(table, g, at, np.int64(rows[i, at + shift]), carry, subtract)
        if lacks != 0:
            events[noted, 0] = g
            events[noted, 1] = fold
            events[noted, 2] = lacks
            noted += 1
    return noted


@compiled
def _fold_words(
    table: Words, rows: Words, sources: Ints, places: Ints, count: int, shift: int, program: Ints, fold: int
) -> None:
    """Apply a fold that sums doubles or combines bits."""
    code, at = program[fold, FOLD_CODE], program[fold, FOLD_AT]
    value_bit = np.uint64(program[fold, VALUE_NULL]) << np.uint64(shift)
    for k in range(count):
        g, i = places[k], sources[k]
        if g < 0 or rows[i, GROUP_NULLS] & value_bit != _ZERO or _first_value(table, g, rows, i, shift, program, fold):
            continue
        if code == ADD_FLOAT:
            _add_doubles(table, g, at, rows[i, at + shift], rows[i, at + 1 + shift])
        elif code == BIT_AND:
            table[g, at] &= rows[i, at + shift]
        elif code == BIT_OR:
            table[g, at] |= rows[i, at + shift]


@compiled
def _fold_extremes(
    table: Words, rows: Words, sources: Ints, places: Ints, count: int, shift: int, program: Ints, fold: int,
    comparisons: Ints,
) -> None:  # fmt: skip
    """Apply a fold that takes the least or the greatest, by its comparisons in order."""
    sign = -1 if program[fold, FOLD_CODE] == LEAST else 1
    value_bit = np.uint64(program[fold, VALUE_NULL]) << np.uint64(shift)
    for k in range(count):
        g, i = places[k], sources[k]
        if g < 0 or rows[i, GROUP_NULLS] & value_bit != _ZERO or _first_value(table, g, rows, i, shift, program, fold):
            continue
        for index in range(program[fold, FIRST_COMPARISON], program[fold, END_COMPARISON]):
            at, order = comparisons[index, 0], comparisons[index, 1]
            new, old = rows[i, at + shift], table[g, at]
            if order == BY_NUMBER:
                compared = _compare_numbers(rows, i, at + shift, table, g, at)
            else:
                x = _float_rank(new) if order == BY_FLOAT else np.int64(new)
                y = _float_rank(old) if order == BY_FLOAT else np.int64(old)
                compared = -1 if x < y else 1 if x > y else 0
            if compared == sign:
                _replace(table, g, rows, i, shift, program, fold)
            if compared != 0:
                break


@compiled
def fold_rows(
    table: Words, rows: Words, sources: Ints, places: Ints, count: int, shift: int, subtract: bool,
    program: Ints, comparisons: Ints, events: Ints, noted: int,
) -> int:  # fmt: skip
    """Apply all folds to `count` rows. An event (group, fold, ±1) says that a sum lacks that many times 2^64. Events
    are written after the first `noted` ones; returns how many there are then. There is room for one event per row and
    fold."""
    for fold in range(program.shape[0]):
        code = program[fold, FOLD_CODE]
        if code in (ADD, ADD_WIDE):
            noted = _fold_sums(table, rows, sources, places, count, shift, subtract, program, fold, events, noted)
        elif code in (ADD_FLOAT, BIT_AND, BIT_OR):
            _fold_words(table, rows, sources, places, count, shift, program, fold)
        else:
            _fold_extremes(table, rows, sources, places, count, shift, program, fold, comparisons)
    return noted
