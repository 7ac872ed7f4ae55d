"""A place of the checkpoint that takes no files: said within seconds, and asked only while no batch ends."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from prometheus_client import CollectorRegistry

from lowmark.app.job import checkpoint_reach
from lowmark.app.job.checkpoint_reach import CheckpointReach


class Query:
    """One that stands still; its place answers when `answers` is set."""

    def __init__(self) -> None:
        self.turns, self.idle, self.asked, self.looks = 0, False, 0, 0
        self.answers = threading.Event()
        self.says: str | None = None

    @property
    def waits(self) -> bool:
        self.looks += 1
        return self.idle

    def refusal(self) -> str | None:
        self.asked += 1
        self.answers.wait(60)
        return self.says


@pytest.fixture
def query() -> Query:
    return Query()


@pytest.fixture
def reach(query: Query, monkeypatch: pytest.MonkeyPatch) -> Iterator[CheckpointReach]:
    for name in ("_LOOK_EVERY_S", "_STANDS_STILL_S", "_ANSWER_WITHIN_S"):
        monkeypatch.setattr(checkpoint_reach, name, getattr(checkpoint_reach, name) / 100)
    found = CheckpointReach("s3a://bucket/job", CollectorRegistry())
    found.start(query)
    yield found
    query.answers.set()
    found.helper.stop(60)


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_one_that_does_not_answer_is_told_once_and_when_it_is_back(
    query: Query, reach: CheckpointReach, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "lowmark.job")
    assert (reach.ok, reach.detail) == (True, {})
    wait(lambda: not reach.ok)
    for _ in range(3):
        reach.look()
    assert "s: it does not answer" in reach.detail["checkpoint"]
    query.answers.set()
    wait(lambda: reach.ok)
    reach.look()
    reach.look()
    first, last = caplog.messages
    assert first.startswith("the checkpoint at s3a://bucket/job has taken no file for ")
    assert last == "the checkpoint at s3a://bucket/job takes files again"


def test_what_it_says_is_shown_until_the_query_goes_on(query: Query, reach: CheckpointReach) -> None:
    query.says = "the disk is read-only"
    query.answers.set()
    wait(lambda: not reach.ok)
    assert reach.detail["checkpoint"].endswith(" s: the disk is read-only")
    query.turns += 1
    query.idle = True
    wait(lambda: reach.ok)


def test_a_place_that_answers_is_not_to_blame_for_a_long_batch_and_a_query_that_waits_asks_nothing(
    query: Query, reach: CheckpointReach
) -> None:
    query.answers.set()
    wait(lambda: query.asked > 2)
    assert reach.ok
    query.idle = True
    wait_for_looks(query)  # it may just have been about to ask
    asked = query.asked
    wait_for_looks(query)
    assert query.asked == asked


def wait_for_looks(query: Query) -> None:
    looks = query.looks
    wait(lambda: query.looks > looks + 5)
