"""Promises about values (Ding 2004) of several inputs that bring rows to one place: what holds for all of them.

Such a promise names values of a column, alone or with a bound on panes: no later row has one of the values and a pane
below the bound. Of an input it is enough to know, for each value, the greatest such bound. For all inputs together the
bound of a value is the least of theirs; an input that has promised nothing about it contributes the panes that have
ended. All of it is arrays of words: no object is made for a value.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lowmark.query.windows.panes import Pane
from lowmark.wire.records.partials import PANE
from lowmark.wire.records.punctuations import Bound, Promise
from lowmark.wire.rows.value_sets import ValueSet
from lowmark.wire.rows.values import FOREVER, NEVER

__all__ = ["ValuePromises", "about_values", "in_panes", "news", "of_all"]

_MOST = 1 << 16
"""Values kept per input and column; beyond this limit the promises of the least bounds are lost, never rows."""

Keys = npt.NDArray[np.bytes_]
Ints = npt.NDArray[np.int64]


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


@dataclass(slots=True)
class _Table:
    """Values of a column, ascending, and for each the pane below which no later row has it."""

    keys: Keys
    bounds: Ints

    def bounds_of(self, keys: Keys, otherwise: int) -> Ints:
        if not len(self.keys):
            return np.full(len(keys), otherwise)
        places = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[places] == keys, self.bounds[places], otherwise)


class ValuePromises:
    """What one input has promised about values; or, of several, what holds for all (`of_all`)."""

    def __init__(self) -> None:
        self._tables: dict[str, _Table] = {}  # by column

    def take(self, promise: Promise) -> None:
        """Keep a promise about the values of one column, alone or with a bound on panes; ignore others."""
        named = [(bound.column, bound.values) for bound in promise.bounds if bound.values is not None]
        times = [bound.below for bound in promise.bounds if bound.below is not None]
        if len(named) != 1 or any(bound.column != PANE for bound in promise.bounds if bound.values is None):
            return
        column, values = named[0]
        keys = _keys(values)
        known = self._tables.get(column) or _Table(keys[:0], np.zeros(0, np.int64))
        bounds = np.full(len(keys), min(times, default=FOREVER))
        self._put(column, np.concatenate((known.keys, keys)), np.concatenate((known.bounds, bounds)))

    def prune(self, front: int) -> None:
        """Forget what says no more than that all panes below `front` have ended."""
        for column, table in tuple(self._tables.items()):
            kept = table.bounds > front
            self._tables[column] = _Table(table.keys[kept], table.bounds[kept])
            if not kept.any():
                del self._tables[column]

    def rows(self) -> list[tuple[str, str, str]]:
        """For JSON."""
        return [
            (column, b64encode(table.keys.tobytes()).decode(), b64encode(table.bounds.tobytes()).decode())
            for column, table in self._tables.items()
        ]

    @classmethod
    def of_rows(cls, rows: Sequence[tuple[str, str, str]]) -> ValuePromises:
        found = cls()
        for column, keys, bounds in rows:
            table = _Table(np.frombuffer(b64decode(keys), "S24"), np.frombuffer(b64decode(bounds), np.int64))
            found._tables[column] = table
        return found

    def tables(self) -> dict[str, _Table]:
        return self._tables

    def _put(self, column: str, keys: Keys, bounds: Ints) -> None:
        """Keep the greatest bound of each value."""
        order = np.lexsort((~bounds, keys))
        keys, bounds = keys[order], bounds[order]
        first = np.ones(len(keys), np.bool_)
        first[1:] = keys[1:] != keys[:-1]
        keys, bounds = keys[first], bounds[first]
        if len(keys) > _MOST:
            most = np.sort(np.argpartition(~bounds, _MOST)[:_MOST])
            keys, bounds = keys[most], bounds[most]
        if len(keys):
            self._tables[column] = _Table(keys, bounds)

    def __bool__(self) -> bool:
        return bool(self._tables)


def of_all(inputs: Sequence[tuple[int, ValuePromises]]) -> ValuePromises:
    """What holds for all inputs, each given with its first pane that has not ended, beyond the panes that have ended in
    all of them."""
    found = ValuePromises()
    ended = min((front for front, _ in inputs), default=FOREVER)
    for column in dict.fromkeys(column for _, promises in inputs for column in promises.tables()):
        tables = [(front, promises.tables().get(column)) for front, promises in inputs]
        keys = np.unique(np.concatenate([table.keys for _, table in tables if table is not None]))
        bounds = np.full(len(keys), FOREVER)
        for front, table in tables:
            known = front if table is None else np.maximum(table.bounds_of(keys, front), front)
            bounds = np.minimum(bounds, known)
        more = bounds > ended
        if more.any():
            found.tables()[column] = _Table(keys[more], bounds[more])
    return found


def news(before: ValuePromises, after: ValuePromises) -> Iterator[Promise]:
    """The promises in `after` that say more than those in `before`: one for each bound."""
    for column, table in after.tables().items():
        known = before.tables().get(column)
        new = table.bounds > (NEVER if known is None else known.bounds_of(table.keys, NEVER))
        keys, bounds = table.keys[new], table.bounds[new]
        for below in np.unique(bounds).tolist():
            time = () if below == FOREVER else (Bound(PANE, below=below),)
            yield Promise((Bound(column, values=_values(keys[bounds == below])), *time))


def _keys(values: ValueSet) -> Keys:
    """Each value as bytes. Their order is a fixed one, not that of the values."""
    keys: Keys = np.ascontiguousarray(values.wide.astype(">u8")).view("S24").reshape(-1)
    return keys


def _values(keys: Keys) -> ValueSet:
    return ValueSet(np.ascontiguousarray(keys).view(">u8").reshape(-1, 3).astype(np.uint64))
