"""Rows as bytes: one Arrow IPC stream with one record batch.

Each record repeats the schema (one to two kilobytes, which compress well), so that any Arrow reader can read a record
alone, and a record with another schema differs from a damaged one.
"""

from __future__ import annotations

import struct

import pyarrow as pa

from lowmark.wire.records.record import BadReason, Refused
from lowmark.wire.rows.compression import Compression
from lowmark.wire.rows.schema import Schema
from lowmark.wire.rows.words import BadRows, check_schema, check_values

__all__ = ["read_rows", "write_rows"]


def write_rows(rows: pa.RecordBatch, compression: Compression = Compression.NONE) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_OPTIONS[compression]) as stream:
        stream.write_batch(rows)
    return bytes(sink.getvalue().to_pybytes())


_OPTIONS = {
    kind: pa.ipc.IpcWriteOptions(compression=None if kind is Compression.NONE else kind.value, use_threads=False)
    for kind in Compression
}


def read_rows(value: bytes, schema: Schema | None, most_bytes: int) -> pa.RecordBatch:
    """The batch in these bytes; it borrows them if they are not compressed. Raises Refused unless it has the schema and
    values that kernels may trust. schema None: accepts any columns, for rows that no kernel reads. A batch that would
    unpack to more than `most_bytes` is refused before it is unpacked."""
    try:
        _check_size(value, most_bytes)
        with pa.ipc.open_stream(pa.py_buffer(value), options=pa.ipc.IpcReadOptions(use_threads=False)) as stream:
            if schema is not None:  # checked first: the batch's buffers mean nothing with another schema
                check_schema(schema, stream.schema)
            rows = stream.read_next_batch()
            if any(True for _ in stream):
                raise Refused(BadReason.VALUE, "more than one Arrow batch in a record")
        rows.validate(full=True)
        if schema is not None:
            check_values(schema, rows)
    except BadRows as error:
        raise Refused(BadReason.SCHEMA, str(error)) from None
    except (pa.ArrowException, OSError, ValueError, StopIteration, MemoryError, struct.error) as error:
        raise Refused(BadReason.VALUE, f"not an Arrow stream of one batch: {error}") from None
    return rows


def _check_size(value: bytes, most_bytes: int) -> None:
    """Raise Refused if a batch claims more rows, or more unpacked bytes, than fit into `most_bytes`."""
    messages = pa.ipc.MessageReader.open_stream(pa.py_buffer(value))
    if messages.read_next_message().type != "schema":
        raise ValueError("it does not begin with a schema")
    batch = messages.read_next_message()
    if batch.type != "record batch":
        raise ValueError(f"a {batch.type} stands where a record batch is due")
    rows, unpacked = _claims(batch.metadata.to_pybytes(), batch.body)
    if rows > 8 * most_bytes or unpacked > most_bytes:  # a row takes at least one bit
        raise Refused(BadReason.VALUE, f"a batch of {rows} rows unpacks to {unpacked} bytes, more than {most_bytes}")


def _claims(metadata: bytes, body: pa.Buffer) -> tuple[int, int]:
    """The rows of a record batch, and the bytes that its buffers claim to unpack to. `metadata` is the flatbuffer of
    Arrow's Message; each table in it points to a table of the positions of its fields."""

    def field(table: int, number: int) -> int:
        """The position of a field; 0 if it is absent."""
        places = table - _read("<i", metadata, table)
        place = _read("<H", metadata, places + 4 + 2 * number) if 4 + 2 * number < _read("<H", metadata, places) else 0
        return place and table + place

    def behind(place: int) -> int:
        """The position that a reference points to."""
        return place + _read("<I", metadata, place)

    batch = behind(field(behind(0), _HEADER))
    length, buffers = field(batch, _LENGTH), field(batch, _BUFFERS)
    rows = _read("<q", metadata, length) if length else 0
    if not buffers:
        return rows, 0
    listed = behind(buffers)
    spans = [
        struct.unpack_from("<qq", metadata, listed + 4 + 16 * place) for place in range(_read("<I", metadata, listed))
    ]
    if not field(batch, _COMPRESSION):
        return rows, sum(size for _, size in spans)
    # A compressed buffer begins with its unpacked length, or with -1 if its content is not compressed.
    content = memoryview(body)
    claimed = [(_read("<q", content, offset), size) for offset, size in spans if size]
    if any(claim < -1 for claim, _ in claimed):
        raise ValueError("a buffer claims to have less than no bytes")
    return rows, sum(size if claim == -1 else claim for claim, size in claimed)


_HEADER = 2  # of Message
_LENGTH, _BUFFERS, _COMPRESSION = 0, 2, 3  # of RecordBatch


def _read(form: str, data: bytes | memoryview, at: int) -> int:
    if at < 0:
        raise ValueError("its metadata refer to what is before them")
    (number,) = struct.unpack_from(form, data, at)
    return int(number)
