"""The buckets of a stage beside each other: they announce the same windows, whichever of them held tuples."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from highlevel.progress.driver import BucketDriver
from highlevel.progress.records import Arrival, Batch
from highlevel.rosters.roster import Roster
from highlevel.state import MemoryState
from lowlevel.node import NodeOutput, NodeProgress
from lowlevel.outbox import Outbox, Rows
from lowmark.query.compile import compile_query
from lowmark.wire.records.partials import Origin
from lowmark.wire.records.punctuations import Ending
from lowmark.wire.rows.values import FOREVER
from tests.progress.harness import completes

BUCKETS = 4
SECOND = 10**9


@given(
    packets=st.lists(st.tuples(st.integers(100, 130), st.integers(0, 5)), min_size=1, max_size=6),
    promised=st.lists(st.integers(100, 140), max_size=3).map(sorted),
)
@settings(max_examples=60)
def test_all_buckets_announce_the_same_windows(packets: list[tuple[int, int]], promised: list[int]) -> None:
    """`packets`: second and port. At the end of a finite stream so are all windows that hold a tuple."""
    sql = "SELECT destPort, count(*) [RANGE 4 seconds, SLIDE 2 seconds] FROM A GROUP BY destPort"
    plan = compile_query(sql, name="q", buckets=BUCKETS)
    (node,) = plan.stage.nodes
    schema = node.reduction.schema
    pane_s = node.reduction.pane.width // SECOND
    outbox = Outbox(node, Origin(plan.stage.fingerprint, "a", 1, node.name), BUCKETS)
    drivers = [
        BucketDriver(plan.stage, (plan,), bucket, MemoryState(), Roster.of({"A": ("a",)}), 1)
        for bucket in range(BUCKETS)
    ]
    left = sorted(packets)
    for bound in [*promised, None]:
        part = [packet for packet in left if bound is None or packet[0] < bound]
        left = left[len(part) :]
        rows = np.zeros((len(part), schema.words), np.uint64)
        for row, (second, port) in zip(rows, part, strict=True):
            for name, value in (("pane", second // pane_s), ("tuples", 1), ("destPort", port)):
                row[schema.offset(name)] = value
        until = FOREVER if bound is None else bound // pane_s * pane_s * SECOND
        ending = Ending.END if bound is None else Ending.NONE
        for partition, record in outbox.take(NodeOutput(node.name, rows, NodeProgress(until)), ending):
            if isinstance(record, Rows):
                drivers[partition].take(
                    Batch(record.origin, record.sequence, record.rows, record.tuples), Arrival(record.sequence)
                )
            else:
                drivers[partition].take(record, Arrival(record.sequence))
    told = [completes([driver.flush()]) for driver in drivers]
    spans = {(found[0].windows.first, found[-1].windows.to) for found in told}
    assert len(spans) == 1, spans
    ((_, last),) = spans
    assert last >= max(second for second, _ in packets) // pane_s + 1
    assert all(complete.verdict.exact for found in told for complete in found)
