"""Arrival made definite: tuples of several sources wait for their pane to end, are put in order, and get numbers."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from highlevel.aggregate.ordering import sort_keys, sorted_rows
from highlevel.aggregate.splitting import split
from highlevel.interface import Out, Port, Space, State, Words
from lowmark.query.evaluate import Values, all_valid, assemble
from lowmark.query.plan import Number
from lowmark.wire.partials import PANE
from lowmark.wire.promises import FOREVER, Bound, Promise
from lowmark.wire.rows import column_of
from lowmark.wire.schema import Kind
from lowmark.wire.values import INT64_MIN

__all__ = ["ROW_NUM", "NumberOperator"]

ROW_NUM = "row_num"

_ONLY = 0
_COUNTER = struct.Struct(">qq")


@dataclass(slots=True)
class _Counter:
    """`frontier`: the first pane that has not ended; `given`: numbers that are given out."""

    frontier: int
    given: int


class NumberOperator:
    """Tuples of `plan.input` in, the same in order with `row_num`, from 1, out: rows of `plan.output`. A promise on
    panes goes on as it is, and gives another one on `row_num`."""

    def __init__(self, plan: Number) -> None:
        self._plan = plan
        self._counter = Space(
            "counter", lambda p: _COUNTER.pack(p.frontier, p.given), lambda b: _Counter(*_COUNTER.unpack(b))
        )
        self._waiting: Space[list[Words]] = Space("waiting", self._encode, self._decode)

    @property
    def inputs(self) -> tuple[Port, ...]:
        return (Port(self._plan.input, (PANE,)),)

    @property
    def outputs(self) -> tuple[Port, ...]:
        progressing = (PANE, ROW_NUM) if PANE in self._plan.output.names else (ROW_NUM,)
        return (Port(self._plan.output, progressing, order=(ROW_NUM,)),)

    def on_batch(self, port: int, rows: Words, state: State, out: Out) -> None:
        panes = rows[:, 1].view(np.int64)
        counter = state.get(self._counter, _ONLY)
        if counter is not None and len(panes) and panes.min() < counter.frontier:
            late = panes < counter.frontier
            out.late(0, rows[late])
            rows, panes = rows[~late], panes[~late]
        for pane, part in split(panes, rows):
            waiting = state.get(self._waiting, pane) or []
            waiting.append(part.copy())
            state.put(self._waiting, pane, waiting)

    def on_promise(self, port: int, promise: Promise, state: State, out: Out) -> None:
        frontier = promise.below(PANE)
        counter = state.get(self._counter, _ONLY) or _Counter(INT64_MIN, 0)
        if frontier is None or frontier <= counter.frontier:
            return
        for pane in state.keys(self._waiting, None if frontier == FOREVER else frontier):
            waiting = state.get(self._waiting, pane) or []
            rows = np.concatenate(waiting)
            out.rows(0, self._numbered(rows, counter.given + 1))
            counter.given += len(rows)
            state.drop(self._waiting, pane)
        counter.frontier = frontier
        state.put(self._counter, _ONLY, counter)
        if promise.last:
            out.promise(0, Promise((), last=True))
            return
        if PANE in self._plan.output.names:
            out.promise(0, Promise((Bound(PANE, frontier),)))
        out.promise(0, Promise((Bound(ROW_NUM, counter.given + 1),)))

    def work(self, state: State, out: Out, budget: int) -> int:
        return 0

    def _numbered(self, rows: Words, first: int) -> Words:
        rows = rows[sorted_rows([sort_keys(self._column(rows, name)) for name in self._plan.order], len(rows))]
        numbers = all_valid(Kind.INT, np.arange(first, first + len(rows)))
        columns = [numbers if name == ROW_NUM else self._column(rows, name) for name in self._plan.output.names]
        return assemble(self._plan.output, columns, len(rows))

    def _column(self, rows: Words, name: str) -> Values:
        data, valid = column_of(self._plan.input, rows, name)
        return Values(self._plan.input.column(name).kind, data, valid)

    def _encode(self, piece: list[Words]) -> bytes:
        return b"".join(rows.astype("<u8", copy=False).tobytes() for rows in piece)

    def _decode(self, data: bytes) -> list[Words]:
        return [np.frombuffer(data, "<u8").reshape(-1, self._plan.input.words).astype(np.uint64)]
