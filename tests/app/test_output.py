"""Rows as a person or a program asked for them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowmark.app.errors import OutputError
from lowmark.app.local.formats import Format
from lowmark.app.local.output import open_output
from lowmark.wire.rows.schema import Column, Kind, Schema
from tests.wire.strategies import V4, V6, matrix

SCHEMA = Schema(
    (
        Column("window_start", Kind.TIME),
        Column("srcIP", Kind.IP),
        Column("srcMAC", Kind.MAC),
        Column("link", Kind.STR),
        Column("gap", Kind.DURATION),
        Column("mean", Kind.FLOAT, nullable=True),
        Column("count", Kind.INT, nullable=True),
        Column("big", Kind.BOOL),
    ),
    ("Main1", 'a "b", c'),
)
ROWS: list[list[object]] = [
    [0, V4 + 0x0A00_0001, 0x0242_AC11_0002, 0, 1_500_000_000, 0.5, 7, 1],
    [60 * 10**9, V6 + 1, 0, 1, 0, None, None, 0],
]


def write(format_: Format, path: Path | None, *batches: Sequence[list[object]]) -> None:
    sink = open_output(format_, path, SCHEMA)
    for rows in batches:
        sink.write(matrix(SCHEMA, list(rows)))
    sink.close()


def test_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    write(Format.JSONL, path, ROWS[:1], ROWS[1:])
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {
            "window_start": "1970-01-01T00:00:00Z", "srcIP": "10.0.0.1", "srcMAC": "02:42:ac:11:00:02",
            "link": "Main1", "gap": 1.5, "mean": 0.5, "count": 7, "big": True,
        },
        {
            "window_start": "1970-01-01T00:01:00Z", "srcIP": "::1", "srcMAC": "00:00:00:00:00:00",
            "link": 'a "b", c', "gap": 0, "mean": None, "count": None, "big": False,
        },
    ]  # fmt: skip


def test_csv_has_its_header_once(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    write(Format.CSV, path, ROWS[:1], ROWS[1:])
    read = list(csv.reader(io.StringIO(path.read_text())))
    assert read[0] == list(SCHEMA.names)
    assert [line[3] for line in read[1:]] == ["Main1", 'a "b", c']
    assert read[2][5:7] == ["", ""]


@pytest.mark.parametrize("format_", [Format.PARQUET, Format.ARROW])
def test_columns_for_other_programs(format_: Format, tmp_path: Path) -> None:
    path = tmp_path / "rows"
    write(format_, path, ROWS[:1], ROWS[1:])
    table = pq.read_table(path) if format_ is Format.PARQUET else pa.ipc.open_stream(path.read_bytes()).read_all()
    assert table.column_names == list(SCHEMA.names)
    assert table["srcIP"].to_pylist() == ["10.0.0.1", "::1"]
    assert table["srcMAC"].to_pylist() == ["02:42:ac:11:00:02", "00:00:00:00:00:00"]
    assert table["link"].to_pylist() == ["Main1", 'a "b", c']
    assert pa.types.is_timestamp(table.schema.field("window_start").type)
    assert table["window_start"].cast(pa.int64()).to_pylist() == [0, 60 * 10**9]
    assert table["count"].to_pylist() == [7, None]
    assert table["big"].to_pylist() == [True, False]


@pytest.mark.parametrize("format_", [Format.JSONL, Format.CSV, Format.PARQUET, Format.ARROW])
def test_no_rows_are_a_whole_file(format_: Format, tmp_path: Path) -> None:
    path = tmp_path / "rows"
    write(format_, path)
    match format_:
        case Format.PARQUET:
            assert pq.read_table(path).num_rows == 0
        case Format.ARROW:
            assert pa.ipc.open_stream(path.read_bytes()).read_all().num_rows == 0
        case Format.CSV:
            assert path.read_text() == ",".join(SCHEMA.names) + "\n"
        case _:
            assert path.read_bytes() == b""


def test_a_table_shows_every_value(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    write(Format.TABLE, path, ROWS)
    text = path.read_text()
    for value in (*SCHEMA.names, "10.0.0.1", "::1", "02:42:ac:11:00:02", 'a "b", c', "1.5", "null", "true"):
        assert value in text


def test_rows_are_visible_before_the_end(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    sink = open_output(Format.JSONL, path, SCHEMA)
    sink.write(matrix(SCHEMA, ROWS))
    assert len(path.read_text().splitlines()) == 2
    sink.close()


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"cannot write .*absent.*: No such file or directory"):
        open_output(Format.JSONL, tmp_path / "absent" / "rows", SCHEMA)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20), st.integers(1, 5))
def test_how_rows_are_cut_into_batches_shows_nowhere(
    tmp_path_factory: pytest.TempPathFactory, values: list[int], size: int
) -> None:
    schema = Schema((Column("n", Kind.INT),))
    path = tmp_path_factory.mktemp("rows") / "rows"
    sink = open_output(Format.JSONL, path, schema)
    words = matrix(schema, [[value] for value in values])
    for start in range(0, len(words), size):
        sink.write(np.ascontiguousarray(words[start : start + size]))
    sink.close()
    assert [json.loads(line)["n"] for line in path.read_text().splitlines()] == values
