"""Writes the rows of `lowmark query`, and nothing else: as a table, JSON lines, CSV, Parquet or Arrow."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from io import TextIOWrapper
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, Protocol

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.text import Text

from lowmark.app.errors import EnvironmentNotReady, OutputError
from lowmark.app.local.formats import Format
from lowmark.app.watch.row_view import RowList, show_rows, window_of
from lowmark.wire.records.result_rows import shown
from lowmark.wire.rows.schema import Kind, Schema
from lowmark.wire.rows.text import RowWriter, csv_header, csv_writer, json_writer, text_column
from lowmark.wire.rows.words import Words

__all__ = ["RowSink", "open_output"]

_NUMBERS = (Kind.INT, Kind.FLOAT, Kind.DURATION)


class RowSink(Protocol):
    """Takes rows of one schema, in word form."""

    def write(self, rows: Words) -> None: ...
    def close(self) -> None: ...


def open_output(
    format_: Format, path: Path | None, schema: Schema, names: Mapping[str, str] = MappingProxyType({})
) -> RowSink:  # fmt: skip
    """`path` None: standard output. `names`: shown names of columns that have another one. OutputError if the file
    cannot be opened or the format does not suit a terminal; EnvironmentNotReady, also later, if it cannot be written.
    """
    with _writing(path):
        return _ToldSink(_open(format_, path, schema, schema.renamed(names)), path)


def _open(format_: Format, path: Path | None, schema: Schema, shown: Schema) -> RowSink:
    if format_ is Format.TABLE and path is None:
        return _TableSink(schema, shown.names, Console())
    if path is None and format_ in (Format.PARQUET, Format.ARROW) and sys.stdout.isatty():
        raise OutputError(f"{format_} cannot be shown on a terminal: name a file with -o, or choose --format jsonl")
    with ExitStack() as opened:
        file: BinaryIO = sys.stdout.buffer if path is None else opened.enter_context(_opened(path))
        close = opened.pop_all().close
    match format_:
        case Format.TABLE:
            console = Console(file=TextIOWrapper(file, "utf-8", write_through=True), width=240)
            return _TableSink(schema, shown.names, console, close)
        case Format.JSONL:
            return _TextSink(file, json_writer(shown), b"", close)
        case Format.CSV:
            return _TextSink(file, csv_writer(shown), csv_header(shown), close)
        case _:
            return _ColumnSink(file, shown, format_, close)


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("wb")
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from None


@contextmanager
def _writing(path: Path | None) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise  # the reader has gone, which is no error
    except OSError as error:
        raise EnvironmentNotReady(
            f"cannot write {path or 'standard output'}: {error.strerror}",
            "make room, or write to another place; what has been written is not the whole answer",
        ) from None


class _ToldSink:
    """Says in a sentence that the place of the rows takes no more."""

    def __init__(self, sink: RowSink, path: Path | None) -> None:
        self._sink = sink
        self._path = path

    def write(self, rows: Words) -> None:
        with _writing(self._path):
            self._sink.write(rows)

    def close(self) -> None:
        with _writing(self._path):
            self._sink.close()


class _TextSink:
    def __init__(self, file: BinaryIO, writer: RowWriter, header: bytes, close: Callable[[], None]) -> None:
        self._file = file
        self._writer = writer
        self._close = close
        file.write(header)

    def write(self, rows: Words) -> None:
        self._file.write(self._writer.write(rows).tobytes())
        self._file.flush()  # the reader of the pipe gets rows as they become final

    def close(self) -> None:
        self._file.flush()
        self._close()


class _TableSink:
    """Writes each window as its own table under its bounds; rows of no window, or of several, as one list."""

    def __init__(
        self, schema: Schema, heads: Sequence[str], console: Console, close: Callable[[], None] = lambda: None
    ) -> None:  # fmt: skip
        self._schema = schema
        self._heads = heads
        self._numbers = {head for column, head in zip(schema, heads, strict=True) if column.kind in _NUMBERS}
        self._console = console
        self._list = RowList(console, heads, self._numbers)
        self._close = close

    def write(self, rows: Words) -> None:
        names = self._schema.names
        columns = [text_column(self._schema, rows, name).to_pylist() for name in names]
        shown = [["null" if value is None else value for value in row] for row in zip(*columns, strict=True)]
        window = window_of(names, shown)
        if window is None:
            self._list.show(shown)
            return
        self._console.print(Text(window, "bold"))
        show_rows(self._console, self._heads[2:], [row[2:] for row in shown], self._numbers)

    def close(self) -> None:
        self._close()


class _ColumnSink:
    """Parquet or an Arrow stream."""

    def __init__(self, file: BinaryIO, schema: Schema, format_: Format, close: Callable[[], None]) -> None:
        self._schema = schema
        self._close = close
        arrow = shown(schema, np.zeros((0, schema.words), np.uint64)).schema
        if format_ is Format.ARROW:
            self._writer = pa.ipc.new_stream(file, arrow)
        else:
            import pyarrow.parquet as pq  # slow to load, and needed for this format only

            self._writer = pq.ParquetWriter(file, arrow)

    def write(self, rows: Words) -> None:
        self._writer.write_batch(shown(self._schema, rows))

    def close(self) -> None:
        self._writer.close()
        self._close()
