"""The aggregate operator against the definitions: any order, any cuts, any promises, state as bytes at any time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from highlevel.groups.group_table import GroupTable
from highlevel.groups.layout import Layout
from highlevel.interface import Words
from highlevel.operators.aggregate import AggregateOperator
from highlevel.strategies.adaptwid_switching import COSTS, HoldingCosts
from lowmark.query.plan.nodes import Aggregate
from lowmark.query.windows.window import Window, WindowKind
from lowmark.wire.records.verdicts import Reason
from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.values import FOREVER
from tests.operators.harness import (
    TUPLE,
    AskedCall,
    Live,
    Plans,
    Row,
    Sink,
    Stored,
    Value,
    axis,
    panes_ended,
    plans,
    reduced,
    values,
)
from tests.operators.naive import expected, windows_of
from tests.wire.strategies import V4, V6, VALUES, matrix

CALLS = (
    AskedCall("count"),
    AskedCall("count", ("port",)),
    AskedCall("sum", ("len",)),
    AskedCall("sum", ("gap",)),
    AskedCall("sum", ("load",)),
    AskedCall("sum", ("ratio",)),
    AskedCall("avg", ("len",)),
    AskedCall("avg", ("gap",)),
    AskedCall("avg", ("load",)),
    AskedCall("variance", ("len",)),
    AskedCall("variance", ("gap",)),
    AskedCall("variance", ("ratio",)),
    AskedCall("stddev", ("len",)),
    AskedCall("min", ("host",)),
    AskedCall("max", ("host",)),
    AskedCall("min", ("load",)),
    AskedCall("max", ("port",)),
    AskedCall("max", ("link",)),
    AskedCall("bit_or", ("port",)),
    AskedCall("bit_and", ("len",)),
    AskedCall("first", ("len",)),
    AskedCall("last", ("port",)),
    AskedCall("first", ("host",)),
    AskedCall("last", ("load",)),
    AskedCall("count", ("port",), distinct=True),
    AskedCall("count", ("host", "port"), distinct=True),
    AskedCall("median", ("len",)),
    AskedCall("median", ("gap",)),
    AskedCall("quantile", ("len",), parameters=("0.9",)),
    AskedCall("quantile", ("load",), parameters=("0.25",)),
    AskedCall("heavy_hitter", ("host",), parameters=("2",)),
    AskedCall("heavy_hitter_count", ("port",), parameters=("1",)),
    AskedCall("approx_count_distinct", ("host", "port")),
    AskedCall("approx_count_distinct", ("load",)),
    AskedCall("approx_quantile", ("len",), parameters=("0.9",)),
    AskedCall("approx_quantile", ("load",), parameters=("0.25",)),
)
SUMS = tuple(call for call in CALLS if call.function in ("count", "sum", "avg") and "load" not in call.columns)

small = st.integers(1, 6)
windows = (
    st.builds(lambda r, s, u: Window(WindowKind.SLIDING, r, s, axis(u)), st.integers(3, 12), small, small)
    | st.builds(lambda r, gap, u: Window(WindowKind.SLIDING, r, r + gap, axis(u)), small, st.integers(0, 4), small)
    | st.builds(lambda s, u: Window(WindowKind.LANDMARK, 0, s, axis(u)), small, small)
    | st.builds(lambda u: Window(WindowKind.NONE, 1, 1, axis(u)), small)
)
eighths = st.integers(-80, 80).map(lambda n: n / 8)
lengths = st.integers(0, 100) | st.sampled_from([2**63 - 1, -(2**63), 2**40, -(2**33) - 1]) | VALUES[Kind.INT]
tuples = st.tuples(
    st.integers(-30, 60) | st.sampled_from([10**12, -(10**12)]),
    st.sampled_from([V6 + 1, V4 + 1, V4 + 2, V6 + (0xFFFF << 32) + 1]),
    st.none() | st.integers(0, 2),
    eighths,
    lengths,
    st.none() | st.integers(-3, 3).map(lambda n: n * 10**8),
    st.none() | eighths,
    st.integers(0, 1),
)


def rows_of(drawn: Sequence[tuple[Value, ...]]) -> list[Row]:
    """Tuples with their position in the order of arrival."""
    return [dict(zip(TUPLE.names, (ts, position, *rest), strict=True)) for position, (ts, *rest) in enumerate(drawn)]


def merged_by_chance(layout: Layout, rows: Words, draw: st.DrawFn) -> Words:
    """The same partials, some of them merged as a table below would have done."""
    panes = rows[:, 1].view(np.int64)
    parts = []
    for pane in np.unique(panes).tolist():
        of_pane = rows[panes == pane]
        cut = draw(st.integers(0, len(of_pane)))
        table = GroupTable(layout)
        table.merge(of_pane[:cut])
        parts.append(of_pane[cut:])
        if any(table.overflowed(fold).any() for fold in range(len(layout.folds))):
            parts.append(of_pane[:cut])  # a table below sends a sum before it would overflow
        else:
            parts.append(with_pane(table.groups, pane))
    return np.concatenate(parts)


def with_pane(groups: Words, pane: int) -> Words:
    rows = np.empty((len(groups), groups.shape[1] + 1), np.uint64)
    rows[:, 0] = groups[:, 0] << np.uint64(1)
    rows[:, 1] = np.int64(pane).view(np.uint64)
    rows[:, 2:] = groups[:, 1:]
    return rows


def run(
    planned: Plans, arrivals: list[Row], state: Live | Stored, draw: st.DrawFn, costs: HoldingCosts = COSTS
) -> Sink:
    sink = Sink()
    reduce, operator = planned.reduce, AggregateOperator(planned.aggregate, costs=costs)
    layout = Layout(
        planned.aggregate.input, (*planned.aggregate.keys, *planned.aggregate.details), planned.aggregate.folds
    )
    unit = planned.aggregate.window.axis.unit
    done = 0
    while done < len(arrivals):
        cut = draw(st.integers(done + 1, len(arrivals)))
        rows = matrix(TUPLE, [[row[name] for name in TUPLE.names] for row in arrivals[done:cut]])
        partials = reduced(reduce, rows)
        operator.on_batch(0, merged_by_chance(layout, partials, draw), state.state, sink)
        done = cut
        if draw(st.booleans()):
            state.again()
        if draw(st.booleans()):
            least = min((row["ts"] // unit for row in arrivals[done:]), default=70)
            operator.on_promise(0, panes_ended(least - draw(st.integers(0, 3))), state.state, sink)
        if draw(st.booleans()):
            state.again()
    operator.on_promise(0, panes_ended(FOREVER), state.state, sink)
    assert operator.work(state.state, sink, 1) == 0
    return sink


def close_to(a: Value, b: Value) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
    return a == b and type(a) is type(b)


def assert_same_rows(got: list[Row], wanted: list[Row]) -> None:
    exact = [name for name in (wanted[0] if wanted else ()) if all(not isinstance(r[name], float) for r in wanted)]

    def key(row: Row) -> list[tuple[bool, Value]]:
        return [(row[name] is not None, row[name] or 0) for name in exact]

    assert len(got) == len(wanted)
    for a, b in zip(sorted(got, key=key), sorted(wanted, key=key), strict=True):
        assert a.keys() == b.keys()
        assert all(close_to(a[name], b[name]) for name in a), (a, b)


def check(planned: Plans, calls: Sequence[AskedCall], arrivals: list[Row], sink: Sink) -> None:
    plan: Aggregate = planned.aggregate
    wanted = expected(plan.window, plan.keys, calls, arrivals)
    told = [(windows, count) for windows, count in sink.closings if count]
    assert [windows for windows, _ in told] == [range(w.window, w.window + 1) for w in wanted]
    assert [count for _, count in told] == [w.tuples for w in wanted]
    parts = [values(plan.output, rows) for rows in sink.matrices]
    if plan.window.kind is WindowKind.SLIDING:  # rows of several windows may come out together
        rows = [row for part in parts for row in part]
        parts = [list(part) for _, part in groupby(rows, key=lambda row: row["window_end"])]
    assert len(parts) == len(wanted)
    for part, window in zip(parts, wanted, strict=True):
        assert_same_rows(part, window.rows)
    assert sink.flaws == [(w.window, Reason.OVERFLOW) for w in wanted if w.overflow]
    assert not sink.lates
    assert sink.promises[-1].last


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], max_examples=150)
@given(st.data())
def test_rows_are_those_of_the_definitions(data: st.DataObject) -> None:
    calls = data.draw(st.lists(st.sampled_from(CALLS), min_size=1, max_size=4, unique=True))
    window = data.draw(windows)
    keys = data.draw(st.lists(st.sampled_from(["host", "port", "link"]), max_size=2, unique=True))
    arrivals = data.draw(
        st.permutations(rows_of(data.draw(st.lists(tuples, min_size=data.draw(st.sampled_from([0, 8])), max_size=25))))
    )
    planned = plans(calls, keys, window)
    state = data.draw(st.sampled_from([Live, Stored]))()
    check(planned, calls, arrivals, run(planned, arrivals, state, data.draw))


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], max_examples=100)
@given(st.data())
def test_windows_that_overlap_much_have_the_same_rows(data: st.DataObject) -> None:
    """Running windows (sums alone) and blocks of panes (all others)."""
    calls = data.draw(
        st.lists(st.sampled_from(data.draw(st.sampled_from([SUMS, CALLS]))), min_size=1, max_size=3, unique=True)
    )
    window = Window(WindowKind.SLIDING, data.draw(st.integers(6, 40)), data.draw(st.integers(1, 2)), axis(1))
    drawn = data.draw(st.lists(tuples, min_size=5, max_size=30))
    arrivals = sorted(rows_of(drawn), key=lambda row: row["ts"] + row["position"] % 5)
    planned = plans(calls, data.draw(st.sampled_from([(), ("host",)])), window)
    check(planned, calls, arrivals, run(planned, arrivals, data.draw(st.sampled_from([Live, Stored]))(), data.draw))


@settings(max_examples=100)
@given(windows, st.lists(tuples, max_size=10), st.lists(st.integers(-40, 80), min_size=1, max_size=5))
def test_closings_are_contiguous_and_begin_at_the_first_frontier(
    window: Window, drawn: list[tuple[Value, ...]], frontiers: list[int]
) -> None:
    calls = (AskedCall("count"),)
    planned = plans(calls, (), window)
    operator, reduce, state, sink = AggregateOperator(planned.aggregate), planned.reduce, Live(), Sink()
    arrivals = rows_of(drawn)
    operator.on_batch(0, reduced(reduce, matrix(TUPLE, [list(row.values()) for row in arrivals])), state.state, sink)
    for frontier in frontiers:
        operator.on_promise(0, panes_ended(frontier), state.state, sink)
    ends = window.closed_by(max(frontiers))
    first = min([window.closed_by(frontiers[0]), *windows_of(window, arrivals)])
    for (before, _), (after, _) in zip(sink.closings, sink.closings[1:], strict=False):
        assert before.stop == after.start
    if sink.closings:
        assert (sink.closings[0][0].start, sink.closings[-1][0].stop) == (first, ends)


@pytest.mark.parametrize("window", [
    Window(WindowKind.SLIDING, 10, 1, axis(1)),
    Window(WindowKind.SLIDING, 1, 1, axis(1)),
    Window(WindowKind.LANDMARK, 0, 1, axis(1)),
])  # fmt: skip
@pytest.mark.parametrize("calls", [(AskedCall("count"),), (AskedCall("max", ("len",)),)])
def test_thirteen_years_ahead_cost_nothing(window: Window, calls: tuple[AskedCall, ...]) -> None:
    planned = plans(calls, ("host",), window)
    years = 13 * 365 * 86_400 * 10**9
    drawn = [(ts, 1, 1, 0.0, 5, 0, 0.0, 0) for ts in (3, years, years + 4, 2 * years)]
    arrivals = rows_of(drawn)
    operator, reduce, state, sink = AggregateOperator(planned.aggregate), planned.reduce, Live(), Sink()
    rows = reduced(reduce, matrix(TUPLE, [list(row.values()) for row in arrivals]))
    operator.on_promise(0, panes_ended(0), state.state, sink)
    operator.on_batch(0, rows, state.state, sink)
    operator.on_promise(0, panes_ended(years + 5), state.state, sink)
    operator.on_promise(0, panes_ended(FOREVER), state.state, sink)
    check(planned, calls, arrivals, sink)
    assert len(sink.closings) < 50


def test_late_partials_are_handed_back_and_not_merged() -> None:
    planned = plans((AskedCall("count"),), (), Window(WindowKind.SLIDING, 4, 2, axis(1)))
    operator, reduce, state, sink = AggregateOperator(planned.aggregate), planned.reduce, Live(), Sink()
    drawn = rows_of([(ts, 1, 1, 0.0, 5, 0, 0.0, 0) for ts in (4, 5, 7)])
    rows = reduced(reduce, matrix(TUPLE, [list(row.values()) for row in drawn]))
    operator.on_promise(0, panes_ended(5), state.state, sink)
    operator.on_batch(0, rows, state.state, sink)
    operator.on_promise(0, panes_ended(FOREVER), state.state, sink)
    assert [rows[:, 1].tolist() for rows in sink.lates] == [[4]]
    assert sum(count for _, count in sink.closings) == 4


def test_promises_speak_of_the_columns_of_windows() -> None:
    planned = plans((AskedCall("count"),), (), Window(WindowKind.SLIDING, 4, 2, axis(10)))
    operator, state, sink = AggregateOperator(planned.aggregate), Live(), Sink()
    operator.on_promise(0, panes_ended(7), state.state, sink)
    (start,), (end,) = (promise.bounds for promise in sink.promises)
    assert (start.column, start.below) == ("window_start", 40)
    assert (end.column, end.below) == ("window_end", 80)


def test_state_is_empty_once_everything_has_closed() -> None:
    for window in (Window(WindowKind.SLIDING, 9, 1, axis(1)), Window(WindowKind.SLIDING, 2, 1, axis(1))):
        for calls in ((AskedCall("count"),), (AskedCall("max", ("len",)),)):
            planned = plans(calls, ("host",), window)
            operator, reduce = AggregateOperator(planned.aggregate), planned.reduce
            state, sink = Stored(), Sink()
            drawn = rows_of([(ts, 1, 1, 0.0, 5, 0, 0.0, 0) for ts in range(20)])
            rows = reduced(reduce, matrix(TUPLE, [list(row.values()) for row in drawn]))
            operator.on_batch(0, rows, state.state, sink)
            operator.on_promise(0, panes_ended(15), state.state, sink)
            operator.on_promise(0, panes_ended(FOREVER), state.state, sink)
            state.again()
            assert state.kept == ["closing"]
