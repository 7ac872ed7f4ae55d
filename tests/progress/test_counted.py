"""Queries that count tuples: their last rows come with the end alone, and are completed all the same. Completions tell
how many windows of partitions are open, whether there are rows to be completed or not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from highlevel.interface import State
from highlevel.progress.driver import BucketDriver
from highlevel.progress.outputs import Outcome, ResultRows
from highlevel.progress.records import Batch, Record
from highlevel.rosters.roster import Roster
from highlevel.state import MemoryByteStore, MemoryState, PiecewiseState
from lowmark.query.compile import compile_query
from lowmark.query.plan.nodes import QueryPlan
from lowmark.query.windows.window import Axis, Window, WindowKind
from lowmark.wire.records.verdicts import Complete, OpenCount
from lowmark.wire.rows.schema import Kind
from tests.operators.test_open_windows import naive
from tests.progress.harness import Item, Sender, completes, finite

SECOND = 10**9

PARTED = "SELECT proto, count(*) AS n [RANGE 4 rows, SLIDE 3 rows, WA row_num, PA proto] FROM A"
WINDOW = Window(WindowKind.SLIDING, 4, 3, Axis("row_num", Kind.INT, 1, 1))


def sender_of(plan: QueryPlan, source: str) -> Sender:
    return Sender(source, stage=plan.stage.fingerprint, node=plan.stage.nodes[0].name, width=SECOND)


def batch(plan: QueryPlan, sender: Sender, tuples: Sequence[tuple[int, int]]) -> Batch:
    """Of these seconds and protocols."""
    schema = plan.stage.nodes[0].reduction.schema
    rows = np.zeros((len(tuples), schema.words), np.uint64)
    for row, (second, proto) in zip(rows, tuples, strict=True):
        row[schema.offset("pane")], row[schema.offset("tuples")], row[schema.offset("proto")] = second, 1, proto
    return sender.words(rows, Counter(second for second, _ in tuples))


@pytest.mark.parametrize("promised", [101, 120, 500])
def test_rows_of_the_end_have_a_completion(promised: int) -> None:
    """However far the source had promised before: behind that no tuple came."""
    plan = compile_query(PARTED, name="q", buckets=1)
    sender = sender_of(plan, "a")
    records = [batch(plan, sender, [(100, 0)] * 4), sender.promise(promised), sender.end()]
    bucket = BucketDriver(plan.stage, (plan,), 0, MemoryState(), Roster.of({"A": ("a",)}), 1)
    told = []
    for record, arrival in finite(records):
        bucket.take(record, arrival)
        for output in bucket.flush().outputs:
            match output:
                case ResultRows(rows=found):
                    told.append(len(found))
                case Complete(end=bound, rows=count, windows=None):
                    told.append((bound // SECOND, count))
    assert told == [1, (promised, 1), 1, (promised + 1, 1)]


def outcomes(plan: QueryPlan, items: Sequence[Item], cuts: Sequence[int]) -> tuple[list[Outcome], BucketDriver]:
    """Micro-batches end before these positions; each has a driver made from the bytes of the state before it."""
    store, found = MemoryByteStore(), []
    for start, stop in pairwise([0, *sorted(cuts), len(items)]):
        state = PiecewiseState(store, plan.stage.fingerprint)
        bucket = bucket_of(plan, state)
        for record, arrival in items[start:stop]:
            bucket.take(record, arrival)
        found.append(bucket.flush())
        state.commit()
    return found, bucket


def bucket_of(plan: QueryPlan, state: State) -> BucketDriver:
    return BucketDriver(plan.stage, (plan,), 0, state, Roster.of({"A": ("a", "b")}), 1)


@given(st.sampled_from([PARTED, f"{PARTED} GROUP BY proto HAVING n > 9"]), st.booleans(), st.data())
@settings(deadline=None, max_examples=60)
def test_completions_tell_how_many_windows_of_partitions_are_open(sql: str, ended: bool, data: st.DataObject) -> None:
    """As it follows from the rows up to where they are complete, wherever micro-batches are cut."""
    plan = compile_query(sql, name="q", streams={"A": 2}, buckets=1)
    lanes: list[list[Record]] = []
    came: list[tuple[int, int]] = []
    fronts = []
    for source in "ab":
        sender, records, front = sender_of(plan, source), [], 100
        for _ in range(data.draw(st.integers(0, 6))):
            tuples = data.draw(st.lists(st.tuples(st.integers(front, front + 2), st.integers(0, 2)), max_size=5))
            if tuples:
                records.append(batch(plan, sender, tuples))
            front += data.draw(st.integers(1, 3))
            records.append(sender.promise(front))
            came += tuples
        lanes.append([*records, sender.end()] if ended else records)
        fronts.append(front)
    order = data.draw(st.permutations([lane for lane in (0, 1) for _ in lanes[lane]]))
    queues = [iter(lane) for lane in lanes]
    items = finite([next(queues[lane]) for lane in order])
    whole, _ = outcomes(plan, items, [])
    pieces, bucket = outcomes(plan, items, data.draw(st.lists(st.integers(0, len(items)), max_size=4)))
    told = completes(pieces)
    assert told == completes(whole)

    def counted(below: int) -> OpenCount:
        return naive(WINDOW, Counter(proto for second, proto in came if second < below).values())

    expected = [counted(complete.end // SECOND) for complete in told]
    if ended:
        expected[-1:] = [OpenCount()] if told else []
    assert [complete.open for complete in told] == expected
    last = told[-1].open if told else OpenCount()
    assert last is not None
    assert last == (OpenCount() if ended else counted(min(fronts)))
    assert dict(bucket.progress().open_windows) == {"q": last.windows}
