"""Partitions that are let go of when they are idle (`expire_idle`): the rows are those of the definition (a partition
begins anew with a tuple that is so much later than all before it), wherever promises stand, batches are cut, and state
is written and read; and nothing is told as exact that the query would not say without it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.acceptance.command import query
from tests.acceptance.idle import SECONDS, TEXTS, check_idle
from tests.acceptance.traffic import Traffic, traffic
from tests.naive.compare import differences
from tests.naive.evaluate import answer

SEEDS = st.integers(0, 2**32)


@given(text=TEXTS, sent=traffic(), idle_s=SECONDS, buckets=st.sampled_from((1, 1, 2, 5)), seed=SEEDS)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_rows_and_what_is_said_of_them(text: str, sent: Traffic, idle_s: int, buckets: int, seed: int) -> None:
    for completes in check_idle(text, sent, idle_s, buckets, seed).completes:
        lossy = [complete for complete in completes if not complete.verdict.exact]
        assert lossy == completes[len(completes) - len(lossy) :]  # from there on


STAGED = (
    "CREATE STREAM w AS SELECT srcIP, count(*) AS n [RANGE 5 s, RATTR ts, SLIDE 3 rows, SATTR row_num, PA srcIP] "
    "FROM A; SELECT {} AS v [RANGE 10 s, WA window_end] FROM w"
)
WINDOWED = (
    STAGED.format("srcIP, sum(n)") + " GROUP BY srcIP",
    STAGED.format("n, count(*)") + " GROUP BY n",  # through an exchange
)


@pytest.mark.parametrize("text", WINDOWED)
@given(sent=traffic(), idle_s=SECONDS, buckets=st.sampled_from((1, 3)), seed=SEEDS)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_it_is_said_of_windows_above(text: str, sent: Traffic, idle_s: int, buckets: int, seed: int) -> None:
    check_idle(text, sent, idle_s, buckets, seed)


def test_through_the_command() -> None:
    """Rows of the definition, and an exit code that says that windows are lossy."""
    sent = Traffic(seed=3, sizes=(("A", 120), ("A", 90)), disorder_s=20, nanoseconds=True)
    text = "SELECT srcIP, count(*), sum(len) [RANGE 3 rows, WA row_num, PA srcIP] FROM A"
    with tempfile.TemporaryDirectory() as folder:
        captures = sent.write(Path(folder))
        without, outcome = query(text, captures), query(text, captures, "--expire-idle", "2 s")
        assert (without.code, outcome.code) == (0, 4)
        assert not differences(outcome.rows, answer(text, captures, 2).rows)
        assert differences(outcome.rows, answer(text, captures).rows)
        assert "numbering" in outcome.error
