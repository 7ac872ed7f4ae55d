"""Duplicate elimination, against sets: in any cut, with state written and read anywhere, a first occurrence is out at
once and no second one ever is; promises let go of what was seen, and nothing that they exclude comes behind them."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from highlevel.build import build
from highlevel.interface import Words
from highlevel.operators.distinct import DistinctOperator
from highlevel.state import MemoryByteStore, MemoryState, PiecewiseState
from lowmark.query.compile import compile_query
from lowmark.query.plan.nodes import Aggregate
from lowmark.wire.records.partials import PANE
from lowmark.wire.records.punctuations import Bound, Promise
from lowmark.wire.rows.values import FOREVER
from tests.operators.harness import Sink

PLAN = compile_query("SELECT DISTINCT ts / 10 AS tens, srcPort, destPort FROM A", buckets=1).steps[0].plan
assert isinstance(PLAN, Aggregate)
Tuple = tuple[int, int, int]
"""Pane (that is `tens`), srcPort, destPort."""

tuples = st.tuples(st.integers(-3, 6), st.integers(0, 2), st.integers(0, 2))
events = st.lists(st.one_of(st.lists(tuples, min_size=1, max_size=8), st.integers(-3, 7)), max_size=20)


def partials(rows: list[Tuple]) -> Words:
    words = np.zeros((len(rows), PLAN.input.words), np.int64)
    for row, (pane, *ports) in zip(words, rows, strict=True):
        for name, value in zip(PLAN.input.names, (pane, 1, pane, *ports), strict=True):
            row[PLAN.input.offset(name)] = value
    return words.view(np.uint64)


def shown(matrices: list[Words]) -> list[Tuple]:
    places = [PLAN.output.offset(name) for name in PLAN.output.names]
    return [tuple(row[places].view(np.int64).tolist()) for matrix in matrices for row in matrix]


def promise(pane: int) -> Promise:
    return Promise((Bound(PANE, pane),), pane == FOREVER)


@given(sent=events, stored=st.lists(st.booleans(), min_size=20, max_size=20))
@settings(max_examples=150, deadline=None)
def test_first_occurrences_leave_at_once_and_only_they(sent: list[list[Tuple] | int], stored: list[bool]) -> None:
    operator, store, out = build(PLAN), MemoryByteStore(), Sink()
    assert isinstance(operator, DistinctOperator)
    state, seen, frontier, late = PiecewiseState(store, "f"), set[Tuple](), -99, list[Tuple]()
    for event, write in zip(sent, stored, strict=False):
        if isinstance(event, int):
            operator.on_promise(0, promise(event), state, out)
            frontier = max(frontier, event)
            assert all(pane >= frontier for pane in state.keys(operator._seen))
        else:
            operator.on_batch(0, partials(event), state, out)
            late += [one for one in event if one[0] < frontier]
            before = len(seen)
            seen |= {one for one in event if one[0] >= frontier}
            new = shown(out.matrices)[before:]
            assert all(pane >= frontier for pane, *_ in new)
        assert sorted(shown(out.matrices)) == sorted(seen)  # each once
        if write:
            state.commit()
            state = PiecewiseState(store, "f")
    refused = [pane for rows in out.lates for pane in rows[:, 1].view(np.int64).tolist()]
    assert sorted(refused) == sorted(pane for pane, *_ in late)
    bounds = [bound.below for told in out.promises for bound in told.bounds if bound.column == "tens"]
    assert bounds == sorted(set(bounds))
    assert not bounds or bounds[-1] == frontier
    operator.on_promise(0, promise(FOREVER), state, out)
    assert not state.keys(operator._seen)
    assert out.promises[-1].last


def test_a_promise_of_several_bounds_lets_go_of_what_it_proves_complete() -> None:
    operator, state, out = build(PLAN), MemoryState(), Sink()
    assert isinstance(operator, DistinctOperator)
    operator.on_batch(0, partials([(1, 0, 5), (1, 1, 5), (1, 1, 9), (2, 0, 5)]), state, out)
    operator.on_promise(0, Promise((Bound("tens", 2), Bound("destPort", 6))), state, out)
    kept = state.get(operator._seen, 1)
    assert kept is not None
    assert kept.groups[:, -1].tolist() == [9]
    operator.on_batch(0, partials([(1, 1, 9), (2, 0, 5), (2, 0, 6)]), state, out)
    assert shown(out.matrices) == [(1, 0, 5), (1, 1, 5), (1, 1, 9), (2, 0, 5), (2, 0, 6)]
    assert not out.promises  # of one column by itself nothing is known


def test_what_a_group_is_all_that_is_known_of_leaves_at_once() -> None:
    head = "SELECT ts / 10 AS tens, proto"
    for text, at_once in (
        ("SELECT DISTINCT ts / 10 AS tens, proto FROM A", True),
        (f"{head} FROM A GROUP BY ts / 10, proto HAVING proto > 6", True),
        (f"{head}, count(*) FROM A GROUP BY ts / 10, proto", False),
        (f"{head} FROM A GROUP BY ts / 10, proto HAVING count(*) > 1", False),
        (f"{head} FROM A GROUP BY ts / 10, proto ORDER BY proto LIMIT 2", False),
        ("SELECT DISTINCT proto FROM A GROUP BY ts / 10, proto", False),
        ("SELECT DISTINCT proto [RANGE 10 s] FROM A", False),
    ):
        step = compile_query(text).steps[0].plan
        assert isinstance(step, Aggregate)
        assert step.at_once is at_once, text
