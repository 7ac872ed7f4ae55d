"""Rows as bytes: one Arrow IPC stream that holds one record batch.

The stream repeats the schema in each record (one to two kilobytes that compress well): a record explains itself to any
Arrow reader, and a wrong one is told from a broken one.
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
    """The batch in these bytes, which it borrows where they are not compressed. Refused unless it has the schema and
    kernels may trust its values; None: rows of any columns, which no kernel reads. Refused before anything is unpacked
    where that would be more than `most_bytes`."""
    try:
        _check_size(value, most_bytes)
        with pa.ipc.open_stream(pa.py_buffer(value), options=pa.ipc.IpcReadOptions(use_threads=False)) as stream:
            if schema is not None:  # before a batch is read: its buffers mean nothing under another one
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
    """Refused where a batch claims more than `most_bytes`, by rows or by what its buffers unpack to."""
    messages = pa.ipc.MessageReader.open_stream(pa.py_buffer(value))
    if messages.read_next_message().type != "schema":
        raise ValueError("it does not begin with a schema")
    batch = messages.read_next_message()
    if batch.type != "record batch":
        raise ValueError(f"a {batch.type} stands where a record batch is due")
    rows, unpacked = _claims(batch.metadata.to_pybytes(), batch.body)
    if rows > 8 * most_bytes or unpacked > most_bytes:  # of a row there is a bit at least
        raise Refused(BadReason.VALUE, f"a batch of {rows} rows unpacks to {unpacked} bytes, more than {most_bytes}")


def _claims(metadata: bytes, body: pa.Buffer) -> tuple[int, int]:
    """Rows of a record batch, and bytes that its buffers claim to have when they are unpacked. `metadata` is the
    flatbuffer of Arrow's Message: a table has a table of its fields' places in front of it."""

    def field(table: int, number: int) -> int:
        """Where it stands; 0 where it is left out."""
        places = table - _read("<i", metadata, table)
        place = _read("<H", metadata, places + 4 + 2 * number) if 4 + 2 * number < _read("<H", metadata, places) else 0
        return place and table + place

    def behind(place: int) -> int:
        """What is referred to from there."""
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
    # A buffer that is compressed begins with its length, or with -1 where it is not worth it.
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
