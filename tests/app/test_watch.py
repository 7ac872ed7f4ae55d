"""What those who watch are told of complete windows, and of late packets."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from lowmark.app.watch.follow import Amendments, amendment_text, completion_line, show_window
from lowmark.app.watch.window_board import WindowBoard
from lowmark.wire.records.result_rows import ResultRow
from lowmark.wire.records.verdicts import Amendment, Complete, Reason, Verdict, WindowSpan
from lowmark.wire.rows.schema import Kind

SECOND = 10**9


def amendment(bucket: int, late: int = 2, **changes: object) -> Amendment:
    told = Amendment("q", 1, bucket, WindowSpan(3, 3), 8, 10, late, 0, frozenset({Reason.LATE}))
    return replace(told, **changes)  # type: ignore[arg-type]


def test_an_amendment_says_that_the_window_is_lossy() -> None:
    day = "1970-01-01T00:0{}:00Z"
    assert amendment_text(amendment(0)) == "amendment  8 … 10: lossy: late (2 late, 0 dropped)"
    several = amendment(0, start=None, end=day.format(5), reasons=frozenset({Reason.LATE, Reason.DROPPED}))
    assert (
        amendment_text(several)
        == f"amendment  the beginning … {day.format(5)}: lossy: dropped, late (2 late, 0 dropped)"
    )
    rows = amendment(0, windows=None, start=day.format(1), end=day.format(2))
    assert amendment_text(rows) == f"amendment  {day.format(1)} … {day.format(2)}: lossy: late (2 late, 0 dropped)"


def test_an_amendment_is_news_once_for_all_buckets() -> None:
    told = Amendments()
    heard = [amendment(0), amendment(1), amendment(2), amendment(1), amendment(0), amendment(2), amendment(2, late=1)]
    assert [told.new(item) for item in heard] == [True, False, False, True, False, False, True]


@pytest.mark.parametrize(
    ("changes", "bounds"),
    [
        ({}, {"window_start": "1970-01-01T00:00:05Z", "window_end": "1970-01-01T00:00:10Z"}),
        ({"start": None}, {"window_start": None, "window_end": "1970-01-01T00:00:10Z"}),
        ({"start": 1, "end": 6, "attribute": "row_num", "kind": Kind.INT}, {"window_start": 1, "window_end": 6}),
        ({"windows": None, "start": None}, {"ts": "1970-01-01T00:00:10Z"}),
    ],
)
def test_a_completion_for_programs_has_its_bounds_as_rows_do_and_says_whether_it_is_partial(
    changes: dict[str, object], bounds: dict[str, object]
) -> None:
    verdict = Verdict(frozenset({Reason.GAP}), partial=True)
    told = Complete(
        "q", 1, 0, 1, WindowSpan(1, 1), 5 * SECOND, 10 * SECOND, "ts", 1, 3, 4, 0, 0, None, (), verdict
    )  # fmt: skip
    told = replace(told, **changes)  # type: ignore[arg-type]
    board = WindowBoard(1)
    board.rows(0, [ResultRow(1, b"{}")])
    (window,) = board.complete(told)
    assert json.loads(completion_line(window)) == {
        "complete": bounds, "rows": len(window.rows), "merged": 3, "promised": 4, "verdict": "lossy",
        "reasons": ["gap"], "partial": True,
    }  # fmt: skip
    assert completion_line(window).isascii()


@pytest.mark.parametrize(
    "row",
    [
        b'{"window_start":"05","window_end":"10","srcIP":"10.0.0.1","count":7}',
        b'{"event.start":"05","event.end":"10","source.ip":"10.0.0.1","network.packets":7}',
        b'{"flowStartNanoseconds":"05","flowEndNanoseconds":"10","sourceIPAddress":"10.0.0.1","packetDeltaCount":7}',
    ],
)
def test_the_bounds_of_a_window_stand_above_its_rows_whatever_they_are_called(row: bytes) -> None:
    told = Complete(
        "q", 1, 0, 1, WindowSpan(1, 1), 5 * SECOND, 10 * SECOND, "ts", 1, 7, 7, 0, 0, None, (), Verdict()
    )  # fmt: skip
    board = WindowBoard(1)
    board.rows(0, [ResultRow(1, row)])
    (window,) = board.complete(told)
    shown = io.StringIO()
    show_window(Console(file=shown, width=100), "q", window)
    title, *table = shown.getvalue().splitlines()
    assert "1970-01-01T00:00:05Z … 1970-01-01T00:00:10Z" in title
    heads = list(json.loads(row))
    assert all(head in "\n".join(table) for head in heads[2:])
    assert not any(head in "\n".join(table) for head in heads[:2])
