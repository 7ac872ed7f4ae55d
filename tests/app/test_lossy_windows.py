"""Windows that are said to be lossy, in any order, overlapping, and more than once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lowmark.app.local.lossy_windows import LossyWindows
from lowmark.wire.records.verdicts import Reason

REASONS = st.frozensets(st.sampled_from((Reason.LATE, Reason.DROPPED, Reason.GAP)), min_size=1)
SAID = st.lists(st.tuples(st.integers(-30, 30), st.integers(0, 12), REASONS), max_size=25)


@given(SAID)
def test_each_is_counted_once_and_the_first_are_named_with_all_that_was_said(
    said: list[tuple[int, int, frozenset[Reason]]],
) -> None:
    lossy, wanted = LossyWindows(), dict[int, frozenset[Reason]]()
    for first, more, reasons in said:
        lossy.add(first, first + more, reasons)
        for window in range(first, first + more + 1):
            wanted[window] = wanted.get(window, frozenset()) | reasons
    assert (lossy.count, lossy.at_least) == (len(wanted), False)
    assert lossy.first == sorted(wanted.items())[:10]


@given(SAID, st.integers(1, 4))
def test_with_little_room_there_are_at_least_so_many(said: list[tuple[int, int, frozenset[Reason]]], room: int) -> None:
    lossy, wanted = LossyWindows(room), set[int]()
    for first, more, reasons in said:
        lossy.add(first, first + more, reasons)
        wanted.update(range(first, first + more + 1))
    assert lossy.count <= len(wanted)
    assert lossy.at_least or lossy.count == len(wanted)


def test_windows_that_follow_each_other_take_no_room() -> None:
    lossy = LossyWindows(1)
    for window in range(100_000):
        lossy.add(window, window, frozenset({Reason.LATE}))
        lossy.add(window // 2, window, frozenset({Reason.LATE}))
    lossy.add(10**6, 10**15, frozenset({Reason.GAP}))
    assert (lossy.count, lossy.at_least) == (100_000 + 10**15 - 10**6 + 1, False)
