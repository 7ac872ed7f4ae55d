from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from highlevel.progress.outputs import Output, Rejection, ResultRows
from highlevel.progress.records import Record
from highlevel.spark.checkpoint.checkpoint import Completed
from highlevel.spark.sink.suppression import Suppression, digest
from highlevel.state import MemoryByteStore, MemoryState, PiecewiseState
from lowmark.query.options import Late
from lowmark.query.plan.nodes import QueryPlan
from lowmark.wire.records.punctuations import Account
from lowmark.wire.records.record import BadReason
from lowmark.wire.records.verdicts import Amendment, Complete, Correction, LateRow, Reason, Verdict, WindowSpan
from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.values import NEVER, show
from tests.progress.harness import plain
from tests.progress.test_late_rows import Feed, planned, run
from tests.spark.plans import OUTPUT, SECOND, window

SLIDING = window(4, 2)
ROWS = np.zeros((1, OUTPUT.words), np.uint64)


def complete(first: int, to: int, over=SLIDING, query: str = "q") -> Complete:
    return Complete(
        query=query, generation=2, bucket=0, buckets=4, windows=WindowSpan(first, to), start=over.start(first),
        end=over.end(to), attribute="ts", rows=0, merged=0, promised=0, dropped=0, late=0, covered_from_ns=None,
        rosters=(), verdict=Verdict(),
    )  # fmt: skip


def amendment(first: int, to: int) -> Amendment:
    start, end = show(Kind.TIME, SLIDING.start(first)), show(Kind.TIME, SLIDING.end(to))
    return Amendment("q", 2, 0, WindowSpan(first, to), start, end, 1, 0, frozenset({Reason.LATE}))


def suppression(bound: int) -> Suppression:
    return Suppression({"q": SLIDING}, {"q": Completed(bound)}, {"free": 7}, MemoryState())


def test_completed_windows_are_left_out():
    suppress = suppression(SLIDING.end(5))
    assert [*suppress(ResultRows("q", 5, ROWS, OUTPUT), 1)] == []
    assert [*suppress(complete(4, 4), 1)] == []
    assert [*suppress(amendment(4, 5), 1)] == []
    assert [*suppress(complete(5, 5), 1)] == []
    for output in (
        ResultRows("q", 6, ROWS, OUTPUT),
        complete(6, 6),
        amendment(5, 6),
    ):
        assert [*suppress(output, 1)] == [output]


def test_what_is_late_for_completed_windows_is_left_out():
    suppress = suppression(SLIDING.end(5))

    def late(span: WindowSpan | None) -> LateRow:
        return LateRow("q", 2, 0, "a", span, None, None, 1, {"n": 1})

    def correction(first: int, to: int) -> Correction:
        bounds = show(Kind.TIME, SLIDING.start(first)), show(Kind.TIME, SLIDING.end(to))
        return Correction("q", 2, 0, WindowSpan(first, to), *bounds, 1, {}, ({"n": 1},))

    assert [*suppress(late(WindowSpan(3, 5)), 1)] == []
    assert [*suppress(correction(3, 5), 1)] == []
    assert [*suppress(correction(3, 9), 1)] == [correction(6, 9)]
    for output in (late(WindowSpan(5, 6)), late(None), correction(6, 6)):
        assert [*suppress(output, 1)] == [output]


def test_a_run_of_empty_windows_is_cut_so_that_completions_stay_contiguous():
    assert [*suppression(SLIDING.end(5))(complete(2, 9), 1)] == [complete(6, 9)]


@given(st.integers(-50, 50), st.integers(0, 30), st.integers(-100, 100), st.sampled_from([(1, 1), (4, 2), (3, 7)]))
def test_what_is_left_are_the_windows_that_end_later(first, more, bound_s, shape):
    over = window(*shape)
    bound = bound_s * SECOND
    suppress = Suppression({"q": over}, {"q": Completed(bound)}, {}, MemoryState())
    left = [*suppress(complete(first, first + more, over), 1)]
    wanted = [number for number in range(first, first + more + 1) if over.end(number) > bound]
    before = [number for number in range(-300, first) if over.end(number) > bound]
    if before:
        gap = left.pop(0)
        assert gap.windows == WindowSpan(before[0], first - 1)
        assert (gap.verdict.reasons, gap.rows, gap.merged, gap.end) == ({Reason.NOT_COVERED}, 0, 0, over.end(first - 1))
    assert left == ([complete(wanted[0], wanted[-1], over)] if wanted else [])


@pytest.mark.parametrize(
    "output",
    [ResultRows("r", 1, ROWS, OUTPUT), complete(1, 1, query="r"), Rejection(BadReason.VALUE, "", 3)],
    ids=lambda output: type(output).__name__,
)
def test_all_else_passes(output):
    assert [*suppression(1000 * SECOND)(output, 1)] == [output]


def test_what_has_no_windows_is_old_as_far_as_its_input_had_been_read():
    suppress = suppression(0)
    told = (
        ResultRows("free", None, ROWS, OUTPUT),
        replace(complete(1, 1, query="free"), windows=None),
        replace(amendment(5, 5), query="free", windows=None),
        LateRow("free", 2, 0, "a", None, None, None, 1, {"n": 1}),
    )
    for output in told:
        assert [*suppress(output, 6)] == []
        assert [*suppress(output, 7)] == []
        assert [*suppress(output, 8)] == [output]
    assert [suppress.ends_between(read, offset) for read, offset in ((5, 6), (6, 7), (7, 7), (7, 9), (8, 9))] == [
        False, True, True, True, False,
    ]  # fmt: skip


def plain_of(outputs: list[Output]) -> Counter[object]:
    """What is told, without late rows: those of the last moment are repeated."""
    return Counter(repr(plain(output)) for output in outputs if not isinstance(output, LateRow))


@st.composite
def scripts(draw: st.DrawFn) -> tuple[QueryPlan, list[Record]]:
    """Partials in time and late, promises that tell of late ones, of a query that corrects or counts."""
    plan = planned(*draw(st.sampled_from([(1, 1), (4, 2), (2, 3)])), draw(st.sampled_from((Late.COUNT, Late.CORRECT))))
    feed, records, front = Feed.of(plan), list[Record](), 20
    for _ in range(draw(st.integers(3, 14))):
        groups = [(draw(st.integers(1, 2)), draw(st.sampled_from((6, 17))), draw(st.integers(60, 62)))]
        what = draw(st.sampled_from(("batch", "batch", "promise", "promise", "late", "late")))
        if what == "batch":
            records.append(feed.groups(front + draw(st.integers(0, 3)), *groups))
        elif what == "promise":
            front += draw(st.integers(1, 3))
            records.append(feed.promise(front))
        elif front > 20:
            pane, tuples = draw(st.integers(18, front - 1)), groups[0][0]
            if plan.late is Late.CORRECT:
                records.append(feed.groups(pane, *groups, late=True))
            records.append(feed.promise(front, Account(pane, 0, 0, late=tuples)))
    return plan, [*records, feed.end()] if draw(st.booleans()) else records


@settings(max_examples=40, deadline=None)
@given(scripts(), st.data())
def test_former_and_new_generations_tell_everything_once(
    script: tuple[QueryPlan, list[Record]], data: st.DataObject
) -> None:
    """Whatever came late, and wherever the former ones ended; the new one may be stopped and go on, too."""
    plan, records = script
    whole = [output for outcome in run(plan, records) for output in outcome.outputs]
    told: list[Output] = []
    for end in (*sorted(data.draw(st.lists(st.integers(0, len(records)), max_size=2))), len(records)):
        completed, store = history(told), MemoryByteStore()
        cuts = data.draw(st.lists(st.integers(0, 99), max_size=3))
        for outcome in run(plan, records[:end], tuple(cuts)):
            state = PiecewiseState(store, "f00d")
            suppress = Suppression({"q": plan.window}, completed, {}, state)
            told += (left for output in outcome.outputs for left in suppress(output, 1))
            state.commit()
    assert plain_of(told) == plain_of(whole)


def history(told: list[Output]) -> dict[str, Completed]:
    """As it is read from the result topic."""
    ends = [(at, output.end) for at, output in enumerate(told) if isinstance(output, Complete)]
    last, bound = ends[-1] if ends else (-1, NEVER)
    since = (output for output in told[last + 1 :] if isinstance(output, Amendment | Correction))
    return {"q": Completed(bound, tuple(map(digest, since)))}


def test_what_came_late_only_now_is_told() -> None:
    """Of windows that the former generation had completed, and not what it had said of them since."""
    suppress = Suppression(
        {"q": SLIDING}, {"q": Completed(SLIDING.end(5), (digest(amendment(4, 5)),))}, {}, MemoryState()
    )
    assert [*suppress(amendment(2, 2), 1)] == []
    assert [*suppress(complete(5, 5), 1)] == []
    assert [*suppress(amendment(4, 5), 1)] == []
    for news in (amendment(4, 5), amendment(2, 2)):
        assert [*suppress(news, 1)] == [news]


def test_what_is_late_behind_an_exchange_is_told_though_its_window_had_been_completed() -> None:
    """When the window closes again, it is already known: the order of partials and of what comes back is chance."""
    suppress = Suppression({"q": SLIDING}, {"q": Completed(SLIDING.end(5))}, {}, MemoryState(), {"q": SLIDING.start(3)})
    lossy = replace(complete(3, 4), verdict=Verdict(frozenset({Reason.LATE})), late=1)
    assert [*suppress(complete(2, 2), 1)] == []
    assert [*suppress(lossy, 1)] == [amendment(3, 4)]
    assert [*suppress(amendment(2, 3), 1)] == [amendment(2, 3)], "before the last old completion has come again"
    left = [*suppress(replace(lossy, windows=WindowSpan(5, 6), start=SLIDING.start(5), end=SLIDING.end(6)), 1)]
    rest = replace(lossy, windows=WindowSpan(6, 6), start=SLIDING.start(6), end=SLIDING.end(6))
    assert left == [amendment(5, 5), rest]
    for first, told in ((2, []), (3, [{Reason.GAP}])):
        gap = replace(complete(first, first), verdict=Verdict(frozenset({Reason.GAP})))
        assert [output.reasons for output in suppress(gap, 1)] == told, "earlier records were not read"
