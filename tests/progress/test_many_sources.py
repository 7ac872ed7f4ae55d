"""5,000 sources in one stream: what a completion costs and says does not grow with them."""

from __future__ import annotations

import sys
from types import FrameType

import pytest

from highlevel.progress.outputs import Output
from highlevel.progress.records import Arrival
from highlevel.rosters.roster import Member, Roster
from highlevel.state import MemoryByteStore, MemoryState, PiecewiseState
from lowmark.wire.records.codec import encode
from lowmark.wire.records.record import WireRecord
from lowmark.wire.records.verdicts import Complete, Reason
from lowmark.wire.rows.values import FOREVER
from tests.progress.harness import FINGERPRINT, Sender, change, completes, driver, plan, window


def last_promise(sources: int, windows: int, excluded: int) -> tuple[int, list[Complete]]:
    """The calls that the promise of the last source takes, with which this many windows close, and the completions.
    Excluded sources have promised a part of them."""
    names = [f"source-{number:04}" for number in range(sources)]
    members = (Member(name, excluded=((0, FOREVER),) if at < excluded else ()) for at, name in enumerate(names))
    bucket = driver([plan(window(1, 1))], MemoryState(), Roster({"Main": tuple(members)}, {"Main": 0}))
    senders = [Sender(name) for name in names]
    position = 0

    def take(record: object) -> None:
        nonlocal position
        bucket.take(record, Arrival(position))
        position += 1

    for at, sender in enumerate(senders[:-1]):
        take(sender.promise(windows // 2 if at < excluded else windows))
    take(senders[-1].batch(dict.fromkeys(range(windows), 1)))
    assert not completes([bucket.flush()])
    promise = senders[-1].promise(windows)
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        take(promise)
    finally:
        sys.setprofile(None)
    return calls, completes([bucket.flush()])


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_a_completion_takes_no_longer_with_5000_sources(share):
    grown = []
    for sources in (500, 5_000):
        few, _ = last_promise(sources, 10, int(share * sources))
        many, told = last_promise(sources, 60, int(share * sources))
        assert len(told) == 60
        grown.append((many - few) / 50)
    assert grown[1] < 1.1 * grown[0]


@pytest.mark.parametrize("excluded", [0, 40])
def test_a_completion_names_the_exceptions_and_not_5000_sources(excluded):
    sizes = []
    for sources in (500, 5_000):
        _, told = last_promise(sources, 4, excluded)
        assert [complete.verdict.reasons == {Reason.EXCLUDED} for complete in told[2:]] == [bool(excluded)] * 2
        sizes.append(max(len(wire_of(complete).value or b"") for complete in told))
    assert sizes[1] < 1.1 * sizes[0] < 1_500


def test_a_roster_is_written_when_it_changes_and_not_each_micro_batch():
    names = [f"source-{number:04}" for number in range(5_000)]
    store, sender, written = MemoryByteStore(), Sender(names[0]), []
    for granule in range(3):
        state = PiecewiseState(store, FINGERPRINT)
        bucket = driver([plan(window(1, 1))], state, Roster.of({"Main": names}))
        bucket.take(change(1, 9, *names[1:]) if granule == 2 else sender.promise(granule), Arrival(granule))
        bucket.flush()
        written.append(state.commit())
    assert written[1] < 1_000 < 100_000 < min(written[0], written[2])


def wire_of(output: Output) -> WireRecord:
    assert isinstance(output, Complete)
    return encode(output)
