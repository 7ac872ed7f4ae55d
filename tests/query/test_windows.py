"""Laws of window-ids and extents (Li 5.1)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lowmark.query.windows.window import Axis, Window, WindowKind
from lowmark.wire.rows.schema import Kind

AXIS = Axis("ts", Kind.TIME, 10)
SIZES = st.integers(1, 40)
PANES = st.integers(-500, 500) | st.integers(-(2**62), 2**62)

sliding = st.builds(Window, st.just(WindowKind.SLIDING), SIZES, SIZES, st.just(AXIS))
landmark = st.builds(Window, st.just(WindowKind.LANDMARK), st.just(0), SIZES, st.just(AXIS))
windows = sliding | landmark


@given(windows, PANES)
def test_the_windows_of_a_pane_are_those_whose_extent_holds_it(window: Window, pane: int) -> None:
    wids = window.wids(pane)
    near = pane // window.slide
    reach = window.size // window.slide + 2
    assert [k for k in range(near - reach, near + reach + 1) if pane in window.extent(k)] == list(wids)


@given(sliding, st.integers(-1000, 1000), st.integers(-2000, 2000))
def test_an_extent_is_what_the_definition_says(window: Window, k: int, pane: int) -> None:
    inside = (k + 1) * window.slide - window.size <= pane < (k + 1) * window.slide
    assert (pane in window.extent(k)) == inside


@given(windows, PANES)
def test_a_window_is_closed_once_its_last_pane_has_ended(window: Window, frontier: int) -> None:
    first_open = window.closed_by(frontier)
    assert window.extent(first_open - 1).stop <= frontier < window.extent(first_open).stop


@given(windows, PANES)
def test_what_no_later_window_holds_is_not_needed(window: Window, pane: int) -> None:
    last = window.wids(pane)[-1:]
    for k in last:
        assert window.first_needed(k) <= pane < window.first_needed(k + 1)


@given(windows, st.integers(-1000, 1000))
def test_shown_bounds_are_values_of_the_attribute(window: Window, k: int) -> None:
    extent = window.extent(k)
    assert window.end(k) == extent.stop * AXIS.unit
    assert window.start(k) == (None if window.kind is WindowKind.LANDMARK else extent.start * AXIS.unit)
