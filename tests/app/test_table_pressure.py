"""What is said of tables that are too small, while a capture runs and at the end of a query."""

from __future__ import annotations

from pathlib import Path

from lowlevel.table_pressure import Crowded
from lowmark.app.capture.table_warnings import Crowding
from lowmark.app.traffic import TrafficSpec, write_capture
from tests.acceptance.command import lowmark

TALKERS = "SELECT srcIP, destIP, count(*) [RANGE 1 minute] FROM Main GROUP BY srcIP, destIP"


class Capture:
    def __init__(self) -> None:
        self.now = 0.0
        self.crowded: Crowded | None = None
        self.said: list[str] = []
        self.crowding = Crowding(lambda: [("source a, node n", self.crowded)], self.said.append, lambda: self.now)

    def after(self, seconds: float, wanted: int | None, at_end: bool = False) -> int:
        """How much has been said then."""
        self.now += seconds
        self.crowded = None if wanted is None else Crowded(64, wanted // 2, 0.5, wanted)
        self.crowding.step(at_end)
        return len(self.said)


def test_each_table_is_told_of_once_and_not_too_often() -> None:
    capture = Capture()
    assert capture.after(0, None) == 0
    assert capture.after(5, 256) == 1
    assert capture.said[0] == (
        "source a, node n: the table of 64 slots is too small for the groups of a pane, about 128: 0.50 rows a packet "
        "leave for want of room; slots = 256 in [capture.table] would be faster"
    )
    assert capture.after(5, 512) == 1  # too soon
    assert capture.after(54, 512) == 1
    assert capture.after(2, 512) == 2
    assert capture.after(90, 512) == 2  # nothing new
    assert capture.after(90, 256) == 2
    assert capture.after(0.1, 1024) == 2  # looked at a moment ago
    assert capture.after(0, 1024, at_end=True) == 3


def test_the_audit_names_the_size_that_is_enough(tmp_path: Path) -> None:
    path = tmp_path / "many.pcap"
    write_capture(path, TrafficSpec(packets=40_000, duration_ns=10**9, groups=3000))
    run = lowmark("query", "-r", str(path), "--table", "128", TALKERS)
    assert run.code == 0
    assert "the table of 128 slots is too small for the " in run.error
    wanted = run.error.partition("--table ")[2].split()[0]
    enough = lowmark("query", "-r", str(path), "--table", wanted, TALKERS)
    assert sorted(enough.out.splitlines()) == sorted(run.out.splitlines())
    assert "too small" not in enough.error
