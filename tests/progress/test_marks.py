"""Marks travel through operators: a window whose rows a loss has changed is never exact."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from random import Random

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from highlevel.build import build
from highlevel.interface import Operator, Out, State, Words
from highlevel.join import JoinOperator
from highlevel.join.marks import JoinMarks
from highlevel.join.output_promises import Promising
from highlevel.limits import GroupLimit
from highlevel.operators.aggregate import AggregateOperator
from highlevel.progress.driver import BucketDriver
from highlevel.progress.outputs import Counts, Forward, Outcome, ResultRows
from highlevel.progress.records import Arrival
from highlevel.rosters.roster import Roster
from highlevel.row_marks import RowMark, in_panes, of_panes, through
from highlevel.state import MemoryState
from lowmark.query.compile import compile_query
from lowmark.query.expr.expressions import Op
from lowmark.query.options import Joins, Memory
from lowmark.query.plan.fingerprint import step_digests
from lowmark.query.plan.nodes import Aggregate, Join, Pane, QueryPlan, StepPlan
from lowmark.query.plan.sharing import share
from lowmark.query.windows.progressing import Progress as ProgressOf
from lowmark.wire.records.verdicts import Amendment, Complete, Reason, Verdict
from lowmark.wire.rows.values import show
from lowmark.wire.rows.words import column_of
from tests.acceptance.bucketrun import Ran, run_plan
from tests.acceptance.interleaved import packets_of
from tests.acceptance.traffic import Traffic, traffic
from tests.progress.test_graph import sent_of

LATE = Verdict(frozenset({Reason.LATE}))
BAND = "A [RANGE 7 s, WA ts] AS x, B [RANGE 3 s, WA ts] AS y WHERE x.proto = y.proto"
INNER = "(SELECT proto, count(*) AS c [RANGE 4 s, SLIDE 2 s, WA ts] FROM {} GROUP BY proto)"
BOTH = INNER.format("A UNION B")
PAIR = f"{INNER.format('A')} AS x [RANGE 4 s, WA window_end], {INNER.format('B')} AS y [RANGE 6 s, WA window_end]"
PAIR += " WHERE x.proto = y.proto"
LEFT = "A AS x [RANGE 7 s] LEFT JOIN B AS y [RANGE 3 s] ON x.proto = y.proto AND x.srcIP = y.srcIP"
THREE = "A AS x [RANGE 2 s], B AS y [RANGE 5 s], A AS z [RANGE 3 s] WHERE x.proto = y.proto AND y.srcIP = z.srcIP"
EQUAL = "A AS x, B AS y WHERE x.ts/2 = y.ts/2 AND x.proto = y.proto"
MODELLED = (
    "SELECT p.proto AS a, count(*) AS n [RANGE 6 s, WA t] FROM (SELECT x.ts AS t, x.proto AS proto FROM "
    f"{EQUAL}) AS p GROUP BY p.proto"
)
WINDOWED = (
    f"SELECT count(*) AS c, sum(x.len) AS s [RANGE 10 s, SLIDE 5 s, WA x.ts] FROM {BAND}",
    f"SELECT count(*) AS c [RANGE 10 s, WA y.ts] FROM {BAND}",
    f"SELECT /*+ algorithm(punctuated) */ count(*) AS c, sum(y.len) AS s [RANGE 10 s, SLIDE 5 s, WA y.ts] FROM {BAND}",
    f"SELECT x.proto, count(*) AS c [RANGE 6 s, WA x.ts] FROM {LEFT} GROUP BY x.proto",
    f"SELECT count(*) AS n [RANGE 6 s, WA x.window_end] FROM {PAIR}",
    f"SELECT max(c) AS top [RANGE 6 s, SLIDE 2 s, WA window_start] FROM {INNER.format('A')} HAVING max(c) > 0",
    f"SELECT sum(c) AS top [RANGE 6 s, WA later] FROM (SELECT c, window_end + 11 seconds AS later FROM {BOTH})",
    "SELECT count(*) AS c, sum(len) AS s [RANGE 6 ROWS, SLIDE 3 ROWS, WA row_num] FROM A",
    "SELECT srcIP, count(*) AS c [RANGE 10 s, WA ts] FROM A GROUP BY srcIP ORDER BY c DESC, srcIP LIMIT 1",
    "SELECT sum(row_num) AS s [RANGE 10 s, WA ts] FROM A",
    f"SELECT * FROM {INNER.format('A')} UNION {INNER.format('B')}",
    f"SELECT * FROM {INNER.format('A')} ORDER BY window_end, c DESC",
    f"SELECT count(*) AS c [RANGE 10 s, WA x.ts] FROM {THREE}",
    f"SELECT count(*) AS c, sum(y.len) AS s [RANGE 6 s, WA x.ts] FROM {EQUAL}",
)

Rows = Mapping[tuple[object, object], list[str]]


def by_window(rows: Sequence[Mapping[str, object]]) -> Rows:
    found: dict[tuple[object, object], list[str]] = defaultdict(list)
    for row in rows:
        found[row["window_start"], row["window_end"]].append(repr(sorted(row.items(), key=lambda item: item[0])))
    return {window: sorted(of) for window, of in found.items()}


def announced(plan: QueryPlan, ran: Ran) -> set[tuple[object, object]]:
    """A stream that lost rows may have fewer windows over rows."""
    window, kind = plan.window, plan.window.axis.kind
    numbers = (n for of in ran.completes for each in of for n in range(each.windows.first, each.windows.to + 1))
    starts = ((n, window.start(n)) for n in numbers)
    return {(None if start is None else show(kind, start), show(kind, window.end(n))) for n, start in starts}


@pytest.mark.parametrize("text", WINDOWED)
@given(sent=traffic(), seed=st.integers(0, 2**32), buckets=st.sampled_from((1, 2)))
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_window_whose_rows_a_lost_batch_changes_is_lossy(text: str, sent: Traffic, seed: int, buckets: int) -> None:
    streams = packets_of(sent)
    streams = {name: streams.get(name) or [[]] for name in "AB"}
    plan = compile_query(text, name="q", streams={name: len(of) for name, of in streams.items()}, buckets=buckets)
    assert plan.window is not None
    whole = run_plan(plan, streams, Random(seed))
    hurt = run_plan(plan, streams, Random(seed), lost=True)
    assert not whole.lossy
    expected, found = by_window(whole.rows), by_window(hurt.rows)
    changed = {window for window in expected.keys() | found.keys() if expected.get(window) != found.get(window)}
    assert not changed & announced(plan, hurt) - hurt.lossy, (text, sent, seed)


class Shedding(JoinOperator):
    """Gives up rows of its second input, by their time."""

    def on_batch(self, port: int, rows: Words, state: State, out: Out) -> None:
        if port == 1 and len(rows):
            times, _ = column_of(self._plan.inputs[1].schema, rows, self._plan.inputs[1].attribute)
            given_up = times // 10**9 % 3 == 0
            if given_up.any():
                out.shed(1, rows[given_up], Reason.WINDOW_OBLIVIOUS)
                rows = rows[~given_up]
        super().on_batch(port, rows, state, out)


class SheddingAggregate(AggregateOperator):
    def on_batch(self, port: int, rows: Words, state: State, out: Out) -> None:
        given_up = rows[:, 1].astype(int) % 5 == 0
        if given_up.any():
            out.shed(0, rows[given_up], Reason.PUNCTUATED)
        super().on_batch(port, rows[~given_up], state, out)


def shedding(plan: StepPlan, limit: GroupLimit) -> Operator:
    if isinstance(plan, Join):
        return Shedding(plan)
    return SheddingAggregate(plan, limit) if isinstance(plan, Aggregate) and plan.keys else build(plan, limit)


def driven(plan: QueryPlan, roster: Roster, records: Sequence, made=build) -> list[Outcome]:
    driver = BucketDriver(plan.stage, (plan,), 0, MemoryState(), roster, 1, made)
    for position, (_, record) in enumerate(records):
        driver.take(record, Arrival(position))
    return [driver.flush()]


def told(outcomes: Sequence[Outcome]) -> tuple[dict[int, list], dict[int, frozenset[Reason]]]:
    """By window: its rows, and the reasons against it."""
    rows, reasons = defaultdict(list), defaultdict(frozenset)
    for output in (output for outcome in outcomes for output in outcome.outputs):
        if isinstance(output, ResultRows):
            rows[output.window] += output.rows.tolist()
        elif isinstance(output, Complete):
            for window in range(output.windows.first, output.windows.to + 1):
                reasons[window] |= output.verdict.reasons
        elif isinstance(output, Amendment):
            for window in range(output.windows.first, output.windows.to + 1):
                reasons[window] |= output.reasons
    return {window: sorted(of) for window, of in rows.items()}, reasons


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (WINDOWED[0], Reason.WINDOW_OBLIVIOUS), (WINDOWED[1], Reason.WINDOW_OBLIVIOUS),
        ("SELECT srcIP, count(*) AS c [RANGE 10 s, SLIDE 5 s, WA ts] FROM A GROUP BY srcIP", Reason.PUNCTUATED),
    ],
)  # fmt: skip
@given(seed=st.integers(0, 2**32), sizes=st.tuples(st.integers(1, 60), st.integers(1, 60)))
@settings(max_examples=15, deadline=None)
def test_rows_given_up_by_policy_are_counted_and_make_their_windows_lossy(text, reason, seed, sizes) -> None:
    sent = Traffic(seed, (("A", sizes[0]), ("B", sizes[1])), 2, True)
    plan = compile_query(text, name="q", streams={"A": 1, "B": 1}, buckets=1)
    roster, records = sent_of(plan, sent, 1, whole=True)
    expected, known = told(driven(plan, roster, records))
    outcomes = driven(plan, roster, records, shedding)
    found, reasons = told(outcomes)
    assert not any(known.values())
    changed = {window for window in expected.keys() | found.keys() if expected.get(window) != found.get(window)}
    lossy = {window for window, of in reasons.items() if of}
    assert changed <= lossy
    assert {each for window in lossy for each in reasons[window]} <= {reason}
    if reason is Reason.PUNCTUATED:
        assert changed == lossy, "every window that held a row that was given up, and no other"
    counts = sum((outcome.counts for outcome in outcomes), Counts())
    assert counts.shed.get(("q", reason), 0) >= bool(lossy)


def said_beside(plans: Sequence[QueryPlan], roster: Roster, records: Sequence, at_once: int) -> list[Outcome]:
    """What the first query says, by bucket, when joins give up rows; micro-batches have so many records."""
    stage = plans[0].stage
    drivers = [BucketDriver(stage, tuple(plans), at, MemoryState(), roster, 1, shedding) for at in range(stage.buckets)]
    waiting = [[record for of, record in records if of == at] for at in range(stage.buckets)]
    said = [Outcome((), Counts()) for _ in drivers]
    position = 0
    while any(waiting):
        returning: list[list] = [[] for _ in drivers]
        for at, driver in enumerate(drivers):
            now, waiting[at] = waiting[at][:at_once], waiting[at][at_once:]
            for record in now:
                driver.take(record, Arrival(position))
                position += 1
            outputs = driver.flush().outputs
            for output in outputs:
                if isinstance(output, Forward):
                    returning[output.partition].append(output.record)
            own = tuple(each for each in outputs if not isinstance(each, Forward) and each.query == plans[0].name)
            said[at] = replace(said[at], outputs=(*said[at].outputs, *own))
        # What returns comes after some of what waits: in one micro-batch with rows that are given up.
        waiting = [[*of[:2], *more, *of[2:]] for of, more in zip(waiting, returning, strict=True)]
    return said


@pytest.mark.parametrize("at_once", [1, 6])
def test_a_mark_of_a_shared_join_reaches_both_queries_though_one_waits_for_its_exchange(at_once: int) -> None:
    pairs = f"(SELECT x.ts AS t, x.proto AS proto, x.srcIP AS a FROM {BAND}) AS p"
    own = f"SELECT proto, count(*) AS c, max(a) AS m [RANGE 10 s, WA t] FROM {pairs} GROUP BY proto"
    sent_on = f"SELECT a, count(*) AS c, max(proto) AS m [RANGE 2 s, WA t] FROM {pairs} GROUP BY a"
    streams = {"A": 1, "B": 1}
    plans = share([
        compile_query(text, name=f"q{n}", streams=streams, buckets=2) for n, text in enumerate((own, sent_on))
    ])  # fmt: skip
    assert step_digests(plans[0])[0] == step_digests(plans[1])[0]
    assert plans[0].exchanges is None
    assert plans[1].exchanges is not None
    lossy = 0
    for seed in range(5):
        roster, records = sent_of(plans[0], Traffic(seed, (("A", 40), ("B", 60)), 2, True), seed, whole=True)
        alone, beside = (said_beside(of, roster, records, at_once) for of in (plans[:1], plans))
        for one, other in zip(alone, beside, strict=True):
            assert told([one])[1] == told([other])[1], seed
            lossy += sum(map(bool, told([one])[1].values()))
    assert lossy > 10


@pytest.mark.parametrize(
    "text", [MODELLED, f"SELECT a, sum(n) AS n [RANGE 12 s, WA window_end] FROM ({MODELLED}) AS q GROUP BY a"]
)
def test_rows_that_a_model_gives_up_make_their_windows_lossy(text: str) -> None:
    """It is told that the inputs come in order, which is wrong: so it gives up what would have met somebody. Each
    window whose rows change is lossy, and not for another reason."""
    missed = 0
    for seed in range(3):
        sent = Traffic(seed, (("A", 700), ("B", 600)), 20, True)
        outcomes = []
        for joins in (Joins(), Joins(memory=Memory.MODEL, scrambling={"x": 0, "Y": 0})):
            plan = compile_query(text, name="q", streams={"A": 1, "B": 1}, buckets=1, joins=joins)
            roster, records = sent_of(plan, sent, 1, whole=True)
            outcomes.append(driven(plan, roster, records))
        (expected, known), (found, reasons) = map(told, outcomes)
        assert not any(known.values())
        changed = {window for window in expected.keys() | found.keys() if expected.get(window) != found.get(window)}
        lossy = {window for window, of in reasons.items() if of}
        assert changed <= lossy
        assert {each for window in lossy for each in reasons[window]} == {Reason.WINDOW_OBLIVIOUS}
        assert sum((outcome.counts for outcome in outcomes[1]), Counts()).shed[("q", Reason.WINDOW_OBLIVIOUS)] > 0
        missed += len(changed)
    assert missed


MADE = compile_query(
    "SELECT x.ts, y.ts / 2 AS half, z.ts + 3 AS later FROM A [RANGE 5 ns, WA ts] AS x, B [RANGE 3 ns, WA ts] AS y,"
    " C [RANGE 4 ns, WA ts] AS z WHERE x.proto = y.proto AND y.proto = z.proto",
    name="q",
    streams=dict.fromkeys("ABC", 1),
    buckets=1,
)


@given(st.integers(0, 2), st.integers(-9, 9), st.integers(0, 5), st.tuples(*[st.integers(-4, 4)] * 3))
def test_rows_that_meet_a_marked_row_lie_in_the_mark(port: int, start: int, at: int, away: tuple[int, ...]) -> None:
    """Whatever the bands: all columns that progress with a time, and the least of the times."""
    join = next(step.plan for step in MADE.steps if isinstance(step.plan, Join))
    marks = JoinMarks(join, Promising(join))
    times = [start + at + (0 if of == port else way) for of, way in enumerate(away)]
    assume(join.bands.together(times))
    own = join.inputs[port].attribute
    mark = marks.of_input(port, RowMark(LATE, {own: (start, start + 6)}))
    for name, ways in Promising(join).progress.items():
        low, high = mark.extents[name]
        for of, way in ways.items():
            assert low <= way.value(times[of]) < high
    assert mark.times[0] <= min(times)
    assert mark.joined


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(1, 6)), min_size=1, max_size=4))
def test_marks_that_meet_say_what_each_says(drawn: list[tuple[int, int]]) -> None:
    marks = [RowMark(LATE, {"a": (start, start + length), "b": (0, 1)}) for start, length in drawn]
    met = reduce(RowMark.__add__, marks)
    assert met.extents["a"] == (min(s for s, _ in drawn), max(s + n for s, n in drawn))
    more = met + RowMark(LATE, {"b": (0, 1)})
    assert more.extents == {"b": (0, 1)}, "a column that one of them does not name may have any value"


STEPS = {"ts / 7": ((Op.FLOOR_DIV, 7),), "ts + 3": ((Op.ADD, 3),), "ts * 2 / 3": ((Op.MUL, 2), (Op.FLOOR_DIV, 3))}


@given(st.integers(-50, 50), st.integers(1, 40), st.data(), st.sampled_from(sorted(STEPS)))
def test_values_of_what_progresses_lie_in_its_extent(start: int, length: int, data: st.DataObject, text: str) -> None:
    at = data.draw(st.integers(start, start + length - 1))
    way = ProgressOf("ts", STEPS[text])
    low, high = through((start, start + length), way)
    assert low <= way.value(at) < high
    pane = Pane(7, 3)
    first, last = in_panes((start, start + length), pane)
    assert first <= pane.index(at) < last
    begins, ends = of_panes((first, last), pane)
    assert begins <= at < ends
