"""What one join for several windows saves against a join for each of them (Hammad 2003, 2.2): CPU time and memory."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.common.join_runs import NS, HeldState
from bench.common.reports import Figure, write_csv
from bench.common.response_times import Collected
from bench.shared_joins.times import joins_of, rows_at
from highlevel.interface import Operator, Words
from highlevel.join import JoinOperator
from highlevel.join.shared import SharedJoinOperator
from lowmark.query.plan.joins import Scheduling
from lowmark.query.plan.shared_joins import SharedJoin
from lowmark.wire.records.partials import PANE
from lowmark.wire.records.punctuations import Bound, Promise

__all__ = ["measure_savings"]

_TURNS = 4


@dataclass(frozen=True, slots=True)
class Cost:
    seconds: float  # of CPU
    held: int  # bytes, at the most
    emitted: int


def measure_savings(
    results: Path, *, windows: Sequence[int], rate: int, seconds: int, keys: int
) -> list[tuple[int, Cost, Cost]]:  # fmt: skip
    """Two windows to all: by one shared join, and by a join for each. Rows come second by second. The two take turns,
    and the least time of each counts: the first run of either also loads its native code."""
    found = []
    for count in range(2, len(windows) + 1):
        joins = joins_of(windows[:count])
        shared = [SharedJoinOperator(SharedJoin(joins, (1,) * count, Scheduling.MQT))]
        alone = [JoinOperator(join) for join in joins]
        random = np.random.default_rng(1)
        batches = [
            [rows_at(joins[-1], port, np.sort(random.integers(at * NS, (at + 1) * NS, rate)), random, keys)
             for port in (0, 1)]
            for at in range(seconds)
        ]  # fmt: skip
        turns = [(_cost(shared, batches), _cost(alone, batches)) for _ in range(_TURNS)]
        one, each = (min(costs, key=lambda cost: cost.seconds) for costs in zip(*turns, strict=True))
        if one.emitted != each.emitted:
            raise RuntimeError(f"{one.emitted} rows by one join and {each.emitted} by one for each")
        found.append((count, one, each))
        print(
            f"{count} windows: {each.seconds:.2f} s of CPU and {each.held / 2**20:.1f} MiB by a join for each, "
            f"{one.seconds:.2f} s and {one.held / 2**20:.1f} MiB by one: {each.seconds / one.seconds:.2f} and "
            f"{each.held / one.held:.2f} times; {one.emitted:,} rows",
            flush=True,
        )
    rows = [(n, one.seconds, each.seconds, one.held, each.held, one.emitted) for n, one, each in found]
    write_csv(results, "shared_joins", ("windows", "one_s", "each_s", "one_bytes", "each_bytes", "rows"), rows)
    with Figure(results, "shared_joins", "A join for each window against one for all") as axes:
        axes.plot(
            [n for n, *_ in found], [each.seconds / one.seconds for _, one, each in found], "o-", label="CPU time"
        )
        axes.plot([n for n, *_ in found], [each.held / one.held for _, one, each in found], "o-", label="memory")
        axes.set_xlabel("windows")
        axes.set_ylabel("times that of one join")
        axes.set_ylim(bottom=0)
        axes.legend()
    return found


def _cost(operators: Sequence[Operator], batches: Sequence[Sequence[Words]]) -> Cost:
    states, out, most = [HeldState() for _ in operators], Collected(), 0
    began = time.process_time()
    for second, batch in enumerate(batches):
        for operator, state in zip(operators, states, strict=True):
            for port, rows in enumerate(batch):
                operator.on_batch(port, rows, state, out)
            while operator.work(state, out, 1 << 16):
                out.take()
            for port in (0, 1):
                operator.on_promise(port, Promise((Bound(PANE, second + 1),)), state, out)
            out.take()
        most = max(most, sum(state.held for state in states))
    return Cost(time.process_time() - began, most, out.count)
