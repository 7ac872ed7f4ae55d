"""The kernel that merges rows into a table of groups, by the program of a `Layout`.

It is compiled once for all queries, works without the GIL and allocates nothing: when it needs room, in the table or
for events, it returns early and is called again for the rest of the rows. Rows are taken in blocks: first each row's
group is found, then fold after fold goes over the block, so that a program is interpreted once a block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import numpy.typing as npt

from highlevel.aggregate.layout import (
    ADD,
    ADD_FLOAT,
    ADD_WIDE,
    BIT_AND,
    BIT_OR,
    BLOCK,
    BY_ADDRESS,
    BY_FLOAT,
    BY_NUMBER,
    LEAST,
)
from lowmark.wire.compiled import Intrinsic, compiled

__all__ = ["fill_index", "merge_rows"]

Words = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_MAPPED = np.uint64(0xFFFF)


@compiled
def _hash(rows: Words, i: int, first: int, end: int, nulls: np.uint64, seed: np.uint64) -> np.uint64:
    h = seed ^ nulls
    for at in range(first, end):
        h = (h ^ rows[i, at]) * _P1
        h ^= h >> _HALF
    h *= _P2
    return h ^ (h >> _HALF)


@compiled
def _float_rank(word: np.uint64) -> np.int64:
    """Orders doubles, as the words they are, totally: -0.0 before 0.0, any NaN behind all numbers."""
    bits = np.int64(word)
    if bits & np.int64(0x7FFFFFFFFFFFFFFF) > np.int64(0x7FF0000000000000):
        return np.int64(0x7FFFFFFFFFFFFFFF)
    return bits if bits >= 0 else bits ^ np.int64(0x7FFFFFFFFFFFFFFF)


def _define_sum_of_doubles(typing, a, b):  # type: ignore[no-untyped-def]
    """Of two doubles as the words they are."""
    from llvmlite import ir
    from numba import types

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        total = builder.fadd(*(builder.bitcast(word, ir.DoubleType()) for word in arguments))
        return builder.bitcast(total, ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), generate


_sum_of_doubles = cast("Callable[[np.uint64, np.uint64], np.uint64]", Intrinsic(_define_sum_of_doubles))


@compiled
def _compare_addresses(a_high: np.uint64, a_low: np.uint64, b_high: np.uint64, b_low: np.uint64) -> int:
    """IPv4 (as mapped) before IPv6."""
    a_six = a_high != _ZERO or a_low >> _HALF != _MAPPED
    b_six = b_high != _ZERO or b_low >> _HALF != _MAPPED
    if a_six != b_six:
        return 1 if a_six else -1
    if a_high != b_high:
        return -1 if a_high < b_high else 1
    return -1 if a_low < b_low else 1 if a_low > b_low else 0


@compiled
def _compare_numbers(rows: Words, i: int, from_word: int, table: Words, g: int, at: int) -> int:
    """Unsigned numbers of three words, the high one first."""
    for word in range(3):
        a, b = rows[i, from_word + word], table[g, at + word]
        if a != b:
            return -1 if a < b else 1
    return 0


@compiled
def _sum(table: Words, g: int, at: int, value: np.int64, carry: np.int64, subtract: bool) -> int:
    """Add (or subtract) value + carry, of which carry is 0 or 1; what the sum then lacks, in units of 2^64."""
    # Unsigned, which may wrap: of signed sums the compiler takes for granted that they do not, and drops the check.
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
def _first_value(table: Words, g: int, rows: Words, i: int, shift: int, program: Ints, step: int) -> bool:
    """Take the row's columns of a fold whose value is null in the group so far; whether that was so."""
    if table[g, 0] & np.uint64(program[step, 4]) == _ZERO:
        return False
    _replace(table, g, rows, i, shift, program, step)
    return True


@compiled
def _replace(table: Words, g: int, rows: Words, i: int, shift: int, program: Ints, step: int) -> None:
    for at in range(program[step, 1], program[step, 1] + program[step, 2]):
        table[g, at] = rows[i, at + shift]
    bits = np.uint64(program[step, 3])
    table[g, 0] = (table[g, 0] & ~bits) | (rows[i, 0] >> np.uint64(shift) & bits)


@compiled
def _fold_sums(
    table: Words, rows: Words, block: int, places: Ints, count: int, shift: int, subtract: bool, program: Ints,
    step: int, events: Ints, noted: int,
) -> int:  # fmt: skip
    at, wide = program[step, 1], program[step, 0] == ADD_WIDE
    value_bit = np.uint64(program[step, 4]) << np.uint64(shift)
    for k in range(count):
        g, i = places[k], block + k
        if g < 0 or rows[i, 0] & value_bit != _ZERO or _first_value(table, g, rows, i, shift, program, step):
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
            events[noted, 1] = step
            events[noted, 2] = lacks
            noted += 1
    return noted


@compiled
def _fold_words(
    table: Words, rows: Words, block: int, places: Ints, count: int, shift: int, program: Ints, step: int
) -> None:
    """Sums of doubles, and bits."""
    code, at = program[step, 0], program[step, 1]
    value_bit = np.uint64(program[step, 4]) << np.uint64(shift)
    for k in range(count):
        g, i = places[k], block + k
        if g < 0 or rows[i, 0] & value_bit != _ZERO or _first_value(table, g, rows, i, shift, program, step):
            continue
        if code == ADD_FLOAT:
            table[g, at] = _sum_of_doubles(table[g, at], rows[i, at + shift])
        elif code == BIT_AND:
            table[g, at] &= rows[i, at + shift]
        elif code == BIT_OR:
            table[g, at] |= rows[i, at + shift]


@compiled
def _fold_extremes(
    table: Words, rows: Words, block: int, places: Ints, count: int, shift: int, program: Ints, step: int,
    comparisons: Ints,
) -> None:  # fmt: skip
    """The least or the greatest by the fold's comparisons, one after the other."""
    sign = -1 if program[step, 0] == LEAST else 1
    value_bit = np.uint64(program[step, 4]) << np.uint64(shift)
    for k in range(count):
        g, i = places[k], block + k
        if g < 0 or rows[i, 0] & value_bit != _ZERO or _first_value(table, g, rows, i, shift, program, step):
            continue
        for index in range(program[step, 5], program[step, 6]):
            at, order = comparisons[index, 0], comparisons[index, 1]
            new, old = rows[i, at + shift], table[g, at]
            if order == BY_ADDRESS:
                compared = _compare_addresses(new, rows[i, at + shift + 1], old, table[g, at + 1])
            elif order == BY_NUMBER:
                compared = _compare_numbers(rows, i, at + shift, table, g, at)
            else:
                x = _float_rank(new) if order == BY_FLOAT else np.int64(new)
                y = _float_rank(old) if order == BY_FLOAT else np.int64(old)
                compared = -1 if x < y else 1 if x > y else 0
            if compared == sign:
                _replace(table, g, rows, i, shift, program, step)
            if compared != 0:
                break


@compiled
def _merge_rows(
    rows: Words, start: int, shift: int, subtract: bool, positions: Ints, used: int, table: Words, index: Words,
    seed: np.uint64, key_end: int, key_mask: np.uint64, program: Ints, comparisons: Ints, events: Ints, hashes: Words,
    places: Ints,
) -> tuple[int, int, int]:  # fmt: skip
    """Merge `rows[start:]` into the `used` groups of `table`; (the first row not merged, groups now, events).

    `shift` is 1 where rows begin with a pane, 0 where they are groups. `subtract` takes back what was merged before; it
    is for programs of integer sums only. `positions`, if not empty, receives the group of each row. An event (group,
    fold, ±1) says that a sum lacks that many times 2^64; there is room for at least a block's. `hashes` and `places`
    are scratch of BLOCK words.
    """
    mask = np.uint64(index.shape[0] - 1)
    key_bits = key_mask << np.uint64(shift)
    folds, words = program.shape[0], table.shape[1]
    noted = 0
    fetched = _ZERO
    for block in range(start, rows.shape[0], BLOCK):
        count = min(BLOCK, rows.shape[0] - block)
        if noted + count * folds > events.shape[0]:
            return block, used, noted
        for k in range(count):
            h = _hash(
                rows, block + k, 2 + shift, key_end + shift, rows[block + k, 0] >> np.uint64(shift) & key_mask, seed
            )
            hashes[k] = h
            fetched |= index[h & mask]
        for k in range(count):
            likely = np.int64(index[hashes[k] & mask] & _LOW_HALF)
            if likely != 0:
                fetched |= table[likely - 1, 1]
        full = False
        for k in range(count):
            i = block + k
            tag, slot = hashes[k] & ~_LOW_HALF, hashes[k] & mask
            g = np.int64(-1)
            while g < 0:
                entry = index[slot]
                if entry == _ZERO:
                    break
                if entry & ~_LOW_HALF == tag:
                    g = np.int64(entry & _LOW_HALF) - np.int64(1)
                    same = (table[g, 0] & key_mask) << np.uint64(shift) == rows[i, 0] & key_bits
                    for at in range(2, key_end):
                        same = same and table[g, at] == rows[i, at + shift]
                    if same:
                        break
                    g = np.int64(-1)
                slot = (slot + _ONE) & mask
            if g >= 0:
                added = rows[i, 1 + shift]
                table[g, 1] = table[g, 1] - added if subtract else table[g, 1] + added
                places[k] = g
            else:
                if used == table.shape[0]:
                    full = True
                    count = k
                    break
                g = np.int64(used)
                used += 1
                index[slot] = tag | np.uint64(used)
                table[g, 0] = rows[i, 0] >> np.uint64(shift)
                for at in range(1, words):
                    table[g, at] = rows[i, at + shift]
                places[k] = -1  # nothing is left to fold
            if positions.shape[0] != 0:
                positions[i] = g
        for step in range(folds):
            code = program[step, 0]
            if code in (ADD, ADD_WIDE):
                noted = _fold_sums(table, rows, block, places, count, shift, subtract, program, step, events, noted)
            elif code in (ADD_FLOAT, BIT_AND, BIT_OR):
                _fold_words(table, rows, block, places, count, shift, program, step)
            else:
                _fold_extremes(table, rows, block, places, count, shift, program, step, comparisons)
        if full:
            return block + count, used, noted
    hashes[0] = fetched  # so that the loads above are not taken for useless
    return rows.shape[0], used, noted


merge_rows: Callable[..., tuple[int, int, int]] = _merge_rows
"""With arguments that are laid out beforehand."""


@compiled
def fill_index(table: Words, used: int, index: Words, key_end: int, key_mask: np.uint64, seed: np.uint64) -> None:
    """Enter the groups of a table, all different, into an index of zeros."""
    mask = np.uint64(index.shape[0] - 1)
    for g in range(used):
        h = _hash(table, g, 2, key_end, table[g, 0] & key_mask, seed)
        slot = h & mask
        while index[slot] != _ZERO:
            slot = (slot + _ONE) & mask
        index[slot] = (h & ~_LOW_HALF) | np.uint64(g + 1)
