"""What a bucket keeps of sources that come and go: nothing for ever."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from highlevel.progress.records import Arrival, Record
from highlevel.rosters.roster import Roster
from highlevel.state import MemoryByteStore, PiecewiseState
from lowmark.wire.records.punctuations import Account
from lowmark.wire.records.registration import SourceKind
from lowmark.wire.records.verdicts import Amendment, Reason, WindowSpan
from tests.progress.harness import (
    FINGERPRINT,
    Item,
    Sender,
    change,
    completes,
    driver,
    exclusion,
    outputs,
    plain,
    plan,
    readmission,
    run,
    window,
)  # fmt: skip

CYCLE = 16
"""Lives after which the pieces in which granules are stored begin anew."""

LIVES = 3 * CYCLE
FIRST = 1024
LASTS = 4
"""Granules between the coming of a source and its leaving."""

KEPT = Roster.of({"Main": ("stays",)})
PLANS = [plan(window(2, 1))]


def live(records: Sequence[Record]) -> list[Item]:
    return [(record, Arrival(position, SourceKind.LIVE)) for position, record in enumerate(records)]


def coming_and_going(named: bool, excluded: bool) -> list[Record]:
    """One source stays; one after another joins it, sends, stops and leaves: with a name of its own (`named`), or as
    the next life of the same one. Each may be excluded for a while. Strangers that nobody lists send and stop."""
    stays = Sender("stays", kind=SourceKind.LIVE, start_ns=0)
    records: list[Record] = []
    version = 0
    for number in range(100, 100 + LIVES):
        at = FIRST + (number - 100) * LASTS
        guest = Sender(f"guest-{number}" if named else "guest", number, SourceKind.LIVE, start_ns=at * 10)
        guest.promised = at
        records.append(change(version := version + 1, at, "stays", guest.source))
        records.append(stays.batch({at: 1, at + 1: 2}))
        records.append(guest.batch({at: 3}))
        if excluded:
            records.append(exclusion(version := version + 1, guest.source, at + 1))
            records.append(stays.promise(at + 2))
            records.append(guest.promise(at + 2))
            records.append(readmission(version := version + 1, guest.source, at + 2))
        records += [change(version := version + 1, at + 3, "stays"), guest.stop(at + 3), stays.promise(at + LASTS)]
        stranger = Sender(f"stranger-{number}", number, SourceKind.LIVE, start_ns=0)
        records += [stranger.batch({at: 1}), stranger.stop(at + 1)]
    return records


def sizes(records: Sequence[Record]) -> list[int]:
    """The bytes of the bucket's state after each life, in a micro-batch of its own."""
    store, found, each = MemoryByteStore(), [], len(records) // LIVES
    items = live(records)
    for start in range(0, len(items), each):
        state = PiecewiseState(store, FINGERPRINT)
        bucket = driver(PLANS, state, KEPT)
        for record, arrival in items[start : start + each]:
            bucket.take(record, arrival)
        bucket.flush()
        state.commit()
        found.append(sum(map(len, store.pieces.values())))
    return found


@pytest.mark.parametrize("excluded", [False, True])
@pytest.mark.parametrize("named", [False, True])
def test_sources_that_came_and_went_leave_nothing_behind(named: bool, excluded: bool) -> None:
    found = sizes(coming_and_going(named, excluded))
    for before, after in zip(found[CYCLE:-CYCLE], found[-CYCLE:], strict=True):
        assert after - before < 20  # versions and numbers of records grow by a digit


@settings(max_examples=10)
@given(st.booleans(), st.booleans(), st.data())
def test_nobody_notices_that_they_are_forgotten(named: bool, excluded: bool, data: st.DataObject) -> None:
    records = coming_and_going(named, excluded)
    cuts = data.draw(st.sets(st.integers(1, len(records) - 1), max_size=8))
    whole = run(live(records), PLANS, KEPT)
    assert list(map(plain, outputs(run(live(records), PLANS, KEPT, cuts)))) == list(map(plain, outputs(whole)))
    told = completes(whole)
    assert sum(complete.merged for complete in told) == sum(complete.promised for complete in told)
    assert told[-1].rosters == (("Main", LIVES * (4 if excluded else 2)),)
    assert {str(reason) for complete in told for reason in complete.verdict.reasons} <= {"Reason.EXCLUDED"}
    later = [complete for complete in told if complete.end > (FIRST + 3) * 10]  # none of the first is before its source
    assert excluded or all(complete.verdict.exact for complete in later)
    tuples = sum(complete.merged for complete in later)
    assert tuples == 2 * (LIVES * 6 - 6), tuples  # each granule is in two windows


def test_a_source_that_is_forgotten_has_not_ended() -> None:
    """Else nobody would ever take it for silent in its next life."""
    stays, guest = (Sender(name, kind=SourceKind.LIVE, start_ns=0) for name in ("stays", "guest"))
    stays.promised = guest.promised = FIRST
    both = Roster.of({"Main": ("stays", "guest")})
    bucket = driver(PLANS, PiecewiseState(MemoryByteStore(), FINGERPRINT), both)
    records = [
        stays.promise(FIRST), guest.promise(FIRST), change(1, FIRST + 1, "stays"), guest.promise(FIRST + 1),
        stays.promise(FIRST + 9), guest.stop(FIRST + 2),
    ]  # fmt: skip
    for position, record in enumerate(records):
        bucket.take(record, Arrival(position, SourceKind.LIVE, 10**12 + position))
    assert dict(bucket.progress().heard) == {"stays": 10**12 + 4, "guest": 10**12 + 5}


def test_a_source_whose_stage_came_back_after_its_stop_is_not_forgotten_when_it_leaves() -> None:
    """Its late tuples amend windows, as those of any source that may still send."""
    stays, guest = (Sender(name, kind=SourceKind.LIVE, start_ns=0) for name in ("stays", "guest"))
    stays.promised = guest.promised = FIRST
    records: list[Record] = [
        guest.stop(FIRST + 1), guest.promise(FIRST + 2), change(1, FIRST + 3, "stays"), guest.promise(FIRST + 6),
        stays.promise(FIRST + 6), guest.promise(FIRST + 7, Account(FIRST + 2, 0, 0, late=5)), stays.promise(FIRST + 7),
    ]  # fmt: skip
    outcomes = run(live(records), PLANS, Roster.of({"Main": ("stays", "guest")}), cuts=[3, 5])
    amended = [output for output in outputs(outcomes) if isinstance(output, Amendment)]
    assert [(each.windows, each.reasons) for each in amended] == [
        (WindowSpan(FIRST + 2, FIRST + 3), frozenset({Reason.LATE}))
    ]
