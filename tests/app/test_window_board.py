"""Windows put together from the buckets of a result topic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowmark.app.watch.window_board import FinishedWindow, WindowBoard
from lowmark.wire.records.result_rows import ResultRow
from lowmark.wire.records.verdicts import Amendment, Complete, Reason, Verdict, WindowSpan

EXACT = Verdict()
GAP = Verdict(frozenset({Reason.GAP}))
LATE = Verdict(frozenset({Reason.LATE}), partial=True)


@dataclass(frozen=True)
class Row:
    bucket: int
    row: ResultRow


def row(bucket: int, text: str, generation: int = 0) -> Row:
    return Row(bucket, ResultRow(generation, text.encode()))


def complete(
    bucket: int, first: int, to: int | None = None, *, rows: int = 0, merged: int = 0, verdict: Verdict = EXACT,
    generation: int = 0, buckets: int = 2,
) -> Complete:  # fmt: skip
    last = first if to is None else to
    return Complete(
        "q", generation, bucket, buckets, WindowSpan(first, last), first * 10, (last + 1) * 10, "ts", rows, merged,
        merged, 0, 0, None, (), verdict,
    )  # fmt: skip


def up_to(bucket: int, end: int, rows: int) -> Complete:
    """A completion of a query without windows."""
    return Complete("q", 0, bucket, 2, None, None, end, "ts", rows, rows, rows, 0, 0, None, (), EXACT)


def feed(board: WindowBoard, *records: Row | Complete) -> list[FinishedWindow]:
    out: list[FinishedWindow] = []
    for record in records:
        if isinstance(record, Row):
            board.rows(record.bucket, [record.row])
        else:
            out += board.complete(record)
    return out


@pytest.mark.parametrize("first", [0, 1])
def test_a_window_that_was_amended_while_it_waited_is_not_shown_as_exact(first: int) -> None:
    """Also where the bucket that told so had no rows of it, or has completed it before."""
    board, other = WindowBoard(2), 1 - first
    assert feed(board, complete(first, 5), row(first, "a"), complete(first, 6, rows=1, merged=1)) == []
    for window in (4, 5, 6):
        span = WindowSpan(window, window)
        board.amend(Amendment("q", 0, first, span, window * 10, window * 10 + 10, 1, 0, LATE.reasons))
    shown = feed(board, row(other, "b"), complete(other, 5, rows=1, merged=1), complete(other, 6))
    assert [(window.window, window.verdict.reasons) for window in shown] == [(5, LATE.reasons), (6, LATE.reasons)]
    (after,) = feed(board, row(0, "c"), complete(0, 7, rows=1, merged=1), complete(1, 7))
    assert after.verdict.exact


def test_a_window_waits_for_all_buckets() -> None:
    board = WindowBoard(2)
    assert feed(board, row(0, "a"), complete(0, 5, rows=1, merged=3)) == []
    (window,) = feed(board, row(1, "b"), row(1, "c"), complete(1, 5, rows=2, merged=4))
    assert (window.window, window.rows) == (5, (b"a", b"b", b"c"))
    assert (window.merged, window.promised, window.verdict) == (7, 7, EXACT)
    assert (window.start, window.end) == (50, 60)


def test_a_run_of_empty_windows_stands_for_its_windows() -> None:
    board = WindowBoard(2)
    assert feed(board, row(0, "a"), complete(0, 5, rows=1, merged=1), complete(0, 6, 9)) == []
    (window,) = feed(board, complete(1, 4, 8))
    assert (window.window, window.rows) == (5, (b"a",))


def test_windows_without_rows_are_left_out_unless_something_is_wrong_with_them() -> None:
    board = WindowBoard(1)
    assert feed(board, complete(0, 5, merged=7), complete(0, 6, 7)) == []
    (window,) = feed(board, complete(0, 8, verdict=GAP))
    assert (window.window, window.rows, window.verdict) == (8, (), GAP)


def test_the_verdict_is_the_worst_of_all_buckets() -> None:
    board = WindowBoard(2)
    (window,) = feed(board, complete(0, 5, merged=1, verdict=GAP), complete(1, 5, merged=1, verdict=LATE))
    assert window.verdict == Verdict(frozenset({Reason.GAP, Reason.LATE}), partial=True)


def test_a_new_generation_begins_anew_and_older_records_are_left_out() -> None:
    board = WindowBoard(2)
    feed(board, row(0, "old"), complete(0, 5, rows=1, merged=1))
    out = feed(
        board,
        row(0, "new", 1),
        row(1, "stray", 0),
        complete(1, 5, rows=1, merged=1, generation=0),
        complete(0, 5, rows=1, merged=1, generation=1),
        complete(1, 5, generation=1),
    )
    assert [window.rows for window in out] == [(b"new",)]


def test_a_query_without_windows_shows_the_rows_of_each_bucket_as_they_are_complete() -> None:
    board = WindowBoard(2)
    (first,) = feed(board, row(0, "a"), row(0, "b"), up_to(0, 70, 2), up_to(1, 70, 0))
    assert (first.window, first.start, first.end, first.rows) == (None, None, 70, (b"a", b"b"))


@given(st.data())
def test_every_window_comes_once_and_in_order_however_the_buckets_are_interleaved(data: st.DataObject) -> None:
    buckets = data.draw(st.integers(1, 4))
    windows = data.draw(st.integers(1, 6))
    counts = [[data.draw(st.integers(0, 2)) for _ in range(windows)] for _ in range(buckets)]
    queues: list[list[Sequence[Row | Complete]]] = [
        [
            [
                *(row(bucket, f"{window}") for _ in range(counts[bucket][window])),
                complete(bucket, window, rows=counts[bucket][window], merged=counts[bucket][window], buckets=buckets),
            ]
            for window in range(windows)
        ]
        for bucket in range(buckets)
    ]
    board = WindowBoard(buckets)
    out: list[FinishedWindow] = []
    while any(queues):
        bucket = data.draw(st.sampled_from([index for index, queue in enumerate(queues) if queue]))
        out += feed(board, *queues[bucket].pop(0))
    totals = {window: sum(counts[bucket][window] for bucket in range(buckets)) for window in range(windows)}
    assert [(window.window, len(window.rows)) for window in out] == [item for item in totals.items() if item[1]]
    assert all(row_ == str(window.window).encode() for window in out for row_ in window.rows)


@pytest.mark.parametrize("missed", ["rows", "window"])
def test_what_had_begun_before_the_reading_did_is_not_shown_as_whole(missed: str) -> None:
    board = WindowBoard(2, from_beginning=False)
    if missed == "rows":  # of window 5 in bucket 0 one of two rows stood before
        begun = [row(0, "b"), complete(0, 5, rows=2, merged=2), row(1, "c"), complete(1, 5, rows=1, merged=1)]
    else:  # window 5 was complete in bucket 1
        begun = [row(0, "b"), complete(0, 5, rows=1, merged=1), complete(1, 6)]
    assert feed(board, *begun) == []
    rest = [row(0, "d"), complete(0, 6, rows=1, merged=1)] + ([complete(1, 6)] if missed == "rows" else [])
    assert [(window.window, window.rows) for window in feed(board, *rest)] == [(6, (b"d",))]


def test_rows_that_left_before_their_window_are_in_it() -> None:
    """Also where the window before it completes between them."""
    board = WindowBoard(2)
    early = Row(0, ResultRow(0, b"e", 6))
    rows = [row(0, "a"), early, complete(0, 5, rows=1, merged=1), complete(1, 5), row(0, "f")]
    ends = [complete(0, 6, rows=2, merged=2), complete(1, 6)]
    assert [(window.window, window.rows) for window in feed(board, *rows, *ends)] == [(5, (b"a",)), (6, (b"e", b"f"))]


def test_a_window_whose_early_rows_stood_before_the_reading_is_not_shown_as_whole() -> None:
    board = WindowBoard(1, from_beginning=False)
    shown = feed(
        board, row(0, "a"), complete(0, 5, rows=1, merged=1), row(0, "b"), complete(0, 6, rows=2, merged=2),
        row(0, "c"), complete(0, 7, rows=1, merged=1),
    )  # fmt: skip
    assert [window.window for window in shown] == [5, 7]


def test_a_window_whose_rows_are_not_those_that_were_written_is_torn() -> None:
    """One too many, one missing, another one; not in the first window that is read, whose beginning Kafka may have
    deleted."""

    def told(window: int, *rows: bytes) -> Complete:
        checksum = sum(map(crc32, rows)) % (1 << 32)
        return replace(complete(0, window, rows=len(rows), merged=1, buckets=1), checksum=checksum)

    def shown(window: int, seen: Sequence[bytes], written: Sequence[bytes]) -> bool:
        for value in seen:
            board.rows(0, [ResultRow(0, value)])
            board.checked(0, 0, None, value)
        (finished,) = board.complete(told(window, *written))
        return finished.torn

    board = WindowBoard(1)
    assert not shown(1, [b"b"], [b"a", b"b"])
    assert not shown(2, [b"b", b"a"], [b"a", b"b"])
    assert shown(3, [b"a", b"b", b"b"], [b"a", b"b"])
    assert shown(4, [b"a"], [b"a", b"b"])
    assert shown(5, [b"a", b"c"], [b"a", b"b"])
    assert not shown(6, [b"x"], [b"x"])
