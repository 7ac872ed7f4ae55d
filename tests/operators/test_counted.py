"""The operators of windows that count tuples against the definitions of Li 5.1 (`tests.query.window_ids`), and against
fig. 6-7: any cuts, any promises, state as bytes at any time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from highlevel.build import build
from highlevel.interface import Words
from highlevel.limits import GroupLimit, LimitReached
from highlevel.operators.aggregate import AggregateOperator
from highlevel.operators.crowded_aggregate import CrowdedAggregateOperator
from highlevel.operators.row_windows import extents
from highlevel.operators.row_windows.number import NumberOperator
from highlevel.operators.row_windows.partitioned_rows import PartitionedRowsOperator
from highlevel.operators.row_windows.slide_by_tuple import SlideByTupleOperator
from highlevel.state import MemoryState
from lowmark.query.bind.relations import Turn
from lowmark.query.expr.expressions import Named
from lowmark.query.plan.nodes import Aggregate, Counted, Number, Pane, Reduce, SlideByTuple
from lowmark.query.windows.window import Axis, Window, WindowKind
from lowmark.wire.records.punctuations import Bound, Promise
from lowmark.wire.records.verdicts import Reason
from lowmark.wire.rows.schema import Column, Kind, Schema
from lowmark.wire.rows.values import FOREVER
from tests.operators.harness import (
    TUPLE,
    AskedCall,
    Live,
    Row,
    Sink,
    Stored,
    Value,
    axis,
    field_of,
    panes_ended,
    plans,
    reduced,
    values,
)
from tests.operators.naive import grouped
from tests.operators.test_aggregate import CALLS, close_to, rows_of, tuples
from tests.query.window_ids import Tuple, Windows, extent, windows
from tests.wire.strategies import matrix

PANE = 7

small = st.integers(1, 6)
rows_axes = st.builds(lambda unit: Axis("row_num", Kind.INT, unit, 1), st.integers(1, 3))
over_rows = st.builds(Window, st.just(WindowKind.SLIDING), st.integers(1, 9), small, rows_axes) | st.builds(
    Window, st.just(WindowKind.LANDMARK), st.just(0), small, rows_axes
)
by_tuple = st.builds(Window, st.just(WindowKind.SLIDE_BY_TUPLE), st.integers(1, 40), small, st.just(axis(1)))
PARTITIONS = st.sampled_from(((), ("port",), ("host", "port"), ("load",)))


@dataclass(frozen=True)
class Planned:
    reduce: Reduce  # what the node and `Number` make of tuples: partials of one tuple each, in front `_at`
    counted: Counted


def planned(
    window: Window, partition: tuple[str, ...], calls: Sequence[AskedCall], others: tuple[str, ...] = ()
) -> Planned:
    keys = [*partition, *others]
    made = plans(calls, keys, replace(window, kind=WindowKind.SLIDING, axis=replace(window.axis, attribute="ts")))
    at = Named("_at", field_of("ts"))
    reduction = replace(made.reduce.reduction, pane=Pane(PANE), keys=(at, *made.reduce.reduction.keys))
    bounds = (Column("window_start", Kind.INT, True), Column("window_end", Kind.INT))
    output = Schema((*bounds, *made.aggregate.output.columns[2:]), TUPLE.strings)
    aggregate = made.aggregate
    counted = Counted(
        reduction.schema, "_at", partition, tuple(keys), aggregate.details, reduction.folds, aggregate.calls, window,
        output,
    )  # fmt: skip
    return Planned(Reduce(TUPLE, reduction), counted)


def expected(
    window: Window, turn: Turn, counted: Counted, calls: Sequence[AskedCall], arrivals: Sequence[Row]
) -> list[Row]:
    found = []
    items = [Tuple(row["ts"], tuple(_same(row[key]) for key in counted.partition)) for row in arrivals]
    of = Windows(window, turn)
    for item in windows(of, items):
        held = [arrivals[i] for i in sorted(extent(of, item, items))]
        if window.kind is WindowKind.SLIDE_BY_TUPLE:
            head: Row = {"window_start": item.number - window.size, "window_end": item.number}
        else:
            head = {"window_start": window.start(item.number), "window_end": window.end(item.number)}
        found += grouped(held, counted.keys, calls, head)[0]
    return found


def _same(value: object) -> object:
    return 0.0 if value == 0 and isinstance(value, float) else value


def assert_same(got: Sequence[Row], wanted: Sequence[Row], counted: Counted | Aggregate) -> None:
    """The same rows: of one window and group there are several where a partition began anew."""
    head = ("window_start", "window_end", *counted.keys)
    left: dict[tuple[Value, ...], list[Row]] = {}
    for row in wanted:
        left.setdefault(tuple(_same(row[name]) for name in head), []).append(row)
    for a in got:
        rows = left.get(tuple(_same(a[name]) for name in head), [])
        found = next((b for b in rows if a.keys() == b.keys() and all(close_to(a[name], b[name]) for name in a)), None)
        assert found is not None, (a, rows)
        rows.remove(found)
    assert not any(left.values()), left


def partials(plan: Planned, rows: Sequence[Row]) -> Words:
    return reduced(plan.reduce, matrix(TUPLE, [[row[name] for name in TUPLE.names] for row in rows]))


def shared_soon(draw: st.DrawFn, patch: pytest.MonkeyPatch) -> None:
    """So that few bins are many."""
    patch.setattr(extents, "_LONG", draw(st.sampled_from((2, 5, 512))))
    patch.setattr(extents, "_AT_ONCE", draw(st.sampled_from((3, 50, 1 << 19))))


asked = st.lists(st.sampled_from(CALLS), min_size=1, max_size=3, unique=True)
arriving = st.lists(tuples, max_size=40).map(rows_of)
settled = settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))


@given(over_rows, PARTITIONS, arriving, st.data())
@settled
def test_rows_of_partitions(
    window: Window, partition: tuple[str, ...], arrivals: list[Row], data: st.DataObject
) -> None:
    calls = data.draw(asked)
    plan = planned(window, partition, calls, data.draw(st.sampled_from(((), ("link",)))))
    operator, sink = PartitionedRowsOperator(plan.counted), Sink()
    state = data.draw(st.sampled_from([Live, Stored]))()
    with pytest.MonkeyPatch.context() as patch:
        shared_soon(data.draw, patch)
        done = 0
        while done < len(arrivals):
            cut = data.draw(st.integers(done + 1, len(arrivals)))
            operator.on_batch(0, partials(plan, arrivals[done:cut]), state.state, sink)
            done = cut
            if data.draw(st.booleans()):
                state.again()
            operator.on_promise(0, Promise((Bound("_at", done + 1),)), state.state, sink)
        operator.on_promise(0, Promise((), last=True), state.state, sink)
    got = [row for rows in sink.matrices for row in values(plan.counted.output, rows)]
    assert_same(got, expected(window, Turn.ROWS, plan.counted, calls, arrivals), plan.counted)
    assert sink.promises == [Promise((), last=True)]


@given(by_tuple, st.sampled_from((Turn.ARRIVAL, Turn.RANK)), PARTITIONS, arriving, st.data())
@settled
def test_slide_by_tuple(
    window: Window, turn: Turn, partition: tuple[str, ...], arrivals: list[Row], data: st.DataObject
) -> None:
    calls = data.draw(asked)
    plan = planned(window, partition, calls, data.draw(st.sampled_from(((), ("link",)))))
    shift = data.draw(st.integers(-3, 3))
    operator = SlideByTupleOperator(replace(plan.counted, slides=SlideByTuple(turn is Turn.RANK, PANE, shift)))
    sink, state = Sink(), data.draw(st.sampled_from([Live, Stored]))()
    with pytest.MonkeyPatch.context() as patch:
        shared_soon(data.draw, patch)
        done = 0
        while done < len(arrivals):
            cut = data.draw(st.integers(done + 1, len(arrivals)))
            operator.on_batch(0, partials(plan, arrivals[done:cut]), state.state, sink)
            done = cut
            if data.draw(st.booleans()):
                state.again()
            if data.draw(st.booleans()):
                least = min((row["ts"] for row in arrivals[done:]), default=70)
                ended = (least - shift) // PANE - data.draw(st.integers(0, 2))
                operator.on_promise(0, panes_ended(ended), state.state, sink)
        operator.on_promise(0, panes_ended(FOREVER), state.state, sink)
    got = [row for rows in sink.matrices for row in values(plan.counted.output, rows)]
    assert_same(got, expected(window, turn, plan.counted, calls, arrivals), plan.counted)
    assert not sink.lates
    ends = [bound.below for promise in sink.promises for bound in promise.bounds if bound.column == "window_end"]
    assert ends == sorted(ends)


def test_what_is_over_is_forgotten() -> None:
    """Bins go when no window reaches back to them; partitions keep their counters."""
    window = Window(WindowKind.SLIDE_BY_TUPLE, 10, 2, axis(1))
    plan = planned(window, ("port",), [AskedCall("count")])
    operator, sink, state = (
        SlideByTupleOperator(replace(plan.counted, slides=SlideByTuple(False, PANE, 0))),
        Sink(),
        Stored(),
    )
    arrivals = rows_of([(ts, 1, ts % 3, 0.0, 1, None, None, 0) for ts in range(200)])
    for done in range(0, 200, 20):
        operator.on_batch(0, partials(plan, arrivals[done : done + 20]), state.state, sink)
        operator.on_promise(0, panes_ended((done + 20) // PANE), state.state, sink)
        state.again()
    assert state.kept.count("bins") <= 5
    assert state.kept.count("ends") <= 1
    assert state.kept.count("counters") == 3


@pytest.mark.parametrize("turn", [Turn.ROWS, Turn.ARRIVAL, Turn.RANK])
def test_a_limit_on_what_is_never_forgotten(turn: Turn) -> None:
    """It holds over all sub-buckets, also after the state was stored."""
    slides = None if turn is Turn.ROWS else SlideByTuple(turn is Turn.RANK, PANE, 0)
    window = Window(WindowKind.SLIDE_BY_TUPLE, 10, 2, axis(1))
    window = Window(WindowKind.SLIDING, 4, 2, Axis("row_num", Kind.INT, 1, 1)) if slides is None else window
    plan = planned(window, ("port",), [AskedCall("count")])
    operator = build(replace(plan.counted, slides=slides), GroupLimit("flows", 5))
    state = Stored()

    def take(port: int) -> None:
        operator.on_batch(0, partials(plan, rows_of([(port, 1, port, 0.0, 1, None, None, 0)])), state.state, Sink())
        operator.on_promise(0, panes_ended(port // PANE + 1), state.state, Sink())
        state.again()

    for port in (0, 10, 20, 30, 40, 40):
        take(port)
    with pytest.raises(LimitReached, match=r"query flows: more than 5 different \(port\).*limits\.groups"):
        take(50)


@given(st.lists(st.integers(0, 60), max_size=30), st.integers(1, 20), st.data())
@settled
def test_it_counts_as_fig_6_7_does(times: list[int], size: int, data: st.DataObject) -> None:
    """SLIDE 1 row: a window for each value. Of its purge the last bin below the punctuation is kept, as the prose
    says."""
    window = Window(WindowKind.SLIDE_BY_TUPLE, size, 1, axis(1))
    plan = planned(window, (), [AskedCall("count")])
    operator, sink = SlideByTupleOperator(replace(plan.counted, slides=SlideByTuple(False, 1, 0))), Sink()
    figure = Figure67(size)
    state = Live()
    arrivals = rows_of([(ts, 1, 0, 0.0, 1, None, None, 0) for ts in times])
    for done, row in enumerate(arrivals, 1):
        operator.on_batch(0, partials(plan, [row]), state.state, sink)
        figure.tuple(row["ts"])
        if data.draw(st.booleans()):
            bound = min((later["ts"] for later in arrivals[done:]), default=70)
            operator.on_promise(0, panes_ended(bound), state.state, sink)
            figure.punctuation(bound)
    operator.on_promise(0, panes_ended(FOREVER), state.state, sink)
    figure.punctuation(FOREVER)
    got = [(row["window_end"], row["count"]) for rows in sink.matrices for row in values(plan.counted.output, rows)]
    assert sorted(got) == sorted(figure.output)


class Figure67:
    """Li's algorithm for count as printed, with the slips of its text mended."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._starts: dict[int, int] = {}
        self._ends = {-1000: 0}
        self.output: list[tuple[int, int]] = []

    def tuple(self, ts: int) -> None:
        for bins, bid in ((self._starts, ts), (self._ends, ts + self._size)):
            before = [(w, pa) for each in (self._starts, self._ends) for w, pa in each.items() if w <= bid]
            bins.setdefault(bid, max(before)[1])
        for each in (self._starts, self._ends):
            for w in each:
                if ts <= w < ts + self._size:
                    each[w] += 1

    def punctuation(self, bound: int) -> None:
        self.output += [(w, pa) for w, pa in self._starts.items() if w < bound]
        last = max(w for each in (self._starts, self._ends) for w in each if w < bound)
        kept = self._starts.get(last, self._ends.get(last, 0))
        self._starts = {w: pa for w, pa in self._starts.items() if w >= bound}
        self._ends = {w: pa for w, pa in self._ends.items() if w >= bound} | {last: kept}


def test_windows_that_share_bins_come_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that one window of several has at its edge alone does not come behind the later windows."""
    monkeypatch.setattr(extents, "_LONG", 2)
    made = plans([AskedCall("count")], ("link",), Window(WindowKind.SLIDING, 9, 1, axis(1)))
    crowded, state, sink = CrowdedAggregateOperator(made.aggregate), MemoryState(), Sink()
    links = [(ts, 0) for ts in range(40)] + [(ts, 1) for ts in range(0, 40, 11)]
    arrivals = [dict(zip(TUPLE.names, (ts, 0, 1, None, 0.0, 0, None, None, link), strict=True)) for ts, link in links]
    rows = reduced(made.reduce, matrix(TUPLE, [[row[name] for name in TUPLE.names] for row in arrivals]))
    crowded.on_batch(0, rows, state, sink)
    crowded.on_promise(0, panes_ended(FOREVER), state, sink)
    ends = [row["window_end"] for part in sink.matrices for row in values(made.aggregate.output, part)]
    assert ends == sorted(ends)
    assert ends.count(12) == 2  # both links


@given(st.integers(1, 12), small, small, arriving, asked, st.data())
@settled
def test_crowded_windows_are_those_of_the_aggregate(
    size: int, slide: int, unit: int, arrivals: list[Row], calls: list[AskedCall], data: st.DataObject
) -> None:
    """Rows, closings, flaws and promises, late rows too."""
    window = Window(WindowKind.SLIDING, size, slide, axis(unit))
    made = plans(calls, data.draw(st.sampled_from(((), ("port",), ("host", "link")))), window)
    aggregate, crowded = AggregateOperator(made.aggregate), CrowdedAggregateOperator(made.aggregate)
    state, live, sink, wanted = data.draw(st.sampled_from([Live, Stored]))(), Live(), Sink(), Sink()
    with pytest.MonkeyPatch.context() as patch:
        shared_soon(data.draw, patch)
        patch.setattr("highlevel.operators.crowded_aggregate._PANES", data.draw(st.sampled_from((1, 3, 1024))))
        for row in arrivals:
            rows = reduced(made.reduce, matrix(TUPLE, [[row[name] for name in TUPLE.names]]))
            promise = panes_ended(row["ts"] // unit - data.draw(st.integers(-2, 20)))
            for operator, kept, into in ((aggregate, live, wanted), (crowded, state, sink)):
                operator.on_batch(0, rows, kept.state, into)
                operator.on_promise(0, promise, kept.state, into)
            state.again()
        for operator, kept, into in ((aggregate, live, wanted), (crowded, state, sink)):
            operator.on_promise(0, panes_ended(FOREVER), kept.state, into)
    assert [told for told in sink.closings if told[1]] == [told for told in wanted.closings if told[1]]
    assert sink.flaws == wanted.flaws
    assert sink.promises == wanted.promises
    assert sum(map(len, sink.lates)) == sum(map(len, wanted.lates))
    got, rows_wanted = (
        [row for part in s.matrices for row in values(made.aggregate.output, part)] for s in (sink, wanted)
    )
    ends = [row["window_end"] for row in got]
    assert ends == sorted(ends)
    assert_same(got, rows_wanted, made.aggregate)


@given(st.lists(st.integers(0, 30), max_size=25), st.data())
def test_tuples_of_one_source_are_numbered_as_they_come(times: list[int], data: st.DataObject) -> None:
    """Each once its pane and those of all before it have ended, and no sooner."""
    schema = Schema(tuple(Column(name, Kind.INT) for name in ("pane", "tuples", "len")))
    output = Schema(tuple(Column(name, Kind.INT) for name in ("pane", "tuples", "n", "len")))
    operator, sink = NumberOperator(Number(schema, (), output, "n")), Sink()
    state = data.draw(st.sampled_from([Live, Stored]))()
    rows = [[ts // 5, 1, index] for index, ts in enumerate(times)]
    done = bound = 0
    while done < len(rows):
        cut = data.draw(st.integers(done + 1, len(rows)))
        operator.on_batch(0, matrix(schema, rows[done:cut]), state.state, sink)
        done = cut
        state.again()
        bound = max(bound, min((row[0] for row in rows[done:]), default=9) - data.draw(st.integers(0, 1)))
        operator.on_promise(0, panes_ended(bound), state.state, sink)
        ready = next((index for index, row in enumerate(rows[:done]) if row[0] >= bound), done)
        assert sum(map(len, sink.matrices)) == ready
    operator.on_promise(0, panes_ended(FOREVER), state.state, sink)
    got = [row for part in sink.matrices for row in values(output, part)]
    assert [(row["n"], row["len"]) for row in got] == [(index + 1, index) for index in range(len(rows))]
    assert np.all(np.diff([p.bounds[0].below for p in sink.promises if p.bounds]) >= 0)
    assert sink.promises[-1:] == [Promise((), last=True)]


def begun_anew(arrivals: Sequence[Row], partition: tuple[str, ...], expire: int) -> list[int]:
    """Of each tuple its partition's life: a new one where more than `expire` panes lie between it and the latest."""
    latest: dict[tuple[object, ...], int] = {}
    lives: dict[tuple[object, ...], int] = {}
    found = []
    for row in arrivals:
        key, pane = tuple(_same(row[name]) for name in partition), row["ts"] // PANE
        lives[key] = lives.get(key, 0) + (key in latest and pane - latest[key] > expire)
        latest[key] = max(latest.get(key, pane), pane)
        found.append(lives[key])
    return found


def expiring(
    window: Window, turn: Turn, counted: Counted, calls: Sequence[AskedCall], arrivals: Sequence[Row]
) -> list[Row]:  # fmt: skip
    """The rows by the definitions, of partitions that have lives."""
    assert counted.expire is not None
    ordered = _in_turn(arrivals, turn)
    lives = begun_anew(ordered, counted.partition, counted.expire)
    items = [Tuple(row["ts"], tuple(_same(row[key]) for key in counted.partition)) for row in ordered]
    lived = [replace(item, partition=(*item.partition, life)) for item, life in zip(items, lives, strict=True)]
    of, found, seen = Windows(window, turn), [], set()
    for item in windows(of, lived):
        if window.kind is WindowKind.SLIDE_BY_TUPLE:  # lives decide which tuples windows end at, not what they hold
            item = replace(item, partition=item.partition[:-1])
            head: Row = {"window_start": item.number - window.size, "window_end": item.number}
            held = [ordered[i] for i in sorted(extent(of, item, items))]
        else:
            head = {"window_start": window.start(item.number), "window_end": window.end(item.number)}
            held = [ordered[i] for i in sorted(extent(of, item, lived))]
        if item not in seen:
            found += grouped(held, counted.keys, calls, head)[0]
        seen.add(item)
    return found


def _in_turn(arrivals: Sequence[Row], turn: Turn) -> Sequence[Row]:
    return sorted(arrivals, key=lambda row: row["ts"]) if turn is Turn.RANK else arrivals


PARTED = st.sampled_from((("port",), ("host", "port"), ("load",)))


@given(over_rows | by_tuple, PARTED, arriving, st.integers(1, 3), st.data())
@settings(settled, max_examples=150)
def test_idle_partitions_begin_anew(
    window: Window, partition: tuple[str, ...], arrivals: list[Row], expire: int, data: st.DataObject
) -> None:
    """Where promises stand, and how far they go, decides nothing."""
    calls = data.draw(asked)
    turn = Turn.ROWS
    plan = planned(window, partition, calls, data.draw(st.sampled_from(((), ("link",)))))
    counted = replace(plan.counted, expire=expire)
    if window.kind is WindowKind.SLIDE_BY_TUPLE:
        turn = data.draw(st.sampled_from((Turn.ARRIVAL, Turn.RANK)))
        counted = replace(counted, slides=SlideByTuple(turn is Turn.RANK, PANE, 0))
    operator, sink, state = build(counted), Sink(), data.draw(st.sampled_from([Live, Stored]))()
    with pytest.MonkeyPatch.context() as patch:
        shared_soon(data.draw, patch)
        done = 0
        while done < len(arrivals):
            cut = data.draw(st.integers(done + 1, len(arrivals)))
            operator.on_batch(0, partials(plan, arrivals[done:cut]), state.state, sink)
            done = cut
            if data.draw(st.booleans()):
                state.again()
            if data.draw(st.booleans()):
                least = min((row["ts"] for row in arrivals[done:]), default=70)
                operator.on_promise(0, panes_ended(least // PANE - data.draw(st.integers(0, 2))), state.state, sink)
        operator.on_promise(0, Promise((Bound("pane", FOREVER),), last=True), state.state, sink)
    got = [row for rows in sink.matrices for row in values(counted.output, rows)]
    wanted = expiring(window, turn, counted, calls, arrivals)
    assert_same(got, wanted, counted)
    anew = max(begun_anew(_in_turn(arrivals, turn), partition, expire), default=0)
    assert {reason for _, reason in sink.flaws} >= ({Reason.NUMBERING} if anew and numbers_matter(counted) else set())


def numbers_matter(counted: Counted) -> bool:
    """Where a window ends at every tuple it is the same ones from wherever they are counted."""
    return counted.slides is None or counted.window.slide > 1


@pytest.mark.parametrize("turn", [Turn.ROWS, Turn.ARRIVAL, Turn.RANK])
def test_new_partitions_that_come_and_go_take_no_more_room(turn: Turn) -> None:
    """Each port has tuples in one pane: what is kept is of those panes that are not idle, and of some more until they
    are looked for. The limit holds for what is there."""
    slides = None if turn is Turn.ROWS else SlideByTuple(turn is Turn.RANK, PANE, 0)
    window = Window(WindowKind.SLIDE_BY_TUPLE, 10, 2, axis(1))
    window = Window(WindowKind.SLIDING, 4, 2, Axis("row_num", Kind.INT, 1, 1)) if slides is None else window
    plan = planned(window, ("port",), [AskedCall("count")])
    counted = replace(plan.counted, slides=slides, expire=16)
    operator, state, sink = build(counted, GroupLimit("flows", 25)), Stored(), Sink()
    for pane in range(200):
        arrivals = rows_of([(pane * PANE, position, pane, 0.0, 1, None, None, 0) for position in (1, 2, 3)])
        operator.on_batch(0, partials(plan, arrivals), state.state, sink)
        operator.on_promise(0, panes_ended(pane + 1), state.state, sink)
        state.again()
        assert state.kept.count("counters") <= 16 + 16 // 8 + 2
        assert state.kept.count("bins") <= 16 + 16 // 8 + 2
    assert {reason for _, reason in sink.flaws} == {Reason.NUMBERING}
    arrivals = rows_of([(200 * PANE, 1, port, 0.0, 1, None, None, 0) for port in range(300, 330)])

    def take_all() -> None:
        operator.on_batch(0, partials(plan, arrivals), state.state, sink)
        operator.on_promise(0, panes_ended(201), state.state, sink)

    with pytest.raises(LimitReached, match="more than 25"):
        take_all()


def test_where_each_tuple_ends_a_window_nothing_is_numbered() -> None:
    """SLIDE 1 row: partitions are let go of, and the answer stays as it is."""
    plan = planned(Window(WindowKind.SLIDE_BY_TUPLE, 10, 1, axis(1)), ("port",), [AskedCall("count")])
    counted = replace(plan.counted, slides=SlideByTuple(False, PANE, 0), expire=1)
    operator, state, sink = build(counted), Stored(), Sink()
    for pane in range(0, 60, 3):
        operator.on_batch(0, partials(plan, rows_of([(pane * PANE, 1, 7, 0.0, 1, None, None, 0)])), state.state, sink)
        operator.on_promise(0, panes_ended(pane + 3), state.state, sink)
        state.again()
        assert state.kept.count("counters") == 0
    assert not sink.flaws


@given(st.lists(st.integers(0, 30), max_size=25), st.data())
def test_below_the_panes_that_one_source_promises_no_tuple_comes(times: list[int], data: st.DataObject) -> None:
    """Tuples of an earlier pane than one that waits before them come out after it."""
    schema = Schema(tuple(Column(name, Kind.INT) for name in ("pane", "tuples", "len")))
    output = Schema(tuple(Column(name, Kind.INT) for name in ("pane", "tuples", "n", "len")))
    operator, sink = NumberOperator(Number(schema, (), output, "n", panes=True)), Sink()
    state = data.draw(st.sampled_from([Live, Stored]))()
    rows = [[ts // 5, 1, index] for index, ts in enumerate(times)]
    done = bound = given_out = 0
    while done < len(rows):
        cut = data.draw(st.integers(done + 1, len(rows)))
        operator.on_batch(0, matrix(schema, rows[done:cut]), state.state, sink)
        done = cut
        state.again()
        bound = max(bound, min((row[0] for row in rows[done:]), default=9) - data.draw(st.integers(0, 1)))
        operator.on_promise(0, panes_ended(bound), state.state, sink)
        given_out = sum(map(len, sink.matrices))
        promised = [below for p in sink.promises if (below := p.below("pane")) is not None]
        assert promised == sorted(promised)
        assert promised[-1:] == [min([bound, *(row[0] for row in rows[given_out:done])])] or bound == 0
