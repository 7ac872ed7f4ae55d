"""Generations of a job that follow one another: what they tell together is what one would have told."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from highlevel.progress.driver import BucketDriver
from highlevel.progress.outputs import Output, ResultRows
from highlevel.progress.records import Arrival, Record
from highlevel.rosters.roster import Roster
from highlevel.spark.checkpoint.checkpoint import Completed, plan_digests
from highlevel.spark.checkpoint.replay import replays
from highlevel.spark.sink.suppression import Suppression, digest
from highlevel.state import MemoryByteStore, PiecewiseState
from lowmark.query.compile import compile_query
from lowmark.query.plan.nodes import QueryPlan
from lowmark.wire.records.registration import SourceKind
from lowmark.wire.records.verdicts import Amendment, Complete
from lowmark.wire.rows.text import json_writer
from lowmark.wire.rows.values import NEVER
from tests.acceptance import countingqueries
from tests.acceptance.bucketrun import Streams, records_of
from tests.acceptance.interleaved import packets_of
from tests.acceptance.queries import distincts, groupings, joins, nested_joins, outer_joins, selections, stages
from tests.acceptance.traffic import Traffic, traffic
from tests.progress.harness import plain

QUERIES = st.one_of(
    countingqueries.queries, selections(), groupings(), stages(), distincts(), joins(), outer_joins(), nested_joins()
)
ROSTER = {"A": ("a",), "B": ("b", "c")}


def interleaved(plan: QueryPlan, streams: Streams, random: Random) -> list[Record]:
    """Of the plan's one bucket, in the order of their offsets."""
    lanes = [
        iter(records_of(plan, node, stream, rank, packets, random, tardy=random.random() < 0.5)[0])
        for stream, sources in streams.items()
        for rank, packets in enumerate(sources)
        for node in plan.stage.nodes
        if stream in node.streams
    ]
    records: list[Record] = []
    while lanes:
        lane = random.choice(lanes)
        record = next(lane, None)
        if record is None:
            lanes.remove(lane)
        else:
            records.append(record)
    return records


def generation(
    plan: QueryPlan, streams: Streams, records: Sequence[Record], random: Random, former: Sequence[Output], upto: int
) -> list[Output]:
    """What a job tells that takes these records in micro-batches, when all before `upto` had been read for what former
    ones have told."""
    roster = Roster.of({stream: tuple(f"{stream}-{at}" for at in range(len(of))) for stream, of in streams.items()})
    by_input = plan.name in replays([plan], plan_digests([plan]), ROSTER, {})
    store, told = MemoryByteStore(), list[Output]()
    cuts = sorted(random.choices(range(len(records) + 1), k=random.randrange(5)))
    for start, stop in pairwise([0, *cuts, len(records)]):
        state = PiecewiseState(store, plan.stage.fingerprint)
        windows = {} if by_input else completed(plan, former)
        suppress = Suppression({"q": plan.window}, windows, {"q": upto} if by_input else {}, state)
        driver = BucketDriver(plan.stage, (plan,), 0, state, roster, 1)
        for offset in range(start, stop):
            if offset > start and suppress.ends_between(offset, offset):
                told += (left for output in driver.flush().outputs for left in suppress(output, offset))
            driver.take(records[offset], Arrival(offset))
        told += (left for output in driver.flush().outputs for left in suppress(output, stop))
        state.commit()
    return told


def completed(plan: QueryPlan, former: Sequence[Output]) -> dict[str, Completed]:
    """As it is read from the result topic."""
    ends = [(at, output.end) for at, output in enumerate(former) if isinstance(output, Complete)]
    last, bound = ends[-1] if ends else (-1, NEVER)
    return {"q": Completed(bound, tuple(digest(of) for of in former[last + 1 :] if isinstance(of, Amendment)))}


def lines(outputs: Sequence[Output]) -> Counter[str]:
    rows = (json_writer(output.schema).write(output.rows) for output in outputs if isinstance(output, ResultRows))
    others = (repr(plain(output)) for output in outputs if not isinstance(output, ResultRows))
    return Counter([*(str(line) for part in rows for line in part), *others])


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(text=QUERIES, sent=traffic(), seed=st.integers(0, 2**32))
def test_generations_tell_together_what_one_tells(text: str, sent: Traffic, seed: int) -> None:
    """Each is stopped anywhere, also while it only comes to where the one before had been. A completion counts the rows
    between it and the one that stands before it."""
    random, streams = Random(seed), packets_of(sent)
    plan = compile_query(text, name="q", streams={name: len(of) for name, of in streams.items()}, buckets=1)
    records = interleaved(plan, streams, random)
    whole = generation(plan, streams, records, random, [], 0)
    told, upto = list[Output](), 0
    for end in (*(random.randint(0, len(records)) for _ in range(random.randrange(1, 4))), len(records)):
        told += generation(plan, streams, records[:end], random, told, upto)
        upto = max(upto, end)
    assert lines(told) == lines(whole)
    rows = 0
    for output in told:
        if isinstance(output, ResultRows):
            rows += len(output.rows)
        elif isinstance(output, Complete):
            assert output.rows == rows, text
            rows = 0


BY_TIMES = (
    "SELECT srcIP, count(*) [RANGE 10 s, SLIDE 5 s] FROM B GROUP BY srcIP",
    "SELECT srcIP, count(*) [RANGE ALL, SLIDE 5 s, PA proto] FROM B GROUP BY srcIP",
)
BY_INPUT = (
    "SELECT ts, srcIP FROM B WHERE len > 99",
    "SELECT ts / 60 AS t, count(*) FROM B GROUP BY ts / 60",
    "SELECT DISTINCT ts / 10 AS t FROM B",
    "SELECT count(*) [RANGE 10 rows, WA row_num] FROM B",
    "SELECT count(*) [RANGE 10 rows, WA row_num, PA srcIP] FROM B",
    "SELECT count(*) [RANGE 10 s, RATTR ts, SLIDE 5 rows, SATTR row_num] FROM B",
    "SELECT x.ts, y.srcIP FROM B AS x [RANGE 4 s], B AS y [RANGE 2 s] WHERE x.srcIP = y.srcIP",
)
EXCHANGED = (
    "CREATE STREAM s AS SELECT srcIP, sum(len) AS b [RANGE 5 s] FROM B GROUP BY srcIP; "
    "SELECT window_end / 60 AS t, b / 500 AS c, count(*) FROM s GROUP BY window_end / 60, b / 500"
)


def law(text: str, buckets: int = 4, roster: dict[str, tuple[str, ...]] = ROSTER, **kinds: SourceKind) -> str | None:
    plan = compile_query(text, name="q", streams={name: len(of) for name, of in roster.items()}, buckets=buckets)
    return replays([plan], plan_digests([plan]), roster, kinds)["q"].law


@pytest.mark.parametrize("text", BY_INPUT)
def test_what_has_no_times_is_known_by_its_input(text: str) -> None:
    """As long as plan, sources and their kinds are the same; the order of sources, and streams that it does not read,
    make no difference."""
    same = law(text)
    assert same == law(text, roster={"B": ("c", "b"), "A": ("z",)})
    assert same is not None
    others = (
        law(re.sub(r"\bB\b", "A", text)),
        law(text, roster=ROSTER | {"B": ("b", "d")}),
        law(text, roster=ROSTER | {"B": ("b", "c", "d")}),
        law(text, b=SourceKind.FINITE),
    )
    assert len({same, *others}) == 5


@pytest.mark.parametrize("text", BY_TIMES)
def test_windows_over_time_are_known_by_their_times(text: str) -> None:
    plan = compile_query(text, name="q", streams={"B": 2}, buckets=4)
    assert replays([plan], plan_digests([plan]), ROSTER, {}) == {}


def test_what_goes_through_an_exchange_is_known_by_nothing() -> None:
    assert law(EXCHANGED) is None
    assert law(EXCHANGED, buckets=1) is not None
