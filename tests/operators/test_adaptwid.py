"""AdaptWID: its switches in both directions, and what it keeps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from highlevel.groups.group_table import GroupTable
from highlevel.groups.layout import Layout
from highlevel.strategies.adaptwid_switching import COSTS, HoldingCosts, Mode, mode_space
from lowmark.query.options import Strategy
from lowmark.query.windows.window import Window, WindowKind
from tests.operators.harness import axis, plans
from tests.operators.test_strategies import COUNT, Stream

OFTEN = 1 << 100
FINE = Window(WindowKind.SLIDING, 21, 2, axis(1))
"""21 panes a window, and eleven windows that are open: what shows in more than twelve is better off in windows."""


def test_a_group_becomes_eager_and_lazy_again() -> None:
    """DESIGN: per group, switched while running, in both directions; the rows are the same all the while."""
    stream, plain = Stream(Strategy.ADAPT, FINE), Stream(Strategy.PANED, FINE)
    seen = []
    for now in range(90):
        hosts = [*([OFTEN] if 20 <= now < 50 else []), *([OFTEN + 1] if now % 17 == 0 else []), OFTEN + 100 + now]
        stream.pane(hosts)
        plain.pane(hosts)
        seen.append(stream.eager)
    assert {frozenset(groups) for groups in seen} == {frozenset(), frozenset({OFTEN & (2**64 - 1)})}
    turns = [now for now in range(1, 90) if seen[now] != seen[now - 1]]
    assert len(turns) == 2
    assert 20 < turns[0] < 50 < turns[1] < 80
    for got, wanted in zip(stream.sink.matrices, plain.sink.matrices, strict=True):
        assert sorted(got.tolist()) == sorted(wanted.tolist())
    assert stream.sink.closings == plain.sink.closings


@pytest.mark.parametrize(("size", "slide"), [(12, 5), (21, 2), (16, 5)])
def test_a_group_that_is_always_there_becomes_eager_once(size: int, slide: int) -> None:
    """Wherever between two looks that was: in how many panes it showed before then is known from the panes."""
    stream = Stream(Strategy.ADAPT, Window(WindowKind.SLIDING, size, slide, axis(1)), HoldingCosts(least=1))
    seen = []
    for _ in range(120):
        stream.pane([1, 2])
        seen.append(len(stream.eager))
    assert [count for count, before in zip(seen[1:], seen, strict=False) if count != before] == [2]


def test_dense_groups_are_held_as_wid_holds_them() -> None:
    streams = [Stream(strategy, FINE) for strategy in (Strategy.ADAPT, Strategy.WID, Strategy.PANED)]
    for _ in range(40):
        for stream in streams:
            stream.pane(range(1, 100))
    adapt, wid, paned = (stream.held for stream in streams)
    assert adapt <= 1.2 * wid
    assert 1.5 * adapt < paned


@pytest.mark.parametrize(("size", "slide"), [(3, 2), (7, 3), (12, 5), (21, 2), (10, 2), (40, 7)])
def test_groups_that_are_always_there_take_no_more_than_lazily(size: int, slide: int) -> None:
    """What is known of an eager group counts: it is a state, too."""
    window = Window(WindowKind.SLIDING, size, slide, axis(1))
    adapt, lazy = (Stream(Strategy.ADAPT, window, costs) for costs in (COSTS, HoldingCosts(aggr=10**6)))
    held = []
    for _ in range(4 * size):
        for stream in (adapt, lazy):
            stream.pane([1, 2, 3])
        held.append((adapt.held, lazy.held))
    settled = held[2 * size :]
    assert sum(ours for ours, _ in settled) <= sum(theirs for _, theirs in settled)


def test_a_source_that_lags_makes_more_windows_open_and_groups_lazy() -> None:
    """Eq. 6.5: the more windows are open, the more an eager group keeps. No promise comes while a source is behind."""
    stream = Stream(Strategy.ADAPT, FINE)
    for _ in range(60):
        stream.pane([1] if stream.now % 3 else [])
    assert stream.eager == {1}  # fourteen panes of 21, in eleven windows
    for _ in range(200):
        stream.pane([], promised=False)
    stream.pane([1])
    assert stream.eager == set()


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), max_size=30), st.integers(0, 10))
def test_the_mode_is_the_same_from_bytes(shown: list[tuple[int, int]], gone: int) -> None:
    layout = Layout(
        plans(COUNT, ("host",), FINE).aggregate.input, ("host",), plans(COUNT, ("host",), FINE).aggregate.folds
    )
    space, mode = mode_space(layout.of_keys), Mode(layout.of_keys)
    rows = np.zeros((10, layout.partials.words), np.uint64)
    rows[:, 4] = np.arange(10)
    table = GroupTable(layout)
    table.merge(rows)
    mode.enter(table, np.zeros(10, np.int64), np.zeros(10, np.int64))
    for pane, place in shown:
        mode.show(np.array([place]), np.array([pane]))
    mode.leave(np.arange(10) < gone)
    again = space.decode(space.encode(mode))
    assert again.encode() == mode.encode()
    assert len(again.groups) == 10 - gone
    assert again.groups.find(rows).tolist() == [-1] * gone + list(range(10 - gone))
    assert again.shown.tolist() == mode.shown.tolist()


def test_groups_are_looked_at_while_a_source_is_behind() -> None:
    """No promise comes, and panes pile up: when what is buffered has doubled, dense groups go into their windows."""
    stream, lazy = (Stream(Strategy.ADAPT, FINE, costs) for costs in (HoldingCosts(least=50), HoldingCosts(aggr=10**6)))
    for _ in range(200):
        stream.pane(range(1, 20), promised=False)
        lazy.pane(range(1, 20), promised=False)
    for one in (stream, lazy):
        one.pane([1])
    assert stream.eager == set(range(1, 20))
    assert 1.5 * stream.held < lazy.held
    ours, theirs = ([sorted(rows.tolist()) for rows in one.sink.matrices] for one in (stream, lazy))
    assert ours == theirs
    assert len(ours) == 100


def test_tuples_of_one_group_between_two_windows_bounds_are_one_partial() -> None:
    """Panes may be finer than what RANGE and SLIDE have in common, where nothing has reduced the tuples before."""
    window = Window(WindowKind.SLIDING, 40, 10, axis(1))
    streams = [Stream(strategy, window) for strategy in (Strategy.ADAPT, Strategy.PANED)]
    for now in range(95):
        for stream in streams:
            stream.pane([1, 2] if now < 93 else [3])
    adapt = streams[0]
    assert adapt.held == 2 * 4 + 1  # 1 and 2 in each of the four pieces of the window that is open
    assert adapt.eager == set()
    ours, theirs = ([sorted(rows.tolist()) for rows in one.sink.matrices] for one in streams)
    assert ours == theirs
