"""How many windows of partitions are open, against a count by the definition: any cuts, state as bytes at any time,
partitions that begin anew."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from highlevel.operators.row_windows.partitioned_rows import PartitionedRowsOperator
from highlevel.state import MemoryByteStore, PiecewiseState
from lowmark.query.windows.window import Axis, Window, WindowKind
from lowmark.wire.records.verdicts import OpenCount
from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.values import FOREVER
from tests.operators.harness import AskedCall, Live, Row, Sink, Stored, panes_ended
from tests.operators.test_aggregate import rows_of
from tests.operators.test_counted import PANE, PARTITIONS, arriving, over_rows, partials, planned, settled

COUNT = [AskedCall("count")]


def naive(window: Window, counts: Iterable[int]) -> OpenCount:
    """Of partitions of so many rows: windows that hold one of them, and not yet the last. A landmark window begins in
    its own slide."""
    unit, found = window.axis.unit, []
    length = window.slide if window.kind is WindowKind.LANDMARK else window.size
    for count in counts:
        ends = [(number + 1) * window.slide for number in range(count + length)]
        begun = [end for end in ends if any(end - length <= row // unit < end for row in range(count))]
        found.append(sum(count < end * unit for end in begun))
    return OpenCount(sum(found), sum(windows > 0 for windows in found))


class Partitions:
    """How many rows each has in its present life."""

    def __init__(self, keys: tuple[str, ...], expire: int | None) -> None:
        self._keys = keys
        self._expire = expire
        self._latest: dict[tuple[object, ...], int] = {}
        self.rows: dict[tuple[object, ...], int] = {}

    def take(self, row: Row) -> None:
        key, pane = tuple(row[name] for name in self._keys), row["ts"] // PANE
        if self._expire is not None and pane > self._latest.get(key, pane) + self._expire:
            del self.rows[key], self._latest[key]
        self.rows[key] = self.rows.get(key, 0) + 1
        self._latest[key] = max(self._latest.get(key, pane), pane)

    def promised(self, below: int) -> None:
        for key in [key for key, pane in self._latest.items() if pane + (self._expire or FOREVER) < below]:
            del self.rows[key], self._latest[key]


@given(over_rows, PARTITIONS, arriving, st.none() | st.integers(1, 3), st.data())
@settled
def test_open_are_the_windows_that_the_end_would_close(
    window: Window, partition: tuple[str, ...], arrivals: list[Row], expire: int | None, data: st.DataObject
) -> None:
    plan = planned(window, partition, COUNT)
    operator, sink = PartitionedRowsOperator(replace(plan.counted, expire=expire)), Sink()
    state, known, done = data.draw(st.sampled_from([Live, Stored]))(), Partitions(partition, expire), 0
    while done < len(arrivals):
        cut = data.draw(st.integers(done + 1, len(arrivals)))
        operator.on_batch(0, partials(plan, arrivals[done:cut]), state.state, sink)
        for row in arrivals[done:cut]:
            known.take(row)
        done = cut
        if data.draw(st.booleans()):
            state.again()
        if data.draw(st.booleans()):
            below = min((row["ts"] for row in arrivals[done:]), default=70) // PANE
            operator.on_promise(0, panes_ended(below), state.state, sink)
            known.promised(below)
        assert operator.open(state.state) == naive(window, known.rows.values())
    told, left = sum(map(len, sink.matrices)), operator.open(state.state).windows
    operator.on_promise(0, panes_ended(FOREVER), state.state, sink)
    assert sum(map(len, sink.matrices)) - told == left  # a row a window, as the partition is the group
    assert operator.open(state.state) == OpenCount()


class Loads(MemoryByteStore):
    """Which pieces were read."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []

    def load(self, space: str, key: int) -> bytes | None:
        self.loaded.append(space)
        return super().load(space, key)


def test_one_row_takes_the_pieces_of_its_own_partition_whichever_others_are_open() -> None:
    window = Window(WindowKind.SLIDING, 4, 2, Axis("row_num", Kind.INT, 1, 1))
    plan, store = planned(window, ("port",), COUNT), Loads()
    operator = PartitionedRowsOperator(plan.counted)
    rows = partials(plan, rows_of([(0, 1, port, 0.0, 1, None, None, 0) for port in range(5000)]))
    state = PiecewiseState(store, "stage")
    operator.on_batch(0, rows, state, Sink())
    assert operator.open(state) == OpenCount(2 * 5000, 5000)
    state.commit()
    store.loaded.clear()
    state = PiecewiseState(store, "stage")
    operator.on_batch(0, rows[:1], state, Sink())
    assert operator.open(state) == OpenCount(2 * 5000 - 1, 5000)  # rows -1 to 2 are there, and 3 has not come
    assert sorted(store.loaded) == ["", "bins", "counters", "open"]  # "": which pieces there are
