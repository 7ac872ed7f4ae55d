"""Laws of tables of groups: merging commutes, subtraction undoes it, bytes keep it, overflow is of the final sum."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from highlevel.groups.group_table import GroupTable
from highlevel.groups.layout import Layout
from highlevel.interface import Words
from lowmark.query.plan.nodes import Fold, FoldOp
from lowmark.wire.rows.schema import Column, Kind, Schema
from tests.operators.harness import Row, values
from tests.wire.strategies import STRINGS, VALUES, matrix

DISORDERED = [FoldOp.ADD, FoldOp.ADD_WIDE, FoldOp.MIN, FoldOp.MAX, FoldOp.BIT_AND, FoldOp.BIT_OR, FoldOp.FIRST]


@st.composite
def folds(draw: st.DrawFn, ops: list[FoldOp]) -> Fold:
    op, nullable = draw(st.sampled_from(ops)), draw(st.booleans())
    stem = f"f{draw(st.integers(0, 10**9))}"
    if op is FoldOp.ADD_WIDE:
        columns = (Column(f"{stem}high", Kind.INT, nullable), Column(f"{stem}low", Kind.INT, nullable))
    elif op in (FoldOp.FIRST, FoldOp.LAST):
        order = Column(f"{stem}order", draw(st.sampled_from([Kind.TIME, Kind.IP])))
        columns = (order, Column(f"{stem}value", draw(st.sampled_from(Kind)), nullable))
    elif op in (FoldOp.MIN, FoldOp.MAX):
        columns = (Column(stem, draw(st.sampled_from(Kind)), nullable),)
    else:
        columns = (Column(stem, Kind.INT, nullable),)
    return Fold(op, columns, ())


@st.composite
def tables(draw: st.DrawFn, ops: list[FoldOp] = DISORDERED, floats: bool = True) -> tuple[Layout, list[list[object]]]:
    """A layout, and rows of it with few keys."""
    keys = tuple(
        Column(f"k{i}", draw(st.sampled_from([Kind.IP, Kind.INT, Kind.STR])), draw(st.booleans()))
        for i in range(draw(st.integers(0, 2)))
    )
    drawn = draw(st.lists(folds(ops), max_size=3, unique_by=lambda fold: fold.columns[0].name))
    columns = tuple(column for fold in drawn for column in fold.columns)
    head = (Column("pane", Kind.INT), Column("tuples", Kind.INT))
    schema = Schema((*head, *keys, *columns), tuple(sorted(STRINGS)))
    rows = []
    for _ in range(draw(st.integers(0, 20))):
        row: list[object] = [draw(st.integers(-3, 3)), draw(st.integers(1, 5))]
        row += [draw(st.none() | st.integers(0, 1) if key.nullable else st.integers(0, 1)) for key in keys]
        for fold in drawn:
            null = fold.columns[-1].nullable and draw(st.booleans())
            for column in fold.columns:
                if null:
                    row.append(None if column.nullable else 0)  # the order of no value means nothing
                else:
                    row.append(draw(VALUES[column.kind]))
        rows.append(row)
    return Layout(schema, tuple(key.name for key in keys), tuple(drawn)), rows


def table_of(layout: Layout, rows: Words) -> GroupTable:
    table = GroupTable(layout)
    table.merge(rows)
    return table


def content(table: GroupTable) -> set[tuple[object, ...]]:
    """The groups that have tuples, whatever their order, as comparable values with their overflows."""
    shown = set()
    flags = [table.overflowed(fold) for fold in range(len(table.layout.folds))]
    for index, row in enumerate(values(table.layout.schema, table.groups)):
        if row["tuples"]:
            shown.add(
                (*(_comparable(row[name]) for name in table.layout.schema.names), *(bool(f[index]) for f in flags))
            )
    return shown


def _comparable(value: object) -> object:
    if isinstance(value, float):
        return "nan" if math.isnan(value) else (value, math.copysign(1, value))
    return value


@given(tables(), st.randoms())
def test_the_order_of_rows_and_of_merges_does_not_matter(
    drawn: tuple[Layout, list[list[object]]], chance: object
) -> None:
    layout, rows = drawn
    once = table_of(layout, matrix(layout.partials, rows))
    shuffled = rows.copy()
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    cut = len(rows) // 2
    first, second = (table_of(layout, matrix(layout.partials, part)) for part in (shuffled[:cut], shuffled[cut:]))
    second.merge_table(first)
    assert content(second) == content(once)


@given(st.integers(0, 500), st.lists(st.integers(1, 400), min_size=1, max_size=3))
def test_room_shows_nowhere(room: int, batches: list[int]) -> None:
    columns = (Column("pane", Kind.INT), Column("tuples", Kind.INT), Column("k", Kind.INT))
    layout = Layout(Schema(columns), ("k",), ())
    one, other = GroupTable(layout), GroupTable(layout, room)
    for count in batches:
        rows = matrix(layout.partials, [[0, 1, key] for key in range(count)])
        one.merge(rows)
        other.merge(rows)
    assert np.array_equal(one.groups, other.groups)
    assert one.encode() == other.encode()


@given(tables(), st.lists(st.integers(0, 20), max_size=6))
def test_many_tables_merge_as_one_after_the_other(drawn: tuple[Layout, list[list[object]]], cuts: list[int]) -> None:
    layout, rows = drawn
    words = matrix(layout.partials, rows)
    parts = [table_of(layout, part) for part in np.split(words, sorted(min(cut, len(words)) for cut in cuts))]
    one, other = GroupTable(layout), GroupTable(layout)
    for part in parts:
        one.merge_table(part)
    other.merge_tables(parts)
    assert np.array_equal(other.groups, one.groups)
    assert content(other) == content(one)


@given(tables(), st.integers(0, 20))
def test_bytes_keep_a_table(drawn: tuple[Layout, list[list[object]]], cut: int) -> None:
    layout, rows = drawn
    words = matrix(layout.partials, rows)
    table = GroupTable.decode(layout, table_of(layout, words[:cut]).encode())
    table.merge(words[cut:])
    whole = table_of(layout, words)
    assert np.array_equal(table.groups, whole.groups)
    assert content(table) == content(whole)


@given(tables([FoldOp.ADD, FoldOp.ADD_WIDE]), st.integers(0, 20))
def test_subtraction_takes_back_what_was_merged(drawn: tuple[Layout, list[list[object]]], cut: int) -> None:
    layout, rows = drawn
    # A sum of nothing is 0 after subtraction and null before: finishers do not tell them apart.
    rows = [
        [0 if value is None and i >= 2 + len(layout.keys) else value for i, value in enumerate(row)] for row in rows
    ]
    words = matrix(layout.partials, rows)
    table = table_of(layout, words)
    table.subtract_table(table_of(layout, words[:cut]))
    assert content(table) == content(table_of(layout, words[cut:]))
    assert table.tuples == sum(int(row[1]) for row in rows[cut:])  # type: ignore[call-overload]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=30), st.booleans())
def test_only_the_final_sum_overflows(numbers: list[int], wide: bool) -> None:
    if wide:
        columns = (Column("high", Kind.INT), Column("low", Kind.INT))
        cells, bits = [[n, n] for n in numbers], 128
        total = sum((n << 64) + n % 2**64 for n in numbers)
    else:
        columns, cells, bits, total = (Column("sum", Kind.INT),), [[n] for n in numbers], 64, sum(numbers)
    fold = Fold(FoldOp.ADD_WIDE if wide else FoldOp.ADD, columns, ())
    schema = Schema((Column("pane", Kind.INT), Column("tuples", Kind.INT), *columns))
    table = table_of(Layout(schema, (), (fold,)), matrix(schema, [[0, 1, *cell] for cell in cells]))
    words = [int(word) for word in table.groups[0, 2:]]
    assert sum(word << 64 * i for i, word in enumerate(reversed(words))) == total % 2**bits
    assert table.overflowed(0).tolist() == [not -(2 ** (bits - 1)) <= total < 2 ** (bits - 1)]


def test_many_groups_and_many_overflows_make_the_table_grow() -> None:
    schema = Schema(
        (Column("pane", Kind.INT), Column("tuples", Kind.INT), Column("k", Kind.INT), Column("s", Kind.INT))
    )
    layout = Layout(schema, ("k",), (Fold(FoldOp.ADD, (Column("s", Kind.INT),), ()),))
    count = 5000
    rows = np.zeros((4 * count, schema.words), np.uint64)
    rows[:, 2], rows[:, 4] = 1, np.uint64(2**62)
    rows[:, 3] = np.arange(4 * count) % count
    table = table_of(layout, rows)
    assert (len(table), table.tuples) == (count, 4 * count)
    assert table.overflowed(0).all()
    assert not table.groups[:, 3].any()  # 2^64
    table.subtract_table(table_of(layout, rows[: 3 * count]))
    assert not table.overflowed(0).any()
    assert (table.groups[:, 3] == 2**62).all()


@pytest.mark.parametrize(("op", "expected"), [(FoldOp.MIN, -math.inf), (FoldOp.MAX, math.nan)])
def test_nan_is_the_greatest_double(op: FoldOp, expected: float) -> None:
    schema = Schema((Column("pane", Kind.INT), Column("tuples", Kind.INT), Column("x", Kind.FLOAT)))
    layout = Layout(schema, (), (Fold(op, (Column("x", Kind.FLOAT),), ()),))
    for numbers in ([math.nan, -math.inf, 1.0], [1.0, -math.inf, -math.nan]):
        table = table_of(layout, matrix(schema, [[0, 1, number] for number in numbers]))
        (row,) = values(layout.schema, table.groups)
        assert row["x"] == expected or (math.isnan(expected) and math.isnan(float(row["x"] or 0)))


def test_zero_has_no_sign_in_a_key_and_nan_is_one_key() -> None:
    schema = Schema((Column("pane", Kind.INT), Column("tuples", Kind.INT), Column("k", Kind.FLOAT)))
    layout = Layout(schema, ("k",), ())
    cells: list[Row] = []
    table = table_of(layout, matrix(schema, [[0, 1, x] for x in (0.0, -0.0, math.nan, -math.nan, 1.0)]))
    cells = values(layout.schema, table.groups)
    assert [row["tuples"] for row in cells] == [2, 2, 1]


def test_what_cannot_be_subtracted_is_refused() -> None:
    sums = (Column("high", Kind.FLOAT), Column("low", Kind.FLOAT))
    schema = Schema((Column("pane", Kind.INT), Column("tuples", Kind.INT), *sums))
    layout = Layout(schema, (), (Fold(FoldOp.ADD_FLOAT, sums, ()),))
    with pytest.raises(TypeError, match="only sums of integers"):
        GroupTable(layout).subtract_table(GroupTable(layout))
