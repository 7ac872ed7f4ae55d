"""Where threads run."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from lowmark.app.capture.scheduling import ThreadScheduling
from lowmark.app.config.file import CaptureSource
from lowmark.app.errors import StartRefused
from tests.acceptance.command import lowmark
from tests.fixtures.network import packet
from tests.naive.frames import write_pcap
from tests.naive.readers import Frame


def in_a_thread(call: Callable[[], object]) -> object:
    """What it gives, or raises."""
    found: list[object] = []

    def run() -> None:
        try:
            found.append(call())
        except StartRefused as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


def test_a_thread_runs_where_it_is_told_to() -> None:
    usable = os.sched_getaffinity(0)
    chosen = max(usable)

    def pinned() -> object:
        ThreadScheduling(cpu=chosen).apply("tap")
        return os.sched_getaffinity(0)

    assert in_a_thread(pinned) == {chosen}
    assert os.sched_getaffinity(0) == usable


def test_a_cpu_that_is_not_there() -> None:
    error = in_a_thread(lambda: ThreadScheduling(cpu=1000).apply("tap"))
    assert "source tap is to run on CPU 1000, which this process may not use" in str(error)


def test_a_trial_changes_nothing_here() -> None:
    usable = os.sched_getaffinity(0)
    ThreadScheduling(cpu=min(usable)).check("tap")
    assert os.sched_getaffinity(0) == usable
    with pytest.raises(StartRefused, match="source tap is to run on CPU 1000"):
        ThreadScheduling(cpu=1000).check("tap")


def test_check_and_capture_refuse_a_cpu_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The capture does so before it has contacted anything: nothing listens at the broker's address."""
    write_pcap(tmp_path / "a.pcap", [Frame(1, 1, packet(1), 60)])
    (tmp_path / "lowmark.toml").write_text(
        '[kafka]\nbootstrap = "127.0.0.1:1"\n[streams.Main]\n'
        '[sources.tap]\nstream = "Main"\nfile = "a.pcap"\ncpus = [1000]\n'
        '[queries.all]\nsql = "SELECT count(*) [RANGE 1 s] FROM Main"\n'
    )
    monkeypatch.setattr("lowmark.app.config.checks._kafka", lambda *_: iter(()))
    said = "source tap is to run on CPU 1000, which this process may not use"
    checked = lowmark("check", "-c", str(tmp_path / "lowmark.toml"))
    assert checked.code == 2
    assert said in checked.out
    captured = lowmark("capture", "-c", str(tmp_path / "lowmark.toml"))
    assert captured.code == 2
    assert said in captured.error


@pytest.mark.skipif(os.geteuid() != 0, reason="it takes CAP_SYS_NICE")
def test_real_time_priority() -> None:
    def urgent() -> object:
        ThreadScheduling(priority=3).apply("tap")
        return os.sched_getscheduler(0), os.sched_getparam(0).sched_priority

    found = in_a_thread(urgent)
    if isinstance(found, StartRefused):
        assert "CAP_SYS_NICE" in str(found)
    else:
        assert found == (os.SCHED_FIFO, 3)
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


def test_threads_take_the_cpus_in_turn() -> None:
    source = CaptureSource(stream="Main", interface="eth0", fanout=3, cpus=(4, 6), priority=1)
    assert [source.scheduling(member) for member in range(3)] == [
        ThreadScheduling(4, 1), ThreadScheduling(6, 1), ThreadScheduling(4, 1),
    ]  # fmt: skip
