"""The shared join: the rows of a join of each window's own, in that order, whatever the schedule, cuts and budgets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from highlevel.interface import Words
from highlevel.join.shared import SharedJoinOperator
from highlevel.join.shared.shared_join import throughputs
from highlevel.row_marks import RowMark
from lowmark.query.plan.joins import Scheduling
from lowmark.query.plan.shared_joins import SCHEDULES, SharedJoin
from lowmark.wire.records.punctuations import Promise
from lowmark.wire.records.verdicts import Reason
from lowmark.wire.rows.values import FOREVER
from tests.join.harness import (
    UNIT,
    Event,
    Scene,
    Tuple,
    events,
    matches_something,
    nested_loops,
    numbers,
    partners,
    plan_of,
    send,
    times,
)
from tests.operators.harness import Live, Stored


@dataclass
class Ports:
    """An `Out` that keeps what comes, by port."""

    matrices: dict[int, list[Words]] = field(default_factory=dict)
    promises: dict[int, list[Promise]] = field(default_factory=dict)
    lates: list[Words] = field(default_factory=list)

    def rows(self, port: int, rows: Words) -> None:
        self.matrices.setdefault(port, []).append(rows)

    def promise(self, port: int, promise: Promise) -> None:
        self.promises.setdefault(port, []).append(promise)

    def closed(self, port: int, windows: range, tuples: int) -> None:
        raise AssertionError("a join closes no windows")

    def late(self, port: int, rows: Words) -> None:
        self.lates.append(rows)

    def shed(self, port: int, rows: Words, reason: Reason) -> None:
        raise AssertionError(f"{len(rows)} rows were given up: {reason}")

    def mark(self, port: int, mark: RowMark) -> None:
        raise AssertionError(f"a mark: {mark}")

    def flaw(self, port: int, window: int, reason: Reason) -> None:
        raise AssertionError("nothing overflows")


@dataclass(frozen=True)
class Shared:
    plan: SharedJoin
    events: tuple[Event, ...]
    saved: tuple[bool, ...]
    budgets: tuple[int, ...]  # of work after each event; the last one is unlimited

    def alone(self, output: int) -> Scene:
        return Scene(self.plan.joins[output], self.events, self.saved)


@st.composite
def shared(draw: st.DrawFn, in_order: bool = False) -> Shared:
    tumbling = draw(st.booleans())
    if tumbling:
        factors = draw(st.lists(st.integers(2, 4), max_size=3))
        sizes = [(size, size) for size in np.cumprod([draw(st.integers(1, 5)), *factors]).tolist()]
    else:
        steps = draw(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)).filter(any), max_size=4))
        first = draw(st.integers(1, 9)), draw(st.integers(1, 9))
        sizes = [tuple(map(int, pair)) for pair in np.cumsum([first, *steps], axis=0)]
    names = draw(st.lists(st.sampled_from(("a", "f", "ip")), max_size=2, unique=True))
    residual = draw(st.booleans())
    joins = tuple(plan_of(each, tumbling, [(name, name) for name in names], residual) for each in sizes)
    readers = tuple(draw(st.integers(1, 5)) for _ in joins)
    made = _sorted(draw(events(2))) if in_order else draw(events(2))
    budgets = tuple(draw(st.integers(0, 5)) for _ in made)
    saved = tuple(draw(st.booleans()) for _ in made)
    return Shared(SharedJoin(joins, readers, draw(st.sampled_from(SCHEDULES))), made, saved, budgets)


def _sorted(made: Sequence[Event]) -> tuple[Event, ...]:
    """The same tuples, one at a time in order of time, before all promises."""
    rows = sorted(((row.t, event.port, row.number, row) for event in made for row in event.tuples), key=lambda r: r[:3])
    ends = (Event(0, ended=FOREVER), Event(1, ended=FOREVER))
    return (*(Event(port, (row,)) for _, port, _, row in rows), *ends)


def run(scene: Shared, kind: type[Live] | type[Stored] = Stored) -> Ports:
    for _, _, out, _ in moments(scene, kind):
        made = out
    return made


def moments(
    scene: Shared, kind: type[Live] | type[Stored]
) -> Iterator[tuple[SharedJoinOperator, Live | Stored, Ports, int]]:
    """After each event, and at the end: with the number of scans left."""
    stored, out, operator = kind(), Ports(), SharedJoinOperator(scene.plan)
    for event, saved, budget in zip(scene.events, scene.saved, scene.budgets, strict=True):
        send(operator, event, stored.state, out)
        left = operator.work(stored.state, out, budget)
        if saved:
            stored.again()
            operator = SharedJoinOperator(scene.plan)
        yield operator, stored, out, left
    while left := operator.work(stored.state, out, 1 << 16):
        pass
    yield operator, stored, out, left


@given(shared())
@settings(max_examples=150)
def test_each_output_has_the_rows_of_nested_loops(scene: Shared) -> None:
    out = run(scene)
    for output, plan in enumerate(scene.plan.joins):
        assert Counter(numbers(plan, out.matrices.get(output, []))) == nested_loops(scene.alone(output))


@given(shared(), st.sampled_from(SCHEDULES))
@settings(max_examples=100)
def test_rows_come_in_the_order_of_a_join_of_its_own(scene: Shared, other: Scheduling) -> None:
    """Isolated execution (2.2): neither other windows, nor the schedule, nor cuts change an output's order of the rows
    whose matches it holds."""
    out = run(scene)
    for output, plan in enumerate(scene.plan.joins):
        alone = run(replace(scene, plan=SharedJoin((plan,), (1,), other)))
        assert list(later_rows(scene, plan_rows(scene, output, out))) == list(
            later_rows(scene, list(numbers(plan, alone.matrices.get(0, []))))
        )


def plan_rows(scene: Shared, output: int, out: Ports) -> list[tuple[int | None, ...]]:
    return list(numbers(scene.plan.joins[output], out.matrices.get(output, [])))


def later_rows(scene: Shared, found: Sequence[tuple[int | None, ...]]) -> Iterator[tuple[int, int]]:
    """Of each row of the output, the port and the number of the row of it that came later."""
    came = {(event.port, row.number): at for at, event in enumerate(scene.events) for row in event.tuples}
    for left, right in found:
        assert left is not None
        assert right is not None
        yield max((0, left), (1, right), key=came.__getitem__)


@given(shared(in_order=True))
@settings(max_examples=60)
def test_tuples_in_order_give_rows_in_order(scene: Shared) -> None:
    out = run(scene)
    for output, plan in enumerate(scene.plan.joins):
        made = [max(row) for row in times(plan, out.matrices.get(output, []))]
        assert made == sorted(made)


@given(shared())
@settings(max_examples=100)
def test_no_row_comes_after_a_promise_that_excludes_it(scene: Shared) -> None:
    told: Counter[int] = Counter()
    known: dict[int, list[Promise]] = {}
    for _, _, out, _ in moments(scene, Live):
        for output, plan in enumerate(scene.plan.joins):
            new = out.matrices.get(output, [])[told[output] :]
            for left, right in times(plan, new):
                at = {"i0.t": left, "i1.t": right}
                for promise in known.get(output, []):
                    assert not promise.last
                    assert not all(at[bound.column] < bound.below for bound in promise.bounds)
            told[output] += len(new)
        known = {output: list(made) for output, made in out.promises.items()}
    assert all(known[output][-1].last for output in range(len(scene.plan.joins)))


@given(shared())
@settings(max_examples=100)
def test_kept_is_what_the_largest_window_can_still_need(scene: Shared) -> None:
    """When no row waits: each row that a later one can match, and no bin all of whose rows none can."""
    bounds = [-(10**6)] * 2
    arrived: list[list[Tuple]] = [[], []]
    largest = scene.alone(-1)
    steps = zip((*scene.events, None), moments(scene, Stored), strict=True)
    for event, (operator, stored, _, left) in steps:
        if event is not None and event.tuples:
            arrived[event.port] += event.tuples
        elif event is not None:
            bounds[event.port] = event.ended if event.ended == FOREVER else event.ended * UNIT
        if left:
            continue
        for port in (0, 1):
            space = operator.rows_of(port)
            kept = [(key, stored.state.get(space, key)) for key in stored.state.keys(space)]
            there = Counter(t for _, piece in kept if piece is not None for t in piece.times.tolist())
            other = bounds[1 - port]
            able = [row.t for row in arrived[port] if matches_something(largest, port, row)]
            assert there >= Counter(t for t in able if partners(largest, port, t, 1 - port).stop > other)
            for key, _ in kept:
                last = (key + 1) * operator.bin_width - 1
                assert partners(largest, port, last, 1 - port).stop > other


@given(shared())
@settings(max_examples=60)
def test_state_through_bytes_changes_nothing(scene: Shared) -> None:
    live, stored = run(scene, Live), run(scene, Stored)
    for output, plan in enumerate(scene.plan.joins):
        one, other = (list(numbers(plan, out.matrices.get(output, []))) for out in (live, stored))
        assert one == other
    assert live.promises == stored.promises


def test_results_held_back_keep_their_partners_through_bytes() -> None:
    """Kept rows of several bins, all served before; then a row of the other port finds some, and the state is written
    before they may leave for all outputs."""

    def came(port: int, first: int, *times: int) -> Event:
        return Event(port, tuple(Tuple(t, number, None, 0.0, 1 << 100) for number, t in enumerate(times, first)))

    made = came(1, 0, -120, -118, -120), came(0, 0, -120), came(0, 1, -104), Event(0, ended=FOREVER)
    joins = tuple(plan_of((size, size), True, [], False) for size in (1, 2))
    scene = Shared(SharedJoin(joins, (1, 1), Scheduling.SWF), made, (False, False, False, True), (6, 0, 0, 2))
    out = run(scene)
    for output, plan in enumerate(joins):
        assert Counter(numbers(plan, out.matrices.get(output, []))) == nested_loops(scene.alone(output))


# The papers' figures, by their tuples


def figure_2(scheduling: Scheduling) -> SharedJoin:
    """Windows of 4, 8 and 12 over which the tuples of figures 2 and 3 meet."""
    joins = tuple(plan_of((size, size), False, [("a", "a")], False) for size in (4, 8, 12))
    return SharedJoin(joins, (1, 1, 1), scheduling)


STAR, DOT = 1, 2
A, B = 0, 1
TIMED = ((B, 0, STAR), (A, 1, DOT), (B, 4, STAR), (A, 5, DOT), (B, 8, STAR), (A, 9, DOT))


def steps(scheduling: Scheduling) -> list[list[tuple[int, tuple[int, int]]]]:
    """What leaves in each scan after a11 and b12 have come: output and times."""
    plan = figure_2(scheduling)
    stored, operator = Live(), SharedJoinOperator(plan)
    for port, t, key in TIMED:
        send(operator, Event(port, (Tuple(t, t, key, 0.0, 1),)), stored.state, Ports())
        operator.work(stored.state, Ports(), 100)
    for port, t, key in ((A, 11, STAR), (B, 12, DOT)):
        send(operator, Event(port, (Tuple(t, t, key, 0.0, 1),)), stored.state, Ports())
    found = []
    left = 6
    while left:
        out = Ports()
        left = operator.work(stored.state, out, 1)
        rows = [
            (output + 1, pair)
            for output, join in enumerate(plan.joins)
            for pair in times(join, out.matrices.get(output, []))
        ]
        found.append(rows)
    return found


def test_smallest_window_first_as_in_figure_3() -> None:
    assert steps(Scheduling.SWF) == [
        [(1, (11, 8)), (2, (11, 8)), (3, (11, 8))],  # steps 1 and 2
        [(1, (9, 12))],  # 3 and 4
        [(2, (11, 4)), (3, (11, 4))],  # 5 and 6
        [(2, (9, 12)), (2, (5, 12))],  # 7 and 8
        [(3, (11, 0))],
        [(3, (9, 12)), (3, (5, 12)), (3, (1, 12))],
    ]


def test_largest_window_only_as_in_figure_2() -> None:
    first, second = [(1, (11, 8)), (2, (11, 8)), (3, (11, 8))], [(1, (9, 12)), (2, (9, 12)), (3, (9, 12))]
    assert steps(Scheduling.LWO) == [
        first, [(2, (11, 4)), (3, (11, 4))], [(3, (11, 0))], second, [(2, (5, 12)), (3, (5, 12))], [(3, (1, 12))]
    ]  # fmt: skip


def test_query_throughputs_of_figure_4() -> None:
    """Windows of 2w, 3w and 6w."""
    joins = tuple(plan_of((size, size), False, (), False) for size in (2, 3, 6))
    w = 2  # a window of size s spans 2s: it looks back and ahead
    found = throughputs(SharedJoin(joins, (1, 1, 1))) * w
    assert found[0, 1:].tolist() == pytest.approx([1 / 2, 2 / 3, 2 / 3])
    assert found[1, 2:].tolist() == pytest.approx([1, 1])
    assert found[2, 3] == pytest.approx(1 / 3)


def test_query_throughput_schedules_as_in_figure_4() -> None:
    """a11 meets the windows of 2w and 3w, then b12 does, then a11 goes on with 6w, then b12."""
    joins = tuple(plan_of((size, size), False, (), False) for size in (8, 12, 24))
    stored, operator = Live(), SharedJoinOperator(SharedJoin(joins, (1, 1, 1)))
    for port, t in ((A, 11), (B, 12)):
        send(operator, Event(port, (Tuple(t, t, 1, 0.0, 1),)), stored.state, Ports())
    order = []
    for _ in range(6):
        before = operator.waiting(stored.state).level.copy()
        served = 2 - len(before)
        operator.work(stored.state, Ports(), 1)
        after = operator.waiting(stored.state).level
        gone = len(before) - len(after)
        moved = [n for n in range(len(before)) if n < gone or after[n - gone] != before[n]]
        order.append(moved[0] + served)
    assert order == [0, 0, 1, 1, 0, 1]


def test_windows_that_overlap_in_part_share_nothing() -> None:
    joins = tuple(plan_of(sizes, False, (), False) for sizes in ((4, 9), (6, 8)))
    with pytest.raises(ValueError, match="lie in each other"):
        SharedJoin(joins, (1, 1))


def test_a_hot_key_comes_out_in_runs() -> None:
    plan = SharedJoin(tuple(plan_of((size, size), False, [("a", "a")], False) for size in (10, 30)), (1, 1))
    rows = [Tuple(n % 20, n, 1, 0.0, 1) for n in range(400)]
    stored, out, operator = Live(), Ports(), SharedJoinOperator(plan)
    for port in (0, 1):
        send(operator, Event(port, tuple(rows)), stored.state, out)
        while operator.work(stored.state, out, 1 << 16):
            pass
    assert [sum(map(len, out.matrices[output])) for output in (0, 1)] == [
        sum(b.t - 10 <= a.t < b.t + 10 for a in rows for b in rows), 400 * 400
    ]  # fmt: skip
    assert max(len(rows) for made in out.matrices.values() for rows in made) <= 1 << 15
