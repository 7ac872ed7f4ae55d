"""The order in which a new row is matched with the other inputs of a join, and the columns that must be equal in
each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt

from highlevel.interface import Words
from lowmark.query.plan.nodes import Join
from lowmark.wire.rows.hashing import key_words
from lowmark.wire.rows.schema import Kind, Schema

__all__ = ["Key", "Lookup", "keys_of", "lookups", "matchable"]

Parts = Mapping[int, Words]
"""For each input matched so far its rows, one per combination."""


@dataclass(frozen=True, slots=True)
class Key:
    """A column of an input that must equal one of another."""

    port: int
    column: str


@dataclass(frozen=True, slots=True)
class Lookup:
    """The next input to match: its columns, the columns of inputs matched before that they must equal, and the number
    of this way to probe the input."""

    port: int
    columns: tuple[str, ...]
    equals: tuple[Key, ...]
    way: int
    places: npt.NDArray[np.int64] | None
    """The places in the input's rows of the words to compare; None: they are computed from the row."""


def lookups(plan: Join) -> tuple[tuple[Lookup, ...], ...]:
    """For a new row of each input, the others in the order of the plan."""
    ways: dict[tuple[int, tuple[str, ...]], int] = {}
    return tuple(_order(plan, port, probe.order, ways) for port, probe in enumerate(plan.probes))


def _order(
    plan: Join, first: int, order: Sequence[int], ways: dict[tuple[int, tuple[str, ...]], int]
) -> tuple[Lookup, ...]:  # fmt: skip
    met, found = [first], []
    for port in order:
        tied = plan.tied(met, port)
        columns = tuple(column for column, _, _ in tied)
        way = ways.setdefault((port, columns), len(ways))
        equals = tuple(Key(other, name) for _, other, name in tied)
        found.append(Lookup(port, columns, equals, way, _places(plan.inputs[port].schema, columns)))
        met.append(port)
    return tuple(found)


def _places(schema: Schema, columns: Sequence[str]) -> npt.NDArray[np.int64] | None:
    """The places of these columns' words; None for texts, whose compared words are not in the row, and for floats,
    because equal floats can have different words. Nulls match nothing (`matchable`)."""
    kinds = [schema.column(column).kind for column in columns]
    if Kind.FLOAT in kinds or Kind.STR in kinds:
        return None
    starts = map(schema.offset, columns)
    spans = (range(start, start + kind.words) for start, kind in zip(starts, kinds, strict=True))
    return np.array([word for span in spans for word in span], np.int64)


def keys_of(schemas: Sequence[Schema], parts: Parts, keys: Sequence[Key]) -> Words:
    """The words to compare for each combination. They are equal exactly if the values are."""
    found = [
        key_words(schemas[port], parts[port], tuple(key.column for key in of))[:, 1:]
        for port, of in groupby(keys, lambda key: key.port)
    ]
    rows = len(next(iter(parts.values())))
    return np.concatenate(found, axis=1) if found else np.empty((rows, 0), np.uint64)


def matchable(schema: Schema, rows: Words, columns: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Which rows have no null or NaN in these columns. Null and NaN equal nothing."""
    nulls = np.uint64(sum(1 << schema.index(column) for column in columns))
    kept: npt.NDArray[np.bool_] = rows[:, 0] & nulls == 0
    for column in columns:
        if schema.column(column).kind is Kind.FLOAT:
            kept &= ~np.isnan(rows[:, schema.offset(column)].view(np.float64))
    return kept
