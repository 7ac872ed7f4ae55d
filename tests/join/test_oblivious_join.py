"""The window-oblivious join: the same rows whatever the memory strategy, and what the model gives up is told. Its rows
and promises without a strategy are tested with those of all joins, in `test_join`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from highlevel.join.oblivious.disk_buffer import DiskRoom
from highlevel.join.oblivious.oblivious_join import ObliviousJoinOperator
from highlevel.join.oblivious.usage import Usage
from lowmark.query.options import Buffering, Memory
from lowmark.query.plan.joins import Join, Oblivious
from lowmark.wire.records.verdicts import Reason
from lowmark.wire.rows.values import FOREVER
from lowmark.wire.rows.words import column_of
from tests.join.harness import (
    INPUT,
    UNIT,
    Event,
    Scene,
    Tuple,
    nested_loops,
    numbers,
    plan_of,
    scenes,
    send,
    times,
)
from tests.operators.harness import Live, Sink, Stored

BUFFERS = st.sampled_from((None, *Buffering))
BOUNDS = st.sampled_from((None, 1, 400, 2000))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rows")


def strategic(plan: Join, memory: Memory, buffer: Buffering | None = None, bound: int | None = None) -> Join:
    return replace(plan, oblivious=Oblivious(memory, buffer=buffer, bound=bound))


def run(
    plan: Join, events: Sequence[Event], kind: type[Live] | type[Stored] = Live, room: DiskRoom | None = None,
    saved: Sequence[bool] = (),
) -> tuple[Sink, Usage, list[int]]:  # fmt: skip
    """What came out, what was needed, and the rows that are kept at the end."""
    stored, sink, operator = kind(), Sink(), ObliviousJoinOperator(plan, room)
    for number, event in enumerate(events):
        send(operator, event, stored.state, sink)
        if number < len(saved) and saved[number]:
            stored.again()
            operator = ObliviousJoinOperator(plan, room)
    kept = [operator.kept(port, stored.state) for port in range(len(plan.inputs))]
    return sink, operator.usage(stored.state), kept


@given(scene=scenes(oblivious=True), buffer=BUFFERS, bound=BOUNDS)
@settings(max_examples=150)
def test_no_strategy_changes_a_row(scene: Scene, buffer: Buffering | None, bound: int | None, folder: Path) -> None:
    """Not with blocks of three rows, on a disk that is full after four of them; wherever state is written and read."""
    plan = strategic(scene.plan, Memory.FRONTIER, buffer, bound)
    room = DiskRoom(folder, 1000, 250)
    sink, usage, kept = run(plan, scene.events, Stored, room, scene.saved)
    assert Counter(numbers(plan, sink.matrices)) == nested_loops(scene)
    assert (sink.sheds, usage.shed) == ([], [0] * len(plan.inputs))
    assert kept == [0] * len(plan.inputs)
    assert usage.found == sum(map(len, sink.matrices))
    assert room.used == 0
    room.close()


@given(scene=scenes(oblivious=True), buffer=BUFFERS, bound=BOUNDS)
@settings(max_examples=100)
def test_rows_that_wait_break_no_promise(
    scene: Scene, buffer: Buffering | None, bound: int | None, folder: Path
) -> None:
    plan = strategic(scene.plan, Memory.FRONTIER, buffer, bound)
    room = DiskRoom(folder, 1000, 250)
    stored, sink, operator = Live(), Sink(), ObliviousJoinOperator(plan, room)
    names, told = [f"i{n}.t" for n in range(len(plan.inputs))], 0
    for event in scene.events:
        made = list(sink.promises)
        send(operator, event, stored.state, sink)
        for row in times(plan, sink.matrices[told:]):
            at = dict(zip(names, row, strict=True))
            for promise in made:
                bounds = [(at.get(bound.column), bound.below) for bound in promise.bounds]
                assert not all(time is not None and below is not None and time < below for time, below in bounds)
        told = len(sink.matrices)
    assert sink.promises[-1].last
    room.close()


@st.composite
def streams(draw: st.DrawFn, count: int) -> list[list[Tuple]]:
    """Of each input many rows, in an order that is nearly that of time; inputs drift apart."""
    found = []
    for _ in range(count):
        length, scrambled = draw(st.integers(50, 300)), draw(st.sampled_from((0, 1, 5, 40)))
        seed = draw(st.randoms(use_true_random=False))
        rows = [Tuple(seed.randint(0, 2 * length), 0, seed.choice((0, 1)), 0.0, 1) for _ in range(length)]
        rows.sort(key=lambda row: row.t + seed.random() * scrambled)
        found.append([replace(row, number=number) for number, row in enumerate(rows)])
    return found


@st.composite
def arrivals(draw: st.DrawFn, count: int, promises: bool) -> tuple[Event, ...]:
    """Rows of all inputs, a few at a time, in any interleaving; and if wanted promises that hold."""
    left = [list(rows) for rows in draw(streams(count))]
    ended = [-(10**6)] * count
    made: list[Event] = []
    chance = draw(st.randoms(use_true_random=False))
    while any(left):
        port = chance.choice([port for port, rows in enumerate(left) if rows])
        size = chance.randint(1, 30)
        part, left[port] = left[port][:size], left[port][size:]
        made.append(Event(port, tuple(part)))
        least = min((row.t for row in left[port]), default=1000) // UNIT
        if promises and least > ended[port] and chance.random() < 0.5:
            ended[port] = least
            made.append(Event(port, ended=least))
    return (*made, *(Event(port, ended=FOREVER) for port in range(count)))


def meeting(size: int, count: int, events: Sequence[Event]) -> Counter[tuple[int | None, ...]]:
    """The numbers of the rows that lie in one window: from all rows of each, not from pairs."""
    windows: dict[int, list[list[int]]] = {}
    for event in events:
        for row in event.tuples:
            windows.setdefault(row.t // size, [[] for _ in range(count)])[event.port].append(row.number)
    return Counter(found for inputs in windows.values() for found in product(*inputs))


@given(data=st.data(), size=st.sampled_from((1, 1, 7)), count=st.sampled_from((2, 2, 3)))
@settings(max_examples=25, deadline=None)
def test_what_the_model_gives_up_is_told(data: st.DataObject, size: int, count: int) -> None:
    """Each row that is missing holds one that was shed; all others are there, and none more."""
    equal = [("t",) * count] if size == 1 else []
    plan = strategic(plan_of((size,) * count, True, equal, False, windowless=True), Memory.MODEL)
    events = data.draw(arrivals(count, data.draw(st.booleans())))
    sink, usage, _ = run(plan, events)
    found, wanted = Counter(numbers(plan, sink.matrices)), meeting(size, count, events)
    assert found <= wanted
    missing = wanted - found
    shed = Counter[int]()
    for rows, reason in sink.sheds:
        assert reason is Reason.WINDOW_OBLIVIOUS
        shed.update(column_of(INPUT, rows, "id")[0].tolist())
    for row in missing:
        assert any(number in shed for number in row)
    assert sum(shed.values()) == sum(usage.shed)


@given(data=st.data(), count=st.sampled_from((2, 3)))
@settings(max_examples=25, deadline=None)
def test_known_parameters_lose_nothing(data: st.DataObject, count: int) -> None:
    """With the scrambling factors given, all results are there, whatever was shed (Wu, 5.1)."""
    plan = plan_of((1,) * count, True, [("t",) * count], False, windowless=True)
    events = data.draw(arrivals(count, False))
    given_ = tuple(scrambling([row.t for e in events if e.port == port for row in e.tuples]) for port in range(count))
    plan = replace(plan, oblivious=Oblivious(Memory.MODEL, given_))
    sink, _, _ = run(plan, events)
    assert Counter(numbers(plan, sink.matrices)) == meeting(1, count, events)


def scrambling(keys: Sequence[int]) -> int:
    """Definition 2.2, by looking at all pairs that matter: how far behind the first key that is not smaller."""
    return max((at - next(i for i, other in enumerate(keys) if other >= key) for at, key in enumerate(keys)), default=0)


@given(data=st.data(), size=st.sampled_from((1, 7)))
@settings(max_examples=15, deadline=None)
def test_the_model_goes_by_rows_not_by_batches(data: st.DataObject, size: int) -> None:
    """The same rows in the same order, however they are cut, wherever state is written: the same results and losses."""
    plan = strategic(
        plan_of((size,) * 2, True, [("t", "t")] if size == 1 else [], False, windowless=True), Memory.MODEL
    )
    events = data.draw(arrivals(2, True))
    whole, usage, _ = run(plan, events)
    cut = [part for event in events for part in pieces(event, data.draw(st.integers(1, 9)))]
    saved = data.draw(st.lists(st.booleans(), min_size=len(cut), max_size=len(cut)))
    other, again, _ = run(plan, cut, Stored, saved=saved)
    assert Counter(numbers(plan, whole.matrices)) == Counter(numbers(plan, other.matrices))
    assert usage.shed == again.shed
    assert shed_rows(whole) == shed_rows(other)


def shed_rows(sink: Sink) -> Counter[int]:
    return Counter(number for rows, _ in sink.sheds for number in column_of(INPUT, rows, "id")[0].tolist())


def pieces(event: Event, size: int) -> list[Event]:
    if not event.tuples:
        return [event]
    return [Event(event.port, event.tuples[at : at + size]) for at in range(0, len(event.tuples), size)]


def test_the_model_keeps_little_of_inputs_that_run_together() -> None:
    """Ordered and synchronized: a few rows are enough, and everything is found; without it all wait for a promise."""
    plan = plan_of((1, 1), True, [("t", "t")], False, windowless=True)
    rows = [Tuple(t, t, 1, 0.0, 1) for t in range(20_000)]
    events = [Event(port, tuple(rows[at : at + 50])) for at in range(0, len(rows), 50) for port in (0, 1)]
    cut, usage, kept = run(strategic(plan, Memory.MODEL), events)
    assert sum(map(len, cut.matrices)) == len(rows)
    assert max(kept) <= 2 * 256
    assert usage.within > 0.99 * usage.found
    whole, predicted, waiting = run(strategic(plan, Memory.FRONTIER), events)
    assert sum(map(len, whole.matrices)) == len(rows)
    assert waiting == [len(rows)] * 2
    assert max(predicted.predicted) <= 300
    assert max(predicted.used) <= 100


def test_an_input_that_runs_ahead_waits_on_disk(folder: Path) -> None:
    plan = plan_of((1, 1), True, [("t", "t")], False, windowless=True)
    room = DiskRoom(folder, 10**7, 4096)
    operator, stored, sink = ObliviousJoinOperator(strategic(plan, Memory.FRONTIER, None, 20_000), room), Live(), Sink()
    rows = [Tuple(t, t, 1, 0.0, 1) for t in range(5000)]
    for at in range(0, len(rows), 50):
        send(operator, Event(0, tuple(rows[at : at + 50])), stored.state, sink)
        if at < 1000:
            send(operator, Event(1, tuple(rows[at : at + 50])), stored.state, sink)
    assert operator.admission.on_disk(0, stored.state) > 3000
    assert room.used > 3000 * INPUT.words * 8 / 2
    for at in range(1000, len(rows), 50):
        send(operator, Event(1, tuple(rows[at : at + 50])), stored.state, sink)
    for port in (0, 1):
        send(operator, Event(port, ended=FOREVER), stored.state, sink)
    assert sum(map(len, sink.matrices)) == len(rows)
    assert room.used == 0
    room.close()


def test_rows_that_waited_are_there_after_the_bound_was_lifted(folder: Path) -> None:
    """The next start reads the state with another bound, and has no file: nothing is to wait there any more."""
    plan = plan_of((1, 1), True, [("t", "t")], False, windowless=True)
    room = DiskRoom(folder, 10**7, 4096)
    bounded, stored, sink = (
        ObliviousJoinOperator(strategic(plan, Memory.FRONTIER, None, 20_000), room),
        Stored(),
        Sink(),
    )
    rows = [Tuple(t, t, 1, 0.0, 1) for t in range(2000)]
    for at in range(0, len(rows), 50):
        send(bounded, Event(0, tuple(rows[at : at + 50])), stored.state, sink)
    assert bounded.admission.on_disk(0, stored.state) > 0
    stored.again()
    operator = ObliviousJoinOperator(strategic(plan, Memory.FRONTIER, None))
    assert operator.kept(0, stored.state) == len(rows)
    send(operator, Event(0, (Tuple(2000, 2000, 1, 0.0, 1),)), stored.state, sink)
    assert operator.admission.on_disk(0, stored.state) == 0
    for at in range(0, len(rows), 50):
        send(operator, Event(1, tuple(rows[at : at + 50])), stored.state, sink)
    assert sum(map(len, sink.matrices)) == len(rows)
    room.close()
