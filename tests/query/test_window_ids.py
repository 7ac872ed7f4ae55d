"""Window semantics of Li 5.1, for every kind of window: `extent` and `wids` are inverse to each other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lowmark.query.bind.relations import Turn
from lowmark.query.windows.window import Axis, Window, WindowKind
from lowmark.wire.rows.schema import Kind
from tests.query.window_ids import Tuple, WindowId, Windows, extent, wids, windows

SIZES = st.integers(1, 12)
UNITS = st.integers(1, 4)


def over(attribute: str, origin: int) -> st.SearchStrategy[Axis]:
    return st.builds(Axis, st.just(attribute), st.just(Kind.INT), UNITS, st.just(origin))


def windows_over(axis: st.SearchStrategy[Axis]) -> st.SearchStrategy[Window]:
    return st.builds(Window, st.just(WindowKind.SLIDING), SIZES, SIZES, axis) | st.builds(
        Window, st.just(WindowKind.LANDMARK), st.just(0), SIZES, axis
    )


BY_TUPLE = st.builds(
    Window, st.just(WindowKind.SLIDE_BY_TUPLE), SIZES, SIZES, st.just(Axis("ts", Kind.TIME, 1))
)  # fmt: skip
SPECIFICATIONS = (
    st.builds(Windows, windows_over(over("ts", 0)))
    | st.builds(Windows, windows_over(over("row_num", 1)), st.just(Turn.ROWS))
    | st.builds(Windows, BY_TUPLE, st.sampled_from((Turn.ARRIVAL, Turn.RANK)))
)
TUPLES = st.lists(st.builds(Tuple, st.integers(-20, 40), st.sampled_from("xy")), max_size=25)


@given(SPECIFICATIONS, TUPLES)
def test_extent_and_wids_are_inverse(of: Windows, tuples: list[Tuple]) -> None:
    known = windows(of, tuples)
    held = {(window, i) for window in known for i in extent(of, window, tuples)}
    assert held == {(window, i) for i in range(len(tuples)) for window in wids(of, i, tuples)}


@given(SPECIFICATIONS, TUPLES)
def test_every_window_holds_a_tuple(of: Windows, tuples: list[Tuple]) -> None:
    assert all(extent(of, window, tuples) for window in windows(of, tuples))


@given(SPECIFICATIONS, TUPLES)
def test_partitions_know_nothing_of_each_other(of: Windows, tuples: list[Tuple]) -> None:
    own = [i for i, item in enumerate(tuples) if item.partition == "x"]
    alone = [tuples[i] for i in own]
    assert {w for w in windows(of, tuples) if w.partition == "x"} == windows(of, alone)
    for window in windows(of, alone):
        assert extent(of, window, tuples) == {own[i] for i in extent(of, window, alone)}


@given(SIZES, SIZES, TUPLES)
def test_rows_are_counted_from_one(size: int, slide: int, tuples: list[Tuple]) -> None:
    of = Windows(Window(WindowKind.SLIDING, size, slide, Axis("row_num", Kind.INT, 1, 1)), Turn.ROWS)
    one = [Tuple(item.value) for item in tuples]
    for window in windows(of, one):
        last = (window.number + 1) * slide
        inside = range(max(1, last - size + 1), min(last, len(one)) + 1)
        assert extent(of, window, one) == {number - 1 for number in inside}


@given(SIZES, SIZES, TUPLES)
def test_equal_values_end_one_window(size: int, slide: int, tuples: list[Tuple]) -> None:
    for turn in (Turn.ARRIVAL, Turn.RANK):
        window = Window(WindowKind.SLIDE_BY_TUPLE, size, slide, Axis("ts", Kind.TIME, 1))
        ends = windows(Windows(window, turn), tuples)
        assert ends <= {WindowId(item.partition, item.value) for item in tuples}
        assert len(ends) <= sum(1 for _ in tuples) // slide


def test_the_rank_of_late_tuples() -> None:
    """By arrival the second and the fourth tuple end windows, by rank those of the second and the fourth value."""
    tuples = [Tuple(5), Tuple(9), Tuple(3), Tuple(7)]
    window = Window(WindowKind.SLIDE_BY_TUPLE, 4, 2, Axis("ts", Kind.TIME, 1))
    by_arrival, by_rank = Windows(window, Turn.ARRIVAL), Windows(window, Turn.RANK)
    assert {w.number for w in windows(by_arrival, tuples)} == {9, 7}
    assert {w.number for w in windows(by_rank, tuples)} == {5, 9}
    assert extent(by_rank, WindowId(None, 9), tuples) == {1, 3}
    assert extent(by_rank, WindowId(None, 5), tuples) == {0, 2}
