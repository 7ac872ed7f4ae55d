"""The layout of a group in words, and the small program by which its folds merge.

A group is a row of the schema of partials without the pane. One kernel, compiled once, interprets the program: no query
compiles anything here.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from highlevel.interface import Words
from lowmark.jit.native_code import Laid
from lowmark.query.plan.nodes import Fold, FoldOp
from lowmark.wire.records.partials import PANE, TUPLES
from lowmark.wire.rows.schema import Column, Kind, Schema

__all__ = [
    "ADD", "ADD_FLOAT", "ADD_WIDE", "BIT_AND", "BIT_OR", "BLOCK", "BY_FLOAT", "BY_NUMBER", "BY_WORD",
    "END_COMPARISON", "FIRST_COMPARISON", "FOLD_AT", "FOLD_CODE", "FOLD_NULLS", "FOLD_WORDS", "GREATEST", "GROUP_KEYS",
    "GROUP_NULLS", "GROUP_TUPLES", "LEAST", "SEED", "VALUE_NULL", "Layout", "Merging", "keyed_by_pane", "with_one_form",
]  # fmt: skip

GROUP_NULLS, GROUP_TUPLES, GROUP_KEYS = range(3)
"""Words of a group: its null mask, its tuples, and the first of its keys."""

FOLD_CODE, FOLD_AT, FOLD_WORDS, FOLD_NULLS, VALUE_NULL, FIRST_COMPARISON, END_COMPARISON = range(7)
"""Columns of a program, which has a row for each fold: its code, its first word, the number of its words, the bits of
its columns in the null mask, that of its value, and the first and the end of its rows in `comparisons`."""

ADD, ADD_WIDE, ADD_FLOAT, BIT_AND, BIT_OR, LEAST, GREATEST = range(7)
BY_WORD, BY_FLOAT, BY_NUMBER = range(3)

BLOCK = 128
"""Rows that are merged together: they and their groups stay in the nearest cache, and the cache misses of their lookups
overlap."""

_FLOAT_MAGNITUDE = np.uint64(0x7FFFFFFFFFFFFFFF)
_FLOAT_EXPONENT = np.uint64(0x7FF0000000000000)
_NAN = np.uint64(0x7FF8000000000000)

# Keys come from the network. Groups have the order of their first rows, so the seed has no visible effect.
SEED = np.uint64(secrets.randbits(64))

_CODES = {
    FoldOp.ADD: ADD,
    FoldOp.ADD_WIDE: ADD_WIDE,
    FoldOp.ADD_FLOAT: ADD_FLOAT,
    FoldOp.BIT_AND: BIT_AND,
    FoldOp.BIT_OR: BIT_OR,
    # FIRST is the least by the order columns; if equal, the one with the least value, so that merging commutes.
    FoldOp.MIN: LEAST,
    FoldOp.FIRST: LEAST,
    FoldOp.MAX: GREATEST,
    FoldOp.LAST: GREATEST,
}
_ORDERS = {Kind.FLOAT: BY_FLOAT, Kind.IP: BY_NUMBER, Kind.COMMUNITY_ID: BY_NUMBER}


@dataclass(frozen=True)
class Layout:
    """Layout of groups that are distinguished by the columns `keys`, which follow `tuples` at the head of a row.

    `partials` is the schema of incoming rows: (pane, tuples, keys…, folds…), with any columns between the keys and the
    folds; those keep the values of a group's first row.
    """

    partials: Schema
    keys: tuple[str, ...]
    folds: tuple[Fold, ...]

    def __post_init__(self) -> None:
        if self.partials.names[: 2 + len(self.keys)] != (PANE, TUPLES, *self.keys):
            raise ValueError(f"partials are (pane, tuples, {', '.join(self.keys)}, …), not {self.partials.names}")

    @cached_property
    def schema(self) -> Schema:
        """The schema of a group's row."""
        return Schema(self.partials.columns[1:], self.partials.strings)

    @cached_property
    def key_end(self) -> int:
        """The word after the keys; they begin with word 2."""
        return 2 + sum(self.schema.column(name).kind.words for name in self.keys)

    @cached_property
    def key_mask(self) -> np.uint64:
        """The keys' bits in the null mask."""
        return np.uint64(((1 << len(self.keys)) - 1) << 1)

    @cached_property
    def of_keys(self) -> Layout:
        """The layout of the same groups without their folds."""
        columns = self.partials.columns[: 2 + len(self.keys)]
        return Layout(Schema(columns, self.partials.strings), self.keys, ())

    @cached_property
    def float_keys(self) -> tuple[int, ...]:
        """The words of a partial's row that hold doubles of its key."""
        columns = self.partials.columns[2 : 2 + len(self.keys)]
        return tuple(self.partials.offset(column.name) for column in columns if column.kind is Kind.FLOAT)

    @cached_property
    def program(self) -> npt.NDArray[np.int64]:
        """A row for each fold; its columns are `FOLD_CODE` and the names after it."""
        program = np.zeros((len(self.folds), END_COMPARISON + 1), np.int64)
        done = 0
        for row, fold in zip(program, self.folds, strict=True):
            bits = [1 << self.schema.index(column.name) for column in fold.columns]
            code = _CODES[fold.op]
            count = len(fold.columns) if code in (LEAST, GREATEST) else 0
            masks = np.array([sum(bits), bits[-1]], np.uint64).view(np.int64)
            words = sum(column.kind.words for column in fold.columns)
            row[:] = (code, self.schema.offset(fold.columns[0].name), words, *masks, done, done + count)
            done += count
        return program

    @cached_property
    def merging(self) -> Merging:
        """The arguments of kernels that merge such groups. Only one thread may use them at a time."""
        return Merging(self)

    @cached_property
    def comparisons(self) -> npt.NDArray[np.int64]:
        """For folds that take the least or the greatest: the words to compare, in turn, and by which order."""
        rows = [
            (self.schema.offset(column.name), _ORDERS.get(column.kind, BY_WORD))
            for fold in self.folds
            if _CODES[fold.op] in (LEAST, GREATEST)
            for column in fold.columns
        ]
        return np.array(rows, np.int64).reshape(-1, 2)


def keyed_by_pane(partials: Schema) -> tuple[Schema, str]:
    """The layout with the pane also as the first key, and the name of that key."""
    pane, tuples, *rest = partials.columns
    at = Column("" if "" not in partials.names else " ", Kind.INT)
    return Schema((pane, tuples, at, *rest), partials.strings), at.name


def with_one_form(rows: Words, layout: Layout) -> Words:
    """Rows of `layout.partials` in one form: in a key, -0.0 becomes 0.0, and there is one NaN."""
    if not layout.float_keys or not len(rows):
        return rows
    rows = rows.copy()
    for word in layout.float_keys:
        bits = rows[:, word]
        magnitude = bits & _FLOAT_MAGNITUDE
        bits[magnitude == 0] = 0
        bits[magnitude > _FLOAT_EXPONENT] = _NAN
    return rows


class Merging:
    """Kernel arguments, laid out once: `keys` distinguish groups, `folding` merges them, with scratch; `fixed` is both.
    A call leaves the sums that did not fit in `events`."""

    def __init__(self, layout: Layout) -> None:
        self.events = np.empty((BLOCK * max(1, len(layout.folds)), 3), np.int64)
        self.keys = Laid(SEED, layout.key_end, layout.key_mask)
        scratch = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
        self.folding = Laid(layout.program, layout.comparisons, self.events, *scratch)
        self.fixed = Laid(*self.keys.arguments, np.empty(BLOCK, np.uint64), *self.folding.arguments)
