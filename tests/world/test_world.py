"""What happens at random in the simulated world leaves every row there once, and every `exact` right."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from itertools import count, islice
from unittest import mock

import pytest

from highlevel.progress.driver import BucketDriver
from highlevel.progress.lanes import Lanes
from highlevel.rosters.roster import Member
from highlevel.spark.checkpoint import start_conditions
from highlevel.spark.checkpoint.checkpoint import Checkpoint, CheckpointFolder
from highlevel.spark.checkpoint.query_changes import applied
from highlevel.spark.checkpoint.start_conditions import StartState, carried_on
from highlevel.spark.sink import bucket_sink
from highlevel.spark.sink.results_history import History
from highlevel.spark.sink.transaction import Transactions
from lowmark.app.job import starting_offsets
from lowmark.wire.records.rosters import Control, RosterChange
from lowmark.wire.records.sink_token import Token
from tests.world import job
from tests.world.clock import SECOND
from tests.world.network import How
from tests.world.schedule import Event, Kind, schedule, with_generations
from tests.world.shrink import shrunk
from tests.world.simulation import run

_AT_A_TIME = 75
_SEEDS = 300

Broken = Callable[[], AbstractContextManager[object]]


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, _SEEDS, _AT_A_TIME))
def test_nothing_is_wrong(first: int) -> None:
    """`python -m tests.world SEED` shows a seed that fails, step by step."""
    wrong = {seed: found for seed in range(first, first + _AT_A_TIME) if (found := run(seed).wrong)}
    assert not wrong


@pytest.mark.slow
def test_nothing_is_wrong_when_the_text_of_a_query_changes() -> None:
    """`python -m tests.world SEED --changes` shows a seed that fails."""
    wrong = {seed: found for seed in range(_AT_A_TIME) if (found := run(seed, changes=True).wrong)}
    assert not wrong


@pytest.mark.slow
@pytest.mark.parametrize("ahead_s", [None, -3], ids=["enough", "too little"])
def test_nothing_is_wrong_when_new_generations_begin(monkeypatch: pytest.MonkeyPatch, ahead_s: int | None) -> None:
    """If they read less than they should, they say `lossy` of what they cannot know, and never a wrong `exact`."""
    begun: list[int] = []

    def counted(*given: object) -> dict[str, Sequence[int]]:
        found = starting_offsets.starting_offsets(*given)  # type: ignore[arg-type]  # passed on
        begun.extend(offset for of in found.values() for offset in of if offset)
        return found

    if ahead_s is not None:
        monkeypatch.setattr(starting_offsets, "READ_AHEAD_NS", ahead_s * SECOND)
    monkeypatch.setattr(job, "starting_offsets", counted)
    wrong = {seed: found for seed in range(25) if (found := run(seed, with_generations(seed)).wrong)}
    assert not wrong
    assert len(begun) > 10


@pytest.mark.slow
def test_a_changed_query_that_forgets_what_it_has_told_is_found() -> None:
    def careless(*given: object) -> Checkpoint:
        return replace(applied(*given), suppressed={})  # type: ignore[arg-type]  # passed on

    with mock.patch.object(start_conditions, "applied", careless):
        assert any(run(seed, changes=True).wrong for seed in range(25))


def test_a_first_batch_is_not_written_again_when_kafka_has_forgotten_it_and_a_crash_its_commit() -> None:
    assert not run(22657).wrong


def _instead_of_is_written(judge: Callable[[Token, Token], bool]) -> AbstractContextManager[object]:
    return mock.patch.object(bucket_sink, "is_written", lambda stored, past, part: judge(stored, part))


@contextmanager
def _without_digests() -> Iterator[None]:
    """A checkpoint that was replaced by an older copy is carried on."""

    def careless(start: StartState, told: Callable[[], History]) -> Checkpoint:
        return carried_on(replace(start, planned=1 << 60), told)

    def by_number(stored: Token, part: Token) -> bool:
        later = (stored.batch, stored.part) >= (part.batch, part.part)
        return later or (stored.batch == part.batch and stored.last)

    with mock.patch.object(job, "carried_on", careless), _instead_of_is_written(by_number):
        yield


def _writes_again() -> AbstractContextManager[object]:
    return _instead_of_is_written(lambda stored, part: False)


def _keeps_its_producer() -> AbstractContextManager[object]:
    """After trouble inside a transaction."""
    return mock.patch.object(Transactions, "_note_problem")


def _without_fsync() -> AbstractContextManager[object]:
    return mock.patch.object(CheckpointFolder, "make_durable")


def _takes_twice() -> AbstractContextManager[object]:
    """Records that an emitter has sent again."""
    enter = Lanes.enter

    def careless(lanes: Lanes, *given: object) -> object:
        lane, missing = enter(lanes, *given)  # type: ignore[arg-type]  # passed on
        return lane, missing or 0

    return mock.patch.object(Lanes, "enter", careless)


def _ignores_new_sources() -> AbstractContextManager[object]:
    """The rosters with which buckets began win for ever."""
    control = BucketDriver._control

    def deaf(driver: BucketDriver, record: Control) -> None:
        if not isinstance(record, RosterChange):
            control(driver, record)

    return mock.patch.object(BucketDriver, "_control", deaf)


def _holds_nobody() -> AbstractContextManager[object]:
    """Where all sources are excluded, time goes on to its end."""
    return mock.patch.object(Member, "open_excluded", property(lambda member: False))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "met"),
    [
        (_without_digests, lambda event: event.kind is Kind.RESTORE),
        (_writes_again, lambda event: event.kind is Kind.JOB_DIES),
        (_keeps_its_producer, lambda event: event.how is How.REPEATED),
        (_without_fsync, lambda event: event.kind is Kind.HOST_CRASHES),
        (_takes_twice, lambda event: event.kind is Kind.SENDER_FAILS),
        (_ignores_new_sources, lambda event: event.kind is Kind.SOURCE_JOINS),
        (_holds_nobody, lambda event: event.kind is Kind.EXCLUDE),
    ],
)
def test_it_finds_what_is_broken(broken: Broken, met: Callable[[Event], bool]) -> None:
    """Each guard that keeps a promise is taken away in turn. Of the first schedules with the fault, one fails."""
    seeds = islice((seed for seed in count() if any(map(met, schedule(seed)))), 25)
    with broken():
        assert any(run(seed).wrong for seed in seeds)


def test_a_seed_is_the_same_in_every_process() -> None:
    here = run(8).story
    again = subprocess.run(
        [sys.executable, "-m", "tests.world", "8", "--whole"], capture_output=True, text=True, timeout=120,
        env={"PYTHONHASHSEED": "7", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert again.stdout.splitlines() == [*here, "nothing is wrong"]


def test_a_schedule_shrinks_to_what_fails() -> None:
    events = schedule(1)

    def fails(fewer: tuple[Event, ...]) -> bool:
        return sum(event.kind is Kind.JOB for event in fewer) >= 2 and events[5] in fewer

    left = shrunk(events, fails)
    assert fails(left)
    assert len(left) == 3 - (events[5].kind is Kind.JOB)
