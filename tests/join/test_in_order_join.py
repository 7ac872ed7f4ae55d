"""The join in order of time: the rows of the join that knows no order, in order, whatever the way, cuts and budgets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from highlevel.interface import State
from highlevel.join.in_order import InOrderJoinOperator
from lowmark.query.plan.joins import InOrder, Release
from lowmark.query.plan.nodes import Join
from lowmark.wire.rows.values import FOREVER
from tests.join.harness import (
    UNIT,
    Event,
    Scene,
    Tuple,
    kept_bins,
    nested_loops,
    numbers,
    plan_of,
    scenes,
    send,
    times,
)
from tests.operators.harness import Live, Sink, Stored

WAYS = tuple(Release)


@dataclass(frozen=True)
class Ordered:
    scene: Scene
    plan: Join
    budgets: tuple[int, ...]  # of work after each event; None: all


@st.composite
def ordered(draw: st.DrawFn) -> Ordered:
    scene = draw(scenes())
    # With these c, loads lie on both sides of α.
    choice = InOrder(draw(st.sampled_from(WAYS)), draw(st.sampled_from((1e-3, 10.0, 1e3))), 0.3)
    plan = replace(scene.plan, in_order=choice)
    return Ordered(scene, plan, tuple(draw(st.integers(0, 4)) for _ in scene.events))


Moment = tuple[InOrderJoinOperator, Live | Stored, Sink, int]


def moments(case: Ordered, kind: type[Live] | type[Stored]) -> Iterator[Moment]:
    stored, sink, operator = kind(), Sink(), InOrderJoinOperator(case.plan)
    for event, saved, budget in zip(case.scene.events, case.scene.saved, case.budgets, strict=True):
        send(operator, event, stored.state, sink)
        left = operator.work(stored.state, sink, budget)
        if saved:
            stored.again()
            operator = InOrderJoinOperator(case.plan)
        yield operator, stored, sink, left
    while left := operator.work(stored.state, sink, 1 << 16):
        pass
    yield operator, stored, sink, left


def run(case: Ordered, kind: type[Live] | type[Stored] = Stored) -> Sink:
    *_, (_, _, sink, _) = moments(case, kind)
    return sink


@given(ordered())
@settings(max_examples=200)
def test_rows_are_those_of_nested_loops_in_order(case: Ordered) -> None:
    sink = run(case)
    assert Counter(numbers(case.scene.plan, sink.matrices)) == nested_loops(case.scene)
    greatest = [max(t for t in row if t is not None) for row in times(case.scene.plan, sink.matrices)]
    assert greatest == sorted(greatest)
    assert sink.promises[-1].last


@given(ordered())
@settings(max_examples=100)
def test_state_through_bytes_changes_nothing(case: Ordered) -> None:
    live, stored = run(case, Live), run(case, Stored)
    assert list(numbers(case.scene.plan, live.matrices)) == list(numbers(case.scene.plan, stored.matrices))
    assert (live.promises, live.order) == (stored.promises, stored.order)


@given(ordered())
@settings(max_examples=150)
def test_no_row_comes_after_a_promise_that_excludes_it(case: Ordered) -> None:
    told, known = 0, 0
    names = [f"i{n}.t" for n in range(len(case.scene.plan.inputs))]
    for _, _, sink, _ in moments(case, Live):
        for row in times(case.scene.plan, sink.matrices[told:]):
            at = dict(zip(names, row, strict=True))
            at |= {e.name: (max if e.greatest else min)(at[n] for n in e.of) for e in case.scene.plan.extremes}
            for promise in sink.promises[:known]:
                assert not promise.last
                assert not all(at[bound.column] < bound.below for bound in promise.bounds)
        told, known = len(sink.matrices), len(sink.promises)


@given(ordered())
@settings(max_examples=150)
def test_what_is_released_when(case: Ordered) -> None:
    """When no work is left, exactly the rows have left whose time all inputs have passed."""
    bounds = [-(10**6)] * len(case.scene.plan.inputs)
    everything = list(times(case.scene.plan, run(case).matrices))
    arrived: list[Event] = []
    for event, (_, _, sink, left) in zip(case.scene.events, moments(case, Live), strict=False):
        arrived.append(event)
        if not event.tuples:
            bounds[event.port] = event.ended if event.ended == FOREVER else event.ended * UNIT
        if left == 0:
            due = [row for row in everything if max(t for t in row if t is not None) < min(bounds)]
            assert Counter(times(case.scene.plan, sink.matrices)) == Counter(due)


@given(ordered())
@settings(max_examples=150)
def test_sync_keeps_rows_of_inputs_alone(case: Ordered) -> None:
    """Section 4.2: nothing is held, and the rows that are kept to be met are those that all inputs have passed and that
    lie in the window of what may still come. Section 5: what is held has not been passed."""
    bounds = [-(10**6)] * len(case.scene.plan.inputs)
    for event, (operator, stored, _, left) in zip(case.scene.events, moments(case, Live), strict=False):
        if not event.tuples:
            bounds[event.port] = event.ended if event.ended == FOREVER else event.ended * UNIT
        held = held_times(operator, stored.state)
        assert all(t >= min(bounds) for t in held) or left
        assert case.plan.in_order is not None
        if case.plan.in_order.release is Release.SYNC and not left:
            assert not held
            for port in range(len(bounds)):
                assert all(t < min(bounds) for _, found in kept_bins(operator, stored.state, port) for t in found)


def held_times(operator: InOrderJoinOperator, state: State) -> list[int]:
    pieces = (state.get(operator.held, key) for key in state.keys(operator.held))
    return [t for piece in pieces if piece for part in piece.parts for t in part[:, -1].view("i8").tolist()]


@pytest.mark.parametrize("release", WAYS)
def test_the_example_of_figures_3_and_4(release: Release) -> None:
    """a8 comes late. <a8, a5> leaves before <b6, b9> and <c4, c10>, whose rows came first; these leave with a12."""
    a, b, c, d = range(4)
    plan = replace(plan_of((7 * UNIT, 6 * UNIT), False, [("a", "a")], False), in_order=InOrder(release))
    stored, operator, left = Live(), InOrderJoinOperator(plan), []
    before = ((1, 1, a), (0, 2, d), (0, 4, c), (1, 5, a), (0, 6, b))
    for number, (port, t, key) in enumerate((*before, (1, 9, b), (1, 10, c), (0, 8, a), (0, 12, a))):
        sink = Sink()
        send(operator, Event(port, (Tuple(t * UNIT, number, key, 0.0, 1),)), stored.state, sink)
        send(operator, Event(port, ended=t + 1), stored.state, sink)  # each stream is in order
        while operator.work(stored.state, sink, 1):
            pass
        left.append([(s // UNIT, u // UNIT) for s, u in times(plan, sink.matrices) if s is not None and u])
    assert left == [[], [], [], [], [], [], [], [(8, 5)], [(6, 9), (4, 10)]]


def test_the_load_of_the_papers_experiment() -> None:
    """7.2.1: c = 0.5 ms, a window of 60 s, 10 and 1 rows a second: 0.3, where adaptive switches."""
    minute = 60 * 10**9
    assert InOrder(cost_ns=0.5e6).load((minute, minute), (1.0, 10.0)) == pytest.approx(0.3)


def test_adaptive_switches_and_back() -> None:
    """Rows of both inputs come fast for a while, and slowly before and after."""
    size = 64
    # A row a ns of each input is a load of 1.
    plan = replace(plan_of((size, size), False, [("a", "a")], False), in_order=InOrder(cost_ns=1 / size))
    stored, operator, sink, ways, number = Live(), InOrderJoinOperator(plan), Sink(), [], 0
    for step in range(60):
        every = 1 if 20 <= step < 40 else 8
        for port in (0, 1):
            rows = tuple(Tuple(t, number + t, t % 3, 0.0, 1) for t in range(step * 16, step * 16 + 16, every))
            send(operator, Event(port, rows), stored.state, sink)
            send(operator, Event(port, ended=(step + 1) * 16 // UNIT), stored.state, sink)
        operator.work(stored.state, sink, 1 << 16)
        ways.append(operator.filters(stored.state))
    assert (ways[19], ways[35], ways[55]) == (False, True, False)
    assert sum(a != b for a, b in pairwise(ways)) == 2


def test_adaptive_does_not_go_to_and_fro_where_the_load_is_the_limit() -> None:
    """Rows come by chance, at rates at which the load is just the gain that is asked for."""
    size, chance = 4096, Random(3)
    slow, fast = 64 / size, 0.25  # rows a ns
    plan = replace(
        plan_of((size, size), False, [("a", "a")], False), in_order=InOrder(cost_ns=0.3 / (size * slow * fast))
    )
    stored, operator, sink, step = Live(), InOrderJoinOperator(plan), Sink(), size // 16
    ways = []
    for begin in range(0, 60 * size, step):
        for port, rate in enumerate((slow, fast)):
            rows = tuple(Tuple(t, t, t % 3, 0.0, 1) for t in range(begin, begin + step) if chance.random() < rate)
            send(operator, Event(port, rows), stored.state, sink)
            send(operator, Event(port, ended=(begin + step) // UNIT), stored.state, sink)
        operator.work(stored.state, sink, 1 << 16)
        ways.append(operator.filters(stored.state))
    assert ways[-1]
    assert operator.switches(stored.state) <= 3
