"""Partitions that are let go of when they are idle (`expire_idle`): the rows are those of the definition (a partition
begins anew with a tuple that is so much later than all before it), wherever promises stand, batches are cut, and state
is written and read; and nothing is told as exact that the query would not say without it."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lowmark.query.compile import compile_query
from lowmark.query.limits import Limits
from lowmark.wire.results import Reason
from tests.acceptance.bucketrun import run_plan
from tests.acceptance.command import query
from tests.acceptance.interleaved import packets_of
from tests.acceptance.traffic import Traffic, traffic
from tests.naive.compare import differences
from tests.naive.evaluate import ResultRow, answer, rows_of

ROWS = (
    "SELECT srcIP, destIP, count(*), sum(len), max(ts) AS t [RANGE {} rows, SLIDE {} rows, WA row_num, PA {}] FROM {}"
)
SLIDES = (
    "SELECT srcIP, destIP, count(*), sum(len) [RANGE {} s, RATTR {}, SLIDE {} rows, SATTR {}, PA srcIP, destIP] FROM {}"
)
PARTS = st.just("srcIP, destIP")
STREAMS = st.sampled_from(("A", "B", "A UNION B"))
SMALL = st.integers(1, 6)
TEXTS = st.one_of(
    st.builds(ROWS.format, SMALL, SMALL, PARTS, STREAMS),
    st.builds(ROWS.replace("RANGE {} rows", "RANGE ALL").format, SMALL, PARTS, STREAMS),
    st.builds(SLIDES.format, st.integers(1, 30), st.just("ts"), SMALL, st.just("row_num"), STREAMS),
    st.builds(SLIDES.format, st.integers(1, 30), st.just("ts"), SMALL, st.just("rank(ts)"), STREAMS),
    st.builds(SLIDES.format, st.just(9), st.just("ts - 2 seconds"), SMALL, st.just("row_num"), STREAMS),
)  # fmt: skip
SECONDS = st.sampled_from((1, 2, 5, 12))


def bag(rows: list[ResultRow]) -> Counter[tuple[tuple[str, object], ...]]:
    return Counter(tuple(sorted(row.items(), key=str)) for row in rows)


@given(text=TEXTS, sent=traffic(), idle_s=SECONDS, buckets=st.sampled_from((1, 1, 2, 5)), seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_rows_and_what_is_said_of_them(text: str, sent: Traffic, idle_s: int, buckets: int, seed: int) -> None:
    streams = packets_of(sent)
    counts = {name: len(sources) for name, sources in streams.items()}
    plan = compile_query(text, streams=counts, buckets=buckets, limits=Limits(expire_idle_ns=idle_s * 10**9))
    ran = run_plan(plan, streams, Random(seed))
    said = f"{text}\n{sent}\nidle {idle_s} s, seed {seed}, {buckets} buckets"
    wrong = differences(ran.rows, rows_of(text, streams, idle_s))
    assert not wrong, "\n".join((said, *wrong))
    assert ran.unfinished == 0
    assert not bag(ran.certain) - bag(rows_of(text, streams)), said
    for completes in ran.completes:
        lossy = [complete for complete in completes if not complete.verdict.exact]
        assert {reason for complete in lossy for reason in complete.verdict.reasons} <= {Reason.NUMBERING}
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
@given(sent=traffic(), idle_s=SECONDS, buckets=st.sampled_from((1, 3)), seed=st.integers(0, 2**32))
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_it_is_said_of_windows_above(text: str, sent: Traffic, idle_s: int, buckets: int, seed: int) -> None:
    streams = packets_of(sent)
    counts = {name: len(sources) for name, sources in streams.items()}
    plan = compile_query(text, streams=counts, buckets=buckets, limits=Limits(expire_idle_ns=idle_s * 10**9))
    ran = run_plan(plan, streams, Random(seed))
    assert not differences(ran.rows, rows_of(text, streams, idle_s))
    assert not bag(ran.certain) - bag(rows_of(text, streams))


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
