"""Cells: runs of panes that the same windows hold, and windows over them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lowmark.query.optimize.shared_panes import cells_of
from lowmark.query.windows.window import Axis, Window, WindowKind
from lowmark.wire.rows.schema import Kind

SIZES = st.integers(1, 40)
PANES = st.integers(-200, 200)


def sliding(size: int, slide: int) -> Window:
    return Window(WindowKind.SLIDING, size, slide, Axis("ts", Kind.TIME, 10**9))


@given(size=SIZES, slide=SIZES, pane=PANES)
def test_a_windows_cells_are_its_panes(size: int, slide: int, pane: int) -> None:
    window = sliding(size, slide)
    cells = cells_of(window)
    assert cells.window.wids(cells.of(pane)) == window.wids(pane)
    assert cells.of(pane) <= cells.of(pane + 1) <= cells.of(pane) + (1 if size % slide else slide)
    assert cells.window.closed_by(cells.of(pane)) == window.closed_by(pane)
    assert cells.of(np.array([pane, pane + 1])).tolist() == [cells.of(pane), cells.of(pane + 1)]


@given(size=SIZES, slide=SIZES, pane=PANES)
def test_panes_of_one_cell_are_held_by_the_same_windows(size: int, slide: int, pane: int) -> None:
    cells = cells_of(sliding(size, slide))
    if cells.of(pane) == cells.of(pane + 1):
        assert sliding(size, slide).wids(pane) == sliding(size, slide).wids(pane + 1)


def test_there_are_two_a_slide_or_one() -> None:
    assert (cells_of(sliding(12, 5)).window.size, cells_of(sliding(12, 5)).window.slide) == (5, 2)
    assert (cells_of(sliding(10, 5)).window.size, cells_of(sliding(10, 5)).window.slide) == (2, 1)
    assert cells_of(sliding(3, 2)).window == sliding(3, 2)
    assert cells_of(sliding(7, 1)).window == sliding(7, 1)
