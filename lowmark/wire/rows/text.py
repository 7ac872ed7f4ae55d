"""Result rows as text: JSON lines and CSV, without a Python object for each row.

Columns keep their order. A TIME is RFC 3339 in UTC with 0, 3, 6 or 9 digits of fraction; a DURATION an exact number of
seconds; an IP, MAC or Community ID its usual text; a FLOAT the shortest decimal that reads back as the same double (NaN
and the infinities are null); null is null, in CSV an empty field. `values` has the same forms for single values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lowmark.jit.byte_copy import SLACK
from lowmark.wire.rows import text_kernel as kernel
from lowmark.wire.rows.schema import Kind, Schema
from lowmark.wire.rows.words import Words, column_of

__all__ = ["Lines", "RowWriter", "csv_header", "csv_writer", "json_writer", "text_column"]

_OPS = {
    Kind.INT: kernel.OP_INT,
    Kind.FLOAT: kernel.OP_FLOAT,
    Kind.BOOL: kernel.OP_BOOL,
    Kind.TIME: kernel.OP_TIME,
    Kind.DURATION: kernel.OP_DURATION,
    Kind.IP: kernel.OP_IP,
    Kind.MAC: kernel.OP_MAC,
    Kind.COMMUNITY_ID: kernel.OP_COMMUNITY_ID,
    Kind.STR: kernel.OP_STR,
}

# Bytes of the longest text of a value, with quotes; strings and floats are measured instead.
_WIDEST = {
    Kind.INT: 20, Kind.FLOAT: 2, Kind.BOOL: 5, Kind.TIME: 32, Kind.DURATION: 21, Kind.IP: 41, Kind.MAC: 19,
    Kind.COMMUNITY_ID: 32,
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Lines:
    """Rows of text in one buffer: row i is data[starts[i]:starts[i + 1]], with its line end if it has one."""

    data: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __iter__(self) -> Iterator[bytes]:
        view, starts = self.data.data, self.starts.tolist()
        return (bytes(view[start:end]) for start, end in pairwise(starts))

    def tobytes(self) -> bytes:
        return self.data.tobytes()

    def arrow(self) -> pa.Array:
        """The rows as an Arrow array of large_binary, without a copy."""
        buffers = [None, pa.py_buffer(self.starts), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(pa.large_binary(), len(self), buffers)


class RowWriter:
    """Writes rows of one schema as text; `json_writer` and `csv_writer` make them. Holds no rows between calls."""

    def __init__(
        self, schema: Schema, prefixes: tuple[bytes, ...], null: bytes, end: bytes, quoted: bool,
        strings: tuple[bytes, ...],
    ) -> None:  # fmt: skip
        self.schema = schema
        self._ops = np.array([_OPS[column.kind] for column in schema], np.int64)
        self._offsets = np.array([schema.offset(name) for name in schema.names], np.int64)
        self._prefixes, self._prefix_starts = _joined(prefixes)
        self._strings, self._string_starts = _joined(strings)
        self._null = _padded(null)
        self._end = _padded(end)
        self._quoted = quoted
        string_width = max((len(string) for string in strings), default=0)
        widths = (max(len(null), string_width, _WIDEST.get(column.kind, 0)) for column in schema)
        self._row_width = len(self._prefixes) + len(end) + sum(widths)

    def write(self, words: Words) -> Lines:
        """The rows of a matrix of the schema as text. ValueError for a string code that the schema does not have."""
        if words.ndim != 2 or words.shape[1] != self.schema.words:
            raise ValueError(f"a matrix of shape {words.shape}: rows of this schema have {self.schema.words} words")
        rows = len(words)
        self._check_codes(words)
        floats, float_starts = self._float_texts(words)
        # Room for the widest rows, so that one pass is enough: pages that are not written take no memory.
        out = np.empty(rows * self._row_width + len(floats) + SLACK, np.uint8)
        starts = np.empty(rows + 1, np.int64)
        columns = len(self._ops)
        size = kernel.write_rows(
            words, self._ops, self._offsets, self._prefixes, self._prefix_starts, self._null, self._end, self._quoted,
            self._strings, self._string_starts, floats, float_starts,
            np.zeros(columns, np.uint64), np.zeros(columns, np.int64), np.zeros(columns, np.int64), out, starts,
        )  # fmt: skip
        return Lines(out[:size], starts)

    def _check_codes(self, words: Words) -> None:
        limit = max(1, len(self.schema.strings))  # at least 1, because null has code 0
        for column in self.schema:
            if column.kind is Kind.STR and (words[:, self.schema.offset(column.name)] >= limit).any():
                raise ValueError(f"column {column.name} holds a code outside of the schema's {limit} strings")

    def _float_texts(self, words: Words) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        texts, starts, size = [], [np.zeros(1, np.int64)], 0
        for column in self.schema:
            if column.kind is Kind.FLOAT:
                data, valid = column_of(self.schema, words, column.name)
                missing = ~(valid & np.isfinite(data))
                array = pa.array(np.where(missing, 0.0, data), mask=missing).cast(pa.large_string())
                ends = np.frombuffer(array.buffers()[1], np.int64, len(words) + 1)
                starts.append(ends[1:] + size)
                texts.append(np.frombuffer(array.buffers()[2] or b"", np.uint8, ends[-1]))
                size += int(ends[-1])
        return np.concatenate([*texts, _padded(b"")]), np.concatenate(starts)


def _padded(content: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(content.ljust(len(content) + SLACK), np.uint8)


def _joined(pieces: tuple[bytes, ...]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    starts = np.cumsum([0, *(len(piece) for piece in pieces)], dtype=np.int64)
    return _padded(b"".join(pieces)), starts


def _json_text(text: str) -> bytes:
    return json.dumps(text, ensure_ascii=False).encode()


def _csv_text(text: str) -> bytes:
    """RFC 4180; an empty string is quoted, to distinguish it from null."""
    if text and not any(character in text for character in ',"\r\n'):
        return text.encode()
    return b'"' + text.replace('"', '""').encode() + b'"'


def json_writer(schema: Schema, end: bytes = b"\n") -> RowWriter:
    """Writes one JSON object for each row; with end = b"" for messages of Kafka."""
    names = [_json_text(name) for name in schema.names]
    prefixes = tuple(b"%c%b:" % (b"{" if i == 0 else b",", name) for i, name in enumerate(names))
    return RowWriter(schema, prefixes, b"null", b"}" + end, True, tuple(_json_text(s) for s in schema.strings))


def csv_writer(schema: Schema) -> RowWriter:
    """Writes the rows of a CSV file; `csv_header` is its first line."""
    prefixes = tuple(b"" if i == 0 else b"," for i in range(len(schema)))
    return RowWriter(schema, prefixes, b"", b"\n", False, tuple(_csv_text(s) for s in schema.strings))


def csv_header(schema: Schema) -> bytes:
    return b",".join(_csv_text(name) for name in schema.names) + b"\n"


def text_column(schema: Schema, words: Words, name: str) -> pa.Array:
    """One column's values as an Arrow array of large_string, as tables and files for people show them."""
    column = schema.column(name)
    offset, index = schema.offset(name), schema.index(name)
    narrow = np.empty((len(words), 1 + column.kind.words), np.uint64)
    narrow[:, 0] = words[:, 0] >> np.uint64(index) & np.uint64(1)
    narrow[:, 1:] = words[:, offset : offset + column.kind.words]
    plain = tuple(string.encode() for string in schema.strings)
    lines = RowWriter(Schema((column,), schema.strings), (b"",), b"", b"", False, plain).write(narrow)
    null = narrow[:, 0] != 0
    if column.kind is Kind.FLOAT:
        null |= ~np.isfinite(narrow[:, 1].view(np.float64))
    validity = pa.py_buffer(np.packbits(~null, bitorder="little"))
    buffers = [validity, pa.py_buffer(lines.starts), pa.py_buffer(lines.data)]
    return pa.Array.from_buffers(pa.large_string(), len(words), buffers)
