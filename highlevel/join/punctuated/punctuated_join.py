"""The join of two inputs that uses windows and promises about values together (Ding 2004: PWJoin).

As in any join, a new row is matched with the kept rows, and is kept as long as a later row could match it. The frontier
bounds later rows of all values, a promise about values those of some values. A value that an input has promised below
time b has a frontier of its own, the later of the input's frontier and b:

- invalidate: when the frontier of one input moves, rows of the other whose window ends before it are dropped. Ding does
  so at each row, because the row's time is the frontier of an ordered input;
- purge: when an input promises values, the other's rows with these values whose window ends before b are dropped;
- drop on arrival: a row that only excluded rows could match later is matched with the kept rows, and is not kept;
- propagate: once an input has promised a value and has no row of it below b left, the output promises the value, too.
  This covers both of Ding's rules. If the other input promises the value, too, its rows are purged at once (theorem
  3.1). If it does not, they leave with their window: early propagation (theorem 4.1).

A row that breaks a promise of its own input is given up with the reason `punctuated`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from highlevel.interface import ONLY, Out, Space, State, Words
from highlevel.join.base import WindowJoin
from highlevel.join.lookups import Key, keys_of, matchable
from highlevel.join.punctuated.node_pieces import NodeStore, TimeBin
from highlevel.join.punctuated.nodes import Nodes
from highlevel.join.punctuated.promised_values import PromisedValues
from lowmark.query.parse.syntax import JoinKind
from lowmark.query.plan.nodes import Join
from lowmark.wire.records.punctuations import Promise
from lowmark.wire.records.verdicts import Reason
from lowmark.wire.rows.values import FOREVER, NEVER

__all__ = ["FreedRows", "PunctuatedJoinOperator"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FreedRows:
    """One input of a punctuated join in one bucket. `kept`: rows kept now. `promised`: promised values remembered.
    `freed`: rows, since the beginning, that promises of the other input have purged or kept out."""

    input: str
    kept: int
    promised: int
    freed: int


class PunctuatedJoinOperator(WindowJoin):
    """Rows of each input's schema in, on a port of its own; rows of `plan.output` out."""

    def __init__(self, plan: Join) -> None:
        if plan.kind is not JoinKind.INNER or len(plan.inputs) != 2 or not plan.equal:
            raise ValueError("promises about values help inner joins of two inputs with an equality")
        super().__init__(plan)
        self._promised = PromisedValues(plan, self._promising)
        self._stores = [self._store(port) for port in (0, 1)]
        promised = set(zip(*plan.promised_keys, strict=True))
        others = [tied for tied in zip(plan.keys(0), plan.keys(1), strict=True) if tied not in promised]
        self._others = [tuple(Key(port, tied[port]) for tied in others) for port in (0, 1)]
        self._freed: Space[list[int]] = Space("freed", lambda piece: json.dumps(piece).encode(), json.loads)

    def rows_of(self, port: int) -> Space[TimeBin]:
        """The rows kept of a port, for audits."""
        return self._stores[port].space

    def nodes(self, port: int, state: State) -> Nodes:
        """The kept rows of a port with its promised values."""
        return self._stores[port].nodes(state)

    def freed(self, state: State) -> tuple[FreedRows, ...]:
        """The freed rows by input, for metrics."""
        freed = state.get(self._freed, ONLY) or [0, 0]
        each = zip(self._plan.inputs, (self.nodes(port, state) for port in (0, 1)), freed, strict=True)
        return tuple(FreedRows(port.label, len(nodes), nodes.promised, rows) for port, nodes, rows in each)

    def on_batch(self, port: int, rows: Words, state: State, out: Out) -> None:
        bounds = self._kept.bounds(state)
        rows = self._kept.timely(port, rows, bounds, out)
        rows = rows[matchable(self._schemas[port], rows, self._plan.keys(port))]
        own, other = self.nodes(port, state), self.nodes(1 - port, state)
        keys = self._keys(port, rows)
        mine, promised = own.find(keys)
        if promised is not None and (excluded := self._times(port, rows) < promised).any():
            out.shed(port, rows[excluded], Reason.PUNCTUATED)
            rows, keys, mine = rows[~excluded], keys[~excluded], mine[~excluded]
        if not len(rows):
            return
        theirs, promised = other.find(keys)
        high = self._meet(port, rows, theirs, state, out)
        waiting = self._kept.waits(port, rows, bounds)
        if promised is not None:
            kept_out = waiting & (high <= promised)
            self._count(port, int(np.count_nonzero(kept_out)), state)
            waiting &= ~kept_out
        own.add(rows[waiting], keys[waiting], mine[waiting])
        self._stores[port].save(own, state)

    def on_promise(self, port: int, promise: Promise, state: State, out: Out) -> None:
        before = self._kept.bounds(state)
        bounds = self._kept.advance(port, promise, state)
        if bounds is not None:
            self._invalidate(1 - port, bounds, state, out)
            for made in self._promising.promises(before, bounds):
                out.promise(0, made)
            return
        keys = self._promised.keys(port, promise)
        if keys is not None and len(keys):
            pane = next((bound.below for bound in promise.bounds if bound.below is not None), FOREVER)
            self._purge(port, keys, self._kept.start(port, pane), state, out)

    def _meet(self, port: int, rows: Words, theirs: Ints, state: State, out: Out) -> Ints:
        """Emit the pairs of these rows and kept rows of the other input, given by their I-nodes. Returns for each row
        the time at which its window ends."""
        low, high = self._kept.window({port: rows}, 1 - port)
        for probing, partners in self.nodes(1 - port, state).probe(theirs, low, high):
            parts = {port: rows[probing], 1 - port: partners}
            if self._others[0]:
                one, other = (keys_of(self._schemas, parts, self._others[of]) for of in (0, 1))
                alike = (one == other).all(axis=1)
                parts = {of: each[alike] for of, each in parts.items()}
            self._emit(parts, out)
        return high

    def _invalidate(self, port: int, bounds: Sequence[int], state: State, out: Out) -> None:
        """Drop the rows of this input that no later row can match, because the other input's frontier has moved."""
        nodes = self.nodes(port, state)
        done = nodes.drop_before(self._bands.alive(port, bounds))
        if len(done) and min(bounds) < FOREVER:
            self._tell(port, done, state, out)
        self._stores[port].save(nodes, state, promised=len(done) > 0)
        for number, store in enumerate(self._stores):
            of = store.nodes(state)
            if of.expiring and of.forget_below(self._bands.output(bounds)[number]):
                store.save(of, state, promised=True)

    def _purge(self, port: int, keys: Words, bound: int, state: State, out: Out) -> None:
        """Handle an input's promise of these values below the bound."""
        if bound <= self._bands.output(self._kept.bounds(state))[port]:
            return
        own, other = self.nodes(port, state), self.nodes(1 - port, state)
        bounds = (bound, NEVER) if port == 0 else (NEVER, bound)
        (theirs, promised), before = other.find(keys), len(other)
        purged = other.purge(theirs, self._bands.alive(1 - port, bounds))
        mine, done = own.promise(keys, bound)
        self._tell(port, done, state, out, only=promised is None)
        if promised is not None:
            self._tell(1 - port, purged, state, out)
            if bound == FOREVER:  # values that both inputs exclude for ever can be forgotten
                ended = promised == FOREVER
                own.forget(mine[ended])
                other.forget(theirs[ended])
        self._stores[port].save(own, state, promised=True)
        if promised is not None or len(other) < before:
            self._count(1 - port, before - len(other), state)
            self._stores[1 - port].save(other, state, promised=promised is not None)

    def _count(self, port: int, rows: int, state: State) -> None:
        """Count rows of this input that a promise of the other one has freed."""
        if rows:
            freed = state.get(self._freed, ONLY) or [0, 0]
            freed[port] += rows
            state.put(self._freed, ONLY, freed)

    def _tell(self, port: int, done: Ints, state: State, out: Out, only: bool = False) -> None:
        """Make promises of the output about values that this input has promised and has no row of below the bound.
        `only`: the other input has promised none of them."""
        nodes, other = self.nodes(port, state), self.nodes(1 - port, state)
        if not only:  # what the other input has made promises of is excluded already
            done = done[other.told(other.find(nodes.keys(done))[0]) < FOREVER]
        bounds = nodes.tell(done)
        for bound in sorted({*bounds.tolist()}):
            for made in self._promised.promises(port, nodes.keys(done[bounds == bound]), bound):
                out.promise(0, made)

    def _store(self, port: int) -> NodeStore:
        schema = self._schemas[port]
        at = schema.offset(self._plan.inputs[port].attribute)
        return NodeStore(port, at, schema.words, partial(self._keys, port), self._kept.width)

    def _keys(self, port: int, rows: Words) -> Words:
        columns = tuple(Key(port, column) for column in self._plan.promised_keys[port])
        return keys_of(self._schemas, {port: rows}, columns)

    def _times(self, port: int, rows: Words) -> Ints:
        times: Ints = rows[:, self._schemas[port].offset(self._plan.inputs[port].attribute)].view(np.int64)
        return times
