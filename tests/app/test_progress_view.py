"""Where queries stand, on terminals of 80 and 120 columns."""

from __future__ import annotations

import re
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from lowmark.app.progress.board import ProgressBoard
from lowmark.app.progress.query_progress import QueryProgress
from lowmark.app.progress.view import ProgressView
from lowmark.query.compile import compile_query
from lowmark.wire.records.verdicts import OpenCount, WindowSpan
from tests.app.board_feed import NOW, SECOND, completed, go_on, lagging

WINDOWED = "SELECT srcIP, count(*) [RANGE 20 s, SLIDE 10 s] FROM Main GROUP BY srcIP"
PARTED = "SELECT srcIP, count(*) [RANGE 5 rows, WA row_num, PA srcIP] FROM Main"

TIME = re.compile(r"1970-01-01T\S*")


def shown(found: list[QueryProgress], columns: int, lines: int | None = None) -> list[str]:
    text = StringIO()
    Console(width=columns, height=lines, file=text, force_terminal=lines is not None, color_system=None).print(
        ProgressView(found)
    )
    lines = text.getvalue().splitlines()
    return [line.rstrip() for line in lines]


def held() -> ProgressBoard:
    """By b, which has promised nothing for a minute."""
    plan = compile_query(WINDOWED, name="q", streams={"Main": 2}, buckets=2)
    of = ProgressBoard([plan], {"Main": ("a", "b")}, "lowmark")
    go_on(of, plan, "b", 22.123456789, (15,), at=NOW - 60)
    go_on(of, plan, "a", 47, (1, 2, 30))
    for bucket in range(2):
        of.complete(replace(completed(plan, bucket, WindowSpan(1, 1), 20 * SECOND), rows=12_345))
    return of


@pytest.mark.parametrize("columns", [80, 120])
def test_no_time_is_broken_and_no_line_is_too_long(columns: int) -> None:
    lines = shown(held().progress(NOW * SECOND), columns)
    assert max(map(len, lines)) <= columns
    times = [time.rstrip(",:);") for line in lines for time in TIME.findall(line)]
    assert times
    assert all(re.fullmatch(r"1970-01-01T00:0\d:\d\d(\.\d{3,9})?Z", time) for time in times), lines


def test_what_a_person_reads_at_80_columns() -> None:
    assert shown(held().progress(NOW * SECOND), 80) == [
        "q  complete to 1970-01-01T00:00:20Z",
        "  24,690 rows, 0 late, 0 lossy windows",
        "  frontier 1970-01-01T00:00:22.123456789Z: b, overdue, last promise 60 s ago",
        "  4 open windows, 1 tuple ahead",
        "  to 1970-01-01T00:00:30Z  b: its promises do not come any more (up to",
        "                           1970-01-01T00:00:22.123456789Z, 7.9 s behind, last",
        "                           promise 60 s ago)",
        "  … 1970-01-01T00:01:00Z   the same",
    ]


def test_a_query_that_is_well_is_told_in_few_lines() -> None:
    plan = compile_query(WINDOWED, name="q", streams={"Main": 2}, buckets=2)
    of = lagging(plan)
    go_on(of, plan, "b", 47)
    for bucket in range(2):
        of.complete(completed(plan, bucket, WindowSpan(3, 3), 40 * SECOND))
    assert shown(of.progress(NOW * SECOND), 80) == [
        "q  complete to 1970-01-01T00:00:40Z",
        "  2 rows, 0 late, 0 lossy windows",
        "  frontier 1970-01-01T00:00:47Z: a, last promise 0 s ago",
        "  2 open windows",
        "  to 1970-01-01T00:00:50Z  time: 3 s more must come",
        "  … 1970-01-01T00:01:00Z   the same",
    ]


def test_windows_of_partitions() -> None:
    plan = compile_query(PARTED, name="q", streams={"Main": 2}, buckets=2)
    of = lagging(plan, a=(1,))
    of.complete(replace(completed(plan, 0, None, 22 * SECOND), open=OpenCount(5, 3)))
    lines = shown(of.progress(NOW * SECOND), 80)
    assert "  5 open windows in 3 partitions" in lines
    assert any(line.startswith("  waiting  b: another has promised more") for line in lines)


def test_what_a_terminal_has_no_lines_for_is_counted_and_what_is_held_up_stays() -> None:
    well = replace(held().progress(NOW * SECOND)[0], open=(), waiting=(), open_windows=0)
    bad = replace(held().progress(NOW * SECOND)[0], query="bad")
    found = [*(replace(well, query=f"q{number}") for number in range(9)), bad]
    lines = shown(found, 80, 24)
    assert len(lines) <= 23
    assert any(line.startswith("bad  ") for line in lines)
    assert lines[-1] == "… and 6 more: `lowmark watch --progress QUERY` shows one by itself"
    assert sum(line.startswith("q") for line in shown(found, 80)) == 9  # not a terminal: all of them
