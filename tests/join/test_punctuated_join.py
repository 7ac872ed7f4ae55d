"""The join that uses promises about values: its rows are those of nested loops, whatever is promised; the laws of what
it keeps, tells and gives up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from highlevel.interface import State
from highlevel.join import JoinOperator
from highlevel.join.punctuated import FreedRows, PunctuatedJoinOperator, nodes
from highlevel.join.punctuated.nodes import Nodes
from highlevel.state import MemoryByteStore, PiecewiseState
from lowmark.query.parse.syntax import JoinKind
from lowmark.query.plan import joins as plans
from lowmark.query.plan.nodes import Join
from lowmark.wire.records.partials import PANE
from lowmark.wire.records.punctuations import Bound, Promise
from lowmark.wire.records.verdicts import Reason
from lowmark.wire.rows.schema import Column, Kind, Schema
from lowmark.wire.rows.value_sets import ValueSet
from lowmark.wire.rows.values import FOREVER
from tests.join.harness import (
    ADDRESSES,
    INPUT,
    UNIT,
    Event,
    Scene,
    Tuple,
    events,
    kept,
    matches_something,
    nested_loops,
    numbers,
    partners,
    plan_of,
    send,
    times,
    words,
)
from tests.operators.harness import Live, Sink, Stored

NEVER = -(10**6)


@dataclass(frozen=True)
class Said:
    """An input's promise: no later row has one of these keys, and lies before pane `below`."""

    port: int
    keys: frozenset[tuple[int, ...]]
    below: int

    @property
    def time(self) -> int:
        return self.below if self.below == FOREVER else self.below * UNIT


Step = Event | Said


@dataclass(frozen=True)
class Punctuated:
    scene: Scene  # its events are tuples that keep all promises, and promises of times
    steps: tuple[Step, ...]  # with promises of values between them
    columns: tuple[str, ...]

    @property
    def plan(self) -> Join:
        return self.scene.plan


def key_of(row: Tuple, columns: Sequence[str]) -> tuple[int, ...]:
    return tuple(getattr(row, column) for column in columns)


@st.composite
def punctuated(draw: st.DrawFn, lying: bool = False) -> Punctuated:
    """`lying`: tuples need not keep promises of values."""
    tumbling = draw(st.booleans())
    size = st.integers(1, 30)
    sizes = (draw(size),) * 2 if tumbling else (draw(size), draw(size))
    columns = draw(st.sampled_from([("a",), ("ip",), ("a", "ip"), ("ip", "a")]))
    names = draw(st.permutations([*columns, *draw(st.sampled_from(((), ("f",), ({"a", "ip"} - {*columns}))))]))
    plan = showing_addresses(plan_of(sizes, tumbling, [(name, name) for name in names], draw(st.booleans())))
    by = tuple(names.index(name) for name in columns) if len(names) > len(columns) else ()
    plan = replace(plan, punctuated=plans.Punctuated(by))
    columns = tuple(plan.promised_keys[0])
    values = {"a": (0, 1, 2), "ip": ADDRESSES}
    keys = [*product(*(values[column] for column in columns))]
    promised: list[dict[tuple[int, ...], int]] = [{}, {}]
    steps: list[Step] = []
    for event in draw(events(2)):
        for _ in range(draw(st.integers(0, 2))):
            below = draw(st.integers(-30, 30) | st.just(FOREVER))
            said = Said(
                draw(st.integers(0, 1)), frozenset(draw(st.lists(st.sampled_from(keys), min_size=1, max_size=3))), below
            )
            for key in said.keys:
                promised[said.port][key] = max(said.time, promised[said.port].get(key, NEVER))
            steps.append(said)
        known = promised[event.port]
        rows = tuple(row for row in event.tuples if lying or row.t >= known.get(key_of(row, columns), NEVER))
        if rows or not event.tuples:
            steps.append(replace(event, tuples=rows))
    made = tuple(step for step in steps if isinstance(step, Event))
    return Punctuated(Scene(plan, made, tuple(draw(st.booleans()) for _ in steps)), tuple(steps), columns)


def showing_addresses(plan: Join) -> Join:
    inputs = tuple(replace(p, output=(*p.output, ("ip", f"{p.label}.ip"))) for p in plan.inputs)
    columns = (Column(f"{p.label}.ip", Kind.IP) for p in plan.inputs)
    return replace(plan, inputs=inputs, output=Schema((*plan.output.columns, *columns)))


def promise_of(said: Said, columns: Sequence[str]) -> Promise:
    time = () if said.below == FOREVER else (Bound(PANE, below=said.below),)
    order = 1 if said.port == 0 else -1  # columns come in any order
    column = tuple(columns[::order]) if len(columns) > 1 else columns[0]
    values = ValueSet.of_tuples([key[::order] for key in sorted(said.keys)], len(columns))
    return Promise((Bound(column, values=values), *time))


def tell(operator: PunctuatedJoinOperator, step: Step, columns: Sequence[str], state: State, sink: Sink) -> None:
    if isinstance(step, Event):
        send(operator, step, state, sink)
    else:
        operator.on_promise(step.port, promise_of(step, columns), state, sink)


def run(case: Punctuated, kind: type[Live] | type[Stored] = Stored) -> Sink:
    stored, sink, operator = kind(), Sink(), PunctuatedJoinOperator(case.plan)
    for step, saved in zip(case.steps, case.scene.saved, strict=True):
        tell(operator, step, case.columns, stored.state, sink)
        if saved:
            stored.again()
            operator = PunctuatedJoinOperator(case.plan)
    return sink


@given(punctuated())
@settings(max_examples=150)
def test_rows_are_those_of_nested_loops(case: Punctuated) -> None:
    sink = run(case)
    assert Counter(numbers(case.plan, sink.matrices)) == nested_loops(case.scene)
    assert sink.promises[-1].last
    assert not sink.sheds


@given(punctuated(lying=True))
@settings(max_examples=100)
def test_state_through_bytes_changes_nothing(case: Punctuated) -> None:
    live, stored = run(case, Live), run(case, Stored)
    assert list(numbers(case.plan, live.matrices)) == list(numbers(case.plan, stored.matrices))
    assert (live.promises, live.order) == (stored.promises, stored.order)
    assert np.array_equal(shed(live), shed(stored))


def shed(sink: Sink) -> np.ndarray:
    return np.concatenate([np.empty((0, INPUT.words), np.uint64), *(rows for rows, _ in sink.sheds)])


@dataclass
class Moment:
    operator: PunctuatedJoinOperator
    state: State
    sink: Sink
    arrived: tuple[list[Tuple], list[Tuple]]
    bounds: list[int]  # of the inputs
    promised: tuple[dict[tuple[int, ...], int], dict[tuple[int, ...], int]]  # by port and key

    def first(self, port: int, key: tuple[int, ...]) -> int:
        """The least time that a later row of a port with this key may have."""
        return max(self.bounds[port], self.promised[port].get(key, NEVER))


def moments(case: Punctuated) -> Iterator[Moment]:
    stored = Live()
    at = Moment(PunctuatedJoinOperator(case.plan), stored.state, Sink(), ([], []), [NEVER, NEVER], ({}, {}))
    for step in case.steps:
        tell(at.operator, step, case.columns, stored.state, at.sink)
        if isinstance(step, Said):
            for key in step.keys:
                at.promised[step.port][key] = max(step.time, at.promised[step.port].get(key, NEVER))
        elif step.tuples:
            at.arrived[step.port].extend(step.tuples)
        else:
            at.bounds[step.port] = step.ended if step.ended == FOREVER else step.ended * UNIT
        yield at


def waits(case: Punctuated, at: Moment, port: int, row: Tuple) -> bool:
    """Whether a row that no promise excludes could meet this one."""
    able = matches_something(case.scene, port, row)
    reach = partners(case.scene, port, row.t, 1 - port)
    return able and reach.stop > at.first(1 - port, key_of(row, case.columns))


@given(punctuated())
@settings(max_examples=150)
def test_what_is_kept_is_what_a_later_row_could_meet(case: Punctuated) -> None:
    """Purge never removes a row that a later one could join, and nothing else is kept. Ding allows more: a row of an
    input stays until the next row of the other one comes, and promises bounded in time purge nothing."""
    for at in moments(case):
        for port in (0, 1):
            waiting = [row.t for row in at.arrived[port] if waits(case, at, port, row)]
            assert sorted(kept(at.operator, at.state, port)) == sorted(waiting)
            assert len(at.operator.nodes(port, at.state)) == len(waiting)


@given(punctuated())
@settings(max_examples=150)
def test_no_row_comes_after_a_promise_that_excludes_it(case: Punctuated) -> None:
    told, known = 0, 0
    for at in moments(case):
        for row in shown(case, at.sink.matrices[told:]):
            assert not any(excludes(promise, row) for promise in at.sink.promises[:known])
        told, known = len(at.sink.matrices), len(at.sink.promises)


def shown(case: Punctuated, matrices: Sequence[np.ndarray]) -> Iterator[dict[str, int]]:
    """The rows by their names in the output, times and keys."""
    arrived = [{row.number: row for row in case.scene.tuples(port)} for port in (0, 1)]
    for pair in numbers(case.plan, matrices):
        rows = [arrived[port][number or 0] for port, number in enumerate(pair)]
        yield {f"i{n}.{name}": getattr(row, name) for n, row in enumerate(rows) for name in ("t", "a", "ip")}


def excludes(promise: Promise, row: Mapping[str, int]) -> bool:
    return promise.last or all(is_in(bound, row) for bound in promise.bounds)


def is_in(bound: Bound, row: Mapping[str, int]) -> bool:
    values = tuple(row[column] for column in bound.columns)
    return values in bound.values.tuples() if bound.values is not None else values < (bound.below or 0,)


@given(punctuated())
@settings(max_examples=150)
def test_a_value_is_told_as_soon_as_its_last_row_is_gone(case: Punctuated) -> None:
    """Theorems 3.1 and 4.1: an input has promised a value, and no row of it that the promise does not exclude waits."""
    for at in moments(case):
        for port in (0, 1):
            for key, bound in at.promised[port].items():
                rows = [row for row in at.arrived[port] if key_of(row, case.columns) == key and row.t < bound]
                if not any(waits(case, at, port, row) for row in rows):
                    assert is_told(case, at.sink.promises, port, key, bound)


def is_told(case: Punctuated, made: Sequence[Promise], port: int, key: tuple[int, ...], bound: int) -> bool:
    """Whether the output promises that no later row has this key and, of this input, a time before the bound."""
    values = {f"i{n}.{name}": value for n in (0, 1) for name, value in zip(case.columns, key, strict=True)}
    reach = 1000 + 2 * max(p.size for p in case.plan.inputs)
    return any(
        excludes(promise, values | {f"i{port}.t": min(bound, reach) - 1, f"i{1 - port}.t": reach})
        for promise in made
        if promise.last or all(c in values or c == f"i{port}.t" for bound in promise.bounds for c in bound.columns)
    )


@given(punctuated(lying=True))
@settings(max_examples=100)
def test_rows_that_break_a_promise_are_given_up(case: Punctuated) -> None:
    """The rows of the others are complete. Of a value that both inputs exclude for ever nothing is known any more:
    there the driver alone refuses what still comes."""
    promised: tuple[dict[tuple[int, ...], int], dict[tuple[int, ...], int]] = ({}, {})
    honest: list[Event] = []
    broken: list[int] = []
    for step in case.steps:
        if isinstance(step, Said):
            for key in step.keys:
                promised[step.port][key] = max(step.time, promised[step.port].get(key, NEVER))
            continue
        known = promised[step.port]
        rows = [row for row in step.tuples if row.t >= known.get(key_of(row, case.columns), NEVER)]
        ended = [k for k in known if known[k] == promised[1 - step.port].get(k) == FOREVER]
        able = [row for row in step.tuples if row not in rows and matches_something(case.scene, step.port, row)]
        broken += [row.number for row in able if key_of(row, case.columns) not in ended]
        if any(key_of(row, case.columns) in ended for row in able):
            return
        honest.append(replace(step, tuples=tuple(rows)))
    sink = run(case)
    assert Counter(numbers(case.plan, sink.matrices)) == nested_loops(replace(case.scene, events=tuple(honest)))
    assert all(reason is Reason.PUNCTUATED for _, reason in sink.sheds)
    assert Counter(shed(sink)[:, INPUT.offset("id")].tolist()) == Counter(broken)


def start(sizes: tuple[int, int] = (8, 8)) -> tuple[PunctuatedJoinOperator, State, Sink]:
    return PunctuatedJoinOperator(plan_of(sizes, False, [("a", "a")], False)), Live().state, Sink()


def row_of(port: int, t: int, a: int) -> Event:
    return Event(port, (Tuple(t, t, a, 0.0, 1),))


def about(sink: Sink) -> list[Promise]:
    return [promise for promise in sink.promises if any(bound.values is not None for bound in promise.bounds)]


def test_both_inputs_have_promised_a_value() -> None:
    """Theorem 3.1: at the second promise, and once."""
    operator, state, sink = start()
    send(operator, row_of(0, 1, 7), state, sink)
    send(operator, row_of(1, 1, 7), state, sink)
    tell(operator, Said(0, frozenset({(7,)}), FOREVER), ("a",), state, sink)
    assert (kept(operator, state, 0), kept(operator, state, 1)) == ([1], [])
    assert not about(sink)
    tell(operator, Said(1, frozenset({(7,)}), FOREVER), ("a",), state, sink)
    assert (kept(operator, state, 0), kept(operator, state, 1)) == ([], [])
    value = ValueSet.of([7])
    assert about(sink) == [Promise((Bound("i0.a", values=value),)), Promise((Bound("i1.a", values=value),))]
    assert operator.nodes(0, state).promised == operator.nodes(1, state).promised == 0


def test_the_last_row_of_a_value_leaves_its_window() -> None:
    """Theorem 4.1: the other input has promised nothing. Rows of it that still come are dropped; its own promise says
    nothing new."""
    operator, state, sink = start()
    send(operator, row_of(0, 1, 7), state, sink)
    tell(operator, Said(0, frozenset({(7,)}), FOREVER), ("a",), state, sink)
    send(operator, Event(1, ended=2), state, sink)
    assert not about(sink)
    send(operator, Event(1, ended=3), state, sink)
    assert len(about(sink)) == 2  # one for each name of the value in the output
    send(operator, row_of(1, 13, 7), state, sink)
    assert not kept(operator, state, 1)
    assert not sink.matrices
    tell(operator, Said(1, frozenset({(7,)}), FOREVER), ("a",), state, sink)
    assert len(about(sink)) == 2


def test_a_later_connection_of_the_same_value_is_untouched() -> None:
    """Promises that are bounded in time: value 7 ends before pane 2, time 8, of the first input."""
    operator, state, sink = start()
    for event in (row_of(0, 1, 7), row_of(1, 2, 7), row_of(1, 15, 7)):
        send(operator, event, state, sink)
    tell(operator, Said(0, frozenset({(7,)}), 2), ("a",), state, sink)
    assert kept(operator, state, 1) == [2, 15]  # 8 is less than 8 from 2, too
    tell(operator, Said(0, frozenset({(7,)}), 3), ("a",), state, sink)
    assert kept(operator, state, 1) == [15]
    send(operator, row_of(0, 13, 7), state, sink)
    assert list(times(operator_plan(), sink.matrices)) == [(1, 2), (13, 15)]


def test_what_promises_have_freed_is_counted() -> None:
    """Purged, and kept out; not what has left with its window, and not what breaks a promise."""
    operator, state, sink = start()
    for event in (row_of(0, 1, 7), row_of(1, 2, 7), row_of(1, 3, 5), row_of(1, 15, 7)):
        send(operator, event, state, sink)
    tell(operator, Said(0, frozenset({(7,)}), 3), ("a",), state, sink)
    assert operator.freed(state) == (FreedRows("i0", 1, 1, 0), FreedRows("i1", 2, 0, 1))
    send(operator, row_of(1, 3, 7), state, sink)
    send(operator, row_of(0, 2, 7), state, sink)
    assert len(sink.sheds) == 1
    send(operator, Event(0, ended=4), state, sink)
    assert operator.freed(state) == (FreedRows("i0", 1, 1, 0), FreedRows("i1", 1, 0, 2))


def test_a_micro_batch_writes_what_is_new() -> None:
    """A row that came, those that a promise purges, the promised values: not the rows and values that stay."""
    plan, store, sink = plan_of((4000, 4000), False, [("a", "a")], False), MemoryByteStore(), Sink()
    operator = PunctuatedJoinOperator(plan)

    def batch(values: range, at: int, promised: range) -> int:
        state = PiecewiseState(store, "stage")
        for port in (0, 1):
            rows = words([Tuple(at, value, value, 0.0, 1) for value in values])
            operator.on_batch(port, rows, state, sink)
        for port in (0, 1):
            tell(operator, Said(port, frozenset((value,) for value in promised), 2000), ("a",), state, sink)
        return state.commit()

    whole = batch(range(1000), 10, range(200))
    parts = [batch(range(n, n + 5), 10 + n, range(n, n + 5)) for n in range(1000, 1100, 5)]
    assert max(parts) < whole / 10
    state = PiecewiseState(store, "stage")
    for port in (0, 1):
        assert len(operator.nodes(port, state)) == 800
        assert operator.nodes(port, state).promised == 300


@given(seed=st.integers(0, 2**32))
@settings(max_examples=30)
def test_rows_that_go_and_come_between_micro_batches(seed: int) -> None:
    """Parts of the state together are the state that was never written."""
    plan, random = plan_of((60, 60), False, [("a", "a")], False), np.random.default_rng(seed)
    operator, stored, live, sink = PunctuatedJoinOperator(plan), Stored(), Live(), Sink()
    for step in range(60):
        port, now = int(random.integers(2)), 4 * step
        values = random.integers(0, 12, random.integers(0, 30))
        rows = words([Tuple(now + int(random.integers(20)), step, int(value), 0.0, 1) for value in values])
        said = Said(port, frozenset({(int(random.integers(12)),)}), now // UNIT + int(random.integers(40)))
        taken = len(rows) > 0 and random.integers(3) > 0
        for state in (stored.state, live.state):
            if taken:
                operator.on_batch(port, rows, state, sink)
            tell(operator, said, ("a",), state, sink)
            if step % 5 == 4:
                send(operator, Event(port, ended=now // UNIT), state, sink)
        if random.integers(2):
            stored.again()
        for of in (0, 1):
            assert sorted(kept(operator, stored.state, of)) == sorted(kept(operator, live.state, of))
            mine, other = operator.nodes(of, stored.state), operator.nodes(of, live.state)
            assert len(mine) == len(other)
            for known, expected in zip(mine.flags(), other.flags(), strict=True):
                assert sorted(known.tolist()) == sorted(expected.tolist())


def operator_plan() -> Join:
    return plan_of((8, 8), False, [("a", "a")], False)


def test_promises_beyond_the_limit_are_lost_and_rows_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "MOST_PROMISED", 2)
    operator, state, sink = start()
    for value in range(4):
        send(operator, row_of(1, value, value), state, sink)
    for value in range(4):
        tell(operator, Said(0, frozenset({(value,)}), 10 + value % 2), ("a",), state, sink)
    assert operator.nodes(0, state).promised == 2
    for value in range(4):
        send(operator, row_of(1, 4 + value, value), state, sink)
    assert sorted(kept(operator, state, 1)) == [4, 6]  # of the values that are not known any more
    rows, bounds, _ = operator.nodes(0, state).flags()
    assert (rows[:, 0].tolist(), bounds.tolist()) == ([1, 3], [11 * UNIT] * 2)


@pytest.mark.parametrize("stored", [Live, Stored])
def test_many_rows(stored: type[Live] | type[Stored]) -> None:
    """Arrays grow and are tidied: a long run of clusters in disorder, one of them far larger than the others, against
    the join that knows no promises of values."""
    plan = plan_of((400, 300), False, [("a", "a")], False)
    random, punctuated_state, plain_state = np.random.default_rng(5), stored(), Live()
    punctuated, plain, one, other = PunctuatedJoinOperator(plan), JoinOperator(plan), Sink(), Sink()
    most, number = 0, 0
    for cluster in range(120):
        size = 400 if cluster == 60 else int(random.integers(0, 40))
        for port in (0, 1):
            at = 50 * cluster + random.integers(0, 50, size)
            rows = [Tuple(int(t), number + n, cluster, 0.0, 1) for n, t in enumerate(at)]
            number += size
            for operator, state, sink in ((punctuated, punctuated_state.state, one), (plain, plain_state.state, other)):
                operator.on_batch(port, words(rows), state, sink)
        if cluster % 3 == 0:
            for port in (0, 1):
                values = ValueSet.of(range(max(0, cluster - 5), cluster + 1))
                punctuated.on_promise(port, Promise((Bound("a", values=values),)), punctuated_state.state, one)
        for port in (0, 1):
            ended = Promise((Bound(PANE, (50 * (cluster + 1)) // UNIT),))
            punctuated.on_promise(port, ended, punctuated_state.state, one)
            plain.on_promise(port, ended, plain_state.state, other)
        if cluster % 10 == 9:
            punctuated_state.again()
        store: Nodes = punctuated.nodes(0, punctuated_state.state)
        most = max(most, len(store))
    assert len(one.matrices) > 100
    assert Counter(numbers(plan, one.matrices)) == Counter(numbers(plan, other.matrices))
    assert store.held < 100_000
    assert len(store) <= 3 * 40


def test_other_joins_are_refused() -> None:
    for plan in (
        plan_of((4, 4), False, [], False), plan_of((4, 4, 4), False, [("a", "a", "a")], False),
        plan_of((4, 4), False, [("a", "a")], False, JoinKind.LEFT),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="inner joins of two inputs with an equality"):
            PunctuatedJoinOperator(plan)
