"""The two forms of rows: Arrow record batches between processes, matrices of words in kernels, tables and state.

A matrix is C-contiguous uint64 of shape [n, schema.words]; word 0 is the null mask. The Arrow schema's metadata holds
the schema, so that a batch describes itself. Conversion makes no Python object for a row, in either direction.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lowmark.wire.rows.schema import Column, Kind, Schema

__all__ = [
    "BadRows", "Words", "arrow_schema", "check_schema", "check_values", "column_of", "data_of", "schema_of",
    "to_batch", "to_words",
]  # fmt: skip

Words = npt.NDArray[np.uint64]

_METADATA = b"lowmark"

# Layout in Arrow of values of several words, one part for each word.
_PARTS: dict[Kind, npt.DTypeLike] = {
    Kind.IP: np.dtype([("version", "u1"), ("high", ">u8"), ("low", ">u8")]),
    Kind.COMMUNITY_ID: np.dtype([("high", ">u4"), ("middle", ">u8"), ("low", ">u8")]),
}
_TYPES: dict[Kind, pa.DataType] = {
    Kind.INT: pa.int64(),
    Kind.FLOAT: pa.float64(),
    Kind.BOOL: pa.bool_(),
    Kind.TIME: pa.timestamp("ns", "UTC"),
    Kind.DURATION: pa.duration("ns"),
    Kind.IP: pa.binary(17),  # the version, then the address in network order: an IPv4 address fills the last four bytes
    Kind.MAC: pa.int64(),
    Kind.COMMUNITY_ID: pa.binary(20),  # network order
    Kind.STR: pa.int64(),  # code: an index into the schema's strings
}


class BadRows(ValueError):
    """A batch has another schema than expected, or a value is outside its column's range."""


@lru_cache(maxsize=1024)
def arrow_schema(schema: Schema) -> pa.Schema:
    fields = [pa.field(column.name, _TYPES[column.kind], column.nullable) for column in schema]
    return pa.schema(fields, {_METADATA: schema.to_json().encode()})


def schema_of(arrow: pa.Schema) -> Schema:
    """The schema in an Arrow schema's metadata; BadRows if there is none, or if its columns differ from Arrow's."""
    text = (arrow.metadata or {}).get(_METADATA)
    if text is None:
        raise BadRows("the Arrow schema's metadata does not hold a lowmark schema")
    try:
        schema = Schema.from_json(text.decode())
    except ValueError as error:
        raise BadRows(f"the Arrow schema's metadata: {error}") from None
    if not arrow.equals(arrow_schema(schema), check_metadata=True):
        raise BadRows("the Arrow columns are not those of the lowmark schema in their metadata")
    return schema


def check_schema(schema: Schema, arrow: pa.Schema) -> None:
    """Raise BadRows unless batches of this Arrow schema have the columns, in order, and the strings of the schema."""
    if not arrow.equals(arrow_schema(schema), check_metadata=True):
        raise BadRows(_difference(schema, arrow))


def check_values(schema: Schema, batch: pa.RecordBatch) -> None:
    """Raise BadRows unless kernels may trust the values of the batch: no misplaced null, no code out of range."""
    for column, array in zip(schema, batch.columns, strict=True):
        if array.null_count and not column.nullable:
            raise BadRows(f"column {column.name} is not nullable and has {array.null_count} nulls")
        limit = {Kind.STR: len(schema.strings), Kind.MAC: 1 << 48}.get(column.kind)
        if limit is not None and len(array) > array.null_count:
            from pyarrow import compute  # imported late: it is slow to load, and local queries read no batches

            extremes = compute.min_max(array)
            if extremes["min"].as_py() < 0 or extremes["max"].as_py() >= limit:
                raise BadRows(f"column {column.name} ({column.kind.value}) has a value outside of 0…{limit - 1}")
        if column.kind is Kind.IP:
            _check_addresses(column.name, array)


def _check_addresses(name: str, array: pa.Array) -> None:
    parts = _parts_of(Kind.IP, array)
    four = parts["version"] == 4
    bad = np.where(four, (parts["high"] != 0) | (parts["low"] >> np.uint64(32) != 0), parts["version"] != 6)
    if array.null_count:
        bad &= _bits(array, 0)
    if bad.any():
        raise BadRows(f"column {name} (ip) has a value that is no address: 4 and 32 bits, or 6 and 128 bits")


def _difference(schema: Schema, arrow: pa.Schema) -> str:
    try:
        other = schema_of(arrow)
    except BadRows as error:
        return str(error)
    if other.columns == schema.columns:
        return "the batch has other strings than the stage"
    described = [", ".join(f"{c.name} {c.kind.value}{'?' if c.nullable else ''}" for c in s) for s in (other, schema)]
    return f"the batch has the columns ({described[0]}), the stage ({described[1]})"


def to_batch(schema: Schema, words: Words) -> pa.RecordBatch:
    """Convert a matrix to its Arrow form."""
    rows = len(words)
    mask = words[:, 0]
    nulls = int(np.bitwise_or.reduce(mask)) if rows else 0
    arrays, offset = [], 1
    for index, column in enumerate(schema):
        validity = None
        if nulls >> index & 1:
            validity = pa.py_buffer(np.packbits(mask & np.uint64(1 << index) == 0, bitorder="little"))
        data = pa.py_buffer(_arrow_data(column.kind, words, offset))
        arrays.append(pa.Array.from_buffers(_TYPES[column.kind], rows, [validity, data]))
        offset += column.kind.words
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(schema))


def _arrow_data(kind: Kind, words: Words, offset: int) -> npt.NDArray[np.generic]:
    if kind in _PARTS:
        parts = np.empty(len(words), _PARTS[kind])
        for word, part in enumerate(parts.dtype.names or (), offset):
            parts[part] = words[:, word]
        return parts
    if kind is Kind.BOOL:
        return np.packbits(words[:, offset] != 0, bitorder="little")
    return np.ascontiguousarray(words[:, offset])


def to_words(schema: Schema, batch: pa.RecordBatch) -> Words:
    """Convert a batch to a matrix; it must have this schema, and values that `check_values` accepts."""
    rows = batch.num_rows
    words = np.zeros((rows, schema.words), np.uint64)
    if not rows:
        return words
    offset = 1
    for index, (column, array) in enumerate(zip(schema, batch.columns, strict=True)):
        target = words[:, offset : offset + column.kind.words]
        _copy_data(column, array, target)
        if array.null_count:
            null = ~_bits(array, 0)
            target[null] = 0
            words[:, 0] |= null.astype(np.uint64) << np.uint64(index)
        offset += column.kind.words
    return words


def _copy_data(column: Column, array: pa.Array, target: Words) -> None:
    if column.kind in _PARTS:
        parts = _parts_of(column.kind, array)
        for word, part in enumerate(parts.dtype.names or ()):
            target[:, word] = parts[part]
    elif column.kind is Kind.BOOL:
        target[:, 0] = _bits(array, 1)
    else:
        target[:, 0] = np.frombuffer(array.buffers()[1], np.uint64, len(array), 8 * array.offset)


def _parts_of(kind: Kind, array: pa.Array) -> npt.NDArray[np.void]:
    form = np.dtype(_PARTS[kind])
    return np.frombuffer(array.buffers()[1], form, len(array), form.itemsize * array.offset)


def _bits(array: pa.Array, buffer: int) -> npt.NDArray[np.bool_]:
    """A bit buffer of the array. `buffer` 0: validity; 1: data of booleans."""
    first, last = array.offset // 8, (array.offset + len(array) + 7) // 8
    packed = np.frombuffer(array.buffers()[buffer], np.uint8, last - first, first)
    skip = array.offset - 8 * first
    return np.unpackbits(packed, bitorder="little")[skip : skip + len(array)].view(np.bool_)


def column_of(schema: Schema, words: Words, name: str) -> tuple[npt.NDArray[np.generic], npt.NDArray[np.bool_]]:
    """One column's values, and which of them are valid. The values are a view of the matrix, of dtype float64 (FLOAT),
    uint64 of shape [n, words] (IP and COMMUNITY_ID) or int64 (all others)."""
    return data_of(schema, words, name), words[:, 0] & np.uint64(1 << schema.index(name)) == 0


def data_of(schema: Schema, words: Words, name: str) -> npt.NDArray[np.generic]:
    """The values of `column_of` alone."""
    offset, kind = schema.offset(name), schema.column(name).kind
    if kind.words > 1:
        return words[:, offset : offset + kind.words]
    return words[:, offset].view(np.float64 if kind is Kind.FLOAT else np.int64)
