"""The rules of the bucket driver, one by one. `test_laws` has what holds whatever happens."""

from __future__ import annotations

import pytest

from highlevel.progress.future_records import MAX_AHEAD_NS
from highlevel.progress.outputs import Rejection, ResultRows
from highlevel.progress.records import Arrival
from highlevel.rosters.roster import Roster
from highlevel.state import MemoryByteStore, MemoryState, PiecewiseState
from lowmark.query.windows.window import WindowKind
from lowmark.wire.records.codec import encode
from lowmark.wire.records.punctuations import Account
from lowmark.wire.records.record import BadReason
from lowmark.wire.records.registration import SourceKind
from lowmark.wire.records.rosters import Retirement
from lowmark.wire.records.verdicts import Amendment, Reason, WindowSpan
from tests.progress.harness import (
    FINGERPRINT,
    WIDTH,
    Sender,
    change,
    completes,
    contiguous,
    driver,
    dropped,
    exclusion,
    finite,
    outputs,
    plan,
    readmission,
    run,
    run_live,
    window,
)  # fmt: skip

ONE = Roster.of({"Main": ("a",)})
TWO = Roster.of({"Main": ("a", "b")})
TUMBLING = plan(window(1, 1))
SLIDING = plan(window(4, 2))


def shown(found):
    """(first, to, merged, promised, reasons) of each completion."""
    return [
        (c.windows.first, c.windows.to, c.merged, c.promised, sorted(r.value for r in c.verdict.reasons)) for c in found
    ]


def test_windows_close_when_the_frontier_passes_them():
    a, b = Sender("a"), Sender("b")
    records = [a.batch({5: 2, 6: 1}), b.batch({5: 3}), a.promise(7), b.promise(6), a.batch({8: 1}), a.end(), b.end()]
    found = completes(run(finite(records), [TUMBLING], TWO))
    assert shown(found) == [(5, 5, 5, 5, []), (6, 6, 1, 1, []), (7, 7, 0, 0, []), (8, 8, 1, 1, [])]
    assert (found[0].rosters, found[0].missing) == ((("Main", 0),), ())
    assert (found[0].start, found[0].end) == (50, 60)
    assert (found[0].generation, found[0].bucket, found[0].buckets) == (2, 1, 4)


def test_a_source_never_seen_holds_everything_up():
    a = Sender("a")
    bucket = run_live(finite([a.batch({5: 2}), a.end()]), [TUMBLING], TWO)
    assert bucket.outputs == ()


def test_rows_stand_before_their_completion():
    a = Sender("a")
    found = outputs(run(finite([a.batch({5: 2}), a.end()]), [TUMBLING], ONE))
    assert isinstance(found[0], ResultRows)
    assert found[0].window == 5
    assert found[0].rows.tolist() == [[0, 50, 60, 2]]


def test_a_leap_of_thirteen_years_costs_nothing():
    far = 13 * 365 * 86400 * 10**9
    a = Sender("a")
    records = [a.batch({5: 1}), a.promise(6), a.batch({far: 1}), a.promise(far + 1), a.end()]
    found = completes(run(finite(records), [SLIDING], ONE))
    assert contiguous(found)
    assert len(found) == 5
    assert all(c.verdict.exact for c in found)


def test_duplicates_are_dropped_and_counted():
    a = Sender("a")
    batch = a.batch({5: 2})
    outcome = run_live(finite([batch, batch, a.end()]), [TUMBLING], ONE)
    assert outcome.counts.duplicates == 1
    assert shown(completes([outcome])) == [(5, 5, 2, 2, [])]


def test_a_lost_batch_makes_its_granules_lossy_and_no_others():
    a = Sender("a")
    lost_after = [a.batch({5: 2, 6: 1}), a.batch({5: 1}), a.batch({6: 3}), a.promise(8), a.end()]
    del lost_after[1]
    outcome = run_live(finite(lost_after), [TUMBLING], ONE)
    assert outcome.counts.gaps == 1
    assert shown(completes([outcome])) == [(5, 5, 2, 3, ["gap"]), (6, 6, 4, 4, []), (7, 7, 0, 0, ["gap"])]


def test_a_lost_punctuation_leaves_what_it_accounted_for_unproven():
    a = Sender("a")
    records = [a.batch({5: 2}), a.promise(6), a.batch({6: 1}), a.promise(9), a.end()]
    del records[1]
    found = completes(run(finite(records), [TUMBLING], ONE))
    assert shown(found) == [
        (5, 5, 2, 2, ["gap"]), (6, 6, 1, 1, []), (7, 8, 0, 0, ["gap"]),
    ]  # fmt: skip


def test_a_gap_in_front_of_the_first_record_is_one():
    a = Sender("a")
    records = [a.batch({5: 2}), a.batch({6: 1}), a.promise(8), a.end()][1:]
    found = completes(run(finite(records), [TUMBLING], ONE))
    assert (5, 5, 0, 2, ["gap"]) in shown(found)
    assert (6, 6, 1, 1, []) in shown(found)


def test_counters_tell_of_losses_in_a_lost_punctuation():
    a = Sender("a")
    wide = plan(window(10, 10))
    records = [
        a.batch({3: 1}), a.promise(4), a.promise(5, Account(3, 0, 0, late=1)), a.batch({5: 1}), a.promise(6), a.end(),
    ]  # fmt: skip
    del records[2]
    assert shown(completes(run(finite(records), [wide], ONE)))[0] == (0, 0, 2, 2, ["gap"])


def test_later_records_of_a_fenced_epoch_are_ignored():
    old, new = Sender("a", 1), Sender("a", 2)
    first, zombie = old.batch({5: 2}), old.batch({7: 9})
    records = [first, new.batch({5: 2, 6: 1}), zombie, new.end()]
    outcome = run_live(finite(records), [TUMBLING], ONE)
    assert outcome.counts.fenced == 1
    assert shown(completes([outcome])) == [(5, 5, 4, 4, ["replayed"]), (6, 6, 1, 1, [])]


def test_a_finite_source_that_begins_again_repeats_what_it_promised_in_vain():
    old, new = Sender("a", 1), Sender("a", 2)
    records = [
        old.batch({5: 2}), old.promise(6), old.batch({6: 1}), new.batch({5: 2, 6: 3}), new.promise(7), new.end(),
    ]  # fmt: skip
    outcome = run_live(finite(records), [TUMBLING], ONE)
    assert outcome.counts.replayed == 2
    assert shown(completes([outcome])) == [(5, 5, 2, 2, []), (6, 6, 4, 4, ["replayed"])]


def live(records, appended_ns=0):
    return [(record, Arrival(i, SourceKind.LIVE, appended_ns)) for i, record in enumerate(records)]


def test_a_live_source_leaves_a_hole_where_it_was_away():
    old = Sender("a", 1, SourceKind.LIVE, 4 * WIDTH)
    new = Sender("a", 2, SourceKind.LIVE, 9 * WIDTH + 1)
    records = [
        old.promise(4), old.batch({5: 2}), old.promise(6), old.batch({6: 1, 12: 1}),
        new.batch({10: 1}), new.promise(12), new.batch({12: 4}), new.promise(15),
    ]  # fmt: skip
    found = completes(run(live(records), [TUMBLING], ONE))
    assert shown(found) == [
        (4, 4, 0, 0, []), (5, 5, 2, 2, []), (6, 6, 1, 1, ["not-covered"]), (7, 9, 0, 0, ["not-covered"]),
        (10, 10, 1, 1, []), (11, 11, 0, 0, []), (12, 12, 5, 5, ["not-covered"]), (13, 14, 0, 0, []),
    ]  # fmt: skip
    assert found[0].covered_from_ns == 4 * WIDTH


def test_windows_begun_before_their_sources_are_partial():
    a = Sender("a", 1, SourceKind.LIVE, 4 * WIDTH + 1)
    found = completes(run(live([a.batch({5: 2}), a.promise(14)]), [SLIDING], ONE))
    assert [(c.windows.first, c.windows.to, c.verdict.partial) for c in found] == [
        (2, 2, True),
        (3, 3, True),
        (4, 6, False),
    ]
    assert found[0].verdict.exact


def test_an_overlap_of_two_epochs_is_not_exact():
    old = Sender("a", 1, SourceKind.LIVE, 4 * WIDTH)
    new = Sender("a", 2, SourceKind.LIVE, 5 * WIDTH)
    wide = plan(window(10, 10))
    records = [old.batch({5: 2}), old.promise(7), new.batch({5: 2}), new.promise(10)]
    (complete,) = completes(run(live(records), [wide], ONE))
    assert Reason.REPLAYED in complete.verdict.reasons


def test_what_comes_below_the_frontier_is_late_and_amends_closed_windows():
    a = Sender("a")
    records = [a.batch({5: 2}), a.promise(7), a.batch({5: 3, 8: 1}), a.promise(9), a.end()]
    outcome = run_live(finite(records), [SLIDING], ONE)
    assert outcome.counts.late == 3
    (amendment,) = (o for o in outcome.outputs if isinstance(o, Amendment))
    assert (amendment.windows, amendment.late, amendment.reasons) == (WindowSpan(2, 2), 3, frozenset({Reason.LATE}))
    assert shown(completes([outcome])) == [
        (2, 2, 2, 2, []), (3, 3, 2, 2, ["late"]), (4, 4, 1, 1, []), (5, 5, 1, 1, []),
    ]  # fmt: skip


def test_losses_at_the_source_are_told_with_their_reasons():
    a = Sender("a")
    records = [
        a.batch({5: 2}), a.batch({6: 1}), a.batch({7: 1}),
        a.promise(9, Account(5, 2, 2, late=1), dropped(6, 4), Account(7, 1, 1, given_up=5)), a.end(),
    ]  # fmt: skip
    found = completes(run(finite(records), [TUMBLING], ONE))
    assert [(c.windows.first, [r.value for r in c.verdict.reasons], c.dropped, c.late) for c in found[:3]] == [
        (5, ["late"], 0, 1), (6, ["dropped"], 4, 0), (7, ["given-up"], 0, 0),
    ]  # fmt: skip


def test_knowledge_after_the_end_of_a_granule_amends():
    a = Sender("a")
    records = [a.batch({5: 2}), a.promise(7), a.promise(8, Account(5, 0, 0, 2), dropped(5, 3)), a.end()]
    outcome = run_live(finite(records), [SLIDING], ONE)
    told = [(o.windows, o.late, o.dropped) for o in outcome.outputs if isinstance(o, Amendment)]
    assert told == [(WindowSpan(2, 2), 2, 0), (WindowSpan(2, 2), 0, 3)]
    assert shown(completes([outcome]))[1] == (3, 3, 2, 2, ["dropped", "late"])


@pytest.mark.parametrize("promised", [[], [7], [4, 7]])
def test_what_is_lost_before_the_first_window_makes_its_window_lossy(promised):
    """Told with the first windows, or as an amendment when these are out: whichever comes first."""
    a = Sender("a")
    records = [a.batch({5: 2, 6: 1}), *map(a.promise, promised), a.promise(8, Account(1, 0, 0, late=3)), a.end()]
    outcome = run_live(finite(records), [SLIDING], ONE)
    said = [(o.windows, o.reasons) for o in outcome.outputs if isinstance(o, Amendment)]
    said += [(c.windows, c.verdict.reasons) for c in completes([outcome]) if not c.verdict.exact]
    told = {wid: reasons for span, reasons in said for wid in range(span.first, span.to + 1)}
    assert told == {0: {Reason.LATE}, 1: {Reason.LATE}}
    assert outcome.counts.amended == ({("q", Reason.LATE): 2} if promised else {})


def test_what_a_lost_punctuation_may_have_told_amends_windows_that_have_closed():
    """Its counters show that it told of late tuples; of which granules nobody knows."""
    a = Sender("a")
    records = [a.batch({5: 2, 6: 1, 9: 1}), a.promise(8)]
    a.promise(8, Account(5, 0, 0, late=1))  # it does not arrive
    records += [a.promise(10), a.end()]
    outcome = run_live(finite(records), [TUMBLING], ONE)
    exact = {c.windows.first for c in completes([outcome]) if c.verdict.exact}
    amended = [o.windows for o in outcome.outputs if isinstance(o, Amendment) and o.reasons == {Reason.GAP}]
    assert {5, 6} <= exact
    assert amended == [WindowSpan(5, 7)]


def test_a_source_that_should_have_been_waited_for_amends_windows_that_have_closed():
    a = Sender("a")
    outcome = run_live(finite([a.batch({5: 2, 6: 1, 7: 1}), a.promise(8), change(1, 6, "a", "b")]), [TUMBLING], ONE)
    told = [(o.windows, o.reasons) for o in outcome.outputs if isinstance(o, Amendment)]
    assert told == [(WindowSpan(6, 7), {Reason.NOT_COVERED})]


def test_late_granules_take_no_room_while_nothing_is_promised():
    """One packet from the future, and everything after it is late."""
    a = Sender("a")
    store = MemoryByteStore()
    items = finite([a.batch({5: 1}), a.promise(100_000), *(a.batch({pane: 1}) for pane in range(10, 3_000))])
    state = PiecewiseState(store, FINGERPRINT)
    bucket = driver([TUMBLING], state, ONE)
    for record, arrival in items:
        bucket.take(record, arrival)
    assert len({o.windows for o in bucket.flush().outputs if isinstance(o, Amendment)}) == 2_990
    assert state.commit() < 4_000


def test_a_landmark_window_never_forgets_a_loss():
    a = Sender("a")
    landmark = plan(window(0, 2, WindowKind.LANDMARK))
    records = [a.batch({5: 2}), a.promise(6, Account(5, 3, 3)), a.batch({9: 1}), a.promise(20), a.end()]
    found = completes(run(finite(records), [landmark], ONE))
    assert contiguous(found)
    assert all(c.verdict.reasons == {Reason.GAP} for c in found)
    assert [c.rows for c in found if c.windows.first in (2, 4)] == [1, 1]


def test_a_stream_may_gain_and_lose_sources():
    a, b = Sender("a"), Sender("b")
    records = [
        a.batch({5: 1}), a.promise(6), change(1, 8, "a", "b"), a.batch({7: 1, 8: 1}), a.promise(10),
        b.batch({7: 5, 8: 1}), b.promise(10), change(2, 11, "b"), b.batch({11: 1}), a.promise(11),
        b.end(),
    ]  # fmt: skip
    outcome = run_live(finite(records), [TUMBLING], ONE)
    assert (outcome.counts.unlisted, outcome.counts.late) == (5, 0)
    assert shown(completes([outcome])) == [
        (5, 5, 1, 1, []), (6, 6, 0, 0, []), (7, 7, 1, 1, []), (8, 8, 2, 2, []), (9, 9, 0, 0, []), (10, 10, 0, 0, []),
        (11, 11, 1, 1, []),
    ]  # fmt: skip


def test_an_excluded_source_is_not_waited_for_and_said_to_be_missing():
    a, b = Sender("a"), Sender("b")
    records = [
        a.batch({5: 1}), b.batch({5: 1}), a.promise(6), b.promise(6), a.batch({6: 1}), a.promise(10),
        exclusion(1, "b", 6), readmission(2, "b", 10), a.batch({10: 1}), b.batch({10: 1}), a.end(), b.end(),
    ]  # fmt: skip
    found = completes(run(finite(records), [TUMBLING], TWO))
    assert shown(found)[0] == (5, 5, 2, 2, [])
    assert shown(found)[1] == (6, 6, 1, 1, ["excluded"])
    assert shown(found)[-1] == (10, 10, 2, 2, [])
    assert [c.missing for c in found[:3]] == [(), ("b",), ("b",)]
    assert found[1].rosters == (("Main", 1),)


def test_a_retired_stage_says_so_and_takes_nothing_more():
    a = Sender("a")
    outcome = run_live(finite([Retirement("job", FINGERPRINT, 2), a.batch({5: 1}), a.end()]), [TUMBLING], ONE)
    assert outcome.retired
    assert outcome.outputs == ()


@pytest.mark.parametrize("cut", [0, 3, 4])
def test_a_retired_stage_stays_retired(cut):
    """Its state is dropped; what comes later must not begin it anew."""
    a = Sender("a")
    records = [a.batch({5: 1}), a.promise(6), Retirement("job", FINGERPRINT, 2), a.batch({6: 1}), a.promise(8), a.end()]
    outcomes = run(finite(records), [TUMBLING], ONE, [cut] if cut else [])
    assert shown(completes(outcomes)) == [(5, 5, 1, 1, [])]
    assert outcomes[-1].retired


@pytest.mark.parametrize("ending", ["holds", "goes on"])
def test_when_all_sources_are_excluded_the_frontier_stays(ending):
    """Nobody vouches for anything then; the end of time is not near. What they send on their return is no late row."""
    a, b = Sender("a"), Sender("b")
    records = [
        a.batch({5: 1}), b.batch({5: 1}), a.promise(6), b.promise(7),
        exclusion(1, "a", 6), exclusion(2, "b", 7),
    ]  # fmt: skip
    if ending == "goes on":
        records += [a.batch({8: 1}), a.promise(9), readmission(3, "a", 9), a.batch({9: 2}), a.promise(10)]
    outcome = run_live(finite(records), [TUMBLING], TWO)
    found = shown(completes([outcome]))
    assert found[:2] == [(5, 5, 2, 2, []), (6, 6, 0, 0, ["excluded"])]
    assert outcome.counts.late == 0
    assert found[2:] == ([] if ending == "holds" else [
        (7, 7, 0, 0, ["excluded"]), (8, 8, 1, 1, ["excluded"]), (9, 9, 2, 2, ["excluded"]),
    ])  # fmt: skip


def test_an_excluded_source_keeps_a_stream_open_whose_others_have_ended():
    a, b = Sender("a"), Sender("b")
    records = [a.batch({5: 1}), b.batch({5: 1}), b.promise(6), exclusion(1, "b", 6), a.end(), b.batch({9: 1})]
    outcome = run_live(finite(records), [TUMBLING], TWO)
    assert shown(completes([outcome])) == [(5, 5, 2, 2, [])]
    assert outcome.counts.late == 0


def test_what_a_source_sent_before_it_was_listed_is_no_gap():
    a, b = Sender("a", 1, SourceKind.LIVE, 0), Sender("b", 1, SourceKind.LIVE, 0)
    records = [
        a.batch({5: 1}), b.batch({5: 1}), b.promise(6), a.promise(6), b.batch({6: 4}), change(1, 8, "a", "b"),
        b.promise(8), a.promise(8), a.batch({8: 1}), b.batch({8: 1}), a.promise(10), b.promise(10),
    ]  # fmt: skip
    outcome = run_live(live(records), [TUMBLING], ONE)
    assert shown(completes([outcome])) == [
        (5, 5, 1, 1, []), (6, 7, 0, 0, []), (8, 8, 2, 2, []), (9, 9, 0, 0, []),
    ]  # fmt: skip
    assert not any(c.verdict.partial for c in completes([outcome]))
    assert (outcome.counts.unlisted, outcome.counts.gaps) == (5, 0)


def test_windows_of_which_tuples_came_before_their_source_was_listed_say_so():
    """The change came too late to rule from where it says: never a wrong `exact`."""
    a, b = Sender("a"), Sender("b")
    records = [b.batch({5: 1, 6: 1}), b.promise(7), change(1, 6, "a", "b"), a.batch({5: 1, 6: 1}), a.end(), b.end()]
    found = shown(completes([run_live(finite(records), [TUMBLING], ONE)]))
    assert found == [(5, 5, 1, 1, []), (6, 6, 1, 1, ["not-covered"])]


def test_a_source_that_left_is_not_missed_where_it_was_excluded_for_ever():
    a, b = Sender("a"), Sender("b")
    records = [
        a.batch({5: 1}), b.batch({5: 1}), a.promise(6), b.promise(6), exclusion(1, "b", 6), change(2, 8, "a"),
        a.batch({8: 1}), a.end(),
    ]  # fmt: skip
    assert shown(completes(run(finite(records), [TUMBLING], TWO))) == [
        (5, 5, 2, 2, []), (6, 7, 0, 0, ["excluded"]), (8, 8, 1, 1, []),
    ]  # fmt: skip


def test_a_decision_is_taken_once_however_often_it_comes():
    a, b = Sender("a"), Sender("b")
    records = [
        a.batch({5: 1}), b.batch({5: 1}), exclusion(1, "b", 0), readmission(2, "b", 5), exclusion(1, "b", 0),
        a.promise(9), b.promise(9), a.end(), b.end(),
    ]  # fmt: skip
    assert shown(completes(run(finite(records), [TUMBLING], TWO))) == [(5, 5, 2, 2, []), (6, 8, 0, 0, [])]


def test_what_lies_too_far_ahead_of_its_append_is_a_dead_letter():
    a = Sender("a", 1, SourceKind.LIVE, 0)
    limit = MAX_AHEAD_NS // WIDTH
    items = live([a.batch({1: 1}), a.batch({limit + 1: 1}), a.promise(3), a.promise(limit + 1)])
    outcome = run_live(items, [TUMBLING], ONE)
    rejected = [o for o in outcome.outputs if isinstance(o, Rejection)]
    assert [(r.reason, r.position) for r in rejected] == [(BadReason.FUTURE, 1), (BadReason.FUTURE, 3)]
    assert outcome.counts.gaps == 0
    assert shown(completes([outcome])) == [(1, 1, 1, 1, []), (2, 2, 0, 0, [])]


def test_other_stages_and_lying_headers_are_refused():
    a = Sender("a")
    batch = a.batch({5: 1})
    other = type(batch)(batch.origin.__class__("beef", "a", 0, "main"), 0, batch.rows, batch.tuples)
    lying = type(batch)(batch.origin, 0, batch.rows, {6: 1})
    outcome = run_live(finite([other, lying]), [TUMBLING], ONE)
    assert outcome.counts.dead == {BadReason.STAGE: 1, BadReason.COUNT: 1}


@pytest.mark.parametrize("over", [window(1, 1), window(3, 1), window(2, 5), window(0, 2, WindowKind.LANDMARK)])
def test_an_undisturbed_stream_is_exact(over):
    a = Sender("a")
    records = []
    for granule in range(20, 40):
        records += [a.batch({granule: granule, granule + 1: 1}), a.promise(granule)]
    found = completes(run(finite([*records, a.end()]), [plan(over)], ONE, range(3, 30, 7)))
    assert contiguous(found)
    assert all(c.verdict.exact and c.merged == c.promised for c in found)


def test_what_a_source_sends_after_its_end_is_refused():
    """The end is forged: the windows after it never come, and every batch of the source's own says so."""
    a, forger = Sender("a"), Sender("a")
    own = [a.batch({5: 2}), a.promise(6), a.batch({6: 3}), a.promise(7), a.batch({7: 1}), a.promise(8), a.batch({9: 1})]
    forger.batch({5: 2})
    forger.promise(6)
    outcome = run_live(finite([*own[:2], forger.end(), *own[2:], a.end()]), [TUMBLING], ONE)
    assert shown(completes([outcome])) == [(5, 5, 2, 2, [])]
    refused = [output for output in outcome.outputs if isinstance(output, Rejection)]
    # The first one of the source's own has the number that the forger took.
    assert [(one.reason, one.position) for one in refused] == [(BadReason.ENDED, 5), (BadReason.ENDED, 7)]
    assert (outcome.counts.duplicates, outcome.counts.late) == (1, 0)


def test_a_forged_end_beside_another_source_makes_windows_lossy():
    a, b, forger = Sender("a"), Sender("b"), Sender("a")
    own = [a.batch({5: 2}), a.promise(6), a.batch({6: 3}), a.promise(7), a.batch({7: 1}), a.end()]
    forger.batch({5: 2})
    forger.promise(6)
    other = [b.batch({5: 1, 6: 1, 7: 1}), b.end()]
    found = completes([run_live(finite([*own[:2], forger.end(), *own[2:], *other]), [TUMBLING], TWO)])
    assert [(c.windows.first, c.verdict.exact) for c in found] == [(5, True), (6, False), (7, False)]


def test_a_file_that_is_read_again_is_not_refused():
    a, again = Sender("a"), Sender("a", epoch=1)
    records = [a.batch({5: 2}), a.end(), again.batch({5: 2}), again.end()]
    outcome = run_live(finite(records), [TUMBLING], ONE)
    assert (outcome.counts.replayed, outcome.counts.late) == (2, 0)
    assert not [output for output in outcome.outputs if isinstance(output, Rejection)]


def test_what_vouches_for_a_window_is_looked_up_once_for_all_windows_of_an_advance():
    """With 5,000 sources, a walk over them for each completion would cost their product."""
    sources = tuple(f"host-{number}" for number in range(300))
    senders = [Sender(name, 1, SourceKind.LIVE, 0) for name in sources]
    bucket = driver([TUMBLING], MemoryState(), Roster.of({"Main": sources}))
    records = [*(each.batch(dict.fromkeys(range(5, 105), 1)) for each in senders)]
    records += [each.promise(105) for each in senders]
    for record, arrival in live(records):
        bucket.take(record, arrival)
    standing, looked = bucket._standing, []
    look = standing._look
    standing._look = lambda nodes: looked.append(nodes) or look(nodes)
    assert len(completes([bucket.flush()])) == 100
    assert len(looked) <= 1
    last = completes([run_live(live(records), [TUMBLING], Roster.of({"Main": sources}))])[-1]
    assert len(encode(last).value) < 500
