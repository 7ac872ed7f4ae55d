"""Result rows as records: one flat JSON object each (the default), or many in an Arrow batch."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from lowmark.wire.announcements import result_headers
from lowmark.wire.arrowstream import read_rows, write_rows
from lowmark.wire.fields import Fields, parse
from lowmark.wire.record import Headers, RecordKind, WireRecord, sized

__all__ = [
    "ResultRow", "ResultRows", "decode_result_row", "decode_result_rows", "encode_result_row", "encode_result_rows",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One row as `text` writes it: a JSON object without a line end."""

    query: str
    generation: int
    bucket: int
    row: bytes


@dataclass(frozen=True, slots=True, eq=False)
class ResultRows:
    """Rows in their Arrow form, which brings its schema along."""

    query: str
    generation: int
    bucket: int
    rows: pa.RecordBatch


def _whose(headers: Headers) -> tuple[str, int, int]:
    return headers.text("query"), headers.natural("generation"), headers.natural("bucket")


def encode_result_row(row: ResultRow) -> WireRecord:
    return sized(WireRecord(None, row.row, result_headers(RecordKind.ROW, row.query, row.generation, row.bucket)))


def decode_result_row(headers: Headers, value: bytes) -> ResultRow:
    Fields(parse(value))  # refuses all but an object
    return ResultRow(*_whose(headers), value)


def encode_result_rows(rows: ResultRows) -> WireRecord:
    headers = result_headers(RecordKind.ROWS, rows.query, rows.generation, rows.bucket)
    return sized(WireRecord(None, write_rows(rows.rows), headers))


def decode_result_rows(headers: Headers, value: bytes) -> ResultRows:
    return ResultRows(*_whose(headers), read_rows(value, None))
