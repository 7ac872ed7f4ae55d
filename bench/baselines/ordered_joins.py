"""Window joins of two inputs whose rows come out in order of the first input's time (Li 7.3): by an output buffer
(OPOB), and by a buffer of the first input (OPIB).

Both take what `highlevel.join` takes, and keep rows in the same bins, so that they differ in what they wait for alone.
They tell how far they have come on the first input's time, as an order does: nothing of both times together.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from highlevel.interface import MarkOut, Out, Space, State, Words
from highlevel.join import JoinOperator
from highlevel.join.base import WindowJoin
from highlevel.join.lookups import Key, keys_of, lookups, matchable
from highlevel.row_marks import RowMark
from lowmark.query.expr.evaluate import Ints, evaluate, holds
from lowmark.query.plan.nodes import Join
from lowmark.wire.records.punctuations import Bound, Promise
from lowmark.wire.records.verdicts import Reason
from lowmark.wire.rows.values import FOREVER, INT64_MIN

__all__ = ["InputBufferedJoin", "OutputBufferedJoin", "Waiting"]

_BIN_NS = 10**9


class Waiting:
    """Rows of the output that wait for their turn."""

    def __init__(self) -> None:
        self.parts: list[Words] = []

    @property
    def held(self) -> int:
        return sum(part.nbytes for part in self.parts)


class OutputBufferedJoin:
    """Joins as the join that knows no order, and sorts what comes out: a row leaves when the first input's time has
    passed it."""

    def __init__(self, plan: Join) -> None:
        self._inner = JoinOperator(plan)
        self._time, self._at = _first_time(plan)
        words = plan.output.words
        self._waiting: Space[Waiting] = Space("waiting", _encode, lambda data: _decode(data, words))

    def on_batch(self, port: int, rows: Words, state: State, out: Out) -> None:
        made = _Made(out)
        self._inner.on_batch(port, rows, state, made)
        for part in made.parts:
            bins = part[:, self._at].view(np.int64) // _BIN_NS
            for key in np.unique(bins).tolist():
                waiting = state.get(self._waiting, key) or Waiting()
                waiting.parts.append(part[bins == key])
                state.put(self._waiting, key, waiting)

    def on_promise(self, port: int, promise: Promise, state: State, out: Out) -> None:
        made = _Made(out)
        self._inner.on_promise(port, promise, state, made)
        for told in made.promises:
            bound = FOREVER if told.last else told.below(self._time) if len(told.bounds) == 1 else None
            if bound is not None:
                for rows in self._ready(bound, state):
                    out.rows(0, rows)
                out.promise(0, told)

    def on_mark(self, port: int, mark: RowMark, state: State, out: MarkOut) -> None:
        self._inner.on_mark(port, mark, state, out)

    def work(self, state: State, out: Out, budget: int) -> int:
        return 0

    def _ready(self, bound: int, state: State) -> Iterator[Words]:
        """The rows before the bound, in order."""
        for key in state.keys(self._waiting, None if bound == FOREVER else bound // _BIN_NS + 1):
            waiting = state.get(self._waiting, key)
            assert waiting is not None, "a listed piece is there"
            rows = np.concatenate(waiting.parts)
            rows = rows[np.argsort(rows[:, self._at].view(np.int64), kind="stable")]
            end = int(np.searchsorted(rows[:, self._at].view(np.int64), bound))
            if end == len(rows):
                state.drop(self._waiting, key)
            else:
                waiting.parts = [rows[end:]]
                state.put(self._waiting, key, waiting)
            if end:
                yield rows[:end]


class InputBufferedJoin(WindowJoin):
    """A row of the first input waits until all its partners have come, and none before it can come any more; then it
    meets them. The second input's rows wait for that."""

    def __init__(self, plan: Join) -> None:
        super().__init__(plan)
        ((self._lookup,), _) = lookups(plan)
        self._time, self._at = _first_time(plan)
        self._own = plan.inputs[0].schema.offset(plan.inputs[0].attribute)
        self._told = INT64_MIN

    def on_batch(self, port: int, rows: Words, state: State, out: Out) -> None:
        rows = self._kept.timely(port, rows, self._kept.bounds(state), out)
        self._kept.keep(port, rows[matchable(self._schemas[port], rows, self._plan.keys(port))], state)

    def on_promise(self, port: int, promise: Promise, state: State, out: Out) -> None:
        bounds = self._kept.advance(port, promise, state)
        if bounds is None:
            return
        ready = min(bounds[0], self._plan.bands.alive(0, bounds))
        for rows in self._taken(ready, state):
            for pairs in self._met(rows, state):
                out.rows(0, pairs)
        self._kept.let_go(1, (ready, bounds[1]), state)
        if bounds == (FOREVER, FOREVER):
            out.promise(0, Promise((), last=True))
        elif ready > self._told:
            self._told = ready
            out.promise(0, Promise((Bound(self._time, below=ready),)))

    def work(self, state: State, out: Out, budget: int) -> int:
        return 0

    def _taken(self, ready: int, state: State) -> Iterator[Words]:
        """Rows of the first input before this time, in order."""
        space = self._kept.bins(0)
        for key in state.keys(space):
            piece = state.get(space, key)
            assert piece is not None, "a listed piece is there"
            rows = piece.take_before(ready)
            if not len(piece):
                state.drop(space, key)
            if not len(rows):
                break
            yield rows[np.argsort(rows[:, self._own].view(np.int64), kind="stable")]

    def _met(self, rows: Words, state: State) -> Iterator[Words]:
        """The pairs of rows that stand in order, in order."""
        lookup, found = self._lookup, []
        low, high = self._kept.window({0: rows}, 1)
        keys = keys_of(self._schemas, {0: rows}, lookup.equals)
        own = tuple(Key(1, column) for column in lookup.columns)
        for _, piece in self._kept.reached(1, low, high, state):
            runs = piece.probe(
                lookup.way, lambda stored: keys_of(self._schemas, {1: stored}, own), lookup.places, keys, low, high
            )
            for probing, stored in runs:
                pairs = self._combine.rows({0: rows[probing], 1: piece.rows[stored]})
                if self._plan.where is not None:
                    pairs = pairs[holds(evaluate(self._plan.where, pairs, self._plan.output))]
                found.append(pairs)
        if found:
            pairs = np.concatenate(found)
            yield pairs[np.argsort(_times(pairs, self._at), kind="stable")]


class _Made:
    """What the join inside gives out."""

    def __init__(self, out: Out) -> None:
        self._out = out
        self.parts: list[Words] = []
        self.promises: list[Promise] = []

    def rows(self, port: int, rows: Words) -> None:
        self.parts.append(rows)

    def promise(self, port: int, promise: Promise) -> None:
        self.promises.append(promise)

    def closed(self, port: int, windows: range, tuples: int) -> None:
        self._out.closed(port, windows, tuples)

    def late(self, port: int, rows: Words) -> None:
        self._out.late(port, rows)

    def shed(self, port: int, rows: Words, reason: Reason) -> None:
        self._out.shed(port, rows, reason)

    def mark(self, port: int, mark: RowMark) -> None:
        self._out.mark(port, mark)

    def flaw(self, port: int, window: int, reason: Reason) -> None:
        self._out.flaw(port, window, reason)


def _first_time(plan: Join) -> tuple[str, int]:
    """The first input's time in the output: its name, and its word in a row."""
    name = plan.inputs[0].progress[0].name
    return name, plan.output.offset(name)


def _times(rows: Words, at: int) -> Ints:
    times: Ints = rows[:, at].view(np.int64)
    return times


def _encode(piece: Waiting) -> bytes:
    return b"".join(part.astype("<u8", copy=False).tobytes() for part in piece.parts)


def _decode(data: bytes, words: int) -> Waiting:
    piece = Waiting()
    piece.parts = [np.frombuffer(data, "<u8").reshape(-1, words).astype(np.uint64)]
    return piece
