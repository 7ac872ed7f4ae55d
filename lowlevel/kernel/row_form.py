"""The layout of a node's rows in its kernel: tighter than the schema, so that a slot of the table takes fewer words.

A key (or detail) that is an address and never null stores no word for its version: the column's bit in the null mask,
otherwise unused, says that it is IPv6. Two addresses, a count and a sum thus fill one cache line; with ten words, each
packet would fetch two lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lowlevel.kernel.codegen.expressions import Value
from lowmark.jit.compiled import compiled
from lowmark.query.plan.nodes import Reduction
from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.value_sets import ValueSet
from lowmark.wire.rows.words import Words

__all__ = ["RowForm"]


class RowForm:
    """Row form of a reduction: (mask, pane, tuples, keys…, details…, folds…)."""

    def __init__(self, reduction: Reduction) -> None:
        self._schema = reduction.schema
        named = enumerate((*reduction.keys, *reduction.details), 2)
        places = [(place, item.expr.kind, item.expr.nullable) for place, item in named]
        self._packed = [place for place, kind, nullable in places if kind is Kind.IP and not nullable]
        self.words = self._schema.words - len(self._packed)
        self.key_words = sum(kind.words for _, kind, _ in places) - len(self._packed)
        self.key_bits = sum(1 << place for place, _, nullable in places if nullable or place in self._packed)
        """The bits of the mask that distinguish groups."""

    def offset(self, name: str) -> int:
        """The first word of a fold's column, which comes after all keys."""
        return self._schema.offset(name) - len(self._packed)

    def packed(self, place: int, value: Value) -> Value:
        """The packed column of this number; its `null` sets its bit in the mask."""
        if place not in self._packed:
            return value
        version, *words = value.words
        return replace(value, words=tuple(words), null=f"({version} == 6)")

    def unpacked(self, rows: Words) -> Words:
        """Kernel rows in the form of the schema: a copy."""
        if not self._packed:
            return rows.copy()
        out = np.empty((len(rows), self._schema.words), np.uint64)
        _unpack(rows, self._sources, np.uint64(sum(1 << place for place in self._packed)), out)
        return out

    def groups(self, columns: Sequence[str], values: ValueSet) -> tuple[npt.NDArray[np.int64], ...]:
        """Values of key columns in the form of kernel rows: for each value the bits of its mask and its words; the
        places of those words in a row; and (as an array of one) the mask's bits that belong to these columns."""
        words = [np.zeros(len(values), np.uint64)]
        places: list[int] = []
        bits, at = 0, 1
        for place, column in enumerate(self._schema):
            size = column.kind.words - (place in self._packed)
            if column.name in columns:
                end = 3 * (1 + columns.index(column.name))
                words += list(values.wide[:, end - size : end].T)
                places += range(at, at + size)
                if place in self._packed:
                    words[0] = words[0] | np.where(values.wide[:, end - 3] == 6, np.uint64(1 << place), np.uint64(0))
                if place in self._packed or column.nullable:
                    bits |= 1 << place
            at += size
        found = np.ascontiguousarray(np.stack(words, axis=1)).view(np.int64)
        return found, np.array(places, np.int64), np.array([bits], np.int64)

    @cached_property
    def _sources(self) -> npt.NDArray[np.int64]:
        """For each word of a schema row, its word in the kernel; for a version, ~(its column's number)."""
        sources = [0]
        at = 1
        for place, column in enumerate(self._schema):
            words = column.kind.words
            if place in self._packed:
                sources.append(~place)
                words -= 1
            sources += range(at, at + words)
            at += words
        return np.array(sources, np.int64)


@compiled
def _unpack(rows: Words, sources: npt.NDArray[np.int64], six: np.uint64, out: Words) -> None:
    """`six`: the bits of the mask that say IPv6 instead of null."""
    for row in range(rows.shape[0]):
        mask = rows[row, 0]
        out[row, 0] = mask & ~six
        for at in range(1, sources.shape[0]):
            source = sources[at]
            if source < 0:
                out[row, at] = np.uint64(4) + (mask >> np.uint64(~source) & np.uint64(1)) * np.uint64(2)
            else:
                out[row, at] = rows[row, source]
