"""Result rows as records: one flat JSON object for each row (the default), or many rows in an Arrow batch.

Both show values like `lowmark query`, with `--format jsonl` and with `--format arrow`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from lowmark.wire.records.announcements import result_headers
from lowmark.wire.records.json_fields import Fields, parse
from lowmark.wire.records.record import MAX_RECORD_BYTES, BadReason, Headers, RecordKind, Refused, WireRecord, sized
from lowmark.wire.rows.arrow_stream import read_rows, write_rows
from lowmark.wire.rows.schema import Column, Kind, Schema
from lowmark.wire.rows.text import text_column
from lowmark.wire.rows.words import Words, to_batch, to_words

__all__ = [
    "ResultRow", "ResultRowsRecord", "RowFormat", "arrow_records", "decode_result_row", "decode_result_rows",
    "encode_result_row", "encode_result_rows", "shown",
]  # fmt: skip

_AS_TEXT = (Kind.IP, Kind.MAC, Kind.COMMUNITY_ID, Kind.STR)
_KINDS = {
    pa.int64(): Kind.INT, pa.float64(): Kind.FLOAT, pa.bool_(): Kind.BOOL, pa.timestamp("ns", "UTC"): Kind.TIME,
    pa.duration("ns"): Kind.DURATION,
}  # fmt: skip
"""Columns of other kinds are text."""

_MOST_BYTES = 512 * 1024
"""Approximate size limit of a batch, half the limit of a record."""


class RowFormat(StrEnum):
    """How a job writes rows, with the names of `lowmark query --format`."""

    JSONL = "jsonl"
    ARROW = "arrow"


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One row as `text` writes it: a JSON object without a line end. `early`: its window, if the row was sent before
    the window closed."""

    generation: int
    row: bytes
    early: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ResultRowsRecord:
    """Rows as `shown` gives them. `early`: their window, if they were sent before it closed."""

    generation: int
    rows: pa.RecordBatch
    early: int | None = None

    def one_by_one(self) -> list[ResultRow]:
        """The same rows as records of one row each, byte for byte those that a job without a format writes."""
        names = [json.dumps(name, ensure_ascii=False) for name in self.rows.schema.names]
        texts = [
            [f"{name}:{value}" for value in _json(column)]
            for name, column in zip(names, self.rows.columns, strict=True)
        ]
        rows = (f"{{{','.join(row)}}}".encode() for row in zip(*texts, strict=True))
        return [ResultRow(self.generation, row, self.early) for row in rows]


def arrow_records(
    generation: int, schema: Schema, words: Words, early: int | None = None
) -> Iterator[WireRecord]:  # fmt: skip
    """The rows in as many records as they need. `early`: as for `ResultRowsRecord`."""
    rows = shown(schema, words)
    each = max(1, _MOST_BYTES * len(words) // max(1, rows.nbytes))
    for start in range(0, len(words), each):
        yield encode_result_rows(ResultRowsRecord(generation, rows.slice(start, each), early))


def shown(schema: Schema, words: Words) -> pa.RecordBatch:
    """Rows in columns that any Arrow reader understands: addresses, MACs and strings are text; times and durations have
    Arrow's own types."""
    arrays, fields = [], []
    for column, array in zip(schema, to_batch(schema, words).columns, strict=True):
        if column.kind in _AS_TEXT:
            array = text_column(schema, words, column.name).cast(pa.string())
        arrays.append(array)
        fields.append(pa.field(column.name, array.type, column.nullable))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _json(column: pa.Array) -> Iterator[str]:
    if column.type == pa.string():
        return (json.dumps(value, ensure_ascii=False) for value in column.to_pylist())
    kind = _KINDS[column.type]
    schema = Schema((Column("value", kind, True),))
    words = to_words(schema, pa.RecordBatch.from_arrays([column], schema.names))
    form = '"{}"' if kind is Kind.TIME else "{}"
    return ("null" if text is None else form.format(text) for text in text_column(schema, words, "value").to_pylist())


def encode_result_row(row: ResultRow) -> WireRecord:
    return sized(WireRecord(None, row.row, result_headers(RecordKind.ROW, row.generation, row.early)))


def decode_result_row(headers: Headers, value: bytes) -> ResultRow:
    Fields(parse(value))  # refuses anything but an object
    return ResultRow(headers.natural("generation"), value, _early(headers))


def encode_result_rows(rows: ResultRowsRecord) -> WireRecord:
    return sized(WireRecord(None, write_rows(rows.rows), result_headers(RecordKind.ROWS, rows.generation, rows.early)))


def decode_result_rows(headers: Headers, value: bytes) -> ResultRowsRecord:
    rows = read_rows(value, None, MAX_RECORD_BYTES)
    for field in rows.schema:
        if field.type not in _KINDS and field.type != pa.string():
            raise Refused(BadReason.SCHEMA, f"column {field.name} is of {field.type}, as no column of results is")
    return ResultRowsRecord(headers.natural("generation"), rows, _early(headers))


def _early(headers: Headers) -> int | None:
    return headers.integer("window") if headers.has("window") else None
