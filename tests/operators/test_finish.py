"""The end of a SELECT against a naive one, and how promises go through it; numbering of tuples."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from highlevel.operators.finish import FinishOperator
from highlevel.operators.row_windows.number import NumberOperator
from highlevel.state import MemoryState
from lowmark.query.expr.expressions import Call, Expr, Field, Literal, Named, Op
from lowmark.query.plan.nodes import Finish, Number, Order, Total
from lowmark.query.windows.window import Window, WindowKind
from lowmark.wire.records.punctuations import Bound, Promise
from lowmark.wire.records.verdicts import Reason
from lowmark.wire.rows.schema import Column, Kind, Schema
from lowmark.wire.rows.value_sets import ValueSet
from lowmark.wire.rows.values import FOREVER
from tests.operators.harness import Live, Row, Sink, Stored, axis, panes_ended, values
from tests.wire.strategies import V4, V6, matrix

INPUT = Schema(
    (
        Column("window_start", Kind.TIME),
        Column("window_end", Kind.TIME),
        Column("host", Kind.IP),
        Column("n", Kind.INT, nullable=True),
        Column("load", Kind.FLOAT),
    )
)
N, HOST, LOAD = Field("n", Kind.INT, True), Field("host", Kind.IP), Field("load", Kind.FLOAT)
TOTAL = Column("total_n", Kind.INT, nullable=True)
WINDOW = Window(WindowKind.SLIDING, 2, 1, axis(10))

drawn_rows = st.lists(
    st.tuples(
        st.integers(0, 2).map(lambda k: k * 10),
        st.sampled_from([V4 + 1, V4 + 2, V6 + 1, V6 + (1 << 90)]),
        st.none() | st.integers(-3, 3),
        st.sampled_from([0.5, -1.0, 2.0]),
    ),
    max_size=12,
)


def finish(
    *,
    columns: tuple[str, ...] = ("window_start", "window_end", "host", "n"),
    totals: tuple[Total, ...] = (),
    having: Expr | None = None,
    order: tuple[Order, ...] = (),
    limit: int | None = None,
    distinct: bool = False,
) -> Finish:
    totalled = Schema((*INPUT.columns, *(total.column for total in totals)))
    named = tuple(
        Named(name, Field(name, totalled.column(name).kind, totalled.column(name).nullable)) for name in columns
    )
    return Finish(INPUT, totals, having, order, limit, distinct, named, totalled.select(columns), (), WINDOW)


def run(plan: Finish, rows: list[Row]) -> tuple[list[Row], Sink]:
    sink = Sink()
    FinishOperator(plan).on_batch(0, matrix(INPUT, [list(row.values()) for row in rows]), MemoryState(), sink)
    return [row for rows in sink.matrices for row in values(plan.output, rows)], sink


def rows_of(drawn: list[tuple[int, int, int | None, float]]) -> list[Row]:
    return [dict(zip(INPUT.names, (start, start + 20, host, n, load), strict=True)) for start, host, n, load in drawn]


def by_windows(rows: list[Row], each: Callable[[list[Row]], list[Row]]) -> list[Row]:
    windows: dict[object, list[Row]] = {}
    for row in rows:
        windows.setdefault(row["window_start"], []).append(row)
    return [row for members in windows.values() for row in each(members)]


def shown(rows: list[Row], *columns: str) -> list[Row]:
    return [{name: row[name] for name in columns} for row in rows]


@given(drawn_rows, st.booleans(), st.integers(0, 4))
def test_top_n_is_within_each_window(
    drawn: list[tuple[int, int, int | None, float]], descending: bool, limit: int
) -> None:
    order = (Order(N, descending), Order(HOST, False))
    got, _ = run(finish(order=order, limit=limit), rows_of(drawn))

    def top(rows: list[Row]) -> list[Row]:
        rows = sorted(rows, key=lambda row: row["host"])
        rows.sort(key=lambda row: (row["n"] is not None, row["n"] or 0), reverse=descending)
        return rows[:limit]

    assert got == shown(by_windows(rows_of(drawn), top), "window_start", "window_end", "host", "n")


@given(drawn_rows)
def test_totals_are_of_all_groups_and_come_before_having(drawn: list[tuple[int, int, int | None, float]]) -> None:
    totals = (Total(TOTAL, N), Total(Column("total_load", Kind.FLOAT, nullable=True), LOAD))
    having = Call(Op.GT, (N, Literal(0, Kind.INT)), Kind.BOOL, True)
    columns = ("window_start", "host", "total_n", "total_load")
    got, _ = run(finish(columns=columns, totals=totals, having=having), rows_of(drawn))

    def totalled(rows: list[Row]) -> list[Row]:
        present = [row["n"] for row in rows if row["n"] is not None]
        sums: Row = {"total_n": sum(present) if present else None, "total_load": sum(row["load"] for row in rows)}
        return [row | sums for row in rows if row["n"] is not None and row["n"] > 0]

    key = str
    assert sorted(got, key=key) == sorted(shown(by_windows(rows_of(drawn), totalled), *columns), key=key)


@given(drawn_rows, st.none() | st.integers(0, 3))
def test_distinct_comes_before_limit(drawn: list[tuple[int, int, int | None, float]], limit: int | None) -> None:
    columns = ("window_start", "n")
    got, _ = run(finish(columns=columns, distinct=True, limit=limit, order=(Order(N, False),)), rows_of(drawn))

    def different(rows: list[Row]) -> list[Row]:
        rows.sort(key=lambda row: (row["n"] is not None, row["n"] or 0))
        seen = dict.fromkeys(tuple(row[name] for name in columns) for row in rows)
        return [dict(zip(columns, item, strict=True)) for item in list(seen)[:limit]]

    assert got == by_windows(rows_of(drawn), different)


def test_a_total_beyond_the_integers_is_null_and_told_for_its_window() -> None:
    drawn = [
        (0, V4, 2**63 - 1, 0.5),
        (0, V4 + 1, 1, 0.5),
        (10, V4, -(2**63), 0.5),
        (20, V4, -(2**63), 0.5),
        (20, V4, -1, 0.5),
    ]
    got, sink = run(finish(columns=("window_end", "total_n"), totals=(Total(TOTAL, N),)), rows_of(drawn))
    assert [(row["window_end"], row["total_n"]) for row in got] == [
        (20, None), (20, None), (30, -(2**63)), (40, None), (40, None),
    ]  # fmt: skip
    assert sink.flaws == [(1, Reason.OVERFLOW), (3, Reason.OVERFLOW)]
    assert [WINDOW.end(k) for k, _ in sink.flaws] == [20, 40]


def test_without_windows_the_named_columns_hold_rows_together() -> None:
    schema = Schema((Column("minute", Kind.INT), Column("n", Kind.INT)))
    named = (Named("minute", Field("minute", Kind.INT)), Named("n", Field("n", Kind.INT)))
    plan = Finish(schema, (), None, (Order(Field("n", Kind.INT), True),), 1, False, named, schema, ("minute",))
    sink = Sink()
    FinishOperator(plan).on_batch(0, matrix(schema, [[2, 5], [1, 3], [2, 7], [1, 4]]), MemoryState(), sink)
    assert values(schema, sink.matrices[0]) == [{"minute": 2, "n": 7}, {"minute": 1, "n": 4}]
    with pytest.raises(ValueError, match="which rows are a window's"):
        FinishOperator(Finish(schema, (), None, (), 1, False, named, schema))


def test_bounds_go_through_the_selected_expressions() -> None:
    schema = Schema((Column("ts", Kind.TIME), Column("ack", Kind.TIME), Column("n", Kind.INT)))
    ts = Field("ts", Kind.TIME)
    minute = Call(Op.FLOOR_DIV, (ts, Literal(60, Kind.INT)), Kind.INT, False)
    negative = Call(Op.NEG, (ts,), Kind.INT, False)
    named = (Named("at", ts), Named("minute", minute), Named("back", negative), Named("ack", Field("ack", Kind.TIME)))
    output = Schema(tuple(Column(item.name, item.expr.kind) for item in named))
    operator, sink = FinishOperator(Finish(schema, (), None, (), None, False, named, output)), Sink()
    joint = Promise((Bound("ts", 5), Bound("ack", values=ValueSet.of((7,)))))
    for promise in (Promise((Bound("ts", 150),)), joint, Promise((Bound("n", 3),)), Promise((), last=True)):
        operator.on_promise(0, promise, MemoryState(), sink)
    assert sink.promises == [
        Promise((Bound("at", 150),)),
        Promise((Bound("minute", 2),)),
        Promise((Bound("at", 5), Bound("ack", values=ValueSet.of((7,))))),
        Promise((), last=True),
    ]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 2)), max_size=20), st.data())
def test_numbers_are_places_in_the_order_of_arrival(drawn: list[tuple[int, int]], data: st.DataObject) -> None:
    schema = Schema(tuple(Column(name, Kind.INT) for name in ("pane", "tuples", "len", "ts", "_rank", "_position")))
    output = Schema(tuple(Column(name, Kind.INT) for name in ("pane", "tuples", "len", "row_num")))
    operator = NumberOperator(Number(schema, ("ts", "_rank", "_position"), output))
    rows = [[ts // 5, 1, index, ts, rank, index] for index, (ts, rank) in enumerate(drawn)]
    waiting, sink = data.draw(st.permutations(rows)), Sink()
    state = data.draw(st.sampled_from([Live, Stored]))()
    while waiting:
        cut = data.draw(st.integers(1, len(waiting)))
        operator.on_batch(0, matrix(schema, waiting[:cut]), state.state, sink)
        waiting = waiting[cut:]
        state.again()
        operator.on_promise(0, panes_ended(min((row[0] for row in waiting), default=7)), state.state, sink)
    operator.on_promise(0, panes_ended(FOREVER), state.state, sink)
    got = [row for rows in sink.matrices for row in values(output, rows)]
    ordered = sorted(rows, key=lambda row: row[3:])
    assert [(row["row_num"], row["len"]) for row in got] == [(i, row[2]) for i, row in enumerate(ordered, 1)]
    assert not sink.lates
