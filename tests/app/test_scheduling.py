"""Where threads run."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest

from lowmark.app.config import CaptureSource
from lowmark.app.errors import EnvironmentNotReady
from lowmark.app.scheduling import Scheduling


def in_a_thread(call: Callable[[], object]) -> object:
    """What it gives, or raises."""
    found: list[object] = []

    def run() -> None:
        try:
            found.append(call())
        except EnvironmentNotReady as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


def test_a_thread_runs_where_it_is_told_to() -> None:
    usable = os.sched_getaffinity(0)
    chosen = max(usable)

    def pinned() -> object:
        Scheduling(cpu=chosen).apply("tap")
        return os.sched_getaffinity(0)

    assert in_a_thread(pinned) == {chosen}
    assert os.sched_getaffinity(0) == usable


def test_a_cpu_that_is_not_there() -> None:
    error = in_a_thread(lambda: Scheduling(cpu=1000).apply("tap"))
    assert "source tap is to run on CPU 1000, which this process may not use" in str(error)


@pytest.mark.skipif(os.geteuid() != 0, reason="it takes CAP_SYS_NICE")
def test_real_time_priority() -> None:
    def urgent() -> object:
        Scheduling(priority=3).apply("tap")
        return os.sched_getscheduler(0), os.sched_getparam(0).sched_priority

    found = in_a_thread(urgent)
    if isinstance(found, EnvironmentNotReady):
        assert "CAP_SYS_NICE" in str(found)
    else:
        assert found == (os.SCHED_FIFO, 3)
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


def test_threads_take_the_cpus_in_turn() -> None:
    source = CaptureSource(stream="Main", interface="eth0", fanout=3, cpus=(4, 6), priority=1)
    assert [source.scheduling(member) for member in range(3)] == [
        Scheduling(4, 1), Scheduling(6, 1), Scheduling(4, 1),
    ]  # fmt: skip
