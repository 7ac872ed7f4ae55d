"""Partials, merged in a dictionary as `FoldOp` says: what any table's output must come to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

import numpy as np

from lowmark.query.plan.nodes import Fold, FoldOp, Reduction
from lowmark.wire.rows.schema import Column, Kind
from lowmark.wire.rows.words import Words

Value = int | float | None
State = tuple[Value, ...]  # a fold's columns
Groups = dict[tuple[Value, ...], tuple[int, tuple[State, ...]]]  # (pane, keys…, details…): tuples, folds


def rank(column: Column, value: Value) -> tuple[bool, Value]:
    assert value is not None
    return value != value, value  # NaN behind all


def merge(fold: Fold, a: State, b: State) -> State:
    if a[-1] is None or b[-1] is None:
        return b if a[-1] is None else a
    match fold.op:
        case FoldOp.ADD:
            return (a[0] + b[0],)  # type: ignore[operator]
        case FoldOp.ADD_FLOAT:
            parts = [Fraction(part) for part in (*a, *b) if part is not None]
            high = float(sum(parts))
            return (high, float(sum(parts) - Fraction(high)))
        case FoldOp.ADD_WIDE:
            total = wide(a) + wide(b)
            return (total >> 64, signed(total))
        case FoldOp.BIT_AND:
            return (int(a[0]) & int(b[0]),)  # type: ignore[arg-type]
        case FoldOp.BIT_OR:
            return (int(a[0]) | int(b[0]),)  # type: ignore[arg-type]
    order = fold.columns[:-1] or fold.columns
    ranks = [tuple(rank(column, value) for column, value in zip(order, state, strict=False)) for state in (a, b)]
    smallest = fold.op in (FoldOp.MIN, FoldOp.FIRST)
    return a if (ranks[0] <= ranks[1] if smallest else ranks[0] >= ranks[1]) else b


def wide(state: State) -> int:
    high, low = state
    return (int(high or 0) << 64) + (int(low or 0) & 2**64 - 1)


def signed(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


@dataclass
class Merged:
    reduction: Reduction
    groups: Groups

    def add(self, key: tuple[Value, ...], tuples: int, states: tuple[State, ...]) -> None:
        # The order of a FIRST or LAST without a value means nothing.
        states = tuple((None,) * len(state) if state[-1] is None else state for state in states)
        if key not in self.groups:
            self.groups[key] = (tuples, states)
            return
        count, old = self.groups[key]
        merged = tuple(merge(fold, a, b) for fold, a, b in zip(self.reduction.folds, old, states, strict=True))
        self.groups[key] = (count + tuples, merged)


def merged_rows(reduction: Reduction, matrices: Iterable[Words]) -> Groups:
    merged = Merged(reduction, {})
    for matrix in matrices:
        for row in matrix:
            values = row_values(reduction, row)
            keys = len(reduction.keys) + len(reduction.details)
            states, at = [], 2 + keys
            for fold in reduction.folds:
                states.append(tuple(values[at : at + len(fold.columns)]))
                at += len(fold.columns)
            tuples = values[1]
            assert isinstance(tuples, int)
            merged.add((values[0], *values[2 : 2 + keys]), tuples, tuple(states))
    return merged.groups


def row_values(reduction: Reduction, row: Words) -> Sequence[Value]:
    values: list[Value] = []
    at = 1
    for index, column in enumerate(reduction.schema):
        words = [int(word) for word in row[at : at + column.kind.words]]
        at += column.kind.words
        if int(row[0]) >> index & 1:
            assert column.nullable
            assert not any(words)
            values.append(None)
        elif column.kind is Kind.FLOAT:
            values.append(float(np.uint64(words[0]).view(np.float64)))
        else:
            values.append(reduce(lambda high, low: high << 64 | low, words) if len(words) > 1 else signed(words[0]))
    return values
