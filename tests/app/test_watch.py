"""What a person who watches is told of late packets."""

from __future__ import annotations

from dataclasses import replace

from lowmark.app.watch import Amendments, amendment_text
from lowmark.wire.results import Amendment, Reason, WindowSpan


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
