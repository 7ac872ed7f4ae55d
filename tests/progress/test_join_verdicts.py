"""Joins in their bucket: how far they are complete, and where a loss in one input reaches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from highlevel.progress.driver import BucketDriver
from highlevel.progress.outputs import Outcome
from highlevel.rosters.roster import Roster
from highlevel.state import MemoryState
from lowmark.query.compile import compile_query
from lowmark.query.plan.nodes import QueryPlan
from lowmark.wire.records.punctuations import Account
from lowmark.wire.records.verdicts import Reason
from tests.progress.harness import Sender, completes, dropped, finite
from tests.progress.test_steps import column, drive

SECOND = 10**9
ROSTER = Roster.of({"A": ("a",), "B": ("b",)})
BAND = (
    "FROM A AS x [RANGE 20 seconds], B AS y [RANGE 10 seconds] WHERE x.proto = y.proto"  # x.ts - 10 <= y.ts < x.ts + 20
)


class Both:
    """Packets of both inputs, all of one protocol."""

    def __init__(self, sql: str) -> None:
        self.plan: QueryPlan = compile_query(sql, name="q", buckets=1)
        self._nodes = self.plan.stage.nodes
        self.a, self.b = (
            Sender(name, stage=self.plan.stage.fingerprint, node=node.name, width=SECOND)
            for name, node in zip("ab", self._nodes, strict=True)
        )

    def packets(self, sender: Sender, *times: int, length: int = 1):
        node = self._nodes["ab".index(sender.source)]
        schema = node.reduction.schema
        rows = np.zeros((len(times), schema.words), np.uint64)
        for row, time in zip(rows, times, strict=True):
            for name, value in (("pane", time), ("tuples", 1), ("ts", time * SECOND), ("proto", 6), ("len", length)):
                if name in schema.names:
                    row[schema.offset(name)] = value
        panes: dict[int, int] = {}
        for time in times:
            panes[time] = panes.get(time, 0) + 1
        return sender.words(rows, panes)


def told(outcomes: Sequence[Outcome]) -> list[tuple[int, int, frozenset[Reason]]]:
    """Bound in seconds, rows and reasons of each completion."""
    return [(c.end // SECOND, c.rows, c.verdict.reasons) for c in completes(outcomes)]


@pytest.mark.parametrize("cut", [False, True])
def test_rows_are_complete_up_to_the_least_bound(cut: bool) -> None:
    both = Both(f"SELECT x.ts, y.ts {BAND}")
    a, b = both.a, both.b
    records = [both.packets(a, 100, 105), both.packets(b, 95, 110), a.promise(130), b.promise(120), a.promise(140)]
    outcomes = drive(both.plan, [*records, b.end(), a.end()], cut=cut, roster=ROSTER)
    assert sorted(column(outcomes, "x.ts")) == [100 * SECOND] * 2 + [105 * SECOND] * 2
    # On x.ts 120 - 20 s (and one ns), on y.ts 130 - 10 s: nothing comes before 100 s, and the pairs of 100 s are out.
    # The end is told in any case.
    assert told(outcomes) == [(100, 4, frozenset()), (111, 0, frozenset())]


def lost(sender: Sender, granule: int, sent: int = 0) -> list[object]:
    """The sender promises, and says that packets of a granule were dropped."""
    return [sender.promise(granule), sender.promise(granule + 1, Account(granule, sent, sent), dropped(granule, 1))]


@pytest.mark.parametrize("cut", [False, True])
def test_a_loss_is_told_with_the_rows_that_it_may_be_missing_from(cut: bool) -> None:
    both = Both(f"SELECT x.ts, y.ts {BAND}")
    a, b = both.a, both.b
    records = [both.packets(a, *range(0, 100, 5)), both.packets(b, *range(0, 100, 5)), a.promise(45), b.promise(45)]
    records += lost(b, 50, 1)
    for time in range(60, 120, 5):
        records += [a.promise(time), b.promise(time)]
    records += [both.packets(a, 116), both.packets(b, 116), a.promise(150), b.promise(150)]
    outcomes = drive(both.plan, [*records, a.end(), b.end()], cut=cut, roster=ROSTER)
    lossy = [(end, reasons) for end, _, reasons in told(outcomes) if reasons]
    # Of a pair with y.ts in 50 … 51 s the lesser time lies from 50 - 20 s to 51 s.
    before = [end for end, _, reasons in told(outcomes) if end <= 30]
    assert before
    assert min(end for end, _ in lossy) > 30
    assert {reasons for _, reasons in lossy} == {frozenset({Reason.DROPPED})}
    exact_again = [end for end, _, reasons in told(outcomes) if end > max(end for end, _ in lossy)]
    assert exact_again
    assert 51 <= max(end for end, _ in lossy) <= 60


@pytest.mark.parametrize("cut", [False, True])
def test_an_overflow_above_a_join_is_told_with_the_rows_that_it_decides(cut: bool) -> None:
    """The pair is found when it comes, long before all rows of its time have come."""
    both = Both(f"SELECT x.ts, y.ts {BAND} AND x.len * y.len * 4000000000000000000 <> 5")
    a, b = both.a, both.b
    records = [both.packets(s, *range(0, 100, 5)) for s in (a, b)]
    records += [both.packets(s, 77, length=2) for s in (a, b)]
    for time in range(10, 130, 10):
        records += [a.promise(time), b.promise(time)]
    outcomes = drive(both.plan, [*records, a.end(), b.end()], cut=cut, roster=ROSTER)
    bounds = [end for end, _, _ in told(outcomes)]
    after = min(end for end in bounds if end > 77)
    assert [(end, reasons) for end, _, reasons in told(outcomes) if reasons] == [(after, frozenset({Reason.OVERFLOW}))]
    assert bounds[0] < 77 - 20, "the completion before is that of the pairs that come first"


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize(("source", "first", "last"), [("a", 5, 5), ("b", 3, 6)])
def test_a_loss_reaches_the_windows_over_the_other_input(source: str, first: int, last: int, cut: bool) -> None:
    both = Both(f"SELECT count(*) [RANGE 10 s, WA x.ts] {BAND}")
    a, b = both.a, both.b
    records = [both.packets(a, *range(0, 100, 5)), both.packets(b, *range(0, 100, 5))]
    records += lost({"a": a, "b": b}[source], 52)
    for time in range(60, 130, 5):
        records += [a.promise(time), b.promise(time)]
    found = completes(drive(both.plan, [*records, a.end(), b.end()], cut=cut, roster=ROSTER))
    lossy = [n for c in found if not c.verdict.exact for n in range(c.windows.first, c.windows.to + 1)]
    # y.ts of 52 … 53 s is missing to x.ts from 52 - 20 to 53 + 10 s.
    assert (min(lossy), max(lossy)) == (first, last) if source == "b" else (first in lossy and len(lossy) <= 5)


@pytest.mark.parametrize("cut", [False, True])
def test_groups_over_both_times_close_by_both_promises(cut: bool) -> None:
    """Li 7.2, Q7-1: a pair of times is complete when both inputs have passed it, long before the window has."""
    both = Both(
        "SELECT x.ts AS a, y.ts / 2 AS b, count(*) FROM A AS x [RANGE 60 s], B AS y [RANGE 60 s] "
        "WHERE x.proto = y.proto GROUP BY x.ts, y.ts / 2"
    )
    a, b = both.a, both.b
    records = [
        both.packets(a, 1, 3, 5),
        both.packets(b, 1, 3, 5),
        a.promise(4),
        b.promise(3),
        a.promise(6),
        b.promise(6),
    ]
    outcomes = drive(both.plan, [*records, both.packets(a, 7)], cut=cut, roster=ROSTER)
    before = sorted(zip(column(outcomes, "a"), column(outcomes, "b"), strict=True))
    # y.ts / 2 below 6 / 2: a group of y.ts = 5 s is of 4 s, which is not below it before 6 s have passed.
    assert before == [(t * SECOND, half) for t in (1, 3, 5) for half in (0, 1, 2)]
    outcomes = drive(both.plan, [*records, both.packets(a, 7), a.end(), b.end()], cut=cut, roster=ROSTER)
    pairs = zip(column(outcomes, "a"), column(outcomes, "b"), column(outcomes, "count"), strict=True)
    assert sorted(pairs) == [(t * SECOND, half, 1) for t in (1, 3, 5, 7) for half in (0, 1, 2)]


def test_what_comes_late_is_missing_from_what_is_open() -> None:
    both = Both(f"SELECT count(*) [RANGE 10 s, WA x.ts] {BAND}")
    a, b = both.a, both.b
    records = [both.packets(a, *range(0, 100, 5)), both.packets(b, *range(0, 100, 5)), a.promise(60), b.promise(60)]
    records += [both.packets(b, 58), a.promise(110), b.promise(110), a.end(), b.end()]
    found = completes(drive(both.plan, records, cut=False, roster=ROSTER))
    lossy = [n for c in found if not c.verdict.exact for n in range(c.windows.first, c.windows.to + 1)]
    # Windows up to x.ts = 40 s were closed; y.ts = 58 s is missing to x.ts from 38 to 69 s.
    assert lossy == [4, 5, 6]


def test_windowed_results_of_which_one_is_lossy() -> None:
    sql = (
        "CREATE STREAM p AS SELECT proto, count(*) AS n [RANGE 10 s] FROM A GROUP BY proto;"
        "CREATE STREAM q AS SELECT proto, count(*) AS n [RANGE 10 s] FROM B GROUP BY proto;"
        "SELECT p.window_start, p.n, q.n FROM p, q [RANGE TUMBLING 10 s, WA window_start] WHERE p.proto = q.proto"
    )
    plan = compile_query(sql, name="q", buckets=1)
    a, b = (
        Sender(name, stage=plan.stage.fingerprint, node=node.name, width=10 * SECOND)
        for name, node in zip("ab", plan.stage.nodes, strict=True)
    )

    def counted(sender: Sender, pane: int):
        return sender.words(np.array([[0, pane, 1, 6]], np.int64).view(np.uint64), {pane: 1})

    records = [counted(s, pane) for s in (a, b) for pane in range(6)]
    records += [a.promise(3), a.promise(4, dropped(3, 2))]
    for pane in range(2, 7):
        records += [b.promise(pane), a.promise(max(pane, 4))]
    bucket = BucketDriver(plan.stage, (plan,), 0, MemoryState(), ROSTER, 1)
    for record, arrival in finite([*records, a.end(), b.end()]):
        bucket.take(record, arrival)
    outcomes = [bucket.flush()]
    assert column(outcomes, "p.window_start") == [pane * 10 * SECOND for pane in range(6)]
    assert [end for end, _, reasons in told(outcomes) if reasons] == [40]
