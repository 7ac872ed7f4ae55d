"""What systemd hears, over a socket as it gives it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from lowmark.app.capture.source_thread import Rounds, SourceThread
from lowmark.app.service_manager import ServiceManager
from tests.fixtures.service_manager import Told


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    channel = Told(tmp_path / "notify", watchdog_s=8)
    yield channel
    channel.close()


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_life(told: Told) -> None:
    clock, shown = Clock(), list[str]()
    service = ServiceManager(told.environment, clock)
    service.shown_too(shown.append)("waiting for\nKafka")
    service.ready()
    for _ in range(12):  # seconds, each with some work
        clock.now_s += 1
        service.worked()
    service.stopping()
    service.stop_lasts(75)
    assert shown == ["waiting for\nKafka"]
    assert told.lines == ["STATUS=waiting for Kafka", "READY=1", *["WATCHDOG=1"] * 6, "STOPPING=1",
                          "EXTEND_TIMEOUT_USEC=75000000"]  # fmt: skip


def test_without_work_the_watchdog_starves(told: Told) -> None:
    clock = Clock()
    service = ServiceManager(told.environment, clock)
    service.ready()
    clock.now_s += 60
    assert service.due()
    assert told.lines == ["READY=1"]


@pytest.mark.parametrize(
    ("changes", "watched"),
    [({}, 8.0), ({"WATCHDOG_PID": str(os.getpid())}, 8.0), ({"WATCHDOG_PID": "1"}, None),
     ({"WATCHDOG_USEC": "x"}, None), ({"WATCHDOG_USEC": "0"}, None), ({"NOTIFY_SOCKET": ""}, None)],
)  # fmt: skip
def test_whom_the_watchdog_watches(told: Told, changes: dict[str, str], watched: float | None) -> None:
    assert ServiceManager(told.environment | changes, Clock()).watchdog_s == watched


def test_who_was_not_started_by_one_says_nothing() -> None:
    service = ServiceManager({}, Clock())
    service.ready()
    service.worked()
    assert service.watchdog_s is None
    assert not service.due()


def test_a_manager_that_has_gone_or_does_not_listen_stops_nothing(told: Told, tmp_path: Path) -> None:
    ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready()
    told.fill()
    clock = Clock()
    service = ServiceManager(told.environment, clock)
    service.ready()
    assert "READY=1" not in told.lines
    clock.now_s += 2
    service.worked()  # it listens again, and hears what it has missed
    assert told.lines[-2:] == ["READY=1", "WATCHDOG=1"]


def test_a_unit_without_a_watchdog_becomes_ready_though_its_manager_was_busy(told: Told) -> None:
    """Else the manager ends it when the time for its start is over."""
    told.fill()
    service = ServiceManager({"NOTIFY_SOCKET": told.environment["NOTIFY_SOCKET"]}, Clock())
    service.ready()
    assert "READY=1" not in told.lines
    assert service.due()
    service.worked()
    assert told.lines[-2] == "READY=1"
    assert not service.due()


class Source(threading.Thread):
    """A thread whose rounds the test turns; it is its own source."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.source = self
        self.rounds = self.read_bytes = 0
        self.ending = threading.Event()

    def run(self) -> None:
        self.ending.wait(60)


def test_one_source_that_stands_still_is_seen_among_others_that_move() -> None:
    sources = [Source(), Source()]
    threads = cast("list[SourceThread]", sources)
    for source in sources:
        source.start()
    rounds = Rounds()
    assert rounds.moved(threads)
    assert not rounds.moved(threads)
    for _ in range(5):
        sources[0].rounds += 1
        assert not rounds.moved(threads)
    sources[1].rounds += 1
    assert rounds.moved(threads)
    sources[0].rounds += 1
    assert not rounds.moved(threads)
    sources[1].read_bytes += 1  # the first pass of a scan
    assert rounds.moved(threads)
    sources[1].ending.set()
    sources[1].join()
    sources[0].rounds += 1
    assert rounds.moved(threads)  # one that has ended has no work left
    sources[0].ending.set()
    sources[0].join()
    assert rounds.moved(threads)
