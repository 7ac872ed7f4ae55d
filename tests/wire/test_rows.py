from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowmark.wire.rows.schema import Column, Kind, Schema
from lowmark.wire.rows.words import (
    BadRows,
    arrow_schema,
    check_schema,
    check_values,
    column_of,
    schema_of,
    to_batch,
    to_words,
)
from tests.wire.strategies import V4, V6, matrix, schemas, tables


@given(tables(max_size=40), st.data())
def test_both_directions_agree_also_on_slices(table: tuple[Schema, list[list[object]]], data: st.DataObject) -> None:
    schema, rows = table
    words = matrix(schema, rows)
    batch = to_batch(schema, words)
    batch.validate(full=True)
    check_values(schema, batch)
    assert (to_words(schema, batch) == words).all()
    start = data.draw(st.integers(0, len(rows)))
    length = data.draw(st.integers(0, len(rows) - start))
    assert (to_words(schema, batch.slice(start, length)) == words[start : start + length]).all()


@given(tables())
def test_arrow_holds_the_values_that_a_reader_expects(table: tuple[Schema, list[list[object]]]) -> None:
    schema, rows = table
    batch = to_batch(schema, matrix(schema, rows))
    for index, column in enumerate(schema):
        expected = [row[index] for row in rows]
        array = batch.column(index)
        if column.kind in (Kind.IP, Kind.COMMUNITY_ID):
            size = 17 if column.kind is Kind.IP else 20
            assert array.to_pylist() == [None if v is None else v.to_bytes(size, "big") for v in expected]
        elif column.kind in (Kind.TIME, Kind.DURATION):
            assert array.cast(pa.int64()).to_pylist() == expected
        elif column.kind is Kind.FLOAT:
            np.testing.assert_equal(array.to_pylist(), expected)
        else:
            assert array.to_pylist() == expected


@given(tables())
def test_a_column_can_be_looked_at_alone(table: tuple[Schema, list[list[object]]]) -> None:
    schema, rows = table
    words = matrix(schema, rows)
    for index, column in enumerate(schema):
        data, valid = column_of(schema, words, column.name)
        assert not len(rows) or np.shares_memory(data, words)
        assert valid.tolist() == [row[index] is not None for row in rows]
        for row, value in enumerate(rows):
            if value[index] is not None and column.kind.words > 1:
                assert sum(int(word) << 64 * place for place, word in enumerate(data[row][::-1])) == value[index]
            elif value[index] is not None:
                np.testing.assert_equal(data[row], value[index])


@given(schemas())
def test_a_schema_survives_its_text_and_its_arrow_form(schema: Schema) -> None:
    assert Schema.from_json(schema.to_json()) == schema
    assert schema_of(arrow_schema(schema)) == schema


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "null", '{"columns":[["a","int",0]]}', '{"columns":[["a","word",0]],"strings":[]}',
     '{"columns":[["a","int",0],["a","int",0]],"strings":[]}', '{"columns":[],"strings":["b","a"]}',
     '{"columns": [], "strings": []}', '{"columns":[["a","int",2]],"strings":[]}', '{"columns":[],"strings":[1]}',
     '{"columns":[[1,"int",0]],"strings":[]}',
     '{"columns":[],"strings":["\\ud800"]}', "[" * 100_000],
)  # fmt: skip
def test_other_texts_are_no_schemas(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a schema"):
        Schema.from_json(text)


PLAIN = Schema((Column("a", Kind.INT), Column("s", Kind.STR), Column("m", Kind.MAC)), ("x", "y"))


def test_a_difference_is_said_in_words() -> None:
    other = Schema((Column("a", Kind.INT, nullable=True), *PLAIN.columns[1:]), PLAIN.strings)
    with pytest.raises(BadRows) as said:
        check_schema(PLAIN, arrow_schema(other))
    assert str(said.value) == "the batch has the columns (a int?, s str, m mac), the stage (a int, s str, m mac)"
    with pytest.raises(BadRows, match="other strings"):
        check_schema(PLAIN, arrow_schema(Schema(PLAIN.columns, ("x", "z"))))
    with pytest.raises(BadRows, match="does not hold a lowmark schema"):
        check_schema(PLAIN, pa.schema([("a", pa.int64())]))
    with pytest.raises(BadRows, match="not those of the lowmark schema"):
        check_schema(PLAIN, pa.schema([("a", pa.int64())], arrow_schema(PLAIN).metadata))


@pytest.mark.parametrize(
    ("row", "said"),
    [([1, 2, 0], "s .str. has a value outside of 0…1"), ([1, -1, 0], "column s"), ([1, 0, 2**48], "column m"),
     ([None, 0, 0], "a is not nullable and has 1 nulls")],
)  # fmt: skip
def test_values_that_kernels_must_not_see_are_refused(row: list[int | None], said: str) -> None:
    columns = [pa.array([value], pa.int64()) for value in row]
    batch = pa.RecordBatch.from_arrays(columns, schema=arrow_schema(PLAIN))
    with pytest.raises(BadRows, match=said):
        check_values(PLAIN, batch)


ADDRESSES = Schema((Column("a", Kind.IP), Column("b", Kind.IP, nullable=True)))


def test_an_address_in_arrow_is_its_version_and_its_128_bits() -> None:
    batch = to_batch(ADDRESSES, matrix(ADDRESSES, [[V4 | 0x0A000001, V6 | 0xFFFF << 32 | 0x0A000001], [V6 | 1, None]]))
    assert batch["a"].to_pylist() == [b"\4" + bytes(12) + b"\x0a\0\0\1", b"\6" + bytes(15) + b"\1"]
    assert batch["b"].to_pylist() == [b"\6" + bytes(10) + b"\xff\xff\x0a\0\0\1", None]


@pytest.mark.parametrize(
    "first", [b"\0", b"\5", b"\4\x80", b"\4" + bytes(11) + b"\1"], ids=["none", "5", "high", "low"]
)
def test_an_address_of_no_version_or_beyond_it_is_refused(first: bytes) -> None:
    bad, good = first.ljust(17, b"\0"), b"\6".ljust(17, b"\xff")
    columns = [pa.array([good, value], pa.binary(17)) for value in (bad, None)]
    batch = pa.RecordBatch.from_arrays(columns, schema=arrow_schema(ADDRESSES))
    with pytest.raises(BadRows, match=r"column a \(ip\) has a value that is no address"):
        check_values(ADDRESSES, batch)
    check_values(ADDRESSES, batch.slice(0, 1))
