"""Compiled queries over the real operators: how rows, promises and verdicts pass from step to step."""

from __future__ import annotations

import numpy as np
import pytest

from highlevel.progress.driver import BucketDriver
from highlevel.progress.outputs import Outcome, ResultRows
from highlevel.rosters.roster import Roster
from highlevel.state import MemoryByteStore, MemoryState, PiecewiseState
from lowmark.query.compile import compile_query
from lowmark.query.plan.nodes import QueryPlan
from lowmark.wire.records.punctuations import Account
from lowmark.wire.records.verdicts import Amendment, Complete, Reason
from lowmark.wire.rows.words import column_of
from tests.progress.harness import Sender, completes, contiguous, dropped, finite

SECOND = 10**9
ROSTER = Roster.of({"Main": ("a",)})
TWO_STAGES = (
    "CREATE STREAM S AS SELECT proto, count(*) AS c [RANGE 10 seconds, WA ts] FROM Main GROUP BY proto;"
    "SELECT max(c) AS top [RANGE 1 minute, WA {}] FROM S"
)


def compiled(sql: str) -> QueryPlan:
    return compile_query(sql, name="q", buckets=1)


def sender(plan: QueryPlan) -> Sender:
    (node,) = plan.stage.nodes
    return Sender("a", stage=plan.stage.fingerprint, node=node.name, width=node.reduction.pane.width)


def counts(a: Sender, groups: list[tuple[int, int, int]]):
    """A batch of (pane, tuples, key)."""
    panes: dict[int, int] = {}
    for pane, tuples, _ in groups:
        panes[pane] = panes.get(pane, 0) + tuples
    return a.words(np.array([[0, *group] for group in groups], np.int64).view(np.uint64), panes)


def drive(plan: QueryPlan, records, *, cut: bool = False, roster: Roster = ROSTER) -> list[Outcome]:
    """In one micro-batch, or each record in one of its own with the state read from bytes."""
    store, outcomes = MemoryByteStore(), []
    bucket = BucketDriver(plan.stage, (plan,), 0, MemoryState(), roster, 1)
    for record, arrival in finite(records):
        if cut:
            state = PiecewiseState(store, plan.stage.fingerprint)
            bucket = BucketDriver(plan.stage, (plan,), 0, state, roster, 1)
        bucket.take(record, arrival)
        if cut:
            outcomes.append(bucket.flush())
            state.commit()
    return outcomes or [bucket.flush()]


def column(outcomes: list[Outcome], name: str) -> list[int]:
    parts = [o for outcome in outcomes for o in outcome.outputs if isinstance(o, ResultRows)]
    return [value for part in parts for value in column_of(part.schema, part.rows, name)[0].tolist()]


@pytest.mark.parametrize("cut", [False, True])
def test_windows_over_windows(cut):
    plan = compiled(TWO_STAGES.format("window_end"))
    a = sender(plan)
    records = [
        counts(a, [(0, 3, 6), (0, 1, 17), (7, 9, 6)]),
        a.promise(6),
        counts(a, [(8, 4, 6)]),
        a.promise(20),
        a.end(),
    ]
    outcomes = drive(plan, records, cut=cut)
    # The inner window that ends at 60 s is the second minute's.
    assert column(outcomes, "top") == [3, 9]
    assert column(outcomes, "window_end") == [60 * SECOND, 120 * SECOND]
    found = completes(outcomes)
    assert contiguous(found)
    assert all(c.verdict.exact for c in found)


@pytest.mark.parametrize(("attribute", "lossy"), [("window_end", 1), ("window_start", 0), ("window_end + 10", 1)])
def test_a_loss_reaches_the_outer_windows_that_read_the_inner_one(attribute, lossy):
    plan = compiled(TWO_STAGES.format(attribute))
    a = sender(plan)
    records = [counts(a, [(pane, 1, 6)]) for pane in range(18)]
    # Granule 5 is the inner window 50 s … 60 s: it ends in the second minute, and starts in the first.
    records += [a.promise(5), a.promise(6, dropped(5, 3)), a.promise(18), a.end()]
    found = [c for c in completes(drive(plan, records)) if not c.verdict.exact]
    assert [(c.windows.first, c.windows.to, c.verdict.reasons) for c in found] == [(lossy, lossy, {Reason.DROPPED})]


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize(("promised", "amended"), [(8, []), (18, [(1, 1)])])
def test_a_loss_of_an_inner_window_that_has_closed_reaches_the_outer_ones(promised, amended, cut):
    """With their completion, or as an amendment when they have closed too."""
    plan = compiled(TWO_STAGES.format("window_end"))
    a = sender(plan)
    records = [counts(a, [(pane, 1, 6)]) for pane in range(18)]
    records += [a.promise(5), a.promise(promised), a.promise(promised, Account(5, 0, 0, late=1))]
    records += [a.promise(18), a.end()]
    outcomes = drive(plan, records, cut=cut)
    told = [o for outcome in outcomes for o in outcome.outputs if isinstance(o, Amendment)]
    assert [(o.windows.first, o.windows.to) for o in told] == amended
    lossy = [(c.windows.first, c.windows.to, c.verdict.reasons) for c in completes(outcomes) if not c.verdict.exact]
    assert lossy == ([] if amended else [(1, 1, {Reason.LATE})])


@pytest.mark.parametrize("cut", [False, True])
def test_a_selection_amends_what_it_has_announced(cut):
    """And says with the next announcement what has not been."""
    plan = compiled("SELECT ts, proto FROM Main")
    a = sender(plan)
    schema = plan.stage.nodes[0].reduction.schema

    def packet(second):
        row = np.zeros((1, schema.words), np.uint64)
        for name, value in (("pane", second), ("tuples", 1), ("ts", second * SECOND), ("proto", 6)):
            row[0, schema.offset(name)] = value
        return a.words(row, {second: 1})

    a.width = SECOND
    records = [packet(3), packet(7), a.promise(8), a.promise(20), a.promise(20, Account(5, 0, 0, late=2))]
    records += [a.promise(20, Account(11, 0, 0, late=1)), a.end()]
    outcomes = drive(plan, records, cut=cut)
    (told,) = [o for outcome in outcomes for o in outcome.outputs if isinstance(o, Amendment)]
    assert (told.windows, told.start, told.end) == (None, "1970-01-01T00:00:05Z", "1970-01-01T00:00:06Z")
    assert (told.late, told.reasons) == (2, {Reason.LATE})
    first, *_, last = completes(outcomes)
    assert (first.end, first.verdict.exact, first.late) == (8 * SECOND, True, 0)
    assert (last.verdict.reasons, last.late) == ({Reason.LATE}, 1)


@pytest.mark.parametrize("cut", [False, True])
def test_a_selection_says_how_far_it_is_complete(cut):
    plan = compiled("SELECT ts, len FROM Main WHERE len > 100")
    a = sender(plan)
    schema = plan.stage.nodes[0].reduction.schema

    def packet(ts: int):
        row = np.zeros((1, schema.words), np.uint64)
        for name, value in (("pane", ts // SECOND), ("tuples", 1), ("ts", ts), ("len", 200)):
            row[0, schema.offset(name)] = value
        return a.words(row, {ts // SECOND: 1})

    records = [packet(SECOND), a.promise(3), a.promise(4), packet(5 * SECOND + 7), packet(5 * SECOND), a.end()]
    outcomes = drive(plan, records, cut=cut)
    assert column(outcomes, "ts") == [SECOND, 5 * SECOND + 7, 5 * SECOND]
    assert [(c.windows, c.end, c.rows, c.merged) for c in completes(outcomes)] == [
        (None, 3 * SECOND, 1, 1),
        (None, 6 * SECOND, 2, 2),
    ]


def test_groups_that_progress_close_without_windows():
    plan = compiled("SELECT minute, count(*) FROM Main GROUP BY ts/60 AS minute")
    a = sender(plan)
    records = [counts(a, [(1, 4, 1), (2, 5, 2)]), a.promise(2)]
    records += [a.promise(3, Account(2, 7, 7)), a.end()]
    outcomes = drive(plan, records)
    assert column(outcomes, "minute") == [1, 2]
    found = [o for o in outcomes[0].outputs if isinstance(o, Complete)]
    assert [(c.end // (60 * SECOND), c.merged, c.promised, c.verdict.reasons) for c in found] == [
        (2, 4, 4, frozenset()),
        (3, 5, 7, {Reason.GAP}),
    ]


@pytest.mark.parametrize("cut", [False, True])
def test_a_distinct_row_is_out_before_its_granule_ends(cut):
    plan = compiled("SELECT DISTINCT ts / 10 AS tens, proto FROM Main")
    schema = plan.stage.nodes[0].reduction.schema

    def partial(pane: int, tuples: int, proto: int):
        row = np.zeros((1, schema.words), np.int64)
        for name, value in (("pane", pane), ("tuples", tuples), ("tens", pane), ("proto", proto)):
            row[0, schema.offset(name)] = value
        return a.words(row.view(np.uint64), {pane: tuples})

    a = sender(plan)
    seen = [partial(3, 1, 6), partial(4, 1, 6), partial(3, 5, 6), partial(3, 1, 17)]
    assert sorted(column(drive(plan, seen, cut=cut), "proto")) == [6, 6, 17]  # nothing has been promised
    rest = [a.promise(4), partial(3, 1, 1), partial(4, 2, 6), a.promise(5, Account(4, 3, 3)), a.end()]
    outcomes = drive(plan, [*seen, *rest], cut=cut)
    assert sorted(column(outcomes, "proto")) == [6, 6, 17]
    assert sum(outcome.counts.late for outcome in outcomes) == 1
    first, *later = completes(outcomes)
    assert (first.end, first.merged, first.verdict.reasons) == (40 * SECOND, 7, set())
    assert {reason for complete in later for reason in complete.verdict.reasons} <= {Reason.LATE}
    assert sum(complete.rows for complete in [first, *later]) == 3


def test_having_may_leave_a_window_without_rows():
    plan = compiled("SELECT proto, count(*) [RANGE 10 seconds, WA ts] FROM Main GROUP BY proto HAVING count(*) > 5 ")
    a = sender(plan)
    records = [counts(a, [(0, 3, 6), (1, 9, 6)]), a.promise(1), a.promise(2), a.end()]
    found = completes(drive(plan, records))
    assert [(c.windows.first, c.rows, c.merged) for c in found] == [(0, 0, 3), (1, 1, 9)]


def union_of_counts():
    """A union of two inputs, and who sends each of them."""
    plan = compiled("SELECT count(*) [RANGE 10 seconds] FROM Main UNION Main")
    a, b = (
        Sender("a", stage=plan.stage.fingerprint, node=node.name, width=node.reduction.pane.width)
        for node in plan.stage.nodes
    )
    return plan, a, b


def row(sender: Sender, pane: int, tuples: int):
    return sender.words(np.array([[0, pane, tuples]], np.int64).view(np.uint64), {pane: tuples})


@pytest.mark.parametrize("cut", [False, True])
def test_a_union_closes_what_all_of_it_has_ended(cut):
    plan, a, b = union_of_counts()
    records = [row(a, 0, 3), a.promise(5), row(b, 0, 4), b.promise(1), row(b, 1, 7), b.end(), row(a, 6, 1), a.end()]
    outcomes = drive(plan, records, cut=cut)
    assert column(outcomes, "count") == [7, 7, 1]
    assert contiguous(completes(outcomes))


@pytest.mark.parametrize("cut", [False, True])
def test_a_union_keeps_what_is_known_until_all_of_it_has_begun(cut):
    plan, a, b = union_of_counts()
    records = [row(a, 0, 3), row(a, 1, 2), a.promise(0), a.promise(2, dropped(1, 4)), row(b, 0, 4)]
    records += [b.promise(1), b.promise(3), a.end(), b.end()]
    found = completes(drive(plan, records, cut=cut))
    assert [(c.windows.first, c.merged, c.promised, c.dropped, c.verdict.reasons) for c in found[:2]] == [
        (0, 7, 7, 0, frozenset()),
        (1, 2, 2, 4, {Reason.DROPPED}),
    ]
