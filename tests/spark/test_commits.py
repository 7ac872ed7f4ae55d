"""Writes of a task that overlap."""

from __future__ import annotations

import threading

import pytest

from highlevel.spark.sink import commits
from highlevel.spark.sink.commits import Commits


def test_writes_run_at_the_same_time() -> None:
    meeting = threading.Barrier(5)
    task = Commits()
    for _ in range(4):
        task.begin(lambda: meeting.wait(30), 1)
    meeting.wait(30)
    task.end()


def test_the_end_waits_for_all_and_raises_what_failed() -> None:
    written, go = [], threading.Event()

    def fail() -> None:
        raise ValueError("refused")

    def write() -> None:
        assert go.wait(30)
        written.append(1)

    task = Commits()
    task.begin(fail, 1)
    task.begin(write, 1)
    threading.Timer(0.05, go.set).start()
    with pytest.raises(ValueError, match="refused"):
        task.end()
    assert written == [1]
    task.end()


def test_no_more_waits_than_fits_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "_MOST_BYTES", 10)
    written: list[int] = []
    task = Commits()
    for number in range(3):
        task.begin(lambda number=number: written.append(number), 6)  # type: ignore[misc]  # a default binds it
        assert written[:number] == list(range(number))
    task.end()
    assert sorted(written) == [0, 1, 2]
