"""The join operator against nested loops, and the laws of what it keeps and promises."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings

from lowmark.query.syntax import JoinKind
from lowmark.wire.promises import FOREVER, Promise
from tests.aggregate.harness import Live, Sink, Stored
from tests.join.harness import (
    OUTER,
    Event,
    Scene,
    Tuple,
    in_windows,
    kept,
    nested_loops,
    numbers,
    operator_of,
    plan_of,
    scenes,
    send,
    times,
)


def run(scene: Scene, kind: type[Live] | type[Stored]) -> Sink:
    stored, sink = kind(), Sink()
    operator = operator_of(scene.plan)
    for event, saved in zip(scene.events, scene.saved, strict=True):
        send(operator, event, stored.state, sink)
        if saved:
            stored.again()
            operator = operator_of(scene.plan)
    return sink


@given(scenes())
@settings(max_examples=150)
def test_rows_are_those_of_nested_loops(scene: Scene) -> None:
    found = Counter(numbers(scene.plan, run(scene, Stored).matrices))
    assert found == nested_loops(scene)


@given(scenes(OUTER))
@settings(max_examples=200)
def test_rows_of_other_kinds_of_joins(scene: Scene) -> None:
    found = Counter(numbers(scene.plan, run(scene, Stored).matrices))
    assert found == nested_loops(scene)


@given(scenes((JoinKind.INNER, *OUTER)))
@settings(max_examples=100)
def test_state_through_bytes_changes_nothing(scene: Scene) -> None:
    live, stored = run(scene, Live), run(scene, Stored)
    assert list(numbers(scene.plan, live.matrices)) == list(numbers(scene.plan, stored.matrices))
    assert (live.promises, live.order) == (stored.promises, stored.order)


@given(scenes())
@settings(max_examples=150)
def test_what_is_kept_is_what_can_still_meet_a_row_to_come(scene: Scene) -> None:
    """Of the times of others that no promise excludes, one at least lies in the window of each kept row; no row that
    is not kept has one."""
    stored, operator, plan = Live(), operator_of(scene.plan), scene.plan
    bounds = [-(10**6)] * len(plan.inputs)
    arrived: list[list[int]] = [[] for _ in plan.inputs]
    for event in scene.events:
        send(operator, event, stored.state, Sink())
        if event.tuples:
            arrived[event.port] += [row.t for row in event.tuples if matches_something(scene, event.port, row)]
        else:
            bounds[event.port] = event.ended if event.ended == FOREVER else event.ended * plan.inputs[0].unit
        for port, seen in enumerate(arrived):
            waiting = [t for t in seen if can_meet(scene, port, t, bounds)]
            assert sorted(kept(operator, stored.state, port)) == sorted(waiting)


def matches_something(scene: Scene, port: int, row: Tuple) -> bool:
    """Null and NaN equal nothing."""
    asked = [getattr(row, name) for columns in scene.plan.equal if (name := columns[port]) is not None]
    return all(value is not None and value == value for value in asked)


def can_meet(scene: Scene, port: int, t: int, bounds: list[int]) -> bool:
    plan = scene.plan
    for other, bound in enumerate(bounds):
        if other == port or bound == FOREVER:
            continue
        pair = plan_of([plan.inputs[n].size for n in sorted((port, other))], plan.tumbling, (), False)
        for partner in range(max(bound, t - 70), t + 70):
            if in_windows(pair, [t, partner] if port < other else [partner, t]):
                return True
    return False


@given(scenes((JoinKind.INNER, *OUTER)))
@settings(max_examples=200)
def test_no_row_comes_after_a_promise_that_excludes_it(scene: Scene) -> None:
    stored, sink, operator = Live(), Sink(), operator_of(scene.plan)
    names = [f"i{n}.t" for n in range(len(scene.plan.inputs))]
    told = 0
    for event in scene.events:
        made: list[Promise] = list(sink.promises)
        send(operator, event, stored.state, sink)
        for row in times(scene.plan, sink.matrices[told:]):
            at = dict(zip(names, row, strict=True))
            for promise in made:
                assert not promise.last
                assert not all(_is_below(at[bound.column], bound.below) for bound in promise.bounds)
        told = len(sink.matrices)
    assert sink.promises[-1].last


def _is_below(value: int | None, bound: int | None) -> bool:
    return value is not None and bound is not None and value < bound


def test_bounds_of_a_band() -> None:
    """l.a − y ≤ r.a < l.a + x: on l.a min(b_l, b_r − x), less what half-openness gives; on r.a min(b_r, b_l − y)."""
    plan = plan_of((8, 12), False, (), False)
    stored, sink, operator = Live(), Sink(), operator_of(plan)
    send(operator, Event(0, ended=100), stored.state, sink)
    assert sink.promises == []
    send(operator, Event(1, ended=101), stored.state, sink)
    individual = [(p.bounds[0].column, p.bounds[0].below) for p in sink.promises if len(p.bounds) == 1]
    assert individual == [("i0.t", 404 - 8 + 1), ("i1.t", 400 - 12)]
    joint = [tuple((bound.column, bound.below) for bound in p.bounds) for p in sink.promises if len(p.bounds) == 2]
    assert joint == [(("i0.t", 400), ("i1.t", 404))]


def test_a_hot_key_comes_out_in_runs() -> None:
    plan = plan_of((30, 30), False, [("a", "a")], False)
    rows = [Tuple(n % 20, n, 1, 0.0, 1) for n in range(400)]
    stored, sink, operator = Live(), Sink(), operator_of(plan)
    send(operator, Event(0, tuple(rows)), stored.state, sink)
    send(operator, Event(1, tuple(rows)), stored.state, sink)
    assert max(map(len, sink.matrices)) <= 1 << 15
    assert sum(map(len, sink.matrices)) == 400 * 400


@pytest.mark.parametrize("kind", [Live, Stored])
def test_a_tuple_far_away_costs_a_piece(kind: type[Live] | type[Stored]) -> None:
    plan = plan_of((5, 5), False, [("a", "a")], False)
    stored, sink, operator = kind(), Sink(), operator_of(plan)
    ends = (-(2**63), 2**63 - 8)
    for port in (0, 1):
        send(operator, Event(port, tuple(Tuple(t, n, 1, 0.0, 1) for n, t in enumerate(ends))), stored.state, sink)
        stored.again()
    assert sorted(numbers(plan, sink.matrices)) == [(0, 0), (1, 1)]


def test_late_rows_meet_nobody() -> None:
    plan = plan_of((5, 5), False, [("a", "a")], False)
    stored, sink, operator = Live(), Sink(), operator_of(plan)
    send(operator, Event(1, (Tuple(0, 0, 1, 0.0, 1),)), stored.state, sink)
    send(operator, Event(0, ended=1), stored.state, sink)
    send(operator, Event(0, (Tuple(3, 0, 1, 0.0, 1), Tuple(4, 1, 1, 0.0, 1))), stored.state, sink)
    assert list(numbers(plan, sink.matrices)) == [(1, 0)]
    assert [len(rows) for rows in sink.lates] == [1]
