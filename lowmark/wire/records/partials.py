"""Batches of partials, or of selected tuples: the data that passes between stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lowmark.wire.records.json_fields import canonical, integer, parse
from lowmark.wire.records.record import (
    BadReason,
    Header,
    Headers,
    RecordKind,
    Refused,
    WireRecord,
    header,
    headers_of,
    sized,
)
from lowmark.wire.rows.arrow_stream import read_rows, write_rows
from lowmark.wire.rows.by_bucket import tuples_by_pane
from lowmark.wire.rows.compression import Compression
from lowmark.wire.rows.schema import Schema

__all__ = [
    "KEYS_WORD", "MAX_BATCH_BYTES", "PANE", "PANE_WORD", "TUPLES", "TUPLES_WORD", "Origin", "PartialBatch",
    "SchemaOf", "decode_batch", "decode_origin", "encode_batch", "origin_headers", "rows_of_a_batch", "split_batch",
    "tuples_per_pane",
]  # fmt: skip

PANE = "pane"
"""First column of every batch between stages: the index of the row's pane (selections: of its granule)."""

TUPLES = "tuples"
"""Second column: the number of tuples in the row (selections: 1)."""

PANE_WORD, TUPLES_WORD, KEYS_WORD = 1, 2, 3
"""Indexes of a row's words: its pane, its number of tuples, and the first of its other columns. Word 0: null mask."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The sender of a record: the sequence numbers of one origin have no gaps in each partition."""

    stage: str  # fingerprint of the stage whose output this is
    source: str  # a capture point, or "bucket-<n>" of an earlier stage
    epoch: int  # offset of the source's registration; for a bucket, the job's generation
    node: str  # the low-level node, or the output port of an operator


@dataclass(frozen=True, slots=True, eq=False)
class PartialBatch:
    """Rows, possibly of several panes. No promise covers `late` rows, and they never enter a closed window."""

    origin: Origin
    sequence: int
    rows: pa.RecordBatch
    tuples: Mapping[int, int]  # tuples in each pane of the batch
    late: bool = False


SchemaOf = Callable[[Origin], Schema | None]
"""The schema of the batches of an origin's stage and node; None if this process reads no such stage or node."""

MAX_BATCH_BYTES = 512 * 1024
"""Size limit of a batch's value before compression."""

_MAX_PANES = 8192
"""Most panes in one batch, so that the header has room for their counts beside MAX_BATCH_BYTES of rows."""

_OVERHEAD = 16 * 1024
"""Bytes reserved for a batch's schema and framing. Columns take no more bytes than their words."""

_PADDING = 64
"""An Arrow buffer in a stream is padded to at most this many bytes."""


def tuples_per_pane(rows: pa.RecordBatch) -> dict[int, int]:
    """The number of tuples in each pane, in order of panes, for the batch's header."""
    return tuples_by_pane(_integers(rows, PANE), _integers(rows, TUPLES))


def _integers(rows: pa.RecordBatch, name: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    column = rows.column(name)
    return np.frombuffer(column.buffers()[1], np.int64, len(column), 8 * column.offset)


def rows_of_a_batch(schema: Schema) -> int:
    """Rows that always fit into one record, whatever their content, so that batches are numbered before encoding."""
    return max(1, (MAX_BATCH_BYTES - _OVERHEAD) // (8 * schema.words))


def split_batch(rows: pa.RecordBatch, limit: int = MAX_BATCH_BYTES) -> tuple[pa.RecordBatch, ...]:
    """The rows in order, in slices that each fit into one record, whose value has at most `limit` bytes. Call it before
    records are numbered. No rows give no slices."""
    fixed = len(write_rows(rows.slice(0, 0))) + 2 * _PADDING * rows.num_columns
    bits_a_row = sum(1 + field.type.bit_width for field in rows.schema)
    step = (limit - fixed) * 8 // bits_a_row
    if step < 1:
        raise ValueError(f"a record of {limit} bytes has no room for a row of {rows.num_columns} columns")
    slices = []
    for start in range(0, rows.num_rows, step):
        slices += _split_panes(rows.slice(start, step))
    return tuple(slices)


def _split_panes(rows: pa.RecordBatch) -> list[pa.RecordBatch]:
    if rows.num_rows <= _MAX_PANES or len(np.unique(_integers(rows, PANE))) <= _MAX_PANES:
        return [rows]
    half = rows.num_rows // 2
    return _split_panes(rows.slice(0, half)) + _split_panes(rows.slice(half))


def origin_headers(kind: RecordKind, origin: Origin, sequence: int, *rest: Header) -> tuple[Header, ...]:
    return headers_of(
        kind,
        header("stage", origin.stage),
        header("source", origin.source),
        header("epoch", origin.epoch),
        header("node", origin.node),
        header("sequence", sequence),
        *rest,
    )


def decode_origin(headers: Headers) -> tuple[Origin, int]:
    """Origin and sequence number of a batch or punctuation."""
    origin = Origin(headers.text("stage"), headers.text("source"), headers.natural("epoch"), headers.text("node"))
    return origin, headers.natural("sequence")


def encode_batch(batch: PartialBatch, compression: Compression = Compression.LZ4) -> WireRecord:
    tuples = header("tuples", canonical([[pane, count] for pane, count in sorted(batch.tuples.items())]).decode())
    late = (header("late", 1),) if batch.late else ()
    headers = origin_headers(RecordKind.BATCH, batch.origin, batch.sequence, tuples, *late)
    return sized(WireRecord(None, write_rows(batch.rows, compression), headers))


def decode_batch(headers: Headers, value: bytes, schema_of_origin: SchemaOf) -> PartialBatch:
    origin, sequence = decode_origin(headers)
    schema = schema_of_origin(origin)
    if schema is None:
        raise Refused(BadReason.STAGE, f"nobody here reads node {origin.node} of stage {origin.stage}")
    rows, tuples = read_rows(value, schema, MAX_BATCH_BYTES), _decode_tuples(headers.text("tuples"))
    if sum(tuples.values()) != int(_integers(rows, TUPLES).sum()):
        raise Refused(BadReason.COUNT, "the header counts other tuples than the rows")
    late = headers.has("late")
    if late and headers.text("late") != "1":
        raise Refused(BadReason.HEADER, f"header lm-late is {headers.text('late')!r}, not '1'")
    return PartialBatch(origin, sequence, rows, tuples, late)


def _decode_tuples(text: str) -> dict[int, int]:
    tuples: dict[int, int] = {}
    pairs = parse(text.encode())
    for pair in pairs if isinstance(pairs, list) else [None]:
        if not isinstance(pair, list) or len(pair) != 2:
            raise Refused(BadReason.HEADER, "header lm-tuples is not an array of [pane, tuples]")
        tuples[integer(pair[0], "pane")] = integer(pair[1], "tuples", 0)
    return tuples
