"""Query 1 of Wu et al. through the product's operator, which keeps rows for as long as the frontier or the model says.

For the frontier, streams tell every second of stream time how far they have come for certain, as well as can be known.
The model gets no such promise before the end.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.common.join_runs import rows_of
from bench.common.response_times import Collected
from bench.oblivious.runs import Setting, batches, possible, streams_of
from bench.oblivious.scrambled_streams import Stream
from highlevel.interface import Words
from highlevel.join.oblivious.disk_buffer import DiskRoom
from highlevel.join.oblivious.oblivious_join import ObliviousJoinOperator
from highlevel.state import MemoryState
from lowmark.query.compile import compile_query
from lowmark.query.expr.evaluate import Ints
from lowmark.query.optimize.buffer_model import Buffering
from lowmark.query.options import Joins, Memory
from lowmark.query.plan.nodes import Join
from lowmark.wire.records.partials import PANE
from lowmark.wire.records.punctuations import Bound, Promise
from lowmark.wire.records.verdicts import Reason
from lowmark.wire.rows.values import FOREVER

__all__ = ["OperatorRun", "run_operator"]

_SQL = "SELECT A.ts, B.ts AS b, C.ts AS c FROM A, B, C WHERE A.ts = B.ts AND B.ts = C.ts"
_NS = 10**9
_TOLD = _NS


@dataclass(frozen=True, slots=True)
class OperatorRun:
    """`kept`: rows of all inputs in memory on the average, `most`: at the most; `shed`: rows that the model gave up."""

    accuracy: float
    kept: float
    most: int
    shed: int


class _Out(Collected):
    def __init__(self) -> None:
        super().__init__()
        self.given_up = 0

    def shed(self, port: int, rows: Words, reason: Reason) -> None:
        if reason is not Reason.WINDOW_OBLIVIOUS:
            raise RuntimeError(f"{len(rows)} rows were given up: {reason}")
        self.given_up += len(rows)


def run_operator(setting: Setting, seed: int, memory: Memory, buffer: Buffering | None = None) -> OperatorRun:
    """All results must be there that can be, unless the model decides."""
    streams = streams_of(setting, seed)
    plan = compile_query(_SQL, buckets=1, joins=Joins(memory=memory, buffer=buffer)).steps[0].plan
    assert isinstance(plan, Join)
    width = round(setting.multiplicity * _NS / setting.rate)  # of a key, in ns
    passed = [_passed(stream) for stream in streams]
    state, out, kept, most, steps = MemoryState(), _Out(), 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        room = DiskRoom(Path(folder), 1 << 26, block=100 * plan.inputs[0].schema.words * 8)
        operator = ObliviousJoinOperator(plan, room)
        told = [0] * len(streams)
        for port, which, until in batches(setting, streams):
            stream = streams[port]
            operator.on_batch(port, _rows(plan, port, stream.keys[which] * width), state, out)
            if memory is Memory.FRONTIER and until - told[port] >= _TOLD:
                told[port] = until
                pane = int(passed[port][which.stop]) * width // plan.inputs[port].unit
                operator.on_promise(port, Promise((Bound(PANE, pane),)), state, out)
            ports = range(len(streams))
            now = sum(operator.kept(of, state) - operator.admission.on_disk(of, state) for of in ports)
            kept, most, steps = kept + now, max(most, now), steps + 1
        for port in range(len(streams)):
            operator.on_promise(port, Promise((Bound(PANE, FOREVER),), last=True), state, out)
        room.close()
    return OperatorRun(out.count / possible(streams), kept / steps, most, out.given_up)


def _passed(stream: Stream) -> Ints:
    """For each number of tuples that have come, the least key that can follow."""
    least = np.minimum.accumulate(stream.keys[::-1])[::-1]
    return np.append(least, int(stream.keys.max()) + 1)


def _rows(join: Join, port: int, times: Ints) -> Words:
    schema = join.inputs[port].schema
    values = {"pane": times // join.inputs[port].unit, "tuples": np.ones(len(times), np.int64), "ts": times}
    return rows_of(schema, {name: values[name] for name in schema.names})
