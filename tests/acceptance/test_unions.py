"""Unions as the answer: in any interleaving, in any number of buckets, the rows are those of the naive evaluator.
Windows that are counted alike are those of the answer, complete when they are in all members, as lossy as the worst.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from highlevel.interface import State, Words
from highlevel.progress.driver import BucketDriver
from highlevel.progress.outputs import Output, ResultRows
from highlevel.progress.records import Arrival, Record
from highlevel.rosters.roster import Roster
from highlevel.state import MemoryByteStore, MemoryState, PiecewiseState
from lowmark.query.compile import compile_query
from lowmark.wire.records.verdicts import Amendment, Complete, Reason
from tests.acceptance.bucketrun import Ran, run
from tests.acceptance.interleaved import check, packets_of
from tests.acceptance.traffic import Traffic, traffic
from tests.acceptance.unionqueries import APART, TOGETHER, unions
from tests.naive.evaluate import rows_of
from tests.progress.harness import Sender, dropped

SEEDS = st.integers(0, 2**32)
BUCKETS = st.sampled_from((1, 2, 5))
STREAMS = {"A": 2, "B": 1}
bounded = settings(deadline=None, suppress_health_check=list(HealthCheck))


def windows_told(ran: Ran) -> set[tuple[int, int]]:
    """The first and the last window that each bucket has completed. Windows before the first tuple of any bucket are
    left out: how many of them a bucket tells depends on which promises it hears in one micro-batch."""
    told = [[(done.windows, done.merged) for done in completes if done.windows] for completes in ran.completes]
    begins = min((windows.first for spans in told for windows, merged in spans if merged), default=None)
    ends = [(spans[0][0].first, spans[-1][0].to) for spans in told if spans]
    return {(first if begins is None else max(first, begins), to) for first, to in ends}


@pytest.mark.parametrize("name", [*TOGETHER, *APART])
@given(sent=traffic(), seed=SEEDS, buckets=BUCKETS)
@settings(bounded, max_examples=4)
def test_rows_and_completions(name: str, sent: Traffic, seed: int, buckets: int) -> None:
    text = (TOGETHER | APART)[name]
    plan = compile_query(text, streams=STREAMS, buckets=buckets)
    assert plan.stage.buckets == (1 if name == "rows" else buckets)
    ran = check(text, sent, seed, buckets)
    told = [complete.windows for completes in ran.completes for complete in completes]
    assert all((windows is None) == (name in APART) for windows in told)
    assert len(windows_told(ran)) <= 1
    assert ran.overtaken == 0


@given(text=unions(), sent=traffic(), seed=SEEDS, buckets=BUCKETS)
@settings(bounded, max_examples=30)
def test_random_unions(text: str, sent: Traffic, seed: int, buckets: int) -> None:
    ran = check(text, sent, seed, buckets)
    assert len(windows_told(ran)) <= 1
    assert ran.overtaken == 0


@given(text=st.one_of(unions(), st.sampled_from((*TOGETHER.values(), *APART.values()))), sent=traffic(), seed=SEEDS)
@example(
    text=APART["other windows"],
    sent=Traffic(seed=0, sizes=(("A", 90), ("B", 60)), disorder_s=0, nanoseconds=False),
    seed=0,
)
@settings(bounded, max_examples=30)
def test_a_loss_in_a_member_leaves_no_wrong_exact(text: str, sent: Traffic, seed: int) -> None:
    streams = packets_of(sent)
    ran = run(text, streams, Random(seed), 2, lost=True)
    truth = Counter(tuple(sorted(row.items(), key=str)) for row in rows_of(text, streams))
    told = Counter(tuple(sorted(row.items(), key=str)) for row in ran.certain)
    assert not told - truth


def test_one_member_that_counts_a_whole_stream_brings_all_into_one_bucket() -> None:
    plan = compile_query(APART["rows"], streams=STREAMS, buckets=4)
    (note,) = [note for note in plan.notes if note.startswith("one bucket")]
    assert "windows over rows without PA" in note


SECOND = 10**9
PLAN = compile_query(
    "CREATE STREAM p AS SELECT count(*) AS n [RANGE 10 s] FROM A; CREATE STREAM q AS SELECT sum(len) AS n [RANGE 10 s] "
    "FROM B; SELECT * FROM p UNION q", buckets=1,
)  # fmt: skip


def drive(records: list[Record], cut: bool) -> list[list[Output]]:
    """What comes of each record; `cut`: in a micro-batch of its own, with the state read from bytes."""
    store, roster = MemoryByteStore(), Roster.of({"A": ("a",), "B": ("b",)})
    state: State = MemoryState()
    bucket = BucketDriver(PLAN.stage, (PLAN,), 0, state, roster, 1)
    found = []
    for position, record in enumerate(records):
        if cut:
            state = PiecewiseState(store, PLAN.stage.fingerprint)
            bucket = BucketDriver(PLAN.stage, (PLAN,), 0, state, roster, 1)
        bucket.take(record, Arrival(position))
        found.append([*bucket.flush().outputs])
        if isinstance(state, PiecewiseState):
            state.commit()
    return found


def senders() -> tuple[Sender, Sender]:
    of = {node.streams: node for node in PLAN.stage.nodes}
    return tuple(
        Sender(name, stage=PLAN.stage.fingerprint, node=of[stream,].name, width=10 * SECOND)
        for name, stream in (("a", "A"), ("b", "B"))
    )  # type: ignore[return-value]


def partial(stream: str, tuples: int, *states: int) -> Words:
    """Of the third pane."""
    schema = next(node for node in PLAN.stage.nodes if node.streams == (stream,)).reduction.schema
    row = np.zeros((1, schema.words), np.uint64)
    for name, value in zip(schema.names, (3, tuples, *states), strict=True):
        row[0, schema.offset(name)] = value
    return row


@pytest.mark.parametrize("cut", [False, True])
def test_a_window_leaves_when_the_last_member_has_promised_it(cut: bool) -> None:
    a, b = senders()
    records = [a.words(partial("A", 5), {3: 5}), a.promise(4)]
    records += [b.words(partial("B", 2, 700), {3: 2}), b.promise(3), b.promise(4)]
    found = drive([*records, a.promise(6), a.end(), b.end()], cut)
    assert not any(found[:3])
    assert not found[3]  # the frontier's beginning: no window has ended in both since
    rows, complete = found[4]
    assert isinstance(rows, ResultRows)
    assert isinstance(complete, Complete)
    assert sorted(rows.rows[:, -1].tolist()) == [5, 700]
    assert complete.windows is not None
    assert (complete.windows.first, complete.rows, complete.merged, complete.promised) == (3, 2, 7, 7)
    assert complete.verdict.exact


def test_windows_that_wait_for_a_member_are_open() -> None:
    a, b = senders()
    bucket = BucketDriver(PLAN.stage, (PLAN,), 0, MemoryState(), Roster.of({"A": ("a",), "B": ("b",)}), 1)
    opened = []
    for position, record in enumerate([a.words(partial("A", 5), {3: 5}), a.promise(5), b.promise(3), b.promise(4)]):
        bucket.take(record, Arrival(position))
        bucket.flush()
        opened.append(dict(bucket.progress().open_windows)[PLAN.name])
    assert opened[1:] == [1, 1, 0]  # before the first promise it is a bound from above


@pytest.mark.parametrize("cut", [False, True])
def test_a_window_is_as_lossy_as_the_worst_of_its_members(cut: bool) -> None:
    """Also where it is learned while the window waits for another member; later it is an amendment."""
    a, b = senders()
    records = [a.promise(3), b.promise(3), a.promise(4, dropped(3, 2)), b.promise(4)]
    records += [a.promise(5), b.promise(5), a.end(), b.end()]
    told = [o for outputs in drive(records, cut) for o in outputs if isinstance(o, Complete)]
    lossy = [(c.windows.first, c.windows.to, c.verdict.reasons, c.dropped) for c in told if not c.verdict.exact]
    assert lossy == [(3, 3, {Reason.DROPPED}, 2)]
    assert all(c.verdict.exact for c in told if c.windows.first != 3)

    a, b = senders()
    records = [a.promise(3), b.promise(3), a.promise(5), a.batch({3: 1}), b.promise(4), b.promise(5)]
    found = [o for outputs in drive([*records, a.end(), b.end()], cut) for o in outputs]
    completes = [o for o in found if isinstance(o, Complete)]
    assert {c.windows.first: c.verdict.reasons for c in completes if not c.verdict.exact} == {3: {Reason.LATE}}

    a, b = senders()
    records = [a.promise(3), b.promise(3), a.promise(5), b.promise(5), a.batch({3: 1}), a.end(), b.end()]
    found = [o for outputs in drive(records, cut) for o in outputs]
    assert all(o.verdict.exact for o in found if isinstance(o, Complete))
    (amendment,) = [o for o in found if isinstance(o, Amendment)]
    assert (amendment.windows.first, amendment.windows.to, amendment.late) == (3, 3, 1)
