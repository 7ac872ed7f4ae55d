"""A new generation that reads partials from what its windows need on tells what one does that reads all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from highlevel.progress.driver import BucketDriver
from highlevel.progress.outputs import Output
from highlevel.progress.records import Arrival, Batch, Record
from highlevel.rosters.roster import Member, Roster
from highlevel.spark.checkpoint.checkpoint import Completed
from highlevel.spark.checkpoint.resumption import READ_AHEAD_NS, lookbacks, needed_from
from highlevel.spark.sink.suppression import Suppression
from highlevel.state import MemoryByteStore, MemoryState, PiecewiseState
from lowmark.query.compile import compile_query
from lowmark.query.plan.nodes import Node, Pane, QueryPlan, Stage
from lowmark.query.windows.window import Axis, Window, WindowKind
from lowmark.wire.records.punctuations import Account, Punctuation
from lowmark.wire.records.registration import SourceKind
from lowmark.wire.records.verdicts import Amendment, Complete
from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.values import FOREVER, NEVER
from tests.acceptance.bucketrun import Streams, records_of
from tests.acceptance.interleaved import packets_of
from tests.acceptance.queries import groupings, joins, nested_joins, outer_joins, stages
from tests.acceptance.traffic import Traffic
from tests.progress.harness import FINGERPRINT, REDUCTION, CountingOperator, Sender, dropped, plain
from tests.progress.harness import plan as counting
from tests.spark.plans import SECOND
from tests.spark.test_replay import ROSTER, completed, lines

QUERIES = st.one_of(
    st.sampled_from(
        (
            "SELECT srcIP, count(*) [RANGE 4 s, SLIDE 2 s] FROM B GROUP BY srcIP",
            "SELECT proto, sum(len) [RANGE 5 s] FROM A UNION B GROUP BY proto",
            "SELECT proto, count(*) [RANGE 2 s, SLIDE 5 s] FROM B GROUP BY proto HAVING count(*) > 1",
            ("CREATE STREAM s AS SELECT srcIP, count(*) AS n [RANGE 3 s, SLIDE 1 s] FROM A GROUP BY srcIP; "
            "SELECT max(n) AS n [RANGE 4 s, SLIDE 2 s, WA window_end] FROM s"),
            ("SELECT x.proto AS proto, count(*) [RANGE 4 s, WA x.ts] FROM A AS x [RANGE 2 s], B AS y [RANGE 1 s] "
            "WHERE x.srcIP = y.srcIP GROUP BY x.proto"),
        )
    ),
    groupings(), stages(), joins(), outer_joins(), nested_joins(),
)  # fmt: skip
TRAFFIC = st.builds(
    Traffic, st.integers(0, 2**32), st.sampled_from((200, 600)).map(lambda n: (("A", n), ("B", n), ("B", n // 2))),
    st.integers(0, 2), st.just(True),
)  # fmt: skip


def in_time(plan: QueryPlan, streams: Streams, random: Random) -> list[Record]:
    """Of the plan's one bucket, in the order of their offsets: no lane runs far ahead of another."""
    lanes = [
        records_of(plan, node, stream, rank, packets, random, tardy=random.random() < 0.5)[0]
        for stream, sources in streams.items()
        for rank, packets in enumerate(sources)
        for node in plan.stage.nodes
        if stream in node.streams
    ]
    panes = {node.name: node.reduction.pane for node in plan.stage.nodes}
    ranked = []
    for lane in lanes:
        reached = float(NEVER)
        for record in lane:
            pane = panes[record.origin.node]
            if isinstance(record, Batch):
                reached = max(reached, pane.start(max(record.tuples, default=pane.index(0))))
            ranked.append((reached := reached + random.random() * SECOND, record))
    return [record for _, record in sorted(ranked, key=lambda each: each[0])]


def roster_of(streams: Streams) -> Roster:
    return Roster.of({stream: tuple(f"{stream}-{at}" for at in range(len(of))) for stream, of in streams.items()})


def first_needed(plan: QueryPlan, records: Sequence[Record], needed_ns: int) -> int:
    """The last position from which the records have all rows of this time and later, and of each lane a promise up to
    this time at most."""
    panes = {node.name: node.reduction.pane for node in plan.stage.nodes}
    prepared: dict[tuple[str, str], int] = {}
    start = len(records)
    for at, record in enumerate(records):
        pane, origin = panes[record.origin.node], record.origin
        granule = pane.index(needed_ns)
        if isinstance(record, Batch):
            if max(record.tuples, default=NEVER) >= granule:
                start = min(start, at)
        elif isinstance(record, Punctuation):
            below = record.promise.below("ts")
            if not record.promise.last and below is not None and below <= needed_ns:
                prepared[origin.source, origin.node] = at
            else:
                prepared.setdefault((origin.source, origin.node), 0)
    return min([start, *prepared.values()])


def generation(
    plan: QueryPlan, roster: Roster, records: Sequence[Record], random: Random, former: Sequence[Output]
) -> tuple[list[Output], int]:
    """What a generation tells, how many records it left out at the beginning, and how many it missed."""
    windows = {(name, 0): of for name, of in completed(plan, former).items()}
    needed = needed_from(lookbacks([plan], ROSTER, {}), windows, {}).get(plan.stage.fingerprint)
    begin = 0 if needed is None else first_needed(plan, records, needed)
    store, told, missed = MemoryByteStore(), list[Output](), 0
    cuts = sorted(random.choices(range(begin, len(records) + 1), k=random.randrange(5)))
    for start, stop in pairwise([begin, *cuts, len(records)]):
        state = PiecewiseState(store, plan.stage.fingerprint)
        suppress = Suppression({"q": plan.window}, {name: of for (name, _), of in windows.items()}, {}, state)
        driver = BucketDriver(
            plan.stage, (plan,), 0, state, roster, 1, needed_ns=NEVER if needed is None else FOREVER
        )  # fmt: skip
        for offset in range(start, stop):
            driver.take(records[offset], Arrival(offset, SourceKind.FINITE, 0))
        outcome = driver.flush()
        missed += outcome.counts.gaps
        told += (left for output in outcome.outputs for left in suppress(output, stop))
        state.commit()
    assert missed == 0
    return told, begin


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(text=QUERIES, sent=TRAFFIC, seed=st.integers(0, 2**32))
def test_generations_tell_together_what_one_tells_though_each_reads_only_what_it_needs(
    text: str, sent: Traffic, seed: int
) -> None:
    random, streams = Random(seed), packets_of(sent)
    plan = compile_query(text, name="q", streams={name: len(of) for name, of in streams.items()}, buckets=1)
    if not any(lookbacks([plan], ROSTER, {}).values()):
        return
    records, roster = in_time(plan, streams, random), roster_of(streams)
    whole, _ = generation(plan, roster, records, random, [])
    told, least = list[Output](), 0
    for end in (*sorted(random.randint(0, len(records)) for _ in range(random.randrange(1, 4))), len(records)):
        more, left_out = generation(plan, roster, records[:end], random, told)
        told, least = told + more, max(least, left_out)
    event("records are left out" if least else "all records are read")
    assert lines(told) == lines(whole), text


WIDTH_NS = 10 * SECOND
MINUTE = 60 * SECOND
COUNTS = "SELECT srcIP, count(*) [RANGE 20 s, SLIDE 10 s] FROM Main GROUP BY srcIP"


def test_only_windows_over_time_of_live_sources_begin_in_the_middle() -> None:
    roster = {"Main": ("a", "b")}

    def begins(*texts: str, **kinds: SourceKind) -> bool:
        plans = [compile_query(text, name=f"q{at}", streams={"Main": 2}, buckets=1) for at, text in enumerate(texts)]
        plans = [replace(plan, stage=replace(plan.stage, fingerprint=FINGERPRINT)) for plan in plans]
        return any(lookbacks(plans, roster, kinds).values())

    assert begins(COUNTS)
    assert not begins(COUNTS, a=SourceKind.FINITE)
    for text in (
        "SELECT ts, len FROM Main",
        "SELECT count(*) [RANGE 10 rows, WA row_num] FROM Main",
        "SELECT count(*) [RANGE ALL, SLIDE 5 s] FROM Main",
        "SELECT ts / 60 AS t, count(*) FROM Main GROUP BY ts / 60",
        "SELECT count(*) [RANGE 90, SLIDE 30, WA ts / 60 * 60] FROM Main",
        (
            "CREATE STREAM s AS SELECT srcIP, count(*) AS n [RANGE 2 s] FROM Main GROUP BY srcIP; "
            "SELECT count(*) [RANGE ALL, SLIDE 20 s, WA window_end] FROM s"
        ),
    ):
        assert not begins(text), text
        assert not begins(COUNTS, text), "who reads the stage needs all of it"


def test_it_begins_where_the_slowest_bucket_of_the_slowest_query_stands() -> None:
    plan = compile_query(COUNTS, name="q", streams={"Main": 1}, buckets=2)
    found = lookbacks([plan], {"Main": ("a",)}, {})
    (stage,) = found
    at = 1_000_000 * SECOND

    def needed(*bounds: int, left: int | None = None) -> int | None:
        completed = {("q", bucket): Completed(bound) for bucket, bound in enumerate(bounds)}
        return needed_from(found, completed, {} if left is None else {(stage, 1): left}).get(stage)

    first = needed(at, at)
    assert first is not None
    assert at - 10 * SECOND - 50 * SECOND <= first <= at - 10 * SECOND, "the window that begins 10 s before the bound"
    assert needed(at + MINUTE, at) == first
    assert needed(at + MINUTE, at + MINUTE) == first + MINUTE
    assert needed(at) is None
    assert needed(at, NEVER) is None
    assert needed(at, at, left=at - 60 * MINUTE) == first
    assert needed(at, at, left=at + 60 * MINUTE) == needed(left=at + 60 * MINUTE) == at + 61 * MINUTE, "what is left"


def live(sources: Sequence[Sender], first: int, last: int) -> list[tuple[Record, int]]:
    """Each minute, each source promises the minute and sends a tuple of the next one: records with times of append."""
    return [
        (record, (minute + 1) * MINUTE)
        for minute in range(first, last)
        for source in sources
        for record in (source.batch({6 * minute + 7: 1}), source.promise(6 * minute + 6))
    ]


def driven(items: Sequence[tuple[Record, int]], roster: Roster, needed_ns: int = NEVER) -> list[Output]:
    """The windows of a minute that a bucket tells."""
    over = Window(WindowKind.SLIDING, 6, 6, Axis("ts", Kind.TIME, WIDTH_NS))
    node = Node("main", ("Main",), replace(REDUCTION, pane=Pane(WIDTH_NS)), ())
    stage = Stage(FINGERPRINT, (node,), 4)
    plan = replace(counting(over), stage=stage)
    bucket = BucketDriver(stage, (plan,), 1, MemoryState(), roster, 2, CountingOperator, needed_ns=needed_ns)
    for at, (record, appended_ns) in enumerate(items):
        bucket.take(record, Arrival(at, SourceKind.LIVE, appended_ns))
    outcome = bucket.flush()
    assert outcome.counts.gaps == 0
    return list(outcome.outputs)


def told_from(outputs: Sequence[Output], minute: int) -> Counter[str]:
    return Counter(
        repr(plain(output)) for output in outputs if isinstance(output, Complete) and output.end > minute * MINUTE
    )


def test_nobody_waits_for_a_source_that_had_left_or_was_excluded_before() -> None:
    sources = [Sender(name, kind=SourceKind.LIVE, start_ns=0, width=WIDTH_NS) for name in "abc"]
    items = live(sources, 1, 10) + live(sources[:1], 10, 40)
    roster = Roster.listing(
        {"Main": (Member("a"), Member("b", left=10 * MINUTE), Member("c", excluded=((10 * MINUTE, FOREVER),)))},
        {"Main": 1},
    )  # fmt: skip
    whole = driven(items, roster)
    assert told_from(whole, 30)
    needed = 25 * MINUTE
    later = [item for item in items if item[1] >= needed - READ_AHEAD_NS]
    assert len(later) < len(items) * 2 / 3
    assert told_from(driven(later, roster.since(needed), needed), 25) == told_from(whole, 25)
    assert driven(later, roster, needed) == [], "who never speaks again would be awaited"


def test_what_a_source_had_lost_before_is_no_loss_of_later_windows() -> None:
    source = Sender("a", kind=SourceKind.LIVE, start_ns=0, width=WIDTH_NS)
    early = live([source], 1, 5)
    early.append((source.promise(31, Account(20, 0, 0, late=3), dropped(25, 2)), 6 * MINUTE))
    items = early + live([source], 6, 40)
    roster = Roster.of({"Main": ("a",)})
    needed = 25 * MINUTE
    later = [item for item in items if item[1] >= needed - READ_AHEAD_NS]
    found = driven(later, roster, needed)
    assert told_from(found, 25) == told_from(driven(items, roster), 25)
    assert all(one.verdict.exact for one in found if isinstance(one, Complete) and one.end > 25 * MINUTE)
    assert not [one for one in found if isinstance(one, Amendment)]


def test_a_record_that_is_lost_later_is_a_gap() -> None:
    source = Sender("a", kind=SourceKind.LIVE, start_ns=0, width=WIDTH_NS)
    items = live([source], 1, 40)
    del items[-10:-7]
    later = [item for item in items if item[1] >= 25 * MINUTE - READ_AHEAD_NS]
    with pytest.raises(AssertionError, match="gaps"):
        driven(later, Roster.of({"Main": ("a",)}), 25 * MINUTE)
