"""Whether what buckets send each other keeps to what they promise."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from highlevel.progress.outputs import Forward
from lowmark.wire.records.partials import Origin
from lowmark.wire.records.punctuations import Bound, Promise, Punctuation
from lowmark.wire.rows.schema import Schema
from lowmark.wire.rows.value_sets import ValueSet
from lowmark.wire.rows.words import Words, column_of

__all__ = ["Lawful"]


class Lawful:
    """Looks on while buckets send each other rows and promises."""

    def __init__(self) -> None:
        self.broken = 0
        self.joint = 0
        self._promises: dict[tuple[Origin, int], list[Promise]] = {}

    def see(self, forward: Forward) -> None:
        record = forward.record
        promises = self._promises.setdefault((record.origin, forward.partition), [])
        if isinstance(record, Punctuation):
            promises.append(record.promise)
            self.joint += len(record.promise.bounds) > 1
            return
        for promise in promises:
            excluded = np.full(len(record.rows), promise.last or bool(promise.bounds))
            for bound in promise.bounds:
                excluded &= _within(bound, forward.schema, record.rows)
            self.broken += int(np.count_nonzero(excluded))


def _within(bound: Bound, schema: Schema, rows: Words) -> npt.NDArray[np.bool_]:
    columns = [column_of(schema, rows, column) for column in bound.columns]
    if bound.values is None:
        ((values, there),) = columns
        return there & (values < bound.below)
    found = ValueSet.of_words(*(values.reshape(len(rows), -1).view(np.uint64) for values, _ in columns)).wide
    there = np.logical_and.reduce([valid for _, valid in columns])
    return there & (found[:, None, :] == bound.values.wide[None]).all(2).any(1)
