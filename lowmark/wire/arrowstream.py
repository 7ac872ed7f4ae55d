"""Rows as bytes: one Arrow IPC stream that holds one record batch.

The stream repeats the schema in each record (one to two kilobytes that compress well): a record explains itself to any
Arrow reader, and a wrong one is told from a broken one.
"""

from __future__ import annotations

import pyarrow as pa

from lowmark.wire.compression import Compression
from lowmark.wire.record import BadReason, Refused
from lowmark.wire.rows import BadRows, check_schema, check_values
from lowmark.wire.schema import Schema

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


def read_rows(value: bytes, schema: Schema | None) -> pa.RecordBatch:
    """The batch in these bytes, which it borrows where they are not compressed. Refused unless it has the schema and
    kernels may trust its values; None: rows of any columns, which no kernel reads."""
    try:
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
    except (pa.ArrowException, OSError, ValueError, StopIteration, MemoryError) as error:
        raise Refused(BadReason.VALUE, f"not an Arrow stream of one batch: {error}") from None
    return rows
