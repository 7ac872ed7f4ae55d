from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from highlevel.progress.outputs import Rejection, ResultRows
from highlevel.spark.suppression import Suppression
from lowmark.wire.record import BadReason
from lowmark.wire.results import Amendment, Complete, Correction, LateRow, Reason, Verdict, WindowSpan
from lowmark.wire.schema import Kind
from lowmark.wire.values import show
from tests.spark.plans import OUTPUT, SECOND, window

SLIDING = window(4, 2)
ROWS = np.zeros((1, OUTPUT.words), np.uint64)


def complete(first: int, to: int, over=SLIDING, query: str = "q") -> Complete:
    return Complete(
        query=query, generation=2, bucket=0, buckets=4, windows=WindowSpan(first, to), start=over.start(first),
        end=over.end(to), attribute="ts", rows=0, merged=0, promised=0, dropped=0, late=0, covered_from_ns=None,
        covered_by=(), verdict=Verdict(),
    )  # fmt: skip


def amendment(first: int, to: int) -> Amendment:
    start, end = show(Kind.TIME, SLIDING.start(first)), show(Kind.TIME, SLIDING.end(to))
    return Amendment("q", 2, 0, WindowSpan(first, to), start, end, 1, 0, frozenset({Reason.LATE}))


def suppression(bound: int) -> Suppression:
    return Suppression({"q": SLIDING, "free": None}, {"q": bound, "free": bound})


def test_completed_windows_are_left_out():
    suppress = suppression(SLIDING.end(5))
    assert suppress(ResultRows("q", 5, ROWS, OUTPUT)) is None
    assert suppress(complete(5, 5)) is None
    assert suppress(amendment(4, 5)) is None
    for output in (
        ResultRows("q", 6, ROWS, OUTPUT),
        complete(6, 6),
        amendment(5, 6),
    ):
        assert suppress(output) is output


def test_what_is_late_for_completed_windows_is_left_out():
    suppress = suppression(SLIDING.end(5))

    def late(span: WindowSpan | None) -> LateRow:
        return LateRow("q", 2, 0, "a", span, None, None, 1, {"n": 1})

    def correction(first: int, to: int) -> Correction:
        bounds = show(Kind.TIME, SLIDING.start(first)), show(Kind.TIME, SLIDING.end(to))
        return Correction("q", 2, 0, WindowSpan(first, to), *bounds, 1, {}, ({"n": 1},))

    assert suppress(late(WindowSpan(3, 5))) is None
    assert suppress(correction(3, 5)) is None
    assert suppress(correction(3, 9)) == correction(6, 9)
    for output in (late(WindowSpan(5, 6)), late(None), correction(6, 6)):
        assert suppress(output) == output


def test_a_run_of_empty_windows_is_cut_so_that_completions_stay_contiguous():
    assert suppression(SLIDING.end(5))(complete(2, 9)) == complete(6, 9)


@given(st.integers(-50, 50), st.integers(0, 30), st.integers(-100, 100), st.sampled_from([(1, 1), (4, 2), (3, 7)]))
def test_what_is_left_are_the_windows_that_end_later(first, more, bound_s, shape):
    over = window(*shape)
    bound = bound_s * SECOND
    left = Suppression({"q": over}, {"q": bound})(complete(first, first + more, over))
    wanted = [number for number in range(first, first + more + 1) if over.end(number) > bound]
    assert left == (complete(wanted[0], wanted[-1], over) if wanted else None)


@pytest.mark.parametrize(
    "output",
    [ResultRows("r", 1, ROWS, OUTPUT), complete(1, 1, query="r"), Rejection(BadReason.VALUE, "", 3)],
    ids=lambda output: type(output).__name__,
)
def test_all_else_passes(output):
    assert suppression(1000 * SECOND)(output) is output


def test_rows_without_a_window_pass():
    rows = ResultRows("free", None, ROWS, OUTPUT)
    assert suppression(1000 * SECOND)(rows) is rows
