"""What a micro-batch costs whose state comes from a store and goes back there, as in the job: PWJoin beside OA-Join."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np

from bench.common.join_runs import NS, rows_of
from bench.common.reports import write_csv
from bench.common.response_times import Collected
from highlevel.interface import Words
from highlevel.join import JoinOperator
from highlevel.join.punctuated import PunctuatedJoinOperator
from highlevel.state import MemoryByteStore, PiecewiseState
from lowmark.query.compile import compile_query
from lowmark.query.plan.nodes import Join
from lowmark.wire.records.partials import PANE
from lowmark.wire.records.punctuations import Bound, Promise

__all__ = ["measure_stored"]

_SQL = """SELECT /*+ algorithm(punctuated) */ a.ts, b.ts AS u, a.srcPort
FROM A AS a [RANGE {0} s], B AS b [RANGE {0} s] WHERE a.srcIP = b.destIP AND a.srcPort = b.destPort"""
_BATCHES = 8


def measure_stored(results: Path, *, rate: int = 2000, windows: Sequence[int] = (10, 60)) -> None:
    """Micro-batches of a second, once the windows are full. Nearly all rows have values of their own."""
    found = []
    for window in windows:
        plan = compile_query(_SQL.format(window), buckets=1).steps[0].plan
        assert isinstance(plan, Join)
        ours, rows = _seconds(PunctuatedJoinOperator(plan), plan, window, rate)
        oa, _ = _seconds(JoinOperator(plan), plan, window, rate)
        found.append((window, rows, ours, oa))
        print(
            f"windows of {window} s, {rows:,} rows kept: a micro-batch of {2 * rate:,} rows takes {ours * 1e3:.1f} ms "
            f"by PWJoin, {oa * 1e3:.1f} ms by OA-Join",
            flush=True,
        )
    write_csv(results, "ding_stored", ("window_s", "rows", "pwjoin_s", "oa_join_s"), found)


def _seconds(
    operator: PunctuatedJoinOperator | JoinOperator, plan: Join, window: int, rate: int
) -> tuple[float, int]:  # fmt: skip
    """CPU seconds of a micro-batch, and the rows kept."""
    store, random, out, spent = MemoryByteStore(), np.random.default_rng(1), Collected(), []
    for second in range(window + _BATCHES):
        made = [_rows(plan, port, second, rate, random) for port in (0, 1)]
        began = time.process_time()
        state = PiecewiseState(store, "bench")
        for port, rows in enumerate(made):
            operator.on_batch(port, rows, state, out)
        for port, of in enumerate(plan.inputs):
            operator.on_promise(port, Promise((Bound(PANE, (second + 1) * NS // of.unit),)), state, out)
        state.commit()
        spent.append(time.process_time() - began)
        out.take()
    return median(spent[-_BATCHES:]), 2 * window * rate


def _rows(plan: Join, port: int, second: int, rate: int, random: np.random.Generator) -> Words:
    schema = plan.inputs[port].schema
    times = np.sort(random.integers(second * NS, (second + 1) * NS, rate))
    known = {PANE: times // plan.inputs[port].unit, "tuples": np.ones(rate, np.int64), "ts": times}
    drawn = {name: random.integers(0, 1 << 16, rate) for name in schema.names if name not in known}
    return rows_of(schema, known | drawn)
