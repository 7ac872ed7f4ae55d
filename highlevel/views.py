"""Converts rows of a shared node into the form in which one query reads them."""

from __future__ import annotations

import numpy as np

from highlevel.interface import Words
from lowmark.query.plan.nodes import NodeView
from lowmark.wire.rows.schema import Schema

__all__ = ["Viewer"]


class Viewer:
    """Converts rows for one query; `schema` is the node's."""

    def __init__(self, view: NodeView, schema: Schema) -> None:
        words = [0]
        for name in view.columns:
            first = schema.offset(name)
            words += range(first, first + schema.column(name).kind.words)
        self._whole = words == [*range(schema.words)]
        self._words = np.array(words)
        places = [schema.index(name) for name in view.columns]
        nullable = [own for own, column in enumerate(view.schema) if column.nullable]
        self._bits = [(np.uint64(places[own]), np.uint64(own)) for own in nullable]

    def of(self, rows: Words) -> Words:
        """Rows in the query's own schema; the same matrix if the query reads all columns in their order."""
        if self._whole:
            return rows
        found: Words = rows.take(self._words, axis=1)
        nulls = rows[:, 0]
        found[:, 0] = 0
        if nulls.any():
            for place, own in self._bits:
                found[:, 0] |= (nulls >> place & np.uint64(1)) << own
        return found
