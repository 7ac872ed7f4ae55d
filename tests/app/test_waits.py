"""What a window or an answer of each kind waits for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lowmark.app.progress.board import ProgressBoard
from lowmark.query.compile import compile_query
from lowmark.wire.records.partials import PANE, Origin
from lowmark.wire.records.punctuations import Account, Bound, Ending, LaneLedger, Promise, Punctuation
from lowmark.wire.records.verdicts import OpenCount, WindowSpan
from tests.app.board_feed import NOW, SECOND, completed, go_on, lagging, only, waits

STAGED = """
CREATE STREAM p AS SELECT srcIP, count(*) AS n [RANGE 10 s] FROM Main GROUP BY srcIP;
SELECT srcIP, max(n) [RANGE 30 s, WA window_end] FROM p GROUP BY srcIP
"""
JOINED = """
SELECT A.srcIP, count(*) [RANGE 10 s, WA A.ts] FROM Main [RANGE 2 s] AS A, Main [RANGE 3 s] AS B
WHERE A.srcIP = B.destIP GROUP BY A.srcIP
"""
WINDOWED = "SELECT srcIP, count(*) [RANGE 20 s, SLIDE 10 s] FROM Main GROUP BY srcIP"


@pytest.mark.parametrize(
    ("sql", "ends", "behind_s"),
    [
        (
            "SELECT srcIP, count(*) [RANGE 20 s, SLIDE 10 s, WA arrival_ts] FROM Main GROUP BY srcIP",
            "00:30",
            {"time": 8},
        ),
        ("SELECT srcIP, count(*) [RANGE 1 minute, WA ts + 5 s] FROM Main GROUP BY srcIP", "01:00", {"time": 33}),
        ("SELECT srcIP, count(*) [RANGE ALL, SLIDE 30 s] FROM Main GROUP BY srcIP", "00:30", {"time": 8}),
        # What ends at 30 s lies in the window behind it: the last that this one holds ends at 50 s.
        (STAGED, "01:00", {"time": 28}),
        # Of A.ts nothing comes before B's promise less 2 s.
        (JOINED, "00:30", {"b": 10}),
        (JOINED.replace("A.ts", "B.ts"), "00:20", {"b": 1}),
    ],
)
def test_windows_over_whatever_follows_time_wait_for_sources(sql: str, ends: str, behind_s: dict[str, int]) -> None:
    plan = compile_query(sql, name="q", streams={"Main": 2}, buckets=2)
    found = only(lagging(plan))
    assert found.open[0].end == f"1970-01-01T00:{ends}Z"
    assert {item.who: (item.behind_ns or 0) // SECOND for item in found.open[0].waiting} == behind_s
    assert found.open_windows


def test_a_window_over_leaps_waits_for_the_next_one() -> None:
    """At 22 s the attribute is 20, which the window that ends at 25 holds; its next value is that of 30 s."""
    sql = "SELECT srcIP, count(*) [RANGE 20, SLIDE 5, WA ts/10*10] FROM Main GROUP BY srcIP"
    found = only(lagging(compile_query(sql, name="q", streams={"Main": 2}, buckets=2)))
    assert found.open[0].end == 25
    assert [(item.who, item.behind_ns) for item in found.open[0].waiting] == [("b", 8 * SECOND)]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT ts, srcIP FROM Main",
        "SELECT A.ts, B.ts AS other FROM Main [RANGE 2 s] AS A, Main [RANGE 3 s] AS B WHERE A.srcIP = B.destIP",
        "SELECT srcIP, count(*) [RANGE 5 rows, WA row_num, PA srcIP] FROM Main GROUP BY srcIP",
    ],
)
def test_where_there_is_no_sequence_of_windows_whoever_is_behind_is_waited_for(sql: str) -> None:
    plan = compile_query(sql, name="q", streams={"Main": 2}, buckets=2)
    found = only(lagging(plan))
    assert [(item.who, item.why, item.up_to, item.behind_ns) for item in found.waiting] == [
        ("b", "another has promised more", "1970-01-01T00:00:22Z", 25 * SECOND)
    ]
    assert (found.open, found.open_windows) == ((), None)
    assert found.frontier == "1970-01-01T00:00:22Z"


def test_groups_wait_for_time_or_whoever_has_not_promised_to_be_past_them() -> None:
    sql = "SELECT srcIP, count(*) FROM Main GROUP BY srcIP, ts/60 AS minute"
    found = only(lagging(compile_query(sql, name="q", streams={"Main": 2}, buckets=2)))
    assert [(item.who, item.behind_ns) for item in found.waiting] == [("time", 38 * SECOND)]


def test_a_source_within_two_granules_is_not_behind() -> None:
    """So far apart are sources that are well: a pane leaves the table within two."""
    plan = compile_query("SELECT ts, srcIP FROM Main", name="q", streams={"Main": 2}, buckets=2)
    of = lagging(plan)
    go_on(of, plan, "b", 44.5)
    assert waits(of) == [("b", "another has promised more")]
    go_on(of, plan, "a", 47.5)
    go_on(of, plan, "b", 45)
    assert waits(of) == []


def test_of_sources_that_are_gone_the_one_that_is_behind_is_waited_for_or_else_each() -> None:
    plan = compile_query("SELECT ts, srcIP FROM Main", name="q", streams={"Main": 2}, buckets=2)
    of, gone = lagging(plan), "its promises do not come any more"
    assert waits(of, NOW + 60) == [("b", gone)]
    go_on(of, plan, "b", 47)
    assert waits(of, NOW + 60) == [("a", gone), ("b", gone)]


def test_each_source_is_told_with_its_distance_from_the_furthest() -> None:
    plan = compile_query(JOINED, name="q", streams={"Main": 2}, buckets=2)
    of = lagging(plan)
    assert [(item.source, item.state, item.behind_ns) for item in only(of).sources] == [
        ("a", "promising", 0), ("b", "promising", 25 * SECOND),
    ]  # fmt: skip
    go_on(of, plan, "a", None)
    of.registered("b", 9)
    assert [(item.source, item.state, item.promised_ns) for item in only(of).sources] == [
        ("a", "ended", None), ("b", "silent", None),
    ]  # fmt: skip


ROWS = compile_query("SELECT count(*) [RANGE 5 rows, WA row_num] FROM Main", name="q", streams={"Main": 2})


def test_rows_that_have_come_wait_for_the_source_that_is_behind() -> None:
    """Four have been numbered; three that a has sent beyond b's promise have not."""
    found = only(lagging(ROWS, a=(1, 2, 3, 30, 31, 46), b=(20,)))
    assert (found.tuples_ahead, found.open_windows) == (3, 2)
    assert [(window.start, window.end, [each.who for each in window.waiting]) for window in found.open] == [
        (1, 6, ["b"]), (6, 11, ["b", "rows"]),
    ]  # fmt: skip
    assert found.open[1].waiting[1].text == "rows: 3 more must come"


def test_a_window_that_is_short_of_rows_is_held_by_nobody() -> None:
    of = lagging(ROWS, a=(1, 2, 3), b=(20,))
    go_on(of, ROWS, "b", 47, before=1)
    assert waits(of) == [("rows", "1 more must come")]


def test_numbered_rows_wait_for_the_job() -> None:
    of = lagging(ROWS, a=(1, 2, 3, 4, 5, 6), b=(20,))
    assert waits(of) == [("the job", "all sources are past it, bucket 0 has completed nothing yet")]
    of.complete(completed(ROWS, 0, WindowSpan(0, 0), 6, "row_num"))
    assert only(of).complete_to == 6
    assert waits(of) == [("b", "another has promised more"), ("rows", "3 more must come")]


def test_rows_of_former_epochs_count() -> None:
    of = lagging(ROWS, a=(1, 2), b=(20,))
    ledger = LaneLedger({"promised": 1}, (Account(47, 0, 1),))
    node, bounds = ROWS.stage.nodes[0].name, (Bound("ts", 50 * SECOND),)
    of.promised(Punctuation(Origin(ROWS.stage.fingerprint, "a", 8, node), 0, Promise(bounds), ledger), NOW * SECOND)
    go_on(of, ROWS, "b", 50, before=1)
    assert waits(of) == [("rows", "1 more must come")]


@pytest.mark.parametrize("before", [0, 40])
def test_what_is_not_known_of_rows_is_not_guessed(before: int) -> None:
    """Ten have been completed, of which none were read; or of those that were read some were ahead of b."""
    of = ProgressBoard([ROWS], {"Main": ("a", "b")}, "lowmark")
    go_on(of, ROWS, "b", 22)
    go_on(of, ROWS, "a", 47, (45,), before)
    of.complete(completed(ROWS, 0, WindowSpan(1, 1), 11, "row_num"))
    assert waits(of) == [("b", "another has promised more"), ("rows", "how many have come is not known")]
    assert only(of).open[0].start == 11


def test_windows_that_slide_by_tuple_are_open_for_tuples_ahead() -> None:
    sql = "SELECT count(*) [RANGE 5 s, RATTR ts, SLIDE 2 rows, SATTR row_num] FROM Main"
    plan = compile_query(sql, name="q", streams={"Main": 2}, buckets=2)
    found = only(lagging(plan, a=(1, 2, 3, 30, 31, 46), b=(20,)))
    assert (found.tuples_ahead, found.open_windows) == (3, 2)
    assert found.waiting[0].who == "b"
    plan = compile_query(sql.replace("SATTR row_num", "SATTR row_num, PA srcIP"), name="q", streams={"Main": 2})
    assert only(lagging(plan, a=(1, 2, 3, 30, 31, 46), b=(20,))).open_windows == 3  # each may be its partition's second


PARTED = compile_query(
    "SELECT srcIP, count(*) [RANGE 5 rows, WA row_num, PA srcIP] FROM Main", name="q", streams={"Main": 2}, buckets=2
)


def test_windows_of_partitions_are_open_as_buckets_have_told() -> None:
    of = lagging(PARTED, a=(1,))
    for bucket, counted in ((0, OpenCount(7, 3)), (0, OpenCount(4, 2)), (1, OpenCount(1, 1))):
        of.complete(replace(completed(PARTED, bucket, None, 22 * SECOND), open=counted))
    assert (only(of).open_windows, only(of).open_partitions) == (5, 3)
    rows = ("rows", "more of their partitions must come")
    assert waits(of) == [("b", "another has promised more"), rows]
    go_on(of, PARTED, "b", 47)
    assert waits(of) == [rows]
    go_on(of, PARTED, "a", None)
    go_on(of, PARTED, "b", None)
    assert waits(of) == [("the job", "all sources have ended, and it has not closed all windows")]
    for bucket in range(2):
        of.complete(replace(completed(PARTED, bucket, None, 23 * SECOND), open=OpenCount()))
    assert (only(of).open_windows, only(of).open_partitions, waits(of)) == (0, 0, [])


def test_an_answer_without_windows_that_tells_of_no_rows_may_be_behind() -> None:
    plan = compile_query("SELECT ts, srcIP FROM Main", name="q", streams={"Main": 2}, buckets=2)
    of = lagging(plan, a=(15,))
    go_on(of, plan, "b", 47)
    of.complete(completed(plan, 1, None, 10 * SECOND))
    why = "tuples have come since its last report: they made no row, or it is behind"
    assert [(item.why, item.up_to, item.behind_ns) for item in only(of).waiting] == [
        (why, "1970-01-01T00:00:10Z", 37 * SECOND)
    ]
    of.complete(completed(plan, 1, None, 16 * SECOND))
    assert waits(of) == []


@pytest.mark.parametrize("sql", [WINDOWED, JOINED])
def test_when_all_have_ended_the_job_may_not_have(sql: str) -> None:
    plan = compile_query(sql, name="q", streams={"Main": 2}, buckets=2)
    of = lagging(plan, a=(15,), b=(16,))
    go_on(of, plan, "a", None)
    go_on(of, plan, "b", None)
    assert [item.who for item in only(of).waiting] == ["the job"]
    for bucket in range(2):
        of.complete(completed(plan, bucket, WindowSpan(2, 2), 30 * SECOND))
    assert waits(of) == []


EXCHANGED = compile_query(
    """
    CREATE STREAM p AS SELECT srcIP, count(*) AS n [RANGE 10 s] FROM Main GROUP BY srcIP;
    SELECT n, count(*) [RANGE 20 s, SLIDE 10 s, WA window_end] FROM p GROUP BY n
    """,
    name="q", streams={"Main": 2}, buckets=2,
)  # fmt: skip


def sent(bucket: int, second: int, generation: int = 1) -> Punctuation:
    """A bucket has sent on what ends before this."""
    assert EXCHANGED.exchanges is not None
    node = EXCHANGED.exchanges.each[0].node
    origin = Origin(EXCHANGED.exchanges.fingerprint, f"bucket-{bucket}", generation, node.name)
    promise = Promise((Bound(PANE, node.reduction.pane.index(second * SECOND)),))
    return Punctuation(origin, 0, promise, LaneLedger(), Ending.NONE)


def test_a_bucket_that_has_not_sent_its_rows_into_an_exchange_is_waited_for() -> None:
    """The window that ends at 20 s holds what ends before: all sources have promised that."""
    of = lagging(EXCHANGED)
    for bucket in range(2):
        of.complete(completed(EXCHANGED, bucket, WindowSpan(0, 0), 10 * SECOND))
    of.promised(sent(0, 20), NOW * SECOND)
    why = "bucket 1 has not sent all of it into exchange q.x0: rows that lie in their buckets by srcIP are grouped by n"
    assert waits(of) == [("the job", why)]
    of.promised(sent(1, 10), NOW * SECOND)
    assert [(item.up_to, item.behind_ns) for item in only(of).waiting] == [("1970-01-01T00:00:10Z", 10 * SECOND)]
    of.promised(sent(1, 20), NOW * SECOND)
    assert waits(of) == [("the job", "all sources are past it, buckets 0, 1 have not completed it")]
    of.promised(sent(0, 0, generation=2), NOW * SECOND)  # a job that begins anew sends all of it again
    assert [item.up_to for item in only(of).waiting] == ["1970-01-01T00:00:00Z"]


def test_a_source_that_holds_up_an_exchange_is_named_itself() -> None:
    of = lagging(EXCHANGED)
    go_on(of, EXCHANGED, "a", 57)
    for bucket in range(2):
        of.complete(completed(EXCHANGED, bucket, WindowSpan(2, 2), 30 * SECOND))
        of.promised(sent(bucket, 30), NOW * SECOND)
    assert [(item.who, item.behind_ns) for item in only(of).waiting] == [("b", 8 * SECOND)]
