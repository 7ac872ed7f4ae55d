"""One window join for several queries whose windows differ (Hammad 2003): each row is matched with each partner once.

A new row is kept and waits. `work` scans: it matches a waiting row with the partners that the row's next window adds.
The schedule chooses the next row and window: largest window only, smallest window first, or by query throughput. A
result goes to the output of each window that holds it, in the order of arrival of its later row. Each output therefore
has the same rows in the same order as a join of its own. `work` may do any number of scans; the next row may come
before all of them are done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from highlevel.interface import ONLY, MarkOut, Out, Space, State, Words
from highlevel.join.bins import Bin
from highlevel.join.kept_rows import Kept, partners_of
from highlevel.join.lookups import matchable
from highlevel.join.marks import JoinMarks
from highlevel.join.output import Combine
from highlevel.join.output_promises import Promising
from highlevel.join.probe_kernel import START
from highlevel.join.shared.buffer import SEED, Index, SharedBuffer
from highlevel.join.shared.schedule_kernel import LWO, MQT, SWF, find_due, scan_rows
from highlevel.join.shared.waiting import BoundMove, WaitingRows, waiting_space
from highlevel.row_marks import RowMark
from lowmark.query.expr.evaluate import evaluate, holds
from lowmark.query.plan.joins import Scheduling
from lowmark.query.plan.shared_joins import SharedJoin, width
from lowmark.wire.records.punctuations import Promise

__all__ = ["SharedJoinOperator", "throughputs"]

Ints = npt.NDArray[np.int64]
Shorts = npt.NDArray[np.int32]

_SCHEDULES = {Scheduling.LWO: LWO, Scheduling.SWF: SWF, Scheduling.MQT: MQT}

_ROOM = 1 << 15
"""Most results found or emitted at a time. Their rows must fit into memory, however skewed the keys are."""

_SERVED = 1 << 12
"""Most waiting rows among which the schedule chooses. Their results that are held back must fit into memory."""


class SharedJoinOperator:
    """Rows of each input's schema in, on a port of its own; rows of each join's `output` out, on the port of its
    number."""

    def __init__(self, plan: SharedJoin) -> None:
        self._plan = plan
        self._schemas = [port.schema for port in plan.largest.inputs]
        self._times = [port.schema.offset(port.attribute) for port in plan.largest.inputs]
        self._kept = Kept(plan.largest)
        self._buffers = [SharedBuffer(plan.largest, port, self._kept.width) for port in (0, 1)]
        self._combines = [Combine(join) for join in plan.joins]
        self._promising = [Promising(join) for join in plan.joins]
        self._marks = [JoinMarks(*each) for each in zip(plan.joins, self._promising, strict=True)]
        self._waiting = waiting_space(len(plan.joins))
        self._gain = throughputs(plan)
        self._schedule = _SCHEDULES[plan.scheduling]

    def rows_of(self, port: int) -> Space[Bin]:
        """The rows kept of a port, for audits."""
        return self._buffers[port].space

    @property
    def bin_width(self) -> int:
        """The time covered by one such piece, in ns: key k begins at k times as much."""
        return self._kept.width

    def waiting(self, state: State) -> WaitingRows:
        """The rows that wait, for audits."""
        found = state.get(self._waiting, ONLY)
        if found is None:
            return WaitingRows(len(self._plan.joins))
        if len(found.down) < len(found):
            self._place(found, state)
        return found

    def on_batch(self, port: int, rows: Words, state: State, out: Out) -> None:
        rows = self._kept.timely(port, rows, self._kept.bounds(state), out)
        rows = rows[matchable(self._schemas[port], rows, self._plan.largest.keys(port))]
        if not len(rows):
            return
        waiting = self.waiting(state)
        numbers = waiting.arrivals + np.arange(len(rows))
        before = self._buffers[port].index(state)
        heads = len(before.heads)
        first = self._buffers[port].add(rows, numbers, state)
        if len(before.heads) != heads:  # the chains were rebuilt
            waiting.down[:], waiting.up[:] = START, START
        self._buffers[1 - port].hold(state)
        at = first + np.arange(len(rows))
        waiting.add(port, at, *self._windows(port, rows[:, self._times[port]].view(np.int64)))
        state.put(self._waiting, ONLY, waiting)

    def on_promise(self, port: int, promise: Promise, state: State, out: Out) -> None:
        before = self._kept.bounds(state)
        bounds = self._kept.advance(port, promise, state)
        if bounds is None:
            return
        waiting = self.waiting(state)
        waiting.told.append(BoundMove(waiting.arrivals, before, bounds, list(range(len(self._plan.joins)))))
        self._tell(waiting, out)
        if not len(waiting):
            self._let_go(bounds, state)
        state.put(self._waiting, ONLY, waiting)

    def on_mark(self, port: int, mark: RowMark, state: State, out: MarkOut) -> None:
        for output, marks in enumerate(self._marks):
            out.mark(output, marks.of_input(port, mark))

    def work(self, state: State, out: Out, budget: int) -> int:
        waiting = self.waiting(state)
        if not len(waiting):
            return 0
        while budget > 0 and len(waiting):
            budget -= self._scan(waiting, budget, state, out)
        self._tell(waiting, out)
        if not len(waiting):
            self._let_go(self._kept.bounds(state), state)
        state.put(self._waiting, ONLY, waiting)
        return waiting.scans

    def _scan(self, waiting: WaitingRows, budget: int, state: State, out: Out) -> int:
        """Scan, and emit the results that may leave. Returns the scans that have ended; one that fills the results is
        continued later."""
        one, other = (buffer.index(state) for buffer in self._buffers)
        complete = waiting.complete(min(len(waiting), _SERVED))
        outer, partner, ring = (np.empty(_ROOM, np.int64) for _ in range(3))
        done, found, examined, last = scan_rows(
            self._schedule, budget, SEED, self._gain, complete, waiting.port, waiting.at, waiting.numbers,
            waiting.level, waiting.low, waiting.high, waiting.down, waiting.up, *_arrays(one), *_arrays(other),
            outer, partner, ring,
        )  # fmt: skip
        waiting.examined += examined
        waiting.add_results(outer[:found], partner[:found], ring[:found], np.zeros(found, np.int64))
        self._release(waiting, complete, last, state, out)
        return done

    def _release(self, waiting: WaitingRows, complete: Ints, last: int, state: State, out: Out) -> None:
        """Emit the results that may leave, and drop the waiting rows that have scanned all windows."""
        due = np.empty_like(waiting.sent)
        some, gone = find_due(self._schedule, complete, last, waiting.outer, waiting.ring, waiting.sent, due)
        if some:
            self._emit(due, waiting, state, out)
        if gone:
            waiting.keep_results(waiting.sent >> waiting.ring != (1 << len(self._plan.joins) - waiting.ring) - 1)
        waiting.drop(int(complete[-1]))

    def _emit(self, due: Ints, waiting: WaitingRows, state: State, out: Out) -> None:
        """Emit each result to the outputs whose bits are set, in the order of the waiting rows."""
        some = np.flatnonzero(due)
        some = some[np.argsort(waiting.outer[some], kind="stable")]
        for start in range(0, len(some), _ROOM):
            chosen = some[start : start + _ROOM]
            outer, partner = waiting.outer[chosen], waiting.partner[chosen]
            ports, own = waiting.port[outer], waiting.at[outer]
            parts = {
                port: buffer.rows_at(np.where(ports == port, own, partner), state)
                for port, buffer in enumerate(self._buffers)
            }
            for output in range(len(self._plan.joins)):
                mine = due[chosen] >> output & 1 == 1
                if mine.any():
                    self._emit_rows(output, {port: rows[mine] for port, rows in parts.items()}, out)

    def _emit_rows(self, output: int, parts: Mapping[int, Words], out: Out) -> None:
        pairs = self._combines[output].rows(parts)
        where = self._plan.joins[output].where
        if where is not None:
            values = evaluate(where, pairs, self._plan.joins[output].output)
            if values.lost is not None and values.lost.any():
                out.mark(output, self._marks[output].overflow(self._kept.times(parts, values.lost)))
            pairs = pairs[holds(values)]
        if len(pairs):
            out.rows(output, pairs)

    def _tell(self, waiting: WaitingRows, out: Out) -> None:
        """Pass moves of the inputs' bounds on to the outputs that have got all earlier results."""
        if not waiting.told:
            return
        complete = waiting.complete(len(waiting))
        for told in waiting.told:
            for output in list(told.outputs):
                turn = int(complete[output + 1])
                if turn == len(waiting) or waiting.numbers[turn] >= told.after:
                    for made in self._promising[output].promises(told.before, told.bounds):
                        out.promise(output, made)
                    told.outputs.remove(output)
        waiting.told = [told for told in waiting.told if told.outputs]

    def _let_go(self, bounds: Sequence[int], state: State) -> None:
        for port, buffer in enumerate(self._buffers):
            buffer.settle(self._plan.largest.bands.alive(port, bounds), state)

    def _windows(self, port: int, times: Ints) -> tuple[Ints, Ints]:
        """For each row the times of its partners, from and up to, in each window."""
        each = [partners_of(join.bands, port, times, 1 - port) for join in self._plan.joins]
        return np.column_stack([low for low, _ in each]), np.column_stack([high for _, high in each])

    def _place(self, waiting: WaitingRows, state: State) -> None:
        """Restore the places of the waiting rows' walks after the rows were read from the state."""
        count, joins = len(waiting), len(self._plan.joins)
        waiting.down, waiting.up = np.full(count, START), np.full(count, START)
        waiting.low, waiting.high = np.empty((count, joins), np.int64), np.empty((count, joins), np.int64)
        for port, buffer in enumerate(self._buffers):
            which = waiting.port == port
            times = buffer.index(state).times[waiting.at[which]]
            waiting.low[which], waiting.high[which] = self._windows(port, times)


def _arrays(index: Index) -> tuple[Words, Ints, Ints, Shorts, Shorts, Shorts]:
    return index.keys, index.times, index.numbers, index.heads, index.older, index.newer


def throughputs(plan: SharedJoin) -> npt.NDArray[np.float64]:
    """MaxQT (Hammad 2003, 3.3): at [i, j] the most queries that a row serves for each ns of window, if it has scanned i
    windows and may scan up to j."""
    widths = [0, *map(width, plan.joins)]
    served = [0, *np.cumsum(plan.readers).tolist()]
    found = np.zeros((len(widths), len(widths)))
    for met in range(len(widths) - 1):
        for upto in range(met + 1, len(widths)):
            gains = (_gain(served[k] - served[met], widths[k] - widths[met]) for k in range(met + 1, upto + 1))
            found[met, upto] = max(gains)
    return found


def _gain(queries: int, more: int) -> float:
    """Queries served for each ns; a window that adds no time is scanned at once."""
    return queries / more if more else float("inf")
