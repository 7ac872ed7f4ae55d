"""Who joins, leaves, is excluded and returns: decided once, and by the records' times alone."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from highlevel.rosters.observed_sources import Observed, Observing
from highlevel.rosters.ruling import Decided, StreamRules, StreamRuling
from lowmark.wire.records.codec import decode, encode
from lowmark.wire.records.registration import Presence, PresenceState, Registration, SourceKind
from lowmark.wire.records.rosters import Action, Exclusion, ListedSource, Request, Return, RosterChange, RosterInForce
from lowmark.wire.rows.values import FOREVER, NEVER
from tests.progress.harness import FINGERPRINT, STAGE, WIDTH

S = 10**9
NAMED = StreamRules("Main", ("a", "b"), 60 * S)


def registration(source: str, kind: SourceKind = SourceKind.LIVE) -> Registration:
    return Registration(source, "Main", kind, None, 0, "ordered", "host:1")


def decided(
    ruling: StreamRuling, seen: Observed | None = None, reached: int | None = 100 * S, version: int = 1
) -> list[Decided]:  # fmt: skip
    return list(ruling.decide(seen or Observed(), lambda stream: reached, version))


def begun(rules: StreamRules = NAMED, *records: object) -> StreamRuling:
    ruling = StreamRuling("job", rules, True)
    for offset, record in enumerate(records):
        ruling.take(offset, record)
    decided(ruling)
    return ruling


def again(ruling: StreamRuling, rules: StreamRules) -> StreamRuling:
    """The next process of the job: it reads what this one has written."""
    assert ruling.in_force is not None
    wire = encode(ruling.in_force)
    stored = decode(wire.headers, wire.value)
    assert isinstance(stored, RosterInForce)
    later = StreamRuling("job", rules, False)
    later.take(1_000, stored)
    return later


def listed(ruling: StreamRuling) -> list[str]:
    assert ruling.in_force is not None
    return [member.source for member in ruling.in_force.members if member.left == FOREVER]


def test_a_job_begins_with_the_configured_sources() -> None:
    ruling = StreamRuling("job", NAMED, True)
    (first,) = decided(ruling)
    assert (first.control, listed(ruling)) == (None, ["a", "b"])
    assert decided(ruling) == []


def test_the_difference_of_the_configuration_becomes_a_change_once() -> None:
    """From a granule on that no bucket has closed: later than all that was promised so far."""
    later = again(begun(), StreamRules("Main", ("b", "c")))
    (change,) = decided(later)
    assert change.control == RosterChange("job", "Main", 1, 110 * S, ("b", "c"))
    assert later.in_force is not None
    assert later.in_force.configured == ("b", "c")
    assert decided(later) == []
    assert decided(again(later, StreamRules("Main", ("b", "c")))) == []


def test_before_anything_is_promised_a_source_joins_from_the_beginning() -> None:
    later = again(begun(), StreamRules("Main", ("a", "b", "c")))
    assert decided(later, reached=None)[0].control == RosterChange("job", "Main", 1, NEVER, ("a", "b", "c"))


def test_a_stream_that_is_over_takes_no_source() -> None:
    later = again(begun(), StreamRules("Main", ("a", "b", "c")))
    (told,) = decided(later, reached=FOREVER)
    assert (told.control, "all of them have ended" in told.why) == (None, True)
    assert decided(later, reached=FOREVER) == []
    assert listed(later) == ["a", "b"]


def test_sources_of_a_pattern_join_by_registering() -> None:
    rules = StreamRules("Main", ("capture-*",), 60 * S)
    gone = Presence("capture-old", 1, "host:1", PresenceState.GONE)
    ruling = begun(rules, registration("capture-1"), registration("capture-old"), gone, registration("other"))
    assert listed(ruling) == ["capture-1"]
    ruling.take(4, registration("capture-2"))
    (joined,) = decided(ruling)
    assert joined.control == RosterChange("job", "Main", 1, 110 * S, ("capture-1", "capture-2"))
    assert decided(ruling) == []


@pytest.mark.parametrize("registered", [True, False])
def test_who_is_taken_out_by_name_leaves_until_it_registers_anew(registered: bool) -> None:
    """Although a pattern matches it: that was so before."""
    rules = StreamRules("Main", ("tap-1", "tap-2", "tap-*"))
    ruling = begun(rules, registration("tap-3"), *([registration("tap-2")] * registered))
    assert listed(ruling) == ["tap-1", "tap-2", "tap-3"]
    fewer = StreamRules("Main", ("tap-1", "tap-*"))
    later = again(ruling, fewer)
    later.take(0, registration("tap-3"))
    if registered:
        later.take(1, registration("tap-2"))
    assert later.difference() == (set(), {"tap-2"})
    assert decided(later)[0].control == RosterChange("job", "Main", 1, 110 * S, ("tap-1", "tap-3"))
    assert decided(later) == []
    later.take(2_000, registration("tap-2"))
    assert decided(later)[0].control == RosterChange("job", "Main", 2, 110 * S, ("tap-1", "tap-2", "tap-3"))


def test_a_pattern_in_the_place_of_names_keeps_those_that_it_matches() -> None:
    later = again(begun(StreamRules("Main", ("tap-1", "tap-2", "other"))), StreamRules("Main", ("tap-*",)))
    assert decided(later)[0].control == RosterChange("job", "Main", 1, 110 * S, ("tap-1", "tap-2"))
    wider = again(
        begun(StreamRules("Main", ("tap-*", "tap-1*")), registration("tap-12")), StreamRules("Main", ("tap-*",))
    )
    assert [each.control for each in decided(wider)] == [None]
    assert listed(wider) == ["tap-12"]


def test_a_drained_node_is_excluded_after_its_time_and_then_leaves() -> None:
    rules = StreamRules("Main", ("capture-*",), 60 * S)
    ruling = begun(rules, registration("capture-1"), registration("capture-2"))
    ruling.take(2, Presence("capture-2", 1, "host:1", PresenceState.GONE))
    assert decided(ruling) == []
    found = decided(ruling, silent("capture-2", 61 * S))
    assert found[0].control == Exclusion("job", "Main", 1, 90 * S, "capture-2")
    assert decided(ruling)[0].control == RosterChange("job", "Main", 2, 110 * S, ("capture-1",))
    ruling.take(3, registration("capture-2"))
    assert decided(ruling)[0].control == RosterChange("job", "Main", 3, 110 * S, ("capture-1", "capture-2"))


def silent(source: str, for_ns: int, caught_up: bool = True) -> Observed:
    return Observed(
        waiting=frozenset({source}), heard_ns={source: 5}, silent_ns={source: for_ns}, front_ns=90 * S,
        furthest_ns=95 * S, caught_up=caught_up,
    )  # fmt: skip


def test_a_silent_source_is_excluded_once_the_job_has_caught_up() -> None:
    ruling = begun()
    assert decided(ruling, silent("b", 59 * S)) == []
    assert decided(ruling, silent("b", 70 * S, caught_up=False)) == []
    (excluded,) = decided(ruling, silent("b", 70 * S))
    assert excluded.control == Exclusion("job", "Main", 1, 90 * S, "b")
    assert decided(ruling, silent("b", 80 * S)) == []


def test_without_a_time_windows_wait() -> None:
    assert decided(begun(StreamRules("Main", ("a", "b"))), silent("b", 10**6 * S)) == []


def test_too_many_open_panes_exclude_whoever_holds_them_up() -> None:
    ruling = begun(StreamRules("Main", ("a", "b")))
    seen = Observed(waiting=frozenset("b"), crowding=frozenset("b"), front_ns=90 * S)
    assert decided(ruling, seen)[0].control == Exclusion("job", "Main", 1, 90 * S, "b")


def test_a_source_that_still_holds_up_too_many_panes_does_not_return() -> None:
    """The only source counts although it is excluded: it would be excluded and return with every batch."""
    ruling = begun(StreamRules("Main", ("a",)))
    crowded = Observed(
        frozenset("a"), returned=frozenset("a"), crowding=frozenset("a"), heard_ns={"a": 5}, front_ns=90 * S,
        furthest_ns=95 * S,
    )  # fmt: skip
    assert [each.control for each in decided(ruling, crowded)] == [Exclusion("job", "Main", 1, 90 * S, "a")]
    assert decided(ruling, replace(crowded, heard_ns={"a": 6})) == []
    (back,) = decided(ruling, replace(crowded, waiting=frozenset(), crowding=frozenset(), heard_ns={"a": 6}))
    assert back.control == Return("job", "Main", 2, 95 * S, "a")


def test_it_returns_when_it_has_been_heard_again_and_its_promise_has_reached_the_frontier() -> None:
    ruling = begun()
    decided(ruling, silent("b", 70 * S))
    still = Observed(returned=frozenset("b"), heard_ns={"b": 5}, furthest_ns=95 * S)
    assert decided(ruling, still) == []
    (back,) = decided(ruling, Observed(returned=frozenset("b"), heard_ns={"b": 6}, furthest_ns=95 * S))
    assert back.control == Return("job", "Main", 2, 95 * S, "b")


def asked(source: str, action: Action) -> Request:
    return Request("job", "Main", source, action, "host:7")


def test_what_is_excluded_by_hand_returns_by_hand() -> None:
    ruling = begun()
    ruling.take(5, asked("b", Action.EXCLUDE))
    assert isinstance(decided(ruling)[0].control, Exclusion)
    ruling = again(ruling, NAMED)
    assert decided(ruling, Observed(returned=frozenset("b"), heard_ns={"b": 9})) == []
    ruling.take(1_001, asked("b", Action.RETURN))
    assert isinstance(decided(ruling)[0].control, Return)
    assert decided(ruling) == []


def test_a_request_is_dealt_with_once() -> None:
    ruling = begun()
    ruling.take(5, asked("c", Action.ADD))
    assert decided(ruling)[0].control == RosterChange("job", "Main", 1, 110 * S, ("a", "b", "c"))
    assert decided(ruling) == []
    ruling.take(6, asked("c", Action.RETIRE))
    assert decided(ruling)[0].control == RosterChange("job", "Main", 2, 110 * S, ("a", "b"))
    assert decided(again(ruling, NAMED)) == []


def test_the_last_source_stays() -> None:
    ruling = begun(StreamRules("Main", ("a",)))
    ruling.take(5, asked("a", Action.RETIRE))
    assert [each.control for each in decided(ruling)] == [None]
    assert listed(ruling) == ["a"]


def test_a_roster_that_is_lost_is_told_anew_with_a_greater_version() -> None:
    ruling = StreamRuling("job", NAMED, False)
    assert decided(ruling, version=4711)[0].control == RosterChange("job", "Main", 4711, 110 * S, ("a", "b"))


def test_a_job_that_died_before_it_named_its_sources_has_had_them_from_the_beginning() -> None:
    """A new generation begins with them: what they sent before would be listed nowhere."""
    ruling = StreamRuling("job", NAMED, False, 50, (ListedSource("a"), ListedSource("b")))
    (told,) = decided(ruling, version=4711)
    assert told.control == RosterChange("job", "Main", 4711, 110 * S, ("a", "b"))
    assert [member.joined for member in told.roster.members] == [NEVER, NEVER]


def test_a_source_that_registers_while_the_job_begins_is_told_to_the_buckets() -> None:
    """They have got their sources already: what it sends would be listed, and counted in no window."""
    rules = StreamRules("Main", ("capture-*",))
    ruling = StreamRuling("job", rules, True, 50, (ListedSource("capture-1"),))
    ruling.take(0, registration("capture-1"))
    ruling.take(1, registration("capture-2"))
    first, joined = decided(ruling, reached=None)
    assert (first.control, first.roster.version, len(first.roster.members)) == (None, 50, 1)
    assert joined.control == RosterChange("job", "Main", 51, NEVER, ("capture-1", "capture-2"))
    assert decided(ruling) == []
    assert decided(again(ruling, rules)) == []


def test_a_roster_that_is_lost_after_all_sources_have_ended_keeps_them() -> None:
    ruling = StreamRuling("job", NAMED, False, 0, (ListedSource("a"),))
    (kept,) = decided(ruling, reached=FOREVER)
    assert (kept.control, listed(ruling)) == (None, ["a"])


def test_a_roster_stays_one_record_however_many_sources_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts of a pattern get new names, and one source fails again and again."""
    rules = StreamRules("Main", ("capture-*",), 60 * S)
    monkeypatch.setattr("highlevel.rosters.ruling._MOST_FORMER", 20)
    monkeypatch.setattr("highlevel.rosters.ruling._MOST_RUNS", 10)
    ruling = begun(rules, registration("capture-stays"))
    for number in range(30):
        name = f"capture-{number}"
        ruling.take(10 + 2 * number, registration(name))
        decided(ruling, reached=2 * number * S)
        ruling.take(11 + 2 * number, asked(name, Action.RETIRE))
        decided(ruling, reached=(2 * number + 1) * S)
    for number in range(20):
        ruling.take(5_000 + 2 * number, asked("capture-stays", Action.EXCLUDE))
        decided(ruling, Observed(front_ns=(5_000 + 2 * number) * S))
        ruling.take(5_001 + 2 * number, asked("capture-stays", Action.RETURN))
        decided(ruling, Observed(furthest_ns=(5_001 + 2 * number) * S))
    assert ruling.in_force is not None
    *former, stays = sorted(ruling.in_force.members, key=lambda member: member.left)
    assert (listed(ruling), len(former), former[-1].source) == (["capture-stays"], 20, "capture-29")
    assert (len(stays.excluded), stays.excluded[-1]) == (10, (5_038 * S, 5_039 * S))
    assert decided(again(ruling, rules)) == []


@dataclass
class Report:
    bucket: int
    heard: dict[str, int]
    waiting: list[tuple[str, str]] = field(default_factory=list)
    returned: list[tuple[str, str]] = field(default_factory=list)
    front: int = 9
    open_panes: int = 0
    read: int = 0
    stage: str = FINGERPRINT

    @property
    def fronts(self) -> dict[str, int]:
        return {"main": self.front}


def test_silence_is_measured_against_what_others_have_sent() -> None:
    seen = Observing([STAGE], 10)
    for bucket in range(4):
        seen.take(Report(bucket, {"a": 50, "b": 20}, [("main", "b")], read=7, front=9 + bucket))
    assert seen.of("Main").silent_ns == {"b": 30}
    assert (seen.of("Main").front_ns, seen.of("Main").furthest_ns) == (9 * WIDTH, 12 * WIDTH)
    assert seen.of("Other") == Observed()
    seen.sampled({(FINGERPRINT, bucket): 8 for bucket in range(4)})
    assert not seen.of("Main").caught_up
    for bucket in range(4):
        seen.take(Report(bucket, {"a": 60}, [("main", "b"), ("main", "c")], read=9))
    assert seen.of("Main").caught_up
    assert seen.of("Main").silent_ns == {"b": 40, "c": 40}


def test_crowded_buckets_name_whom_they_wait_for() -> None:
    seen = Observing([STAGE], 10)
    seen.take(Report(0, {"a": 50}, [("main", "b")], open_panes=11))
    assert seen.of("Main").crowding == {"b"}
    assert seen.of("Main").returned == frozenset()


def test_rosters_of_a_former_job_of_this_name_do_not_count() -> None:
    former = again(begun(), StreamRules("Main", ("x",)))
    decided(former)
    assert former.in_force is not None
    ruling = StreamRuling("job", NAMED, True, 50)
    ruling.take(0, former.in_force)
    (first,) = decided(ruling)
    assert (first.roster.version, listed(ruling)) == (50, ["a", "b"])
