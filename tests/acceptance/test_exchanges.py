"""Rows that change buckets on the way: whatever comes in which order, twice or cut anywhere, the rows are those of the
naive evaluator, all buckets announce the same windows, and what is lossy for one is lossy for all."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lowmark.query.compile import compile_query
from tests.acceptance.bucketrun import run
from tests.acceptance.exchangequeries import EXCHANGED
from tests.acceptance.interleaved import check, packets_of
from tests.acceptance.traffic import Traffic, traffic
from tests.naive.evaluate import rows_of


@pytest.mark.parametrize("name", EXCHANGED)
@given(sent=traffic(), seed=st.integers(0, 2**32), buckets=st.sampled_from((2, 3, 5)))
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
def test_rows_are_those_of_one_bucket(name: str, sent: Traffic, seed: int, buckets: int) -> None:
    plan = compile_query(EXCHANGED[name], streams={"A": 2, "B": 1}, buckets=buckets)
    assert plan.stage.buckets == buckets
    assert name == "landmark" or plan.exchanges is not None
    ran = check(EXCHANGED[name], sent, seed, buckets)
    told = [(some[0].windows, some[-1].windows) for some in ran.completes if some]
    assert len({(first.first, last.to) for first, last in told if first and last}) <= 1


@given(text=st.sampled_from(tuple(EXCHANGED.values())), sent=traffic(), seed=st.integers(0, 2**32))
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_loss_in_one_bucket_leaves_no_wrong_exact_in_another(text: str, sent: Traffic, seed: int) -> None:
    """A batch for one bucket is lost: what is told as exact, by whichever bucket, is the truth."""
    streams = packets_of(sent)
    ran = run(text, streams, Random(seed), 3, lost=True)
    truth = Counter(tuple(sorted(row.items(), key=str)) for row in rows_of(text, streams))
    told = Counter(tuple(sorted(row.items(), key=str)) for row in ran.certain)
    assert not told - truth
