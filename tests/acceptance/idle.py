"""Queries whose partitions are let go of when idle, in any interleaving and any cut, against the definition."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import strategies as st

from lowmark.query.compile import compile_query
from lowmark.query.options import Limits
from lowmark.wire.records.verdicts import Reason
from tests.acceptance.bucketrun import Ran, run_plan
from tests.acceptance.interleaved import packets_of
from tests.acceptance.traffic import Traffic
from tests.naive.compare import differences
from tests.naive.evaluate import ResultRow, rows_of

__all__ = ["SECONDS", "TEXTS", "check_idle"]

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


def check_idle(text: str, sent: Traffic, idle_s: int, buckets: int, seed: int) -> Ran:
    """The rows are those of the definition, and nothing is told as exact that the query would not say without it."""
    streams = packets_of(sent)
    counts = {name: len(sources) for name, sources in streams.items()}
    plan = compile_query(text, streams=counts, buckets=buckets, limits=Limits(expire_idle_ns=idle_s * 10**9))
    ran = run_plan(plan, streams, Random(seed))
    said = f"{text}\n{sent}\nidle {idle_s} s, seed {seed}, {buckets} buckets"
    wrong = differences(ran.rows, rows_of(text, streams, idle_s))
    assert not wrong, "\n".join((said, *wrong))
    assert ran.unfinished == 0, said
    assert not _bag(ran.certain) - _bag(rows_of(text, streams)), said
    for completes in ran.completes:
        assert {reason for complete in completes for reason in complete.verdict.reasons} <= {Reason.NUMBERING}, said
    return ran


def _bag(rows: list[ResultRow]) -> Counter[tuple[tuple[str, object], ...]]:
    return Counter(tuple(sorted(row.items(), key=str)) for row in rows)
