"""Packets that come late, through buckets and exchanges, in any interleaving: whatever is said to be exact is, after
all that was said of it."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings

from lowmark.query.compile import compile_query
from lowmark.query.windows.window import WindowKind
from tests.acceptance.bucketrun import run
from tests.acceptance.exchangequeries import EXCHANGED
from tests.acceptance.interleaved import packets_of
from tests.acceptance.test_interleavings import BUCKETS, SEEDS
from tests.acceptance.test_piped import COUNTED, WINDOWED, WINDOWLESS
from tests.acceptance.traffic import Traffic, traffic
from tests.naive.compare import differences
from tests.naive.evaluate import rows_of

QUERIES = WINDOWED | COUNTED | WINDOWLESS | {f"exchange: {name}": text for name, text in EXCHANGED.items()}


@pytest.mark.parametrize("text", QUERIES.values(), ids=QUERIES)
@given(sent=traffic(), seed=SEEDS, buckets=BUCKETS)
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
def test_what_is_said_to_be_exact_is(text: str, sent: Traffic, seed: int, buckets: int) -> None:
    streams = packets_of(sent)
    ran, expected = run(text, streams, Random(seed), buckets, tardy=True), rows_of(text, streams)
    if not ran.doubted:
        assert differences(ran.rows, expected) == []
    plan = compile_query(text, buckets=1)
    if plan.window is not None and plan.window.kind is not WindowKind.NONE:
        exact, wanted = (
            [row for row in rows if (row["window_start"], row["window_end"]) not in ran.lossy]
            for rows in (ran.rows, expected)
        )
        if text in COUNTED.values():  # rows behind the last ones told may be in windows that were not told
            shown = {(row["window_start"], row["window_end"]) for row in exact}
            wanted = [row for row in wanted if (row["window_start"], row["window_end"]) in shown]
        assert differences(exact, wanted) == []
