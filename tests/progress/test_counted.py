"""Queries that count tuples: their last rows come with the end alone, and are completed all the same."""

from __future__ import annotations

import numpy as np
import pytest

from highlevel.progress.driver import BucketDriver
from highlevel.progress.outputs import ResultRows
from highlevel.progress.roster import Roster
from highlevel.state import MemoryState
from lowmark.query.compile import compile_query
from lowmark.wire.results import Complete
from tests.progress.harness import Sender, finite

SECOND = 10**9


@pytest.mark.parametrize("promised", [101, 120, 500])
def test_rows_of_the_end_have_a_completion(promised: int) -> None:
    """However far the source had promised before: behind that no tuple came."""
    plan = compile_query(
        "SELECT proto, count(*) [RANGE 4 rows, SLIDE 3 rows, WA row_num, PA proto] FROM A", name="q", buckets=1
    )
    (node,) = plan.stage.nodes
    sender = Sender("a", stage=plan.stage.fingerprint, node=node.name, width=SECOND)
    rows = np.zeros((4, node.reduction.schema.words), np.uint64)
    rows[:, node.reduction.schema.offset("pane")] = 100
    rows[:, node.reduction.schema.offset("tuples")] = 1
    records = [sender.words(rows, {100: 4}), sender.promise(promised), sender.end()]
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
