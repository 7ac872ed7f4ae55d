"""Promises about values at a punctuated join: converts an input's promise to keys, and keys to promises of the
output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from highlevel.interface import Words
from highlevel.join.output_promises import Promising
from lowmark.query.plan.nodes import Join
from lowmark.wire.records.partials import PANE
from lowmark.wire.records.punctuations import Bound, Promise
from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.value_sets import ValueSet
from lowmark.wire.rows.values import FOREVER, NEVER

__all__ = ["PromisedValues"]

_NOT_PLAIN = (Kind.FLOAT, Kind.STR)
"""Kinds whose words in a row are not the words that are compared."""


class PromisedValues:
    def __init__(self, plan: Join, promising: Promising) -> None:
        self._bands = plan.bands
        self._promising = promising
        self._columns = plan.promised_keys
        self._kinds = [plan.inputs[0].schema.column(name).kind for name in self._columns[0]]
        self._plain = not any(kind in _NOT_PLAIN for kind in self._kinds)
        self._shown = plan.promised_names
        ends = np.cumsum([kind.words for kind in self._kinds]).tolist()
        self._words = [slice(end - kind.words, end) for end, kind in zip(ends, self._kinds, strict=True)]

    def keys(self, port: int, promise: Promise) -> Words | None:
        """The keys, as rows of words, that this promise of an input excludes; None: it is not about the promised
        columns."""
        named = [bound for bound in promise.bounds if bound.values is not None]
        others = [bound.column for bound in promise.bounds if bound.values is None]
        if not self._plain or len(named) != 1 or others not in ([], [PANE]):
            return None
        (bound,) = named
        if bound.values is None or {*bound.columns} != {*self._columns[port]}:
            return None
        if bound.columns == self._columns[port]:
            return bound.values.words(*self._kinds)
        starts = (3 * bound.columns.index(name) for name in self._columns[port])
        wide = [bound.values.wide[:, start : start + 3] for start in starts]
        return ValueSet(np.concatenate(wide, axis=1)).words(*self._kinds)

    def promises(self, port: int, keys: Words, bound: int) -> Iterator[Promise]:
        """Promises that no later row of the output has a row of this input with one of these keys and a time below the
        bound."""
        keys = keys[np.lexsort(keys.T[::-1])]
        times = [bound, bound]
        if bound < FOREVER:
            times[1 - port] = max(NEVER, self._bands.partners(port, bound, 1 - port)[0])
        for names in self._shown:
            values = self._bound(names, keys)
            if bound == FOREVER:
                yield Promise((values,))
            else:
                yield from (Promise((values, least)) for least in self._promising.least(times))

    def _bound(self, names: Sequence[str], keys: Words) -> Bound:
        """These keys as values of columns of the output."""
        parts = {name: keys[:, words] for name, words in zip(names, self._words, strict=True)}
        column = tuple(parts) if len(parts) > 1 else names[0]
        return Bound(column, values=ValueSet.of_words(*parts.values()))
