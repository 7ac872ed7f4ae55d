"""Whether what buckets send each other keeps to what they promise."""

from __future__ import annotations

import numpy as np

from highlevel.progress.outputs import Forward
from lowmark.wire.records.partials import Origin
from lowmark.wire.records.punctuations import Promise, Punctuation
from lowmark.wire.rows.words import column_of

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
                assert bound.below is not None
                values, there = column_of(forward.schema, record.rows, bound.column)
                excluded &= there & (values < bound.below)
            self.broken += int(np.count_nonzero(excluded))
