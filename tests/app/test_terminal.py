"""What a person sees of `lowmark query` on a terminal of 80 columns."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lowmark.app.traffic import TrafficSpec, write_capture
from tests.terminal import Terminal

pytestmark = pytest.mark.slow

SQL = "SELECT srcIP, destIP, count(*) AS packets, sum(len) AS bytes [RANGE 1 second] FROM Main GROUP BY srcIP, destIP"


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("captures") / "small.pcap"
    write_capture(path, TrafficSpec(packets=3_000, duration_ns=3 * 10**9, groups=20))
    return path


@pytest.mark.parametrize("options", [[], ["--format", "jsonl"]])
def test_rows_stand_in_lines_of_their_own_and_nothing_of_the_progress_stays(capture: Path, options: list[str]) -> None:
    with Terminal("query", "-r", str(capture), *options, SQL) as terminal:
        assert terminal.wait() == 0
    assert "starting" in terminal.raw
    assert not re.search("starting|reading", terminal.text), terminal.text
    first, *_, audit, verdict, end = terminal.lines
    assert first.startswith("{" if options else "2024-05-01T12:00:00Z … 2024-05-01T12:00:01Z"), terminal.text
    assert audit.startswith("3,000 frames received")
    assert (verdict, end) == ("3 windows, 60 rows: exact", "")


def test_a_table_breaks_no_value_at_80_columns(capture: Path) -> None:
    with Terminal("query", "-r", str(capture), SQL) as terminal:
        assert terminal.wait() == 0
    assert max(map(len, terminal.lines)) <= 80
    assert len(re.findall(r"│ \S+ +│ \S+ +│ +\d+ │ +\d+ │$", terminal.text, re.MULTILINE)) == 60


def test_rows_that_are_wider_than_the_terminal_are_lines_of_names_and_values(capture: Path) -> None:
    with Terminal("query", "-r", str(capture), "SELECT * FROM Main WHERE row_num <= 2") as terminal:
        assert terminal.wait() == 0
    assert max(map(len, terminal.lines)) <= 80
    assert len(re.findall(r"^ts +2024-05-01T12:00:00\.\d+Z$", terminal.text, re.MULTILINE)) == 2
    assert re.search(r"^row_num +2$", terminal.text, re.MULTILINE)


def test_rows_without_windows_are_one_list(tmp_path: Path) -> None:
    """They come a few at a time: here of each block of a capture some."""
    path = tmp_path / "long.pcap"
    write_capture(path, TrafficSpec(packets=100_000, groups=20))
    with Terminal(
        "query", "-r", str(path), "SELECT row_num, srcIP, len FROM Main WHERE row_num % 20000 = 1"
    ) as terminal:
        assert terminal.wait() == 0
    assert re.fullmatch(r"row_num  srcIP +len", terminal.lines[0])
    rows = [re.fullmatch(r" *(\d+)  \S+ +\d+", line) for line in terminal.lines[1:6]]
    assert [row and int(row[1]) for row in rows] == [1, 20_001, 40_001, 60_001, 80_001], terminal.text
    assert terminal.lines[6].startswith("100,000 frames received"), terminal.text


def test_what_a_capture_needs_is_readable_at_80_columns(capture: Path) -> None:
    with Terminal("scan", str(capture)) as terminal:
        assert terminal.wait() == 0
    assert "…" not in terminal.text
    assert re.search(r"^from +2024-05-01T12:00:00\S*Z$", terminal.text, re.MULTILINE)
    assert re.search(r"^disorder +ordered$", terminal.text, re.MULTILINE)
