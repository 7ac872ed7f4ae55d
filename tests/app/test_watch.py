"""What a person who watches is told of late packets."""

from __future__ import annotations

import pytest

from lowmark.app.watch import Amendments, amended
from lowmark.query.compile import compile_query
from lowmark.query.windows import Window
from lowmark.wire.results import Amendment, Reason, WindowSpan


def window_of(text: str) -> Window | None:
    return compile_query(f"SELECT count(*) [{text}] FROM A", streams={"A": 1}).window


@pytest.mark.parametrize(
    ("window", "span", "shown"),
    [
        ("RANGE 1 minute", (0, 0), "1970-01-01T00:00:00Z … 1970-01-01T00:01:00Z"),
        ("RANGE 2 minutes, SLIDE 1 minute", (9, 11), "1970-01-01T00:08:00Z … 1970-01-01T00:12:00Z"),
        ("RANGE ALL, SLIDE 1 minute", (4, 4), "the beginning … 1970-01-01T00:05:00Z"),
        ("RANGE 5 rows, SLIDE 2 rows, WA row_num", (3, 3), "4 … 9"),
    ],
)
def test_amended_windows_are_told_by_their_bounds(window: str, span: tuple[int, int], shown: str) -> None:
    assert amended(WindowSpan(*span), window_of(window)) == shown


def test_amended_windows_of_a_query_that_is_not_known_are_told_by_number() -> None:
    assert [amended(WindowSpan(*span), None) for span in ((7, 7), (7, 9))] == ["window 7", "windows 7…9"]


def test_an_amendment_is_news_once_for_all_buckets() -> None:
    def amendment(bucket: int, late: int = 2) -> Amendment:
        return Amendment("q", 1, bucket, WindowSpan(3, 3), late, 0, frozenset({Reason.LATE}))

    told = Amendments()
    heard = [amendment(0), amendment(1), amendment(2), amendment(1), amendment(0), amendment(2), amendment(2, late=1)]
    assert [told.new(item) for item in heard] == [True, False, False, True, False, False, True]
