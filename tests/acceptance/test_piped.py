"""Packets that come later than was declared: whatever is said to be exact is, and what is said does not depend on how
the pipe was cut."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.acceptance.command import query
from tests.acceptance.piped import DISORDERS, check_answer, check_windows, cuts
from tests.acceptance.test_golden import at, written
from tests.acceptance.traffic import Captures, Traffic, traffic
from tests.fixtures import captures
from tests.naive.frames import frame

bounded = settings(deadline=None, suppress_health_check=list(HealthCheck))

WINDOWED = {
    "tumbling": "SELECT srcIP, count(*) AS n [RANGE 10 s] FROM A GROUP BY srcIP",
    "sliding": "SELECT srcIP, count(*) AS n, max(len) AS m [RANGE 12 s, SLIDE 4 s] FROM A UNION B GROUP BY srcIP",
    "sampled": "SELECT count(*) AS n [RANGE 2 s, SLIDE 10 s] FROM A",
    "landmark": "SELECT proto, count(*) AS n [RANGE ALL, SLIDE 15 s] FROM A GROUP BY proto",
    "top": "SELECT srcIP, count(*) AS n [RANGE 20 s, SLIDE 10 s] FROM A GROUP BY srcIP ORDER BY n DESC LIMIT 1",
    "filtered": "SELECT count(*) AS n [RANGE 5 s] FROM A WHERE proto = 6",
    "stages": "CREATE STREAM s AS SELECT srcIP, count(*) AS n [RANGE 3 s] FROM A GROUP BY srcIP; "
    "SELECT srcIP, max(n) AS m [RANGE 30 s, SLIDE 15 s, WA window_start] FROM s GROUP BY srcIP",
    "landmark of stages": "CREATE STREAM s AS SELECT srcIP, count(*) AS n [RANGE 3 s] FROM A GROUP BY srcIP; "
    "SELECT max(n) AS m [RANGE ALL, SLIDE 15 s, WA window_end] FROM s",
    "joined": "SELECT proto, count(*) AS n [RANGE 15 s, SLIDE 5 s, WA t] FROM (SELECT x.ts AS t, y.proto AS proto "
    "FROM A AS x [RANGE 6 s], B AS y [RANGE 9 s] WHERE x.srcIP = y.srcIP) AS p GROUP BY proto",
    "united": "CREATE STREAM p AS SELECT srcIP, count(*) AS n [RANGE 10 s] FROM A GROUP BY srcIP; "
    "CREATE STREAM q AS SELECT destIP AS srcIP, max(len) AS n [RANGE 10 s] FROM B GROUP BY destIP; "
    "SELECT * FROM p UNION q",
}
COUNTED = {
    "rows": "SELECT count(*) AS n, max(ttl) AS t, sum(len) AS b [RANGE 10 rows, SLIDE 4 rows, WA row_num] FROM A",
    "sampled rows": "SELECT sum(len) AS b [RANGE 2 rows, SLIDE 6 rows, WA row_num] FROM A UNION B",
    "numbers": "SELECT max(row_num) AS n [RANGE 10 s] FROM A UNION B",
    "rows of partitions": "SELECT srcIP, sum(len) AS b [RANGE 3 rows, WA row_num, PA srcIP] FROM A GROUP BY srcIP",
    "by tuple": "SELECT count(*) AS n [RANGE 5 s, RATTR ts, SLIDE 2 rows, SATTR row_num] FROM A",
    "by rank": "SELECT count(*) AS n [RANGE 5 s, RATTR ts, SLIDE 2 rows, SATTR rank(ts)] FROM A UNION B",
    "windows of rows": "CREATE STREAM s AS SELECT srcIP, count(*) AS n [RANGE 5 s, RATTR ts, SLIDE 1 row, "
    "SATTR row_num] FROM A GROUP BY srcIP; SELECT max(n) AS m [RANGE 30 s, WA window_end] FROM s",
}
WINDOWLESS = {
    "selection": "SELECT ts, srcIP, len FROM A WHERE proto = 6",
    "ungated": "SELECT ten, proto, count(*) AS n FROM A UNION B GROUP BY ts / 10 AS ten, proto",
    "distinct": "SELECT DISTINCT ts / 10 AS tens, srcIP FROM A",
    "join": "SELECT x.ts, y.ts, x.len FROM A AS x [RANGE 20 s], B AS y [RANGE 9 s] WHERE x.srcIP = y.srcIP",
    "anti join": "SELECT x.ts FROM A AS x [RANGE 9 s] ANTI JOIN B AS y [RANGE 9 s] ON x.srcIP = y.srcIP",
    "of windows": "CREATE STREAM s AS SELECT srcIP, count(*) AS n [RANGE 3 s] FROM A GROUP BY srcIP; "
    "SELECT srcIP, n FROM s WHERE n > 1",
}  # fmt: skip
QUICK = ("tumbling", "sampled", "selection")


def queries(of: dict[str, str]) -> list[object]:
    return [pytest.param(text, id=name, marks=() if name in QUICK else pytest.mark.slow) for name, text in of.items()]


@pytest.mark.parametrize("text", queries(WINDOWED))
@settings(bounded, max_examples=25)
@given(data=st.data())
def test_windows_that_are_said_to_be_exact_hold_what_a_scan_finds(text: str, data: st.DataObject) -> None:
    disorder, cut = data.draw(DISORDERS), data.draw(cuts())
    _with_captures(data.draw(traffic()), lambda captures: check_windows(text, captures, disorder, cut))


@pytest.mark.parametrize("text", queries(COUNTED | WINDOWLESS))
@settings(bounded, max_examples=25)
@given(data=st.data())
def test_an_answer_that_is_said_to_be_exact_is_what_a_scan_finds(text: str, data: st.DataObject) -> None:
    disorder, cut = data.draw(DISORDERS), data.draw(cuts())
    _with_captures(data.draw(traffic()), lambda captures: check_answer(text, captures, disorder, cut))


def test_a_window_that_was_told_and_then_amended_is_lossy(tmp_path: Path) -> None:
    """In a real pipe, into which late packets are put when the window has been read at its other end."""
    early, late = [at(1), at(2), at(12)], [at(3), at(4), at(-700), at(25)]
    text = "SELECT count(*) AS n [RANGE 10 s] FROM Main"
    (_, before), (_, after) = written(tmp_path, {"A": early, "B": late})
    command = [sys.executable, "-m", "lowmark", "query", "-r", "-", "--format", "jsonl", text]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(before.read_bytes())
        process.stdin.flush()
        told = json.loads(process.stdout.readline())
        header = 24
        process.stdin.write(after.read_bytes()[header:])
        out, error = process.communicate()
    assert (told["window_start"], told["n"]) == ("2024-05-01T12:00:00Z", 2)
    assert [json.loads(line)["n"] for line in out.splitlines()] == [1, 1]
    assert process.returncode == 4
    assert error.decode().splitlines()[1:] == [
        "3 windows, 3 rows: 2 windows lossy: late",
        "lossy: 2024-05-01T11:48:20Z … 2024-05-01T11:48:30Z: late",
        "lossy: 2024-05-01T12:00:00Z … 2024-05-01T12:00:10Z: late",
    ]


def test_the_first_lossy_windows_are_named(tmp_path: Path) -> None:
    packets = [at(second) for second in (1_000, 1_001, *range(0, 500, 20))]
    outcome = query("SELECT count(*) [RANGE 10 s] FROM A", written(tmp_path, {"A": packets}), "--disorder", "ordered")
    assert outcome.code == 4
    named = [line for line in outcome.error.splitlines() if line.startswith("lossy: ")]
    assert named[0] == "lossy: 2024-05-01T12:00:00Z … 2024-05-01T12:00:10Z: late"
    assert named[9:] == ["lossy: 2024-05-01T12:03:00Z … 2024-05-01T12:03:10Z: late", "lossy: and 15 more"]


def _with_captures(sent: Traffic, check: Callable[[Captures], None]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check(sent.write(Path(folder)))


@pytest.mark.timeout(120)
def test_a_silent_pipe_holds_up_no_other(tmp_path: Path) -> None:
    """The writer of both comes to the first one when the second has been read, which holds more than a pipe does."""
    packet, begin_s = frame(at(0)).data, at(0).ts // 10**9
    few, many = (
        bytes(captures.pcap([(packet, len(packet), begin_s + second, 0) for second in seconds]).data)
        for seconds in ([1, 15], [number // 2000 for number in range(40_000)])
    )
    for name in ("A", "B"):
        os.mkfifo(tmp_path / name)

    def write() -> None:
        (tmp_path / "B").write_bytes(many)
        (tmp_path / "A").write_bytes(few)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    text = "SELECT count(*) AS n [RANGE 10 s] FROM A UNION B"
    outcome = query(text, [(name, tmp_path / name) for name in ("A", "B")])
    writer.join()
    assert outcome.code == 0, outcome.error
    assert [row["n"] for row in outcome.rows] == [20_001, 20_001]
