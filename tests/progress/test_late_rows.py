"""Late partials in a bucket: rows of their own, or corrections that come when their windows have closed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from highlevel.build import build
from highlevel.interface import Words
from highlevel.progress.driver import BucketDriver
from highlevel.progress.outputs import Outcome
from highlevel.progress.records import Arrival, Batch, Record
from highlevel.rosters.roster import Roster
from highlevel.state import MemoryByteStore, PiecewiseState
from lowmark.query.compile import compile_query
from lowmark.query.options import Late
from lowmark.query.plan.nodes import QueryPlan
from lowmark.query.plan.sharing import share
from lowmark.wire.records.punctuations import Account, Punctuation
from lowmark.wire.records.verdicts import Amendment, Complete, Correction, LateRow, Merge, WindowSpan
from tests.progress.harness import Sender, plain

SECOND = 10**9
SQL = "SELECT proto, count(*) AS n, max(len) AS most [RANGE {r} s, SLIDE {s} s] FROM Main GROUP BY proto"
PORTS = "SELECT destPort, count(*) AS n, median(len) AS m [RANGE 1 s] FROM Main GROUP BY destPort HAVING count(*) > 9"


def planned(size: int, slide: int, late: Late) -> QueryPlan:
    return compile_query(SQL.format(r=size, s=slide), name="q", streams={"Main": 1}, buckets=1, late=late)


class Feed(Sender):
    """A source of one plan; `width` is that of its panes."""

    @classmethod
    def of(cls, plan: QueryPlan) -> Feed:
        (node,) = plan.stage.nodes
        return cls("a", stage=plan.stage.fingerprint, node=node.name, width=node.reduction.pane.width)

    def groups(self, pane: int, *groups: tuple[int, ...], late: bool = False) -> Batch:
        """Each group: its tuples, then the words behind them."""
        words: Words = np.array([[0, pane, *group] for group in groups], np.int64).view(np.uint64)
        return self.words(words, {pane: sum(group[0] for group in groups)}, late)


def run(plan: QueryPlan, records: list[Record], cuts: tuple[int, ...] = ()) -> list[Outcome]:
    store = MemoryByteStore()
    bounds = [0, *sorted({cut % (len(records) + 1) for cut in cuts}), len(records)]
    outcomes = []
    for start, stop in pairwise(bounds):
        state = PiecewiseState(store, plan.stage.fingerprint)
        driver = BucketDriver(plan.stage, (plan,), 0, state, Roster.of({"Main": ("a",)}), 1, build)
        for position in range(start, stop):
            driver.take(records[position], Arrival(position))
        outcomes.append(driver.flush())
        state.commit()
    return outcomes


def of_kind(outcomes: list[Outcome], *kinds: type) -> list[object]:
    return [output for outcome in outcomes for output in outcome.outputs if isinstance(output, kinds)]


def script(plan: QueryPlan) -> list[Record]:
    """Panes of one second. Late: of second 5 before its window closes and after, of second 2 long after."""
    feed = Feed.of(plan)
    return [
        feed.groups(2, (4, 6, 100)),
        feed.groups(5, (1, 6, 70)),
        feed.promise(6),
        feed.groups(5, (2, 6, 90), (1, 17, 50), late=True),
        feed.promise(7, Account(5, 0, 0, late=3)),
        feed.groups(8, (1, 6, 60)),
        feed.promise(9),
        feed.groups(5, (1, 17, 55), late=True),
        feed.groups(2, (1, 6, 1000), late=True),
        feed.promise(10, Account(2, 0, 0, late=1), Account(5, 0, 0, late=1)),
        feed.end(),
    ]


def test_corrections_wait_for_their_windows_and_say_each_late_tuple_once() -> None:
    plan = planned(4, 2, Late.CORRECT)  # panes of 2 s: seconds 4 and 5 are pane 2, in windows 2 (2…6) and 3 (4…8)
    feed = Feed.of(plan)
    outcomes = run(plan, [
        feed.groups(2, (1, 6, 70)), feed.promise(3),
        feed.groups(2, (2, 6, 90), (1, 17, 50), late=True),  # window 2 has closed, window 3 is open
        feed.promise(4, Account(2, 0, 0, late=3)), feed.end(),
    ])  # fmt: skip
    (complete, early, amended, second, after) = of_kind(outcomes, Complete, Correction, Amendment)
    deltas = ({"proto": 6, "n": 2, "most": 90}, {"proto": 17, "n": 1, "most": 50})
    merge = {"n": Merge.ADD, "most": Merge.GREATEST}
    assert isinstance(complete, Complete)
    assert isinstance(second, Complete)
    assert isinstance(amended, Amendment)
    one, two = "1970-01-01T00:00:02Z", "1970-01-01T00:00:06Z"
    assert early == Correction("q", 1, 0, WindowSpan(2, 2), one, two, 3, merge, deltas)
    assert (amended.windows, amended.late) == (WindowSpan(2, 2), 3)
    assert (second.windows, second.late, second.merged) == (WindowSpan(3, 3), 3, 1)
    three, four = "1970-01-01T00:00:04Z", "1970-01-01T00:00:08Z"
    assert after == Correction("q", 1, 0, WindowSpan(3, 3), three, four, 3, merge, deltas)


def test_a_closed_window_never_changes_and_has_no_second_row() -> None:
    for late in Late:
        outcomes = run(planned(1, 1, late), script(planned(1, 1, late)))
        rows = [
            plain(output) for outcome in outcomes for output in outcome.outputs if type(output).__name__ == "ResultRows"
        ]
        if late is Late.COUNT:
            expected = rows
        assert rows == expected
        spans = [output.windows for output in of_kind(outcomes, Complete)]
        assert all(before.to + 1 == behind.first for before, behind in pairwise(spans))


@pytest.mark.parametrize(("late", "kind"), [(Late.COUNT, None), (Late.EMIT, LateRow), (Late.CORRECT, Correction)])
def test_what_each_setting_gives(late: Late, kind: type | None) -> None:
    outcomes = run(planned(1, 1, late), script(planned(1, 1, late)))
    found = of_kind(outcomes, LateRow, Correction)
    assert {type(item) for item in found} == ({kind} if kind else set())
    assert sum(item.tuples for item in found) == (5 if kind else 0)
    assert sum(outcome.counts.late for outcome in outcomes) == 5
    counted = Counter[str]()
    for outcome in outcomes:
        counted.update(outcome.counts.late_rows if late is Late.EMIT else outcome.counts.corrections)
    assert counted["q"] == len(found)
    amended = of_kind(outcomes, Amendment)
    assert sum(item.late for item in amended) == 5


def test_a_late_row_names_its_source_and_all_of_its_windows() -> None:
    plan = planned(3, 1, Late.EMIT)
    feed = Feed.of(plan)
    outcomes = run(plan, [feed.groups(5, (1, 6, 70)), feed.promise(7), feed.groups(4, (2, 17, 5), late=True)])
    start, end = "1970-01-01T00:00:02Z", "1970-01-01T00:00:07Z"
    expected = LateRow("q", 1, 0, "a", WindowSpan(4, 6), start, end, 2, {"proto": 17, "n": 2, "most": 5})
    assert of_kind(outcomes, LateRow) == [expected]


def test_late_rows_of_holistic_aggregates_are_over_their_own_tuples_before_having() -> None:
    plan = compile_query(PORTS, name="q", streams={"Main": 1}, buckets=1, late=Late.EMIT)
    feed = Feed.of(plan)
    late = ((2, 80, 40), (1, 80, 60), (1, 53, 60))
    outcomes = run(plan, [feed.groups(5, (1, 80, 70)), feed.promise(7), feed.groups(4, *late, late=True)])
    assert [(row.tuples, dict(row.row)) for row in of_kind(outcomes, LateRow)] == [
        (3, {"destPort": 80, "n": 3, "m": 40.0}), (1, {"destPort": 53, "n": 1, "m": 60.0}),
    ]  # fmt: skip


@given(
    st.sampled_from(Late), st.sampled_from([(1, 1), (4, 1), (4, 2), (2, 3)]), st.lists(st.integers(0, 99), max_size=4)
)
def test_where_batches_are_cut_changes_nothing(late: Late, shape: tuple[int, int], cuts: list[int]) -> None:
    plan = planned(*shape, late)
    whole, cut = run(plan, script(plan)), run(plan, script(plan), tuple(cuts))
    of = [[plain(output) for outcome in outcomes for output in outcome.outputs] for outcomes in (whole, cut)]
    assert of[0] == of[1]


def test_many_late_groups_are_told_in_records_of_a_size_that_fits() -> None:
    plan = planned(1, 1, Late.CORRECT)
    feed = Feed.of(plan)
    groups = tuple((1, proto, 1) for proto in range(1000))
    outcomes = run(plan, [feed.groups(5, (1, 6, 70)), feed.promise(7), feed.groups(5, *groups, late=True)])
    found = of_kind(outcomes, Correction)
    assert len(found) > 1
    assert sum(item.tuples for item in found) == 1000
    assert sum(len(item.deltas) for item in found) == 1000


@pytest.mark.parametrize("late", [Late.EMIT, Late.CORRECT])
def test_of_a_node_that_is_shared_late_rows_are_the_querys_own(late: Late) -> None:
    alone = planned(1, 1, late)
    beside = compile_query(
        "SELECT proto, sum(len) [RANGE 1 s] FROM Main GROUP BY proto", streams={"Main": 1}, buckets=1
    )
    shared, _ = share([alone, beside])
    (node,) = shared.stage.nodes
    assert node.reduction.schema.names[3:] == ("_add0", "_max1")

    def widened(record: Record) -> Record:
        """With a sum of bytes in front of the maximum."""
        assert isinstance(record, Batch | Punctuation)
        origin = replace(record.origin, stage=shared.stage.fingerprint)
        if isinstance(record, Punctuation):
            return replace(record, origin=origin)
        return replace(record, origin=origin, rows=np.insert(record.rows, 4, 12345, axis=1))

    kinds = (Complete, LateRow, Correction, Amendment)
    assert of_kind(run(shared, [widened(record) for record in script(alone)]), *kinds) == of_kind(
        run(alone, script(alone)), *kinds
    )
