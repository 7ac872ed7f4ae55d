"""What a micro-batch costs whose state comes from a store and goes back there, as in the job: each join beside
OA-Join."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from bench.common.join_runs import NS, rows_of
from bench.common.reports import write_csv
from bench.common.response_times import Collected
from highlevel.interface import Operator, Words
from highlevel.join import JoinOperator
from highlevel.join.in_order import InOrderJoinOperator
from highlevel.join.oblivious.oblivious_join import ObliviousJoinOperator
from highlevel.join.punctuated import PunctuatedJoinOperator
from highlevel.join.shared import SharedJoinOperator
from highlevel.state import MemoryByteStore, PiecewiseState
from lowmark.query.compile import compile_query
from lowmark.query.plan.joins import Scheduling
from lowmark.query.plan.nodes import Join
from lowmark.query.plan.shared_joins import SharedJoin
from lowmark.wire.records.partials import PANE
from lowmark.wire.records.punctuations import Bound, Promise
from lowmark.wire.rows.value_sets import ValueSet

__all__ = ["measure_stored"]

_SQL = (
    "SELECT {hint} a.ts, b.ts AS later, a.srcPort FROM A AS a [RANGE {n} s], B AS b [RANGE {n} s] "
    "WHERE a.srcIP = b.destIP AND a.srcPort = b.destPort {order}"
)
_OBLIVIOUS = (
    "SELECT a.ts, a.srcPort FROM A AS a, B AS b "
    "WHERE a.ts/10 ms = b.ts/10 ms AND a.srcIP = b.destIP AND a.srcPort = b.destPort"
)
_BATCHES = 8
_PARTS = 4
"""Micro-batches a second."""

_LINGER = 2 * _PARTS
"""Micro-batches from a row to the promise of its values."""


@dataclass(frozen=True, slots=True)
class _Rival:
    """`behind`: seconds by which the second input is behind the first. `closing`: a tenth of all values is promised."""

    make: Callable[[int], tuple[Operator, Join]]
    behind: Callable[[int], int] = lambda window: 0
    closing: bool = False


@dataclass(frozen=True, slots=True)
class _Cost:
    seconds: float  # of CPU, for a micro-batch
    written: int  # bytes


def _join(window: int, hint: str = "", order: str = "") -> Join:
    plan = compile_query(_SQL.format(n=window, hint=hint, order=order), buckets=1).steps[0].plan
    assert isinstance(plan, Join)
    return plan


def _oa(window: int) -> tuple[Operator, Join]:
    plan = _join(window)
    return JoinOperator(plan), plan


def _punctuated(window: int) -> tuple[Operator, Join]:
    plan = _join(window, "/*+ algorithm(punctuated) */")
    return PunctuatedJoinOperator(plan), plan


def _oblivious(window: int) -> tuple[Operator, Join]:
    plan = compile_query(_OBLIVIOUS, buckets=1).steps[0].plan
    assert isinstance(plan, Join)
    return ObliviousJoinOperator(plan), plan


def _shared(window: int) -> tuple[Operator, Join]:
    joins = tuple(_join(seconds) for seconds in (window // 5, window // 2, window))
    return SharedJoinOperator(SharedJoin(joins, (1,) * len(joins), Scheduling.MQT)), joins[-1]


def _in_order(window: int, release: str) -> tuple[Operator, Join]:
    plan = _join(window, f"/*+ release({release}) */", "ORDER BY ts")
    return InOrderJoinOperator(plan), plan


_RIVALS = {
    "OA-Join": _Rival(_oa),
    "PWJoin": _Rival(_punctuated),
    "PWJoin, values promised": _Rival(_punctuated, closing=True),
    "WO-Join": _Rival(_oblivious, behind=lambda window: window),
    "shared, three windows": _Rival(_shared),
    "Sync-Filter": _Rival(lambda window: _in_order(window, "sync")),
    "Sync-Filter, one input behind": _Rival(
        lambda window: _in_order(window, "sync"), behind=lambda window: window // 2
    ),
    "Filter-Order, one input behind": _Rival(
        lambda window: _in_order(window, "filter"), behind=lambda window: window // 2
    ),
}  # fmt: skip


def measure_stored(results: Path, *, rate: int = 2000, windows: Sequence[int] = (10, 60)) -> None:
    """Micro-batches of a quarter of a second, once the windows are full. Nearly all rows have values of their own."""
    found = []
    for window in windows:
        for name, rival in _RIVALS.items():
            cost = _measured(rival, window, rate)
            found.append((window, name, cost.seconds, cost.written))
            print(
                f"{name}, {window} s: a micro-batch of {2 * rate // _PARTS:,} rows takes {cost.seconds * 1e3:.1f} ms "
                f"and writes {cost.written / 1024:.0f} KiB",
                flush=True,
            )
    write_csv(results, "stored_joins", ("window_s", "join", "cpu_s", "written_bytes"), found)


def _measured(rival: _Rival, window: int, rate: int) -> _Cost:
    operator, plan = rival.make(window)
    behind = (0, rival.behind(window))
    store, random, out = MemoryByteStore(), np.random.default_rng(1), Collected()
    spent, written, past = [], [], list[list[Words]]()
    for batch in range((window + max(behind)) * _PARTS + _BATCHES):
        made = [_rows(plan, port, batch - behind[port] * _PARTS, rate, random) for port in (0, 1)]
        past.append(made)
        began = time.process_time()
        state = PiecewiseState(store, "bench")
        for port, rows in enumerate(made):
            if len(rows):
                operator.on_batch(port, rows, state, out)
        while operator.work(state, out, 1 << 62):
            pass
        for port, of in enumerate(plan.inputs):
            until = max(0, batch + 1 - behind[port] * _PARTS) * NS // _PARTS
            if rival.closing and len(past) > _LINGER:
                operator.on_promise(port, _closed(plan, port, past[-_LINGER][port], until + window * NS), state, out)
            operator.on_promise(port, Promise((Bound(PANE, until // of.unit),)), state, out)
        while operator.work(state, out, 1 << 62):
            pass
        written.append(state.commit())
        spent.append(time.process_time() - began)
        out.take()
    return _Cost(median(spent[-_BATCHES:]), round(median(written[-_BATCHES:])))


def _rows(plan: Join, port: int, batch: int, rate: int, random: np.random.Generator) -> Words:
    schema, count = plan.inputs[port].schema, rate // _PARTS if batch >= 0 else 0
    start, stop = batch * NS // _PARTS, (batch + 1) * NS // _PARTS
    times = np.sort(random.integers(start, stop, count))
    known = {PANE: times // plan.inputs[port].unit, "tuples": np.ones(count, np.int64), "ts": times}
    drawn = {name: random.integers(0, 1 << 16, count) for name in schema.names if name not in known}
    return rows_of(schema, known | drawn)


def _closed(plan: Join, port: int, rows: Words, until: int) -> Promise:
    """A tenth of the values of these rows do not come again before this time."""
    schema, columns = plan.inputs[port].schema, plan.promised_keys[port]
    spans = ((schema.offset(name), schema.column(name).kind.words) for name in columns)
    values = ValueSet.of_words(*(rows[::10, start : start + words] for start, words in spans))
    return Promise((Bound(columns, values=values), Bound(PANE, until // plan.inputs[port].unit)))
