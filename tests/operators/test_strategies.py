"""The strategies of Li ch. 6: equal rows, and what is kept, also under a flood."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from highlevel.groups.layout import Layout
from highlevel.groups.state import running_space, tables_space
from highlevel.interface import ONLY
from highlevel.operators.aggregate import AggregateOperator
from highlevel.state import MemoryState
from highlevel.strategies.adaptwid_switching import COSTS, HoldingCosts, mode_space
from highlevel.strategies.holding import holding_windows
from highlevel.strategies.paned import Panes
from highlevel.strategies.wid import Windows
from lowmark.query.optimize.shared_panes import cells_of
from lowmark.query.options import Strategy
from lowmark.query.windows.window import Window, WindowKind
from lowmark.wire.rows.values import FOREVER
from tests.operators.harness import TUPLE, AskedCall, Live, Plans, Sink, Stored, axis, panes_ended, plans, reduced
from tests.operators.test_aggregate import CALLS, SUMS, check, rows_of, run, tuples
from tests.wire.strategies import matrix

RESTLESS = HoldingCosts(tup=4, back=10**6, least=1)
"""Groups soon become eager, and lazy again whenever they are looked at."""

COUNT = (AskedCall("count"), AskedCall("sum", ("len",)))


def planned_as(strategy: Strategy, calls: Sequence[AskedCall], keys: Sequence[str], window: Window) -> Plans:
    made = plans(calls, keys, window)
    return replace(made, aggregate=replace(made.aggregate, strategy=strategy))


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], max_examples=80)
@given(st.data(), st.sampled_from([Strategy.WID, Strategy.ADAPT, Strategy.ADAPT]))
def test_rows_are_those_of_the_definitions(data: st.DataObject, strategy: Strategy) -> None:
    """Whatever the order, the cuts and the promises, and wherever the state is written and read again. Times lie close
    together, so that groups are in many panes and switch."""
    pool = data.draw(st.sampled_from([SUMS, CALLS]))
    calls = data.draw(st.lists(st.sampled_from(pool), min_size=1, max_size=3, unique=True))
    window = Window(WindowKind.SLIDING, data.draw(st.integers(1, 12)), data.draw(st.integers(1, 9)), axis(1))
    drawn = data.draw(st.lists(tuples, min_size=1, max_size=40))
    near = [(ts % 40, *rest) for ts, *rest in drawn]
    arrivals = sorted(rows_of(near), key=lambda row: row["ts"] + row["position"] % data.draw(st.integers(1, 9)))
    planned = planned_as(strategy, calls, data.draw(st.sampled_from([(), ("host",), ("port", "link")])), window)
    state, costs = data.draw(st.sampled_from([Live, Stored]))(), data.draw(st.sampled_from([COSTS, RESTLESS]))
    check(planned, calls, arrivals, run(planned, arrivals, state, data.draw, costs))


@pytest.mark.parametrize("strategy", [Strategy.WID, Strategy.ADAPT])
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], max_examples=60)
@given(data=st.data())
def test_the_same_rows_come_out_in_the_same_order_from_bytes(strategy: Strategy, data: st.DataObject) -> None:
    """Whatever windows are a piece of state together: one, few, or more than there are."""
    calls = data.draw(st.lists(st.sampled_from(CALLS), min_size=1, max_size=3, unique=True))
    window = Window(WindowKind.SLIDING, data.draw(st.integers(1, 40)), data.draw(st.integers(1, 3)), axis(1))
    planned = planned_as(strategy, calls, data.draw(st.sampled_from([(), ("host",), ("port", "link")])), window)
    drawn = data.draw(st.lists(tuples, min_size=5, max_size=30))
    arrivals = sorted(rows_of(drawn), key=lambda row: row["ts"] + row["position"] % 5)
    rows = matrix(TUPLE, [list(row.values()) for row in arrivals])
    cuts = sorted({0, len(rows), *data.draw(st.lists(st.integers(0, len(rows)), max_size=6))})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("highlevel.strategies.wid._WIDEST", data.draw(st.sampled_from([1, 3, 32])))
        found = []
        for kept in (Live(), Stored()):
            sink, reduce = Sink(), planned.reduce
            operator = AggregateOperator(planned.aggregate, costs=RESTLESS)
            for start, end in pairwise(cuts):
                operator.on_batch(0, reduced(reduce, rows[start:end]), kept.state, sink)
                kept.again()
                least = min((row["ts"] for row in arrivals[end:]), default=FOREVER)
                operator.on_promise(0, panes_ended(least), kept.state, sink)
                kept.again()
            found.append(sink)
    live, stored = found
    assert [part.tolist() for part in live.matrices] == [part.tolist() for part in stored.matrices]
    assert (live.closings, live.flaws) == (stored.closings, stored.flaws)
    check(planned, calls, arrivals, live)


@pytest.mark.parametrize("strategy", [Strategy.WID, Strategy.ADAPT])
def test_doubles_of_one_value_are_one_group(strategy: Strategy) -> None:
    drawn = [
        (ts, 1, 1, ratio, 5, 0, 0.0, 0) for ts in range(9) for ratio in (0.0, -0.0, float("nan"), -float("nan"), 1.5)
    ]
    rows, found = matrix(TUPLE, [list(row.values()) for row in rows_of(drawn)]), []
    for way in (strategy, Strategy.PANED):
        planned, sink = planned_as(way, COUNT, ("ratio",), Window(WindowKind.SLIDING, 6, 2, axis(1))), Sink()
        operator, state = AggregateOperator(planned.aggregate, costs=HoldingCosts(least=9)), Stored()
        operator.on_batch(0, reduced(planned.reduce, rows), state.state, sink)
        state.again()
        operator.on_promise(0, panes_ended(FOREVER), state.state, sink)
        found.append(sorted(row for part in sink.matrices for row in part.tolist()))
    assert found[0] == found[1]
    assert len(found[0]) == 7 * 3


def test_wid_holds_many_windows_in_few_pieces_and_lets_go_of_those_that_are_out() -> None:
    """Of 3,000 open windows: a partial of each group in each, and not many more than a hundred pieces."""
    stream = Stream(Strategy.WID, Window(WindowKind.SLIDING, 3000, 1, axis(1)))
    for _ in range(3):
        stream.pane([1, 2])
    assert stream.held == 2 * (3000 - 1)  # the next pane is in one more
    assert len(stream.state.kept) < 3000 / 32 + 4
    stream.now += 3000
    stream.pane([])
    assert stream.held == 0
    assert stream.state.kept == ["closing"]


class Stream:
    """Tuples of hosts, pane after pane of one unit, into an operator whose state can be counted."""

    def __init__(self, strategy: Strategy, window: Window, costs: HoldingCosts = COSTS) -> None:
        planned = planned_as(strategy, COUNT, ("host",), window)
        plan = planned.aggregate
        self._operator = AggregateOperator(plan, costs=costs)
        self._reduce = planned.reduce
        layout = Layout(plan.input, plan.keys, plan.folds)
        self._mode = mode_space(layout.of_keys)
        self._kept = [tables_space(name, layout) for name in ("pane", "lazy", "block1", "block2", "block3")]
        self._windows = Windows(cells_of(window).window, layout).space
        self._running = running_space(layout)
        self.state = Stored()
        self.sink = Sink()
        self.now = 0

    def pane(self, hosts: Sequence[int], promised: bool = True) -> None:
        """One tuple of each host, and the promise that the pane has ended."""
        drawn = [(self.now, host, 1, 0.0, 5, 0, 0.0, 0) for host in hosts]
        rows = matrix(TUPLE, [list(row.values()) for row in rows_of(drawn)])
        self._operator.on_batch(0, reduced(self._reduce, rows), self.state.state, self.sink)
        self.now += 1
        if promised:
            self._operator.on_promise(0, panes_ended(self.now), self.state.state, self.sink)
            self.state.again()

    @property
    def eager(self) -> set[int]:
        mode = self.state.state.get(self._mode, ONLY)
        # A row is null mask, tuples, and the two words of the host.
        return set() if mode is None else set(mode.groups.groups[:, 4].tolist())

    @property
    def held(self) -> int:
        """States of groups that are kept, entries of the mode included."""
        state = self.state.state
        tables = [state.get(space, key) for space in self._kept for key in state.keys(space)]
        running = state.get(self._running, ONLY)
        blocks = [state.get(self._windows, key) for key in state.keys(self._windows)]
        partials = sum(block.partials for block in blocks if block)
        return partials + sum(map(len, filter(None, tables))) + (len(running.table) if running else 0) + len(self.eager)


def test_under_a_flood_of_groups_of_one_packet_the_state_is_that_of_lazy() -> None:
    """Spoofed sources: groups that never come again, beside some that always do."""
    window = Window(WindowKind.SLIDING, 10, 2, axis(1))
    regular, new = list(range(1, 41)), iter(range(10_000, 10**6))
    lazily = HoldingCosts(aggr=10**6)
    streams = {
        "lazy": Stream(Strategy.ADAPT, window, lazily), "adapt": Stream(Strategy.ADAPT, window),
        "wid": Stream(Strategy.WID, window), "paned": Stream(Strategy.PANED, window),
    }  # fmt: skip
    most = dict.fromkeys(streams, 0)
    for now in range(60):
        hosts = [*regular, *(next(new) for _ in range(200 if 30 <= now < 50 else 2))]
        for name, stream in streams.items():
            stream.pane(hosts)
            most[name] = max(most[name], stream.held)
    assert most["adapt"] <= 1.05 * most["lazy"]
    assert 2 * most["adapt"] < most["wid"]
    assert 1.5 * most["adapt"] < most["paned"]


@pytest.mark.parametrize("strategy", [Strategy.WID, Strategy.ADAPT])
def test_a_packet_of_another_time_opens_no_piece_of_state_for_each_window(strategy: Strategy) -> None:
    years = 13 * 365 * 86_400 * 10**9
    planned = planned_as(strategy, COUNT, ("host",), Window(WindowKind.SLIDING, 10, 1, axis(1)))
    operator, reduce, state, sink = (
        AggregateOperator(planned.aggregate),
        planned.reduce,
        Stored(),
        Sink(),
    )
    arrivals = rows_of([(ts, 1, 1, 0.0, 5, 0, 0.0, 0) for ts in (3, years, years + 4, 2 * years)])
    operator.on_batch(0, reduced(reduce, matrix(TUPLE, [list(row.values()) for row in arrivals])), state.state, sink)
    for frontier in (4, years + 5, FOREVER):
        operator.on_promise(0, panes_ended(frontier), state.state, sink)
        state.again()
        assert len(state.kept) < 20
    check(planned, COUNT, arrivals, sink)


class Read(list[int]):
    """Counts what is read of it."""

    count = 0

    def __iter__(self) -> Iterator[int]:
        for item in super().__iter__():
            self.count += 1
            yield item


def test_of_thousands_of_panes_those_are_read_that_windows_begin_with() -> None:
    window = Window(WindowKind.SLIDING, 3600, 1, axis(1))
    layout = Layout(plans(COUNT, ("host",), window).aggregate.input, ("host",), ())
    panes = Panes(tables_space("pane", layout), MemoryState(), None)
    panes.keys = keys = Read(range(3600))
    assert list(holding_windows(window, panes, 3599, 3602)) == [3599, 3600, 3601]
    assert keys.count <= 4
