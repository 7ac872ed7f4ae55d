"""Schemas, rows and records for the property tests of the wire."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from lowmark.wire.records.result_rows import shown
from lowmark.wire.rows.schema import Column, Kind, Schema
from lowmark.wire.rows.words import Words, to_batch

STRINGS = ("", "Main1", 'a "quoted", one', "back\\slash", "line\nend", "\u2028 é 🙂", "\x00\x1f")

INT64 = st.integers(-(2**63), 2**63 - 1)
NAMES = st.text(st.characters(codec="utf-8"), max_size=12)

_SMALL_ZEROS = st.lists(st.one_of(st.just(0), st.integers(0, 0xFFFF)), min_size=8, max_size=8)
V4, V6 = 4 << 128, 6 << 128
_OF_32_BITS = st.integers(0, 2**32 - 1)
ADDRESSES = st.one_of(
    _OF_32_BITS.map(lambda number: V4 | number),
    _OF_32_BITS.map(lambda number: V6 | 0xFFFF << 32 | number),  # mapped
    _OF_32_BITS.map(lambda number: V6 | number),
    st.integers(0, 2**128 - 1).map(lambda number: V6 | number),
    _SMALL_ZEROS.map(lambda groups: V6 | sum(group << 16 * i for i, group in enumerate(groups))),
)
VALUES = {
    Kind.INT: st.one_of(INT64, st.integers(-1000, 1000), st.sampled_from([10**i for i in range(19)])),
    Kind.FLOAT: st.one_of(st.floats(), st.floats(-1e4, 1e4, width=32), st.integers(-100, 100).map(float)),
    Kind.BOOL: st.booleans().map(int),
    Kind.TIME: st.one_of(
        INT64, st.integers(-100, 100).map(lambda s: s * 86_400 * 10**9), st.integers(0, 10**7).map(lambda m: m * 1000)
    ),
    Kind.DURATION: st.one_of(INT64, st.integers(-20, 20).map(lambda tenths: tenths * 10**8)),
    Kind.IP: ADDRESSES,
    Kind.MAC: st.integers(0, 2**48 - 1),
    Kind.COMMUNITY_ID: st.integers(0, 2**160 - 1),
    Kind.STR: st.integers(0, len(STRINGS) - 1),
}


@st.composite
def schemas(draw: st.DrawFn, leading: tuple[Column, ...] = ()) -> Schema:
    used = {column.name for column in leading}
    names = draw(st.lists(NAMES.filter(lambda name: name not in used), unique=True, min_size=1, max_size=6))
    columns = [Column(name, draw(st.sampled_from(Kind)), draw(st.booleans())) for name in names]
    return Schema((*leading, *columns), tuple(sorted(STRINGS)))


def values_of(schema: Schema) -> st.SearchStrategy[list[object]]:
    """One row as Python values: integers (floats for FLOAT), None for null."""
    columns = [VALUES[c.kind] if not c.nullable else st.none() | VALUES[c.kind] for c in schema]
    return st.tuples(*columns).map(list)


def matrix(schema: Schema, rows: list[list[object]]) -> Words:
    """Rows of Python values as words, one after the other: slow, and independent of the code under test."""
    words = np.zeros((len(rows), schema.words), np.uint64)
    for row, values in enumerate(rows):
        at = 1
        for index, (column, value) in enumerate(zip(schema, values, strict=True)):
            if value is None:
                words[row, 0] |= np.uint64(1 << index)
            elif column.kind.words > 1:
                for word in range(column.kind.words):
                    words[row, at + word] = value >> 64 * (column.kind.words - 1 - word) & 2**64 - 1
            elif column.kind is Kind.FLOAT:
                words[row, at] = np.float64(value).view(np.uint64)
            else:
                words[row, at] = value % 2**64
            at += column.kind.words
    return words


@st.composite
def tables(draw: st.DrawFn, max_size: int = 12) -> tuple[Schema, list[list[object]]]:
    schema = draw(schemas())
    return schema, draw(st.lists(values_of(schema), max_size=max_size))


PARTIALS = Schema(
    (
        Column("pane", Kind.INT),
        Column("tuples", Kind.INT),
        Column("srcIP", Kind.IP),
        Column("link", Kind.STR),
        Column("ok", Kind.BOOL, nullable=True),
        Column("avg", Kind.FLOAT, nullable=True),
        Column("first", Kind.TIME),
        Column("gap", Kind.DURATION),
        Column("mac", Kind.MAC),
    ),
    ("Main1", "Main2"),
)


def _two_rows() -> Words:
    """Of PARTIALS, in panes 5 and 6, for 3 and 4 tuples."""
    moment = 1_763_471_200_123_456_789
    rows = [
        [5, 3, V4 | 0x0A000001, 1, 1, 2.5, moment, 1_500_000_000, 0x0242AC110002],
        [6, 4, V6 | 0x20010DB8 << 96 | 1, 0, None, None, moment + 1, 0, 0],
    ]
    return matrix(PARTIALS, rows)


def partial_rows() -> pa.RecordBatch:
    return to_batch(PARTIALS, _two_rows())


def result_rows() -> pa.RecordBatch:
    return shown(PARTIALS, _two_rows())
