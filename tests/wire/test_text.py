from __future__ import annotations

import csv
import io
import json
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from ipaddress import IPv6Address
from math import isfinite
from socket import AF_INET, AF_INET6, inet_ntop

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lowmark.wire.rows import values
from lowmark.wire.rows.schema import Column, Kind, Schema
from lowmark.wire.rows.text import csv_header, csv_writer, json_writer, text_column
from tests.wire.strategies import ADDRESSES, INT64, STRINGS, V4, V6, matrix, tables


def naive(kind: Kind, value: object, strings: tuple[str, ...]) -> str | None:
    """A value's plain text, from the standard library; None for null."""
    if value is None or (kind is Kind.FLOAT and not isfinite(value)):
        return None
    match kind:
        case Kind.TIME:
            moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=value // 10**9)
            digits = f"{value % 10**9:09d}"
            while digits.endswith("000"):
                digits = digits[:-3]
            return moment.replace(tzinfo=None).isoformat() + (f".{digits}" if digits else "") + "Z"
        case Kind.DURATION:
            return format(Decimal(value) / 10**9, "f").rstrip("0").rstrip(".") if value % 10**9 else str(value // 10**9)
        case Kind.IP:
            packed = (value % 2**128).to_bytes(16, "big")
            if value < V6:
                return inet_ntop(AF_INET, packed[12:])
            # Of addresses whose first 96 bits are 0 the dotted form is deprecated, and the library's own.
            mapped = packed[:12] == bytes(10) + b"\xff\xff"
            return inet_ntop(AF_INET6, packed) if mapped else str(IPv6Address(packed))
        case Kind.COMMUNITY_ID:
            return "1:" + b64encode(value.to_bytes(20, "big")).decode()
        case Kind.MAC:
            return ":".join(f"{value:012x}"[i : i + 2] for i in range(0, 12, 2))
        case Kind.BOOL:
            return "true" if value else "false"
        case Kind.STR:
            return strings[value]
        case _:
            return str(value)


def same(kind: Kind, text: str | None, expected: str | None) -> bool:
    """Equal; of floats the same bits, in a form that reads as a float."""
    if kind is Kind.FLOAT and text and expected:
        same_bits = np.float64(text).tobytes() == np.float64(expected).tobytes()
        return same_bits and ("." in text or "e" in text) and len(text) <= len(expected) + 6
    return text == expected


@given(tables())
def test_json_lines(table: tuple[Schema, list[list[object]]]) -> None:
    schema, rows = table
    lines = json_writer(schema).write(matrix(schema, rows))
    assert len(lines) == len(rows)
    for line, row in zip(lines, rows, strict=True):
        assert line.endswith(b"}\n")
        pairs = json.loads(line, object_pairs_hook=list, parse_int=str, parse_float=str)
        assert [name for name, _ in pairs] == list(schema.names)
        for column, (_, shown), value in zip(schema, pairs, row, strict=True):
            if isinstance(shown, bool):
                assert column.kind is Kind.BOOL
                shown = json.dumps(shown)
            assert same(column.kind, shown, naive(column.kind, value, schema.strings)), (column, shown, value)


@given(tables())
def test_csv(table: tuple[Schema, list[list[object]]]) -> None:
    schema, rows = table
    text = csv_header(schema) + csv_writer(schema).write(matrix(schema, rows)).tobytes()
    parsed = list(csv.reader(io.StringIO(text.decode(), newline=""), strict=True))
    assert parsed[0] == list(schema.names)
    assert len(parsed) == 1 + len(rows)
    for shown, row in zip(parsed[1:], rows, strict=True):
        fields = shown or [""]  # a line of a single null
        for column, field, value in zip(schema, fields, row, strict=True):
            expected = naive(column.kind, value, schema.strings)
            assert same(column.kind, field, "" if expected is None else expected)


@given(tables())
def test_a_column_alone(table: tuple[Schema, list[list[object]]]) -> None:
    schema, rows = table
    for index, column in enumerate(schema):
        shown = text_column(schema, matrix(schema, rows), column.name)
        shown.validate(full=True)
        for text, row in zip(shown.to_pylist(), rows, strict=True):
            assert same(column.kind, text, naive(column.kind, row[index], schema.strings))


def test_bytes_of_a_row() -> None:
    """Key order, spaces and escapes are part of the contract."""
    schema = Schema(
        (Column("window_start", Kind.TIME), Column("srcIP", Kind.IP), Column("é", Kind.STR), Column("avg", Kind.FLOAT),
         Column("n", Kind.INT, nullable=True)),
        tuple(sorted(STRINGS)),
    )  # fmt: skip
    quoted = schema.strings.index('a "quoted", one')
    words = matrix(schema, [[0, V4 | 0x0A000001, quoted, 2.0, None], [1000, V6 | 1, 0, float("nan"), -5]])
    assert json_writer(schema).write(words).tobytes().decode() == (
        '{"window_start":"1970-01-01T00:00:00Z","srcIP":"10.0.0.1","é":"a \\"quoted\\", one","avg":2.0,"n":null}\n'
        '{"window_start":"1970-01-01T00:00:00.000001Z","srcIP":"::1","é":"","avg":null,"n":-5}\n'
    )
    assert (csv_header(schema) + csv_writer(schema).write(words).tobytes()).decode() == (
        "window_start,srcIP,é,avg,n\n"
        '1970-01-01T00:00:00Z,10.0.0.1,"a ""quoted"", one",2.0,\n'
        '1970-01-01T00:00:00.000001Z,::1,"",,-5\n'
    )


def test_messages_have_no_line_end_and_reach_arrow_without_a_copy() -> None:
    schema = Schema((Column("n", Kind.INT),))
    lines = json_writer(schema, end=b"").write(matrix(schema, [[1], [22]]))
    assert list(lines) == [b'{"n":1}', b'{"n":22}']
    assert lines.arrow().to_pylist() == [b'{"n":1}', b'{"n":22}']
    assert lines.arrow().type == pa.large_binary()


def test_what_would_be_read_outside_of_its_bounds_is_refused() -> None:
    schema = Schema((Column("s", Kind.STR),), ("a",))
    with pytest.raises(ValueError, match="column s holds a code"):
        json_writer(schema).write(np.array([[0, 1]], np.uint64))
    with pytest.raises(ValueError, match="rows of this schema have 2 words"):
        json_writer(schema).write(np.array([[0]], np.uint64))


@given(INT64)
@example(-(2**63))
@example(2**63 - 1)
def test_single_times_and_durations(ns: int) -> None:
    assert values.time(ns) == naive(Kind.TIME, ns, ())
    assert values.parse_time(values.time(ns)) == ns
    assert values.seconds(ns) == naive(Kind.DURATION, ns, ())


@given(ADDRESSES, st.integers(0, 2**48 - 1), st.integers(0, 2**160 - 1))
def test_single_addresses(ip: int, mac: int, community_id: int) -> None:
    assert values.community_id(community_id) == naive(Kind.COMMUNITY_ID, community_id, ())
    assert values.address(ip) == naive(Kind.IP, ip, ())
    assert values.mac(mac) == naive(Kind.MAC, mac, ())


@pytest.mark.parametrize(
    "text",
    ["", "2025-11-18", "2025-11-18T12:00:00", "2025-11-18T12:00:00+00:00", "2025-11-18T12:00:00.1Z",
     "2025-13-18T12:00:00Z", "2025-02-30T12:00:00Z", "2263-01-01T00:00:00Z", "1600-01-01T00:00:00Z",
     "２025-11-18T12:00:00Z", "0000-01-01T00:00:00Z"],
)  # fmt: skip
def test_other_texts_are_no_times(text: str) -> None:
    with pytest.raises(ValueError):
        values.parse_time(text)
