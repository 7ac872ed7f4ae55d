"""Joins that use promises about values, in whole queries: the rows are those of the definition, whatever is promised,
and by whom; what lying sources have promised makes windows lossy."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lowmark.query.compile import compile_query
from lowmark.query.parse.syntax import JoinKind
from lowmark.query.plan.joins import Punctuated
from lowmark.query.plan.nodes import Join, QueryPlan
from lowmark.wire.records.verdicts import Reason
from tests.acceptance.bucketrun import run_plan
from tests.acceptance.interleaved import packets_of
from tests.acceptance.queries import joins
from tests.acceptance.test_cases import CASES, FOLDERS, Case
from tests.acceptance.test_interleavings import BUCKETS, SEEDS
from tests.acceptance.traffic import Traffic, traffic
from tests.acceptance.valued import with_values
from tests.naive.compare import differences
from tests.naive.evaluate import rows_of
from tests.naive.packets import read_source

HINT = "/*+ algorithm(punctuated) */"
AB = "FROM A AS x [RANGE 9 s], B AS y [RANGE 14 s]"
QUERIES = (
    f"SELECT {HINT} x.ts, y.ts AS u, x.srcIP {AB} WHERE x.srcIP = y.destIP",
    f"SELECT {HINT} x.ts, y.ts AS u, x.len {AB} WHERE x.proto = y.proto AND x.srcIP = y.srcIP AND x.len <> y.ttl",
    f"SELECT {HINT} x.srcIP, count(*) AS n [RANGE 10 s, SLIDE 5 s, WA y.ts] {AB} WHERE x.srcIP = y.srcIP GROUP BY x.srcIP",  # noqa: E501
    f"SELECT {HINT} x.ts, y.len FROM A AS x, A UNION B AS y [RANGE TUMBLING 20 s] WHERE x.srcPort = y.destPort",
    f"SELECT {HINT} x.ts / 20 AS t, count(*) AS n {AB} WHERE x.len / 2.5 = y.len / 2.5 GROUP BY x.ts / 20",
    (f"CREATE STREAM j AS SELECT {HINT} x.ts AS t, x.srcIP AS s {AB} WHERE x.srcIP = y.destIP; "
    f"SELECT {HINT} j.t, j.s, b.len FROM j [RANGE 8 s, WA t], B AS b [RANGE 5 s] WHERE j.s = b.destIP"),
    (f"CREATE STREAM j AS SELECT {HINT} x.ts AS t, x.srcIP AS s, y.proto AS p {AB} WHERE x.srcIP = y.destIP; "
    "SELECT p, count(*) AS n [RANGE 20 s, SLIDE 10 s, WA t] FROM j GROUP BY p"),
)  # fmt: skip
COUNTS = [text for text in QUERIES if "count(*)" in text and "WA" in text]


def punctuated(plan: QueryPlan) -> list[Join]:
    return [step.plan for step in plan.steps if isinstance(step.plan, Join) and step.plan.punctuated is not None]


@pytest.mark.parametrize("text", QUERIES)
@given(sent=traffic(), seed=SEEDS, buckets=BUCKETS, silent=st.integers(0, 3))
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
def test_rows_are_those_of_the_definition(text: str, sent: Traffic, seed: int, buckets: int, silent: int) -> None:
    """`silent`: now and then nobody promises values."""
    streams, random = packets_of(sent), Random(seed)
    plan = compile_query(text, streams={name: len(each) for name, each in streams.items()}, buckets=buckets)
    assert punctuated(plan)
    ran = run_plan(plan, streams, random, more=lambda lane: with_values(plan, lane, random) if silent else lane)
    assert not differences(ran.rows, rows_of(text, streams)), f"{sent}, seed {seed}, {buckets} buckets"
    assert (ran.unfinished, ran.broken, ran.overtaken) == (0, 0, 0)
    assert not ran.doubted


@pytest.mark.parametrize("text", COUNTS)
@given(sent=traffic(), seed=SEEDS, buckets=BUCKETS)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_lie_leaves_no_wrong_exact(text: str, sent: Traffic, seed: int, buckets: int) -> None:
    streams, random = packets_of(sent), Random(seed)
    plan = compile_query(text, streams={name: len(each) for name, each in streams.items()}, buckets=buckets)
    ran = run_plan(plan, streams, random, more=lambda lane: with_values(plan, lane, random, lying=True))
    expected = rows_of(text, streams)
    wrong = Counter(map(shown, ran.certain)) - Counter(map(shown, expected))
    assert not wrong
    assert ran.doubted or not differences(ran.rows, expected)
    reasons = {reason for completes in ran.completes for complete in completes for reason in complete.verdict.reasons}
    assert reasons <= {Reason.PUNCTUATED, Reason.LATE}


def shown(row: dict[str, object]) -> tuple[tuple[str, object], ...]:
    return tuple(sorted(row.items(), key=str))


@given(text=joins(of=(2,)), sent=traffic(), seed=SEEDS, buckets=BUCKETS)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_random_joins(text: str, sent: Traffic, seed: int, buckets: int) -> None:
    streams, random = packets_of(sent), Random(seed)
    plan = forced(compile_query(text, streams={name: len(each) for name, each in streams.items()}, buckets=buckets))
    ran = run_plan(plan, streams, random, more=lambda lane: with_values(plan, lane, random))
    assert not differences(ran.rows, rows_of(text, streams)), f"{text}\n{sent}, seed {seed}, {buckets} buckets"
    assert (ran.unfinished, ran.broken) == (0, 0)


def test_public_cases_of_joins() -> None:
    if not FOLDERS:
        pytest.skip(f"the public cases are not at {CASES}")
    found = 0
    for case in map(Case, FOLDERS):
        if case.exit_code or not (case.folder / "query.sql").is_file():
            continue
        counts = Counter(stream for stream, _ in case.captures)
        plan = compile_query(case.query, streams=counts, buckets=2, ends=True)
        chosen = forced(plan)
        if chosen == plan:
            continue
        found += 1
        streams: dict[str, list] = {name: [] for name in counts}
        for name, path in case.captures:
            streams[name].append(read_source(name, len(streams[name]), path).packets)
        random = Random(found)
        ran = run_plan(chosen, streams, random, more=partial(with_values, chosen, random=random))
        assert not case.wrong(ran.rows), case.folder.name
    assert found > 2


def forced(plan: QueryPlan) -> QueryPlan:
    """The plan, in which all joins that can use promises about values do."""
    steps = (
        replace(step, plan=replace(step.plan, punctuated=Punctuated(asked=True)))
        if isinstance(step.plan, Join) and can_be(step.plan)
        else step
        for step in plan.steps
    )
    return replace(plan, steps=tuple(steps))


def can_be(join: Join) -> bool:
    two = join.kind is JoinKind.INNER and len(join.inputs) == 2
    return two and bool(join.equal) and join.in_order is None and not join.windowless
