"""Combines promises about values (Ding 2004) of several inputs into those that hold for all of them.

Such a promise names values of a column, or of several columns together, alone or with a bound on panes: no later row
has one of the values and a pane below the bound. For one input, only the greatest such bound of each value matters. For
all inputs together, the bound of a value is the least of theirs; an input without a promise about it contributes the
panes that have ended. Everything is arrays of words: no object is made for a value.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lowmark.query.windows.panes import Pane
from lowmark.wire.records.partials import PANE, PANE_WORD
from lowmark.wire.records.punctuations import Bound, Promise
from lowmark.wire.rows.schema import Schema
from lowmark.wire.rows.value_sets import ValueSet
from lowmark.wire.rows.values import FOREVER, NEVER
from lowmark.wire.rows.words import Words, column_of

__all__ = ["MOST", "ValuePromises", "about_values", "in_panes", "keys_of", "news", "of_all"]

MOST = 1 << 14
"""Most values kept per input and set of columns. Beyond this limit the promises of the least bounds are lost, never
rows."""

_MOST_SETS = 16
"""Most sets of columns for which an input's promises are kept. A query needs a few, but a source may name any."""

Keys = npt.NDArray[np.bytes_]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def about_values(promise: Promise) -> bool:
    return any(bound.values is not None for bound in promise.bounds)


def in_panes(promise: Promise, pane: Pane) -> Promise:
    """Convert the bound in a source's promise about values from the panes' attribute to panes."""
    bounds = (
        Bound(PANE, below=bound.below if bound.below == FOREVER else pane.index(bound.below))
        if bound.below is not None and bound.column == pane.attribute
        else bound
        for bound in promise.bounds
    )
    return Promise(tuple(bounds), promise.last)


_WIDTH = 24  # bytes of a column's value

Columns = tuple[str, ...]


@dataclass(slots=True)
class _Table:
    """Values of one or several columns, ascending, and for each the pane below which no later row has it."""

    keys: Keys
    bounds: Ints

    def bounds_of(self, keys: Keys, otherwise: int) -> Ints:
        if not len(self.keys):
            return np.full(len(keys), otherwise)
        places = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[places] == keys, self.bounds[places], otherwise)

    def raise_to(self, keys: Keys, bounds: Ints) -> None:
        """Keep the greatest bound of each value."""
        order = np.lexsort((~bounds, keys))
        keys, bounds = keys[order], bounds[order]
        first = np.ones(len(keys), np.bool_)
        first[1:] = keys[1:] != keys[:-1]
        keys, bounds = keys[first], bounds[first]
        if len(self.keys):
            places = np.searchsorted(self.keys, keys)
            near = np.minimum(places, len(self.keys) - 1)
            known = self.keys[near] == keys
            self.bounds[near[known]] = np.maximum(self.bounds[near[known]], bounds[known])
            self.keys = np.insert(self.keys, places[~known], keys[~known])
            self.bounds = np.insert(self.bounds, places[~known], bounds[~known])
        else:
            self.keys, self.bounds = keys, bounds


class ValuePromises:
    """The promises of one input about values, or those that hold for several inputs (`of_all`). `most`: values kept per
    set of columns."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._tables: dict[Columns, _Table] = {}
        self.lost = False  # whether a promise was dropped to make room for another

    def take(self, promise: Promise) -> bool:
        """Keep a promise about the values of one set of columns, alone or with a bound on panes; ignore others. Returns
        whether all of it was kept and no other promise was dropped for it."""
        named = [(bound.columns, bound.values) for bound in promise.bounds if bound.values is not None]
        times = [bound.below for bound in promise.bounds if bound.below is not None]
        if len(named) != 1 or any(bound.column != PANE for bound in promise.bounds if bound.values is None):
            return False
        columns, values = named[0]
        if not len(values):
            return True
        if columns not in self._tables and len(self._tables) >= _MOST_SETS:
            return False
        keys = _keys(values)
        table = self._tables.setdefault(columns, _Table(keys[:0], np.zeros(0, np.int64)))
        table.raise_to(keys, np.full(len(keys), min(times, default=FOREVER)))
        if len(table.keys) <= self._most:
            return True
        most = np.sort(np.argpartition(~table.bounds, self._most)[: self._most])
        table.keys, table.bounds = table.keys[most], table.bounds[most]
        self.lost = True
        return False

    def joined(self, other: ValuePromises) -> ValuePromises:
        """The promises of both, merged into one of the two. The limits are those of the first."""
        if not self._tables:
            other._most = self._most
            return other
        for promise in news(self, other):
            self.take(promise)
        return self

    def room(self, columns: Columns) -> int:
        """How many more values of these columns it keeps without losing others."""
        table = self._tables.get(columns)
        if table is None:
            return self._most if len(self._tables) < _MOST_SETS else 0
        return self._most - len(table.keys)

    def prune(self, front: int) -> None:
        """Forget promises that exclude only panes below `front`, which have ended."""
        for columns, table in tuple(self._tables.items()):
            kept = table.bounds > front
            if not kept.any():
                del self._tables[columns]
            elif not kept.all():
                self._tables[columns] = _Table(table.keys[kept], table.bounds[kept])

    def forget(self, schema: Schema, rows: Words) -> None:
        """Forget the promises about values that these rows have."""
        for columns, table in self._tables.items():
            keys, there = keys_of(schema, rows, columns)
            kept = ~np.isin(table.keys, keys[there])
            self._tables[columns] = _Table(table.keys[kept], table.bounds[kept])

    def among(self, schema: Schema, rows: Words) -> Bools:
        """Which rows have a value that is kept, whatever its bound."""
        found = np.zeros(len(rows), np.bool_)
        for columns, table in self._tables.items():
            keys, there = keys_of(schema, rows, columns)
            found |= there & (table.bounds_of(keys, NEVER) != NEVER)
        return found

    def broken_by(self, schema: Schema, rows: Words) -> Bools:
        """Which rows the kept promises exclude. Rows begin with their pane."""
        found = np.zeros(len(rows), np.bool_)
        names, panes = {*schema.names}, rows[:, PANE_WORD].view(np.int64)
        for columns, table in self._tables.items():
            below = panes < table.bounds.max(initial=NEVER)
            if not below.any() or not names.issuperset(columns):
                continue
            some, (keys, there) = np.flatnonzero(below), keys_of(schema, rows[below], columns)
            found[some[there & (panes[below] < table.bounds_of(keys, NEVER))]] = True
        return found

    def rows(self) -> list[tuple[Columns, str, str]]:
        """The promises as JSON can express them."""
        return [
            (columns, b64encode(table.keys.tobytes()).decode(), b64encode(table.bounds.tobytes()).decode())
            for columns, table in self._tables.items()
        ]

    @classmethod
    def of_rows(cls, rows: Sequence[tuple[Sequence[str], str, str]], most: int = MOST) -> ValuePromises:
        found = cls(most)
        for columns, keys, bounds in rows:
            values = np.frombuffer(b64decode(keys), f"S{_WIDTH * len(columns)}")
            found._tables[tuple(columns)] = _Table(values, np.frombuffer(b64decode(bounds), np.int64).copy())
        return found

    def tables(self) -> dict[Columns, _Table]:
        return self._tables

    @property
    def until(self) -> int:
        """The greatest bound of any promise kept here."""
        return max((int(table.bounds.max(initial=NEVER)) for table in self._tables.values()), default=NEVER)

    def __bool__(self) -> bool:
        return bool(self._tables)

    def __len__(self) -> int:
        """Number of values."""
        return sum(len(table.keys) for table in self._tables.values())


def of_all(inputs: Sequence[tuple[int, ValuePromises]], among: ValuePromises | None = None) -> ValuePromises:
    """The promises that hold for all inputs, each given with its first pane that has not ended, beyond the panes that
    have ended in all of them. `among`: only for the values that it names."""
    found = ValuePromises()
    ended = min((front for front, _ in inputs), default=FOREVER)
    inputs = sorted(inputs, key=lambda each: each[0])
    # A value is in the result only if every input at the least front has promised it, so each such input names all
    # candidates.
    holding = [promises.tables() for front, promises in inputs if front == ended]
    for columns in () if not holding else (holding[0] if among is None else among.tables()):
        if any(columns not in tables for tables in holding):
            continue
        named = holding if among is None else [among.tables()]
        keys = min((tables[columns].keys for tables in named), key=len)
        bounds = np.full(len(keys), FOREVER)
        for front, promises in inputs:
            table = promises.tables().get(columns)
            bounds = np.minimum(bounds, front if table is None else np.maximum(table.bounds_of(keys, front), front))
            more = bounds > ended
            if not more.all():
                keys, bounds = keys[more], bounds[more]
        if len(keys):
            found.tables()[columns] = _Table(keys, bounds)
    return found


def news(before: ValuePromises, after: ValuePromises) -> Iterator[Promise]:
    """The promises in `after` that go beyond those in `before`: one for each bound."""
    for columns, table in after.tables().items():
        known = before.tables().get(columns)
        new = table.bounds > (NEVER if known is None else known.bounds_of(table.keys, NEVER))
        keys, bounds = table.keys[new], table.bounds[new]
        column = columns[0] if len(columns) == 1 else columns
        for below in np.unique(bounds).tolist():
            time = () if below == FOREVER else (Bound(PANE, below=below),)
            yield Promise((Bound(column, values=_values(keys[bounds == below])), *time))


def keys_of(schema: Schema, rows: Words, columns: Columns) -> tuple[Keys, Bools]:
    """The values of these columns in rows, in the form of a table, and which rows have no null among them."""
    there = np.ones(len(rows), np.bool_)
    words = []
    for column in columns:
        data, valid = column_of(schema, rows, column)
        there &= valid
        words.append((data if data.ndim == 2 else data[:, None]).view(np.uint64))
    return _keys(ValueSet.of_words(*words)), there


def _keys(values: ValueSet) -> Keys:
    """Each value as bytes. Their order is fixed, but not the order of the values."""
    width = _WIDTH * values.columns
    keys: Keys = np.ascontiguousarray(values.wide.astype(">u8")).view(f"S{width}").reshape(-1)
    return keys


def _values(keys: Keys) -> ValueSet:
    wide = np.ascontiguousarray(keys).view(">u8").reshape(len(keys), keys.dtype.itemsize // 8)
    return ValueSet(wide.astype(np.uint64))
