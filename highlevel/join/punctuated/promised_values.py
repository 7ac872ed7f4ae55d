"""Promises about values at a punctuated join: which of its keys an input has promised, and what its output promises."""

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

_MOST = 1 << 16
"""Values taken of one promise."""

_NOT_PLAIN = (Kind.FLOAT, Kind.STR)
"""Kinds whose words are not those that are compared."""


class PromisedValues:
    def __init__(self, plan: Join, promising: Promising) -> None:
        self._bands = plan.bands
        self._promising = promising
        self._columns = [plan.keys(0), plan.keys(1)]
        self._kinds = [plan.inputs[0].schema.column(name).kind for name in plan.keys(0)]
        self._plain = not any(kind in _NOT_PLAIN for kind in self._kinds)
        self._shown = _shown(plan)

    def keys(self, port: int, promise: Promise) -> Words | None:
        """The keys, as rows of words, that this promise of an input excludes, all of the join's columns together; None:
        it is about something else."""
        named = {bound.column: bound.values for bound in promise.bounds if bound.values is not None}
        others = [bound.column for bound in promise.bounds if bound.values is None]
        if not self._plain or named.keys() != {*self._columns[port]} or others not in ([], [PANE]):
            return None
        columns = [*zip(self._columns[port], self._kinds, strict=True)]
        if len(named) + len(others) < len(promise.bounds) or np.prod([len(each) for each in named.values()]) > _MOST:
            return None
        words = _together(list(named.values()))
        return np.concatenate([words[list(named).index(name)].words(kind) for name, kind in columns], axis=1)

    def promises(self, port: int, keys: Words, bound: int) -> Iterator[Promise]:
        """No later row of the output has a row of this input with one of these keys and a time below the bound."""
        keys = keys[np.lexsort(keys.T[::-1])]
        times = [bound, bound]
        if bound < FOREVER:
            times[1 - port] = max(NEVER, self._bands.partners(port, bound, 1 - port)[0])
        for values in (values for names in self._shown for values in self._bounds(names, keys)):
            if bound == FOREVER:
                yield Promise(values)
            else:
                yield from (Promise((*values, least)) for least in self._promising.least(times))

    def _bounds(self, names: Sequence[str], keys: Words) -> Iterator[tuple[Bound, ...]]:
        starts = np.cumsum([0, *(kind.words for kind in self._kinds)]).tolist()
        places = zip(starts, self._kinds, strict=False)
        sets = [ValueSet.of_words(keys[:, start : start + kind.words]) for start, kind in places]
        if len(names) == 1:
            yield (Bound(names[0], values=sets[0]),)
            return
        for at in range(len(keys)):
            yield tuple(Bound(n, values=ValueSet(each.wide[at : at + 1])) for n, each in zip(names, sets, strict=True))


def _together(sets: Sequence[ValueSet]) -> list[ValueSet]:
    """Every combination of values, one of each set."""
    places = np.indices([len(each) for each in sets]).reshape(len(sets), -1)
    return [ValueSet(each.wide[at]) for each, at in zip(sets, places, strict=True)]


def _shown(plan: Join) -> list[tuple[str, ...]]:
    """The names under which the output shows all columns of the key: those of each input, else of both."""
    by_port = [dict(port.output) for port in plan.inputs]
    found = []
    for port, shown in enumerate(by_port):
        names = [shown.get(columns[port] or "") for columns in plan.equal]
        found.append(tuple(name for name in names if name is not None))
    whole = [names for names in found if len(names) == len(plan.equal)]
    if whole:
        return list(dict.fromkeys(whole))
    mixed = [next((n for p in (0, 1) if (n := by_port[p].get(c[p] or "")) is not None), None) for c in plan.equal]
    return [tuple(name for name in mixed if name is not None)] if None not in mixed else []
