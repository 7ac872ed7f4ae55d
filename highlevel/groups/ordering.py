"""Turns columns of values into sort keys that compare as the language defines."""

from __future__ import annotations

import numpy as np

from lowmark.query.expr.evaluate import Bools, Data, Ints, Values
from lowmark.wire.rows.schema import Kind

__all__ = ["same_as_before", "sort_keys", "sorted_rows"]


def sort_keys(values: Values, descending: bool = False) -> tuple[Data, ...]:
    """The keys of one column, the most significant first. Null is less than any value; NaN is the greatest number."""
    data = np.where(values.valid, values.data.T, values.data.dtype.type(0)).T
    keys: tuple[Data, ...]
    if values.kind.words > 1:
        keys = tuple(data.T)
    elif values.kind is Kind.FLOAT:
        nan = np.isnan(data)
        keys = (nan, np.where(nan, 0.0, -data if descending else data))
    else:
        keys = (data,)
    keys = (values.valid, *keys)
    return tuple(key if key.dtype == np.float64 else ~key for key in keys) if descending else keys


def sorted_rows(keys: list[tuple[Data, ...]], rows: int) -> Ints:
    """Row numbers in order; rows with equal keys keep their order."""
    flat = [key for column in keys for key in column]
    if not flat:
        return np.arange(rows)
    return np.lexsort(flat[::-1])


def same_as_before(keys: list[tuple[Data, ...]], order: Ints) -> Bools:
    """For each row in this order, whether the row before it has equal keys."""
    same = np.ones(len(order), np.bool_)
    same[:1] = False
    for column in keys:
        for key in column:
            placed = key[order]
            same[1:] &= placed[1:] == placed[:-1]
    return same
