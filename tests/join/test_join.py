"""The join operator against nested loops, and the laws of what it keeps and promises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import product

import pytest
from hypothesis import given, settings

from lowmark.query.parse.syntax import JoinKind
from lowmark.query.plan.nodes import Extreme
from lowmark.wire.records.punctuations import Promise
from lowmark.wire.rows.values import FOREVER
from tests.join.harness import (
    OUTER,
    UNIT,
    AnyJoin,
    Event,
    Scene,
    Tuple,
    agree,
    extremes,
    in_windows,
    kept,
    kept_bins,
    matches_something,
    nested_loops,
    numbers,
    operator_of,
    partners,
    plan_of,
    scenes,
    send,
    times,
)
from tests.operators.harness import Live, Sink, Stored


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


Moment = tuple[AnyJoin, Live, list[list[Tuple]], list[int]]
"""The operator and its state, the tuples that have come of each input, and the bounds of the inputs."""


def moments(scene: Scene) -> Iterator[Moment]:
    stored, operator = Live(), operator_of(scene.plan)
    bounds = [-(10**6)] * len(scene.plan.inputs)
    arrived: list[list[Tuple]] = [[] for _ in bounds]
    for event in scene.events:
        send(operator, event, stored.state, Sink())
        if event.tuples:
            arrived[event.port] += event.tuples
        else:
            bounds[event.port] = event.ended if event.ended == FOREVER else event.ended * UNIT
        yield operator, stored, arrived, bounds


@given(scenes((JoinKind.INNER, *OUTER), (2,)))
@settings(max_examples=300)
def test_what_is_kept_of_two_inputs_is_what_can_still_matter(scene: Scene) -> None:
    """Of the times of the other input that no promise excludes, one at least lies in the window of each kept row; no
    row that is not kept has one, but rows of a semi or anti join that the other input has decided."""
    for operator, stored, arrived, bounds in moments(scene):
        for port, seen in enumerate(arrived):
            waiting = [
                row.t
                for row in seen
                if matches_something(scene, port, row)
                and can_meet(scene, port, row.t, bounds)
                and not (port == 0 and is_decided(scene, row, arrived[1]))
            ]
            assert sorted(kept(operator, stored.state, port)) == sorted(waiting)


def is_decided(scene: Scene, row: Tuple, others: list[Tuple]) -> bool:
    plan = scene.plan
    met = (in_windows(plan, [row.t, other.t]) and agree(plan, [row, other]) for other in others)
    return plan.kind in (JoinKind.SEMI, JoinKind.ANTI) and any(met)


@given(scenes(counts=(3, 3, 4)))
@settings(max_examples=200)
def test_what_is_kept_of_several_inputs_does_not_wait_in_vain(scene: Scene) -> None:
    """A row is kept only while a row of some input that no promise excludes can lie in its window, and only while of
    every other input one such can, or a bin is kept that rows of its own bin can reach. It is kept as long as of every
    other input a row to come can lie in its window."""
    for operator, stored, arrived, bounds in moments(scene):
        bins = [dict(kept_bins(operator, stored.state, port)) for port in range(len(bounds))]
        for port, seen in enumerate(arrived):
            able = [row.t for row in seen if matches_something(scene, port, row)]
            there = Counter(t for times in bins[port].values() for t in times)
            assert there <= Counter(t for t in able if can_meet(scene, port, t, bounds))
            assert there >= Counter(t for t in able if can_meet(scene, port, t, bounds, every=True))
            others = [other for other in range(len(bounds)) if other != port]
            for key, other in product(bins[port], others):
                width = operator.bin_width
                within = [partners(scene, port, t, other) for t in range(key * width, (key + 1) * width)]
                reached = range(min(times.start for times in within), max(times.stop for times in within))
                kept_there = any(at * width < reached.stop and reached.start < (at + 1) * width for at in bins[other])
                assert kept_there or reached.stop > bounds[other]


@pytest.mark.parametrize("first_has_ended", [False, True])
def test_what_goes_takes_with_it_what_waited_for_it(first_has_ended: bool) -> None:
    """The second input's only row can meet none of the third any more; the first one's could."""
    plan = plan_of((100, 4, 4), False, (), False)
    stored, operator = Live(), operator_of(plan)
    send(operator, Event(0, (Tuple(50, 0, 1, 0.0, 1),)), stored.state, Sink())
    send(operator, Event(1, (Tuple(60, 0, 1, 0.0, 1),)), stored.state, Sink())
    send(operator, Event(1, ended=FOREVER), stored.state, Sink())
    if first_has_ended:
        send(operator, Event(0, ended=50), stored.state, Sink())
    assert [kept(operator, stored.state, port) for port in (0, 1)] == [[50], [60]]
    send(operator, Event(2, ended=20), stored.state, Sink())
    assert [kept(operator, stored.state, port) for port in (0, 1)] == [[], []]


def test_rows_go_when_an_input_has_ended_without_any() -> None:
    """While the third input is open, of which nothing has been said."""
    plan = plan_of((8, 8, 8), False, (), False)
    stored, operator = Live(), operator_of(plan)
    send(operator, Event(0, tuple(Tuple(t, t, 1, 0.0, 1) for t in range(100))), stored.state, Sink())
    send(operator, Event(1, (Tuple(50, 0, 1, 0.0, 1),)), stored.state, Sink())
    assert len(kept(operator, stored.state, 0)) == 100
    send(operator, Event(1, ended=FOREVER), stored.state, Sink())
    assert set(range(43, 59)) <= set(kept(operator, stored.state, 0)) <= set(range(40, 60))
    send(operator, Event(0, ended=FOREVER), stored.state, Sink())
    send(operator, Event(2, (Tuple(9, 0, 1, 0.0, 1), Tuple(50, 1, 1, 0.0, 1))), stored.state, Sink())
    assert kept(operator, stored.state, 2) == []


def can_meet(scene: Scene, port: int, t: int, bounds: list[int], every: bool = False) -> bool:
    """Whether a row to come of any other input can, or one of each."""
    others = (other for other in range(len(bounds)) if other != port)
    found = (partners(scene, port, t, other).stop > bounds[other] for other in others)
    return all(found) if every else any(found)


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
            at |= {extreme.name: extreme_of(extreme, at) for extreme in scene.plan.extremes}
            for promise in made:
                assert not promise.last
                assert not all(_is_below(at[bound.column], bound.below) for bound in promise.bounds)
        told = len(sink.matrices)
    assert sink.promises[-1].last


def extreme_of(extreme: Extreme, times: Mapping[str, int | None]) -> int:
    found = [time for name in extreme.of if (time := times[name]) is not None]
    return max(found) if extreme.greatest else min(found)


@given(scenes())
@settings(max_examples=100)
def test_the_greatest_and_the_least_of_times(scene: Scene) -> None:
    sink = run(scene, Stored)
    names = [f"i{n}.t" for n in range(len(scene.plan.inputs))]
    rows = [dict(zip(names, row, strict=True)) for row in times(scene.plan, sink.matrices)]
    wanted = [tuple(extreme_of(extreme, row) for extreme in scene.plan.extremes) for row in rows]
    assert not scene.plan.extremes or list(extremes(scene.plan, sink.matrices)) == wanted


def test_bounds_of_the_greatest_and_the_least() -> None:
    """The greatest has come as far as the input that is behind; the least waits for what that one's rows can meet."""
    of = ("i0.t", "i1.t")
    plan = plan_of((8, 12), False, (), False, extremes=(Extreme("max", True, of), Extreme("min", False, of)))
    stored, sink, operator = Live(), Sink(), operator_of(plan)
    send(operator, Event(0, ended=100), stored.state, sink)
    assert sink.promises == []
    for ended, expected in ((50, (200, 193)), (101, (400, 388)), (150, (400, 388))):
        send(operator, Event(1, ended=ended), stored.state, sink)
        told = {p.bounds[0].column: p.bounds[0].below for p in sink.promises if len(p.bounds) == 1}
        assert (told["max"], told["min"]) == expected


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
