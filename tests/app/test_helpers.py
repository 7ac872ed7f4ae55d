"""No thread beside the main one ends unseen."""

from __future__ import annotations

import threading

import pytest
from prometheus_client import CollectorRegistry

from lowmark.app.exit_codes import failure_of
from lowmark.app.health import living
from lowmark.app.process_metrics import ThreadMetrics
from lowmark.helpers import Backoff, Helper, HelperEnded
from tests.integration.jobprocess import await_true


def ended(helper: Helper) -> None:
    helper._thread.join(30)
    assert not helper._thread.is_alive()


def test_it_runs_until_it_is_told_to_stop() -> None:
    began = threading.Event()

    def run(stopping: threading.Event) -> None:
        began.set()
        stopping.wait()

    helper = Helper("one", run)
    assert helper.state == "not started"
    helper.start()
    assert began.wait(30)
    assert helper.state == "running"
    helper.stop()
    helper.check()
    assert helper.state == "stopped"


def test_a_defect_ends_it_for_good() -> None:
    def run(stopping: threading.Event) -> None:
        raise KeyError("no such thing")

    helper = Helper("one", run, (ValueError,))
    helper.start()
    ended(helper)
    with pytest.raises(HelperEnded, match=r"the thread 'one' has ended, .*: KeyError: 'no such thing'") as raised:
        helper.check()
    failure = failure_of(raised.value)
    assert failure is not None
    assert failure.exit_code == 1
    health = living([helper, Helper("two", run)])
    assert not health.ok
    assert health.detail == {"one": str(raised.value), "two": "not started"}


def test_one_that_comes_to_its_end_by_itself_has_ended_for_good() -> None:
    helper = Helper("one", lambda stopping: None)
    helper.start()
    ended(helper)
    with pytest.raises(HelperEnded, match="it came to its end"):
        helper.check()


def test_what_passes_starts_it_again() -> None:
    runs = 0
    again = threading.Event()

    def run(stopping: threading.Event) -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise ValueError("not now")
        again.set()
        stopping.wait()

    helper = Helper("one", run, (ValueError,))
    helper.start()
    assert again.wait(30)
    assert living([helper]).ok
    assert helper.state == "running"
    assert (helper.running, helper.restarts) == (True, 1)
    helper.stop()
    assert runs == 2
    assert not helper.running


def test_it_stops_while_it_waits_to_start_again() -> None:
    failed = threading.Event()

    def run(stopping: threading.Event) -> None:
        failed.set()
        raise ValueError("not now")

    helper = Helper("one", run, (ValueError,))
    registry = CollectorRegistry()
    ThreadMetrics(registry, lambda: [helper])

    def up() -> float | None:
        return registry.get_sample_value("lowmark_thread_up", {"thread": "one"})

    assert up() == 0
    helper.start()
    assert failed.wait(30)
    await_true(lambda: up() == 0)
    assert registry.get_sample_value("lowmark_thread_restarts_total", {"thread": "one"}) == 0
    helper.stop()
    helper.check()


def test_stopping_what_never_started_does_nothing() -> None:
    Helper("one", lambda stopping: None).stop()


def test_waits_double_up_to_half_a_minute_and_begin_anew() -> None:
    backoff = Backoff(4.0)
    assert [backoff.next_s() for _ in range(5)] == [4, 8, 16, 30, 30]
    backoff.reset()
    assert backoff.next_s() == 4
    slow = Backoff(60.0)
    assert [slow.next_s() for _ in range(2)] == [60, 60]
