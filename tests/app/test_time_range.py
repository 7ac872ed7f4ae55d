"""Which windows lie between two times."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lowmark.app.errors import OutputError
from lowmark.app.watch.time_range import EVERYTHING, Edge, WatchRange, edge_of
from lowmark.app.watch.window_board import WindowBoard
from lowmark.wire.records.result_rows import ResultRow
from lowmark.wire.records.verdicts import Complete, Verdict, WindowSpan
from lowmark.wire.rows.schema import Kind

TOLD = Complete("q", 1, 0, 1, WindowSpan(0, 0), 10, 30, "ts", 1, 1, 1, 0, 0, None, (), Verdict())


def between(since: int | None, until: int | None) -> WatchRange:
    return WatchRange(*(None if value is None else Edge(Kind.TIME, value) for value in (since, until)))


def holds(complete: Complete, since: int | None, until: int | None, before: int | None = None) -> bool:
    board = WindowBoard(1)
    if before is not None:
        list(board.complete(replace(complete, end=before)))
    board.rows(0, [ResultRow(1, b"{}")])
    (window,) = board.complete(complete)
    return between(since, until).holds(window)


@pytest.mark.parametrize(
    ("since", "until", "held"),
    [(None, None, True), (10, 30, True), (11, None, False), (None, 29, False), (0, 100, True), (30, None, False)],
)
def test_a_window_lies_between_with_its_whole_range(since: int | None, until: int | None, held: bool) -> None:
    assert holds(TOLD, since, until) is held


@pytest.mark.parametrize(("since", "held"), [(29, True), (30, False)])
def test_a_landmark_window_lies_where_it_ends(since: int, held: bool) -> None:
    assert holds(replace(TOLD, start=None), since, None) is held


@pytest.mark.parametrize(
    ("since", "until", "held"), [(29, None, True), (30, None, False), (None, 21, True), (None, 20, False)]
)
def test_rows_without_windows_are_of_any_time_since_the_bound_before(
    since: int | None, until: int | None, held: bool
) -> None:
    assert holds(replace(TOLD, windows=None, start=None), since, until, before=20) is held


def test_it_is_over_when_all_buckets_are_complete_up_to_its_end() -> None:
    board, until = WindowBoard(2), between(None, 30)
    list(board.complete(replace(TOLD, buckets=2)))
    assert not until.is_over(board.complete_to)
    list(board.complete(replace(TOLD, buckets=2, bucket=1, end=20)))
    assert not until.is_over(board.complete_to)
    list(board.complete(replace(TOLD, buckets=2, bucket=1, end=30)))
    assert until.is_over(board.complete_to)
    assert not EVERYTHING.is_over(board.complete_to)


def test_edges_are_times_in_any_zone_or_numbers_of_rows() -> None:
    assert edge_of("1970-01-01T01:00:10.5+01:00", "--since") == Edge(Kind.TIME, 10_500_000_000)
    assert edge_of("17", "--since") == Edge(Kind.INT, 17)
    for wrong in ("", "-1", "noon", "2024-05-01"):
        with pytest.raises(OutputError, match=r"--since.* takes a time such as"):
            edge_of(wrong, "--since")
    with pytest.raises(OutputError, match="--until: results of q go by ts: it takes a time"):
        WatchRange(until=Edge(Kind.INT, 17)).check(TOLD)
