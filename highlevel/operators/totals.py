"""`total(x)`: the sum of x over all rows of a window, as a column of each row."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, nan

import numpy as np

from highlevel.interface import Words
from lowmark.query.expr.evaluate import Bools, Data, Ints, Values, assemble_rows, evaluate, lost_in
from lowmark.query.plan.nodes import Total
from lowmark.wire.rows.schema import Kind, Schema
from lowmark.wire.rows.values import INT64_MAX, INT64_MIN
from lowmark.wire.rows.words import column_of

__all__ = ["add_totals"]

_HALF = 32
_LOW_HALF = 0xFFFFFFFF


def add_totals(
    totals: Sequence[Total], rows: Words, schema: Schema, totalled: Schema, units: Ints
) -> tuple[Words, Bools]:
    """The rows with a column for each total. Also returns the rows of windows with a total outside int64 (it is null,
    like a total of nulls only), and the rows that no total includes because they were lost. `units`: the number of each
    row's window, from 0."""
    overflowed = np.zeros(len(rows), np.bool_)
    columns = [Values(c.kind, *column_of(schema, rows, c.name)) for c in schema]
    for total in totals:
        values = evaluate(total.expr, rows, schema)
        data, valid, over = _sums(values, units)
        columns.append(Values(values.kind, data[units], valid[units]))
        overflowed |= over[units] | lost_in((values,), len(rows))
    return assemble_rows(totalled, columns, len(rows)), overflowed


def _sums(values: Values, units: Ints) -> tuple[Data, Bools, Bools]:
    """For each window: the sum, whether it has one, whether it left int64."""
    count = int(units.max()) + 1
    units = units[values.valid]
    data = values.data[values.valid]
    some = np.bincount(units, minlength=count) > 0
    if values.kind is Kind.FLOAT:
        order = np.argsort(units, kind="stable")
        parts = np.split(data[order], np.cumsum(np.bincount(units, minlength=count))[:-1])
        return np.array([_rounded_once(part) for part in parts]), some, np.zeros(count, np.bool_)
    # Halves of 32 bits cannot overflow in fewer than 2^31 rows; their sums are combined exactly.
    high, low = np.zeros(count, np.int64), np.zeros(count, np.int64)
    np.add.at(high, units, data >> _HALF)
    np.add.at(low, units, data & _LOW_HALF)
    high += low >> _HALF
    fits = (high >= INT64_MIN >> _HALF) & (high <= INT64_MAX >> _HALF)
    joined = np.where(fits, high, 0) << _HALF | low & _LOW_HALF
    return joined, some & fits, some & ~fits


def _rounded_once(values: Data) -> float:
    """The sum, independent of the order."""
    try:
        return fsum(values)
    except (OverflowError, ValueError):  # the sum exceeds all doubles, or contains both infinities
        return nan
