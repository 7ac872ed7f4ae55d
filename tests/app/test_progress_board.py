"""What a window waits for, from the records of topics alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lowmark.app.progress.board import ProgressBoard
from lowmark.query.compile import compile_query
from lowmark.wire.records.partials import Origin
from lowmark.wire.records.punctuations import Bound, Ending, LaneLedger, Promise, Punctuation
from lowmark.wire.records.quarantine import Quarantine
from lowmark.wire.records.verdicts import Amendment, Complete, Reason, Verdict, WindowSpan
from tests.app.board_feed import NOW, SECOND, completed, only, waits

WINDOWED = "SELECT srcIP, count(*) [RANGE 20 s, SLIDE 10 s] FROM Main GROUP BY srcIP"
PLAN = compile_query(WINDOWED, name="q", streams={"Main": 2}, buckets=2)
NODE = PLAN.stage.nodes[0].name


def board() -> ProgressBoard:
    return ProgressBoard([PLAN], {"Main": ("a", "b")}, "lowmark")


def promise(source: str, second: int | None, epoch: int = 5, ending: Ending = Ending.NONE) -> Punctuation:
    made = Promise((), True) if second is None else Promise((Bound("ts", second * SECOND),))
    return Punctuation(Origin(PLAN.stage.fingerprint, source, epoch, NODE), 0, made, LaneLedger(), ending)


def complete(bucket: int, wid: int, rows: int = 1, generation: int = 1, verdict: Verdict | None = None) -> Complete:
    assert PLAN.window is not None
    return Complete(
        "q", generation, bucket, 2, WindowSpan(wid, wid), PLAN.window.start(wid), PLAN.window.end(wid), "ts", rows,
        3, 3, 0, 1, None, (), verdict or Verdict(),
    )  # fmt: skip


def test_a_source_that_was_never_seen_and_one_that_has_promised_nothing() -> None:
    of = board()
    of.registered("b", 5)
    assert waits(of) == [("a", "it has never been seen"), ("b", "it has promised nothing yet")]
    assert only(of).open == ()


def test_windows_of_a_quarantined_query_wait_for_nothing_else() -> None:
    of = board()
    of.quarantined(Quarantine("lowmark", (("other", "x"), ("q", "LimitReached in bucket 1"))))
    assert waits(of) == [("the job", "the query is quarantined: LimitReached in bucket 1")]
    of.promised(promise("a", 57), NOW * SECOND)
    of.promised(promise("b", 22), NOW * SECOND)
    for bucket in range(2):
        of.complete(complete(bucket, 1))
    assert {(item.who, item.why) for window in only(of).open for item in window.waiting} == set(waits(of))
    assert only(of).open != ()
    of.quarantined(Quarantine("elsewhere", ()))
    assert len(waits(of)) == 1
    of.quarantined(Quarantine("lowmark", ()))
    assert [who for who, _ in waits(of)] == ["b"]


def test_the_source_that_is_behind_and_how_far() -> None:
    of = board()
    of.promised(promise("a", 57), NOW * SECOND)
    of.promised(promise("b", 22), NOW * SECOND)
    for bucket in range(2):
        of.complete(complete(bucket, 1))
    found = only(of)
    assert (found.open[0].start, found.open[0].end) == ("1970-01-01T00:00:10Z", "1970-01-01T00:00:30Z")
    assert (found.complete_to, found.frontier) == ("1970-01-01T00:00:20Z", "1970-01-01T00:00:22Z")
    assert [(item.who, item.behind_ns) for item in found.waiting] == [("b", 8 * SECOND)]
    assert found.waiting[0].text == (
        "b: it has not promised to be past it (up to 1970-01-01T00:00:22Z, 8 s behind, last promise 0 s ago)"
    )
    assert found.open_windows == 5
    assert [(window.end[-3:-1], [(item.who, item.behind_ns) for item in window.waiting]) for window in found.open] == [
        ("30", [("b", 8 * SECOND)]),
        ("40", [("b", 18 * SECOND)]),
        ("50", [("b", 28 * SECOND)]),
        ("00", [("time", 38 * SECOND)]),
        ("10", [("time", 48 * SECOND)]),
    ]
    of.promised(promise("b", 22, ending=Ending.STOP), NOW * SECOND)
    assert waits(of) == [("b", "it has stopped")]


def test_the_job_is_behind_when_no_source_is() -> None:
    of = board()
    of.promised(promise("a", 47), NOW * SECOND)
    of.promised(promise("b", 22), NOW * SECOND)
    of.promised(promise("b", 47), NOW * SECOND)
    assert waits(of) == [("the job", "all sources are past it, buckets 0, 1 have completed nothing yet")]
    of.complete(complete(0, 2))
    of.complete(complete(1, 1))
    assert only(of).waiting[0].text == (
        "the job: all sources are past it, bucket 1 has not completed it (up to 1970-01-01T00:00:20Z, 10 s behind)"
    )
    of.complete(complete(1, 2))
    of.complete(complete(0, 3))
    of.complete(complete(1, 3))
    assert only(of).waiting[0].text == "time: 3 s more must come"


@pytest.mark.parametrize("first", [27, 30, 46])
def test_a_window_whose_time_has_not_come_is_held_up_by_nobody(first: int) -> None:
    """The next one of sources that are well, as far apart as they can be: a pane is promised when it has left the
    table, and so leaps by itself."""
    of = board()
    of.promised(promise("a", first), NOW * SECOND)
    of.promised(promise("b", 26), (NOW - 9) * SECOND)
    for bucket in range(2):
        of.complete(complete(bucket, 1))
    assert [(item.who, item.up_to, item.behind_ns, item.healthy) for item in only(of).waiting] == [
        ("time", "1970-01-01T00:00:26Z", 4 * SECOND, True)
    ]
    assert [at.source for at in only(of).holders] == ["b"]


@pytest.mark.parametrize("second", [26, 22])
def test_a_source_that_is_gone_is_named_though_no_other_is_past_the_window(second: int) -> None:
    """By what is not heard of it: panes of 10 s are promised each 10 s."""
    of = board()
    of.promised(promise("a", second + 1), (NOW + 60) * SECOND)
    of.promised(promise("b", second), NOW * SECOND)
    for bucket in range(2):
        of.complete(complete(bucket, 1))
    assert waits(of, NOW + 15) == [("time", "more must come")]
    (gone,) = only(of, NOW + 60).waiting
    assert (gone.who, gone.why) == ("b", "its promises do not come any more")
    assert (gone.heard_ns, gone.silent_ns) == (NOW * SECOND, 60 * SECOND)
    (holder,) = only(of, NOW + 60).holders
    assert (holder.source, holder.state, holder.silent_ns) == ("b", "overdue", 60 * SECOND)
    assert only(of, NOW + 60) == only(of, NOW + 70)  # no news


def test_while_a_source_has_promised_nothing_no_other_is_blamed() -> None:
    of = ProgressBoard([PLAN], {"Main": ("a", "b", "c")}, "lowmark")
    of.promised(promise("a", 47), NOW * SECOND)
    of.promised(promise("b", 22), NOW * SECOND)
    assert waits(of) == [("c", "it has never been seen")]
    assert [at.source for at in only(of).holders] == ["c"]


def test_a_new_life_of_a_source_has_promised_nothing() -> None:
    of = board()
    of.promised(promise("a", 57), NOW * SECOND)
    of.promised(promise("b", 47), NOW * SECOND)
    of.registered("b", 9)
    assert waits(of) == [("b", "it has promised nothing yet")]
    of.promised(promise("b", 99, epoch=5), NOW * SECOND)  # of its former life
    assert waits(of) == [("b", "it has promised nothing yet")]
    of.promised(promise("b", None, epoch=9), NOW * SECOND)
    assert ("b", "it has promised nothing yet") not in waits(of)


def test_nothing_waits_when_all_have_ended() -> None:
    of = board()
    of.promised(promise("a", None), NOW * SECOND)
    of.promised(promise("b", None), NOW * SECOND)
    found = only(of)
    assert (found.ended, found.waiting, found.open, found.open_windows) == (True, (), (), 0)


def test_counts_are_of_the_present_generation() -> None:
    of = board()
    of.complete(complete(0, 1, rows=9))
    of.complete(complete(0, 1, rows=2, generation=2, verdict=Verdict(frozenset({Reason.LATE}))))
    of.complete(complete(1, 1, rows=3, generation=2))
    of.complete(complete(1, 2, rows=7, generation=1))
    found = only(of)
    assert (found.rows, found.tuples, found.late, found.lossy_windows) == (5, 6, 1, 1)


def test_what_was_late_or_dropped_is_counted_once_for_all_buckets() -> None:
    """Each bucket tells of the whole stream, in completions and afterwards."""
    of = board()
    for bucket in (0, 1):
        of.complete(replace(complete(bucket, 1), late=3, dropped=1))
        of.amended(amendment(bucket, late=2, dropped=4))
    of.amended(amendment(0, late=9, dropped=9, generation=7))
    assert (only(of).late, only(of).dropped) == (5, 5)


def test_a_window_that_was_told_as_exact_and_amended_is_lossy() -> None:
    """Once for all buckets, and however often it is said."""
    of = board()
    for bucket in (0, 1):
        of.complete(complete(bucket, 1))
        of.complete(complete(bucket, 2, verdict=Verdict(frozenset({Reason.LATE}))))
    assert only(of).lossy_windows == 1
    for bucket in (0, 1):
        for window in (1, 1, 2):
            of.amended(amendment(bucket, window))
    assert only(of).lossy_windows == 2


def test_an_answer_without_windows_is_lossy_as_often_as_its_bounds_are_not_its_buckets() -> None:
    plan = compile_query("SELECT ts, srcIP FROM Main", name="q", streams={"Main": 2}, buckets=4)
    of = ProgressBoard([plan], {"Main": ("a", "b")}, "lowmark")
    for second in range(50):
        for bucket in range(4):
            told = completed(plan, bucket, None, second * SECOND)
            of.complete(replace(told, verdict=Verdict(frozenset({Reason.LATE}))))
    assert only(of).lossy_windows == 50
    for bucket in range(4):
        of.amended(replace(amendment(bucket), windows=None, end="1970-01-01T00:00:49Z"))
        of.amended(replace(amendment(bucket), windows=None, end="1970-01-01T00:00:49.500Z"))
    assert only(of).lossy_windows == 51


def amendment(bucket: int, window: int = 1, late: int = 1, dropped: int = 0, generation: int = 1) -> Amendment:
    span = WindowSpan(window, window)
    return Amendment("q", generation, bucket, span, None, window, late, dropped, frozenset({Reason.LATE}))


def test_of_many_open_windows_the_oldest_are_told() -> None:
    of = board()
    of.promised(promise("a", 4700), NOW * SECOND)
    of.promised(promise("b", 22), NOW * SECOND)
    found = only(of)
    assert (found.open_windows, len(found.open)) == (470, 10)
    assert found.waiting == found.open[0].waiting


def test_rows_that_left_early_are_told_until_their_window_completes() -> None:
    of = board()
    for source in ("a", "b"):
        of.registered(source, 5)
        of.promised(promise(source, 100), NOW)
    of.complete(complete(0, 8))
    of.complete(complete(1, 8))
    of.left_early("q", 0, 1, 9, 3)
    of.left_early("q", 1, 1, 9, 1)
    of.left_early("q", 1, 0, 9, 7)
    first = only(of).open[0]
    assert first.early_rows == 4
    assert first.json["early_rows"] == 4  # type: ignore[index, call-overload]
    of.complete(complete(0, 9, rows=5))
    assert only(of).open[0].early_rows == 1
