"""The window-oblivious join (Wu et al.) of inputs without windows that must agree in a progressing time.

A new row is matched with the kept rows of the other inputs, as in every join. By default a row is kept until the
promises of the other inputs have passed its time, so no result is missing; the model only predicts how many rows that
takes. With `Memory.MODEL` the model decides: each input keeps as many of its last rows as equations 7 and 8 say,
computed from the data alone. A row that is dropped too early is given up (`shed`), and its windows are lossy.

Under a bound of memory, rows wait before they enter the join, in a sort buffer or on disk (`admission`). Waiting rows
delay no promise: once all inputs have passed a time, no row before it waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from highlevel.interface import ONLY, Out, State, Words
from highlevel.join.bins import Bin
from highlevel.join.bounds import Bounds, bounds_space
from highlevel.join.join import JoinOperator
from highlevel.join.lookups import matchable
from highlevel.join.oblivious.admission import Admission, Admitted, InputRows
from highlevel.join.oblivious.disk_buffer import DiskRoom, room_of
from highlevel.join.oblivious.memory_policy import MemoryPolicy
from highlevel.join.oblivious.usage import Buffer, Usage, usage_space
from lowmark.query.options import Memory
from lowmark.query.plan.nodes import Join
from lowmark.wire.records.punctuations import Promise
from lowmark.wire.records.verdicts import Reason
from lowmark.wire.rows.values import FOREVER, INT64_MIN

__all__ = ["ObliviousJoinOperator"]

Ints = npt.NDArray[np.int64]

_PLACE = -1
"""The last word of a kept row: its physical index, which is the number of its input's rows that entered the join before
it."""

_STEP = 256
"""The model cuts buffers each time this many rows of all inputs have come: at the same rows, however batches are
cut."""

_SLACK = 8
"""A buffer is cut only when at least one in this many of its rows is to go, because each cut scans all of them."""


class ObliviousJoinOperator(JoinOperator):
    """Rows of each input's schema in, on a port of its own; rows of `plan.output` out. `room`: where rows may wait on
    disk."""

    def __init__(self, plan: Join, room: DiskRoom | None = None) -> None:
        super().__init__(plan)
        if plan.oblivious is None:
            raise ValueError("this join has windows")
        self._cuts = plan.oblivious.memory is Memory.MODEL
        self._ports = range(len(plan.inputs))
        self._size = plan.inputs[0].size
        self._times = [port.schema.offset(port.attribute) for port in plan.inputs]
        given = plan.oblivious.scrambling or (None,) * len(plan.inputs)
        policy = MemoryPolicy(
            tuple((port.schema.words + 1) * 8 for port in plan.inputs), plan.oblivious.bound, plan.oblivious.buffer
        )
        inputs = zip(plan.inputs, self._times, given, strict=True)
        self.admission = Admission(
            [InputRows(port.schema.words, at, known, self._size) for port, at, known in inputs], policy,
            room_of(plan.oblivious.disk) if room is None and plan.oblivious.waits else room,
        )  # fmt: skip
        self._still = bounds_space("still")
        self._usage = usage_space()

    def usage(self, state: State) -> Usage:
        """The predicted and the needed buffers."""
        return state.get(self._usage, ONLY) or Usage.of(len(self._ports))

    def buffers(self, state: State) -> tuple[Buffer, ...]:
        """The predicted and the needed buffers by input, for metrics."""
        usage = self.usage(state)
        of = zip(self._plan.inputs, usage.predicted, usage.used, strict=True)
        return tuple(Buffer(port.label, rows, used, usage.found, usage.within) for port, rows, used in of)

    def kept(self, port: int, state: State) -> int:
        """Number of an input's rows that can still match others, waiting ones included."""
        waiting = self.admission.sorting(port, state) + self.admission.on_disk(port, state)
        return waiting + sum(len(piece) for _, piece in self._pieces(port, state))

    def on_batch(self, port: int, rows: Words, state: State, out: Out) -> None:
        rows = self._kept.timely(port, rows, self._kept.bounds(state), out)
        rows = rows[matchable(self._schemas[port], rows, self._plan.keys(port))]
        if not len(rows):
            return
        start, usage = 0, self.usage(state)
        while start < len(rows):
            end = start + _STEP - usage.taken % _STEP if self._cuts else len(rows)
            part = rows[start:end]
            usage.take(len(part))
            self._admit(self.admission.arrive(port, part, state), usage, state, out)
            if not self._cuts or usage.taken % _STEP == 0:
                self._predict(usage, state, out)
            start = end
        state.put(self._usage, ONLY, usage)

    def on_promise(self, port: int, promise: Promise, state: State, out: Out) -> None:
        before = self._kept.bounds(state)
        bounds = self._kept.advance(port, promise, state)
        if bounds is None:
            return
        usage = self.usage(state)
        self._admit(self.admission.promise(port, bounds[port], state), usage, state, out)
        self._admit(self.admission.release(self._passed(bounds), state), usage, state, out)
        state.put(self._usage, ONLY, usage)
        self._free(state)
        for made in self._promising.promises(before, bounds):
            out.promise(0, made)

    def _passed(self, bounds: Sequence[int]) -> int:
        """The end of the last window that holds times which all inputs have passed."""
        least = min(bounds)
        return least if least in (INT64_MIN, FOREVER) else ((least - 1) // self._size + 1) * self._size

    def _admit(self, admitted: Iterable[Admitted], usage: Usage, state: State, out: Out) -> None:
        for port, rows in admitted:
            inputs = self.admission.monitor(state).inputs
            arrived = [one.arrived for one in inputs]
            places = np.arange(arrived[port] - len(rows), arrived[port], dtype=np.uint64)
            self._join(port, np.column_stack((rows, places)), arrived, usage, state, out)

    def _join(self, port: int, rows: Words, arrived: Sequence[int], usage: Usage, state: State, out: Out) -> None:
        for parts in self._met({port: rows}, self._lookups[port], state):
            pairs = self._combine.rows(parts)
            passing = self._passing(pairs, parts, out)
            if passing is not None:
                pairs = pairs[passing]
                parts = {of: part[passing] for of, part in parts.items()}
            if len(pairs):
                self._count(port, parts, arrived, usage)
                out.rows(0, pairs)
        still = self._waiting(self._kept.bounds(state), state)
        keys = self._kept.keep(port, rows[self._kept.waits(port, rows, still)], state)
        if len(still) > 2:
            self._kept.absence.let_go([(port, key) for key in keys], still, state)

    def _count(self, port: int, parts: Mapping[int, Words], arrived: Sequence[int], usage: Usage) -> None:
        """Note how many rows ago the partners of new rows came."""
        inside = np.ones(len(parts[port]), np.bool_)
        for of, part in parts.items():
            if of != port:
                places = part[:, _PLACE].view(np.int64)
                usage.need(of, arrived[of] - int(places.min()))
                inside &= places >= usage.then[of] - usage.predicted[of]
        usage.found += len(inside)
        usage.within += int(inside.sum())

    def _waiting(self, bounds: Sequence[int], state: State) -> tuple[int, ...]:
        """For each input, the time before which no row of it will enter the join any more."""
        return tuple(min(bound, self.admission.least(port, state)) for port, bound in enumerate(bounds))

    def _free(self, state: State) -> None:
        """Drop the rows that no later row can match."""
        known = state.get(self._still, ONLY)
        before = (INT64_MIN,) * len(self._ports) if known is None else known.times
        still = self._waiting(self._kept.bounds(state), state)
        if still == before:
            return
        state.put(self._still, ONLY, Bounds(still))
        gone = [(of, self._kept.let_go(of, still, state)) for of in self._ports]
        if len(still) > 2:
            absence = self._kept.absence
            found = [each for of in self._ports for each in absence.excluded(of, before[of], still[of], state)]
            found += [each for of, keys in gone for each in absence.around(of, keys, state)]
            absence.let_go(found, still, state)

    def _predict(self, usage: Usage, state: State, out: Out) -> None:
        """Evaluate the model again; if it decides, cut the buffers to its sizes."""
        monitor = self.admission.monitor(state)
        usage.predicted, usage.then = list(monitor.buffers()), [one.arrived for one in monitor.inputs]
        if self._cuts:
            for port, most in enumerate(usage.predicted):
                place = usage.then[port] - most
                if place - usage.cut[port] >= max(_STEP, most // _SLACK):
                    usage.cut[port] = place
                    usage.shed[port] += self._cut(port, place, state, out)
        self.admission.forget(state)

    def _cut(self, port: int, before: int, state: State, out: Out) -> int:
        """Give up the rows of an input that entered the join before this place; returns their number."""
        shed = 0
        for key, piece in self._pieces(port, state):
            old = piece.rows[:, _PLACE].view(np.int64) < before
            if old.any():
                gone = piece.take(old)
                self._kept.changed(port, key, piece, state)
                out.shed(port, np.ascontiguousarray(gone[:, :_PLACE]), Reason.WINDOW_OBLIVIOUS)
                shed += len(gone)
        return shed

    def _pieces(self, port: int, state: State) -> Iterator[tuple[int, Bin]]:
        space = self._kept.bins(port)
        for key in state.keys(space):
            piece = state.get(space, key)
            assert piece is not None, "a listed piece is there"
            yield key, piece
