"""The buffering baseline gives the rows of the aggregate that it is compared with, and drops what its slack loses."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from bench.baselines.buffering import BufferingOperator, LazyOperator
from highlevel.interface import Words
from highlevel.state import MemoryState
from lowmark.query.windows.window import Window, WindowKind
from lowmark.wire.rows.values import FOREVER
from tests.operators.harness import TUPLE, AskedCall, Row, Sink, axis, panes_ended, plans, reduced, values
from tests.operators.naive import expected
from tests.operators.test_aggregate import assert_same_rows
from tests.wire.strategies import matrix

CALLS = [AskedCall("count"), AskedCall("max", ("len",))]
windows = st.builds(
    lambda size, slide, unit: Window(WindowKind.SLIDING, size, slide, axis(unit)),
    st.integers(1, 8), st.integers(1, 6), st.integers(1, 3),
)  # fmt: skip


def arriving(times: list[int]) -> list[Row]:
    """Tuples of two ports in turn, in the order of their arrival."""
    return [
        Row(zip(TUPLE.names, (ts, position, 1, position % 2, 0.0, position, None, None, 0), strict=True))
        for position, ts in enumerate(times)
    ]


def words_of(rows: list[Row]) -> Words:
    return matrix(TUPLE, [[row[name] for name in TUPLE.names] for row in rows])


@given(windows, st.lists(st.integers(-20, 40), max_size=25), st.integers(0, 6), st.booleans(), st.data())
@settings(deadline=None)
def test_rows_are_those_of_what_was_not_dropped(
    window: Window, times: list[int], slack: int, generous: bool, data: st.DataObject
) -> None:
    made = plans(CALLS, ["port"], window)
    operator, sink = BufferingOperator(made.aggregate, slack, generous=generous), Sink()
    arrivals = arriving(times)
    done = 0
    while done < len(arrivals):
        cut = data.draw(st.integers(done + 1, len(arrivals)))
        rows = words_of(arrivals[done:cut])
        operator.on_batch(0, reduced(made.reduce, rows), MemoryState(), sink)
        done = cut
    operator.on_promise(0, panes_ended(FOREVER), MemoryState(), sink)
    found = list(taken(window, arrivals, slack, generous))
    assert operator.dropped == sum(not numbers for _, numbers in found)
    wanted = {}
    for number in sorted({number for _, numbers in found for number in numbers}):
        (wanted[number],) = (
            answer
            for answer in expected(window, ["port"], CALLS, [row for row, numbers in found if number in numbers])
            if answer.window == number
        )
    assert [told.start for told, _ in sink.closings] == list(wanted)
    assert [count for _, count in sink.closings] == [answer.tuples for answer in wanted.values()]
    for rows, answer in zip(sink.matrices, wanted.values(), strict=True):
        assert_same_rows(values(made.aggregate.output, rows), answer.rows)


@given(windows, st.lists(st.integers(-20, 40), max_size=25), st.data())
@settings(deadline=None)
def test_lazy_aggregation_closes_by_promises(window: Window, times: list[int], data: st.DataObject) -> None:
    made = plans(CALLS, ["port"], window)
    operator, state, sink = LazyOperator(made.aggregate), MemoryState(), Sink()
    arrivals = arriving(times)
    done = 0
    while done < len(arrivals):
        cut = data.draw(st.integers(done + 1, len(arrivals)))
        rows = words_of(arrivals[done:cut])
        operator.on_batch(0, reduced(made.reduce, rows), state, sink)
        done = cut
        least = min((row["ts"] // window.axis.unit for row in arrivals[done:]), default=60)
        operator.on_promise(0, panes_ended(least), state, sink)
        assert all(told.start < window.closed_by(least) for told, _ in sink.closings)
    operator.on_promise(0, panes_ended(FOREVER), state, sink)
    answers = expected(window, ["port"], CALLS, arrivals)
    wanted = [answer for answer in answers if answer.tuples]
    assert [(told.start, count) for told, count in sink.closings] == [(one.window, one.tuples) for one in wanted]
    for rows, answer in zip(sink.matrices, wanted, strict=True):
        assert_same_rows(values(made.aggregate.output, rows), answer.rows)


def taken(window: Window, arrivals: list[Row], slack: int, generous: bool) -> Iterator[tuple[Row, set[int]]]:
    """Each tuple with the windows that take it."""
    high = None
    for row in arrivals:
        pane = row["ts"] // window.axis.unit
        wids = set(window.wids(pane))
        if not wids:
            continue
        late = set() if high is None else {wid for wid in wids if wid < window.closed_by(high - slack)}
        yield row, wids - late if generous or not late else set()
        high = pane if high is None else max(high, pane)
