"""Promises about values (Ding 2004) of several inputs that bring rows to one place: what holds for all of them.

Such a promise names values of a column, or of several columns together, alone or with a bound on panes: no later row
has one of the values and a pane below the bound. Of an input it is enough to know, for each value, the greatest such
bound. For all inputs together the bound of a value is the least of theirs; an input that has promised nothing about it
contributes the panes that have ended. All of it is arrays of words: no object is made for a value.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from highlevel.interface import Space, State
from lowmark.query.windows.panes import Pane
from lowmark.wire.records.partials import PANE
from lowmark.wire.records.punctuations import Bound, Promise
from lowmark.wire.rows.schema import Schema
from lowmark.wire.rows.value_sets import ValueSet
from lowmark.wire.rows.values import FOREVER, NEVER
from lowmark.wire.rows.words import Words, column_of

__all__ = ["Held", "ValuePromises", "about_values", "in_panes", "keys_of", "news", "of_all"]

_MOST = 1 << 14
"""Values kept per input and set of columns; beyond this limit the promises of the least bounds are lost, never rows."""

_MOST_SETS = 16
"""Sets of columns of which an input's promises are kept. A query has a few; a source may name any."""

Keys = npt.NDArray[np.bytes_]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def about_values(promise: Promise) -> bool:
    return any(bound.values is not None for bound in promise.bounds)


def in_panes(promise: Promise, pane: Pane) -> Promise:
    """A source's promise about values with its bound on the attribute of the panes as one on panes."""
    bounds = (
        Bound(PANE, below=bound.below if bound.below == FOREVER else pane.index(bound.below))
        if bound.below is not None and bound.column == pane.attribute
        else bound
        for bound in promise.bounds
    )
    return Promise(tuple(bounds), promise.last)


_MOST_HELD = 1 << 18
"""Values of which the operators of a node are told that no later row has them. None of them is forgotten before the
bound of its promise: a row that breaks it must be known."""

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
    """What one input has promised about values; or, of several, what holds for all (`of_all`). `most`: values kept
    per set of columns."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._tables: dict[Columns, _Table] = {}

    def take(self, promise: Promise) -> bool:
        """Keep a promise about the values of one set of columns, alone or with a bound on panes; ignore others. Returns
        whether all of it was kept, and nothing else was lost for it."""
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
        return False

    def room(self, columns: Columns) -> int:
        """How many more values of these columns it keeps without losing others."""
        table = self._tables.get(columns)
        if table is None:
            return self._most if len(self._tables) < _MOST_SETS else 0
        return self._most - len(table.keys)

    def prune(self, front: int) -> None:
        """Forget what says no more than that all panes below `front` have ended."""
        for columns, table in tuple(self._tables.items()):
            kept = table.bounds > front
            if not kept.any():
                del self._tables[columns]
            elif not kept.all():
                self._tables[columns] = _Table(table.keys[kept], table.bounds[kept])

    def among(self, schema: Schema, rows: Words) -> Bools:
        """Which rows have a value that is kept, whatever its bound."""
        found = np.zeros(len(rows), np.bool_)
        for columns, table in self._tables.items():
            keys, there = keys_of(schema, rows, columns)
            found |= there & (table.bounds_of(keys, NEVER) != NEVER)
        return found

    def broken_by(self, schema: Schema, rows: Words) -> Bools:
        """Which rows are excluded by what is kept. They begin with their pane."""
        found = np.zeros(len(rows), np.bool_)
        names, panes = {*schema.names}, rows[:, 1].view(np.int64)
        for columns, table in self._tables.items():
            below = panes < table.bounds.max(initial=NEVER)
            if not below.any() or not names.issuperset(columns):
                continue
            some, (keys, there) = np.flatnonzero(below), keys_of(schema, rows[below], columns)
            found[some[there & (panes[below] < table.bounds_of(keys, NEVER))]] = True
        return found

    def rows(self) -> list[tuple[Columns, str, str]]:
        """For JSON."""
        return [
            (columns, b64encode(table.keys.tobytes()).decode(), b64encode(table.bounds.tobytes()).decode())
            for columns, table in self._tables.items()
        ]

    @classmethod
    def of_rows(cls, rows: Sequence[tuple[Sequence[str], str, str]], most: int = _MOST) -> ValuePromises:
        found = cls(most)
        for columns, keys, bounds in rows:
            values = np.frombuffer(b64decode(keys), f"S{_WIDTH * len(columns)}")
            found._tables[tuple(columns)] = _Table(values, np.frombuffer(b64decode(bounds), np.int64).copy())
        return found

    def tables(self) -> dict[Columns, _Table]:
        return self._tables

    @property
    def until(self) -> int:
        """The first pane of which nothing is kept."""
        return max((int(table.bounds.max(initial=NEVER)) for table in self._tables.values()), default=NEVER)

    def __bool__(self) -> bool:
        return bool(self._tables)


class Held:
    """What the operators of a node were told about values, until its panes have ended. The state has a piece for each
    micro-batch that added to it, so that no piece is written twice."""

    def __init__(self, state: State, node: str) -> None:
        self._state = state
        self._space: Space[ValuePromises] = Space(f"values.{node}", _encode, _decode)
        self.promises = ValuePromises(_MOST_HELD)
        self._added = ValuePromises(_MOST_HELD)
        self._until: dict[int, int] = {}  # by piece: the first pane of which it says nothing
        for key in state.keys(self._space):
            piece = state.get(self._space, key)
            assert piece is not None, "a listed piece is there"
            self._until[key] = piece.until
            for promise in news(self.promises, piece):
                self.promises.take(promise)

    def take(self, promise: Promise) -> bool:
        """Keep a promise; False: there is no room, and nobody may be told."""
        (named,) = (bound for bound in promise.bounds if bound.values is not None)
        if named.values is None or len(named.values) > self.promises.room(named.columns):
            return False
        self._added.take(promise)
        return self.promises.take(promise)

    def prune(self, front: int) -> None:
        self.promises.prune(front)
        for key in [key for key, until in self._until.items() if until <= front]:
            self._state.drop(self._space, key)
            del self._until[key]

    def save(self) -> None:
        if self._added:
            key = 1 + max(self._until, default=0)
            self._state.put(self._space, key, self._added)
            self._until[key] = self._added.until
            self._added = ValuePromises(_MOST_HELD)


def _encode(promises: ValuePromises) -> bytes:
    return json.dumps(promises.rows()).encode()


def _decode(piece: bytes) -> ValuePromises:
    return ValuePromises.of_rows(json.loads(piece), _MOST_HELD)


def of_all(inputs: Sequence[tuple[int, ValuePromises]], among: ValuePromises | None = None) -> ValuePromises:
    """What holds for all inputs, each given with its first pane that has not ended, beyond the panes that have ended in
    all of them. `among`: only of the values that it names."""
    found = ValuePromises()
    ended = min((front for front, _ in inputs), default=FOREVER)
    named = [promises for _, promises in inputs] if among is None else [among]
    for columns in dict.fromkeys(columns for promises in named for columns in promises.tables()):
        tables = [(front, promises.tables().get(columns)) for front, promises in inputs]
        of = [promises.tables()[columns].keys for promises in named if columns in promises.tables()]
        keys = of[0] if len(of) == 1 else np.unique(np.concatenate(of))
        bounds = np.full(len(keys), FOREVER)
        for front, table in tables:
            known = front if table is None else np.maximum(table.bounds_of(keys, front), front)
            bounds = np.minimum(bounds, known)
        more = bounds > ended
        if more.any():
            found.tables()[columns] = _Table(keys[more], bounds[more])
    return found


def news(before: ValuePromises, after: ValuePromises) -> Iterator[Promise]:
    """The promises in `after` that say more than those in `before`: one for each bound."""
    for columns, table in after.tables().items():
        known = before.tables().get(columns)
        new = table.bounds > (NEVER if known is None else known.bounds_of(table.keys, NEVER))
        keys, bounds = table.keys[new], table.bounds[new]
        column = columns[0] if len(columns) == 1 else columns
        for below in np.unique(bounds).tolist():
            time = () if below == FOREVER else (Bound(PANE, below=below),)
            yield Promise((Bound(column, values=_values(keys[bounds == below])), *time))


def keys_of(schema: Schema, rows: Words, columns: Columns) -> tuple[Keys, Bools]:
    """The values of these columns in rows, in the form of a table; and which rows have all of them."""
    there = np.ones(len(rows), np.bool_)
    words = []
    for column in columns:
        data, valid = column_of(schema, rows, column)
        there &= valid
        words.append(data.reshape(len(rows), -1).view(np.uint64))
    return _keys(ValueSet.of_words(*words)), there


def _keys(values: ValueSet) -> Keys:
    """Each value as bytes. Their order is a fixed one, not that of the values."""
    width = _WIDTH * values.columns
    keys: Keys = np.ascontiguousarray(values.wide.astype(">u8")).view(f"S{width}").reshape(-1)
    return keys


def _values(keys: Keys) -> ValueSet:
    wide = np.ascontiguousarray(keys).view(">u8").reshape(len(keys), keys.dtype.itemsize // 8)
    return ValueSet(wide.astype(np.uint64))
