"""Finds groups that a promise of several bounds proves complete before their pane has ended (Li 7.2: joint
punctuation)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from highlevel.interface import Words
from lowmark.query.expr.expressions import Named
from lowmark.query.windows.progressing import Progress, progress
from lowmark.wire.records.partials import PANE
from lowmark.wire.records.punctuations import Bound, Promise
from lowmark.wire.rows.schema import Schema
from lowmark.wire.rows.values import FOREVER, INT64_MAX, INT64_MIN
from lowmark.wire.rows.words import column_of

__all__ = ["carried", "complete", "progressing", "within_reach"]


def carried(promise: Promise, keys: Mapping[str, Sequence[tuple[str, Progress]]]) -> Promise | None:
    """Convert a promise of several bounds on columns into one on keys that are computed from them and never decrease
    with them; None if one of the columns has no such key. `keys`: by column, each key's name and how it progresses; the
    key with the fewest steps is taken."""
    bounds = []
    for bound in promise.bounds:
        found = keys.get(bound.column) if isinstance(bound.column, str) else None
        if not found or bound.below is None:
            return None
        name, way = min(found, key=lambda key: len(key[1].steps))
        value = FOREVER if bound.below == FOREVER else way.value(bound.below)
        if not INT64_MIN < value <= INT64_MAX:
            return None
        bounds.append(Bound(name, below=value))
    return Promise(tuple(bounds))


def complete(promise: Promise, groups: Words, schema: Schema) -> npt.NDArray[np.bool_]:
    """Which groups are complete: those whose keys all lie below the bounds. No group is if a bound is on values."""
    chosen = np.ones(len(groups), np.bool_)
    for bound in promise.bounds:
        if bound.below is None or isinstance(bound.column, tuple):
            return np.zeros(len(groups), np.bool_)
        values, valid = column_of(schema, groups, bound.column)
        chosen &= valid & (values.view(np.int64) < np.int64(bound.below))
    return chosen


def progressing(key: Named) -> tuple[str, Progress]:
    """A key and how it progresses with the pane."""
    found = progress(key.expr, (PANE,))
    if found is None:
        raise ValueError(f"{key.name} does not progress with the pane")
    return key.name, found


def within_reach(promise: Promise, pane: int, keys: Sequence[tuple[str, Progress]]) -> bool:
    """Whether groups of this pane can lie below the bounds; `keys` have their least value by pane."""
    least = {name: way.value(pane) for name, way in keys}
    bounds = ((bound.columns[0], bound.below) for bound in promise.bounds)
    return all(below is not None and least.get(name, INT64_MIN) < below for name, below in bounds)
