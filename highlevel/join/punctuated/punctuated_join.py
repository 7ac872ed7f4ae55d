"""The join of two inputs that uses windows and promises about values together (Ding 2004: PWJoin).

As in any join a new row meets the rows that are there, and is kept as long as a later row could meet it. Which rows can
follow is known in two ways: the frontier says it of all values, a promise about values of some. A value that an input
has promised below time b has a frontier of its own there, the later of the two:

- invalidate: when the frontier of one input moves, rows of the other leave whose window ends before it. Ding does so at
  each row, whose time is the frontier where inputs are in order;
- purge: when an input promises values, the rows of the other leave that have them and whose window ends before b;
- drop on arrival: a row that only excluded rows could meet meets those that are there, and is not kept;
- propagate: once an input has promised a value and no row of it below b is left, no later row of the output holds one.
  This covers both of Ding's rules. If the other input promises the value, too, its rows are purged at once (theorem
  3.1). If it does not, they leave with their window: early propagation (theorem 4.1).

A row that breaks a promise of its own input is given up: `punctuated`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from highlevel.interface import Out, Space, State, Words
from highlevel.join.base import WindowJoin
from highlevel.join.lookups import Key, keys_of, matchable
from highlevel.join.punctuated.nodes import Nodes, NodeStore, TimeBin
from highlevel.join.punctuated.promised_values import PromisedValues
from lowmark.query.parse.syntax import JoinKind
from lowmark.query.plan.nodes import Join
from lowmark.wire.records.punctuations import Promise
from lowmark.wire.records.verdicts import Reason
from lowmark.wire.rows.values import FOREVER, NEVER

__all__ = ["PunctuatedJoinOperator"]

Ints = npt.NDArray[np.int64]

_NONE = np.empty(0, np.int64)


class PunctuatedJoinOperator(WindowJoin):
    """Rows of each input's schema in, on a port of its own; rows of `plan.output` out."""

    def __init__(self, plan: Join) -> None:
        if plan.kind is not JoinKind.INNER or len(plan.inputs) != 2 or not plan.equal:
            raise ValueError("promises about values help inner joins of two inputs with an equality")
        super().__init__(plan)
        self._promised = PromisedValues(plan, self._promising)
        self._stores = [self._store(port) for port in (0, 1)]

    def rows_of(self, port: int) -> Space[TimeBin]:
        """The rows kept of a port, for audits."""
        return self._stores[port].space

    def nodes(self, port: int, state: State) -> Nodes:
        """The same, with what is known of promised values."""
        return self._stores[port].nodes(state)

    def on_batch(self, port: int, rows: Words, state: State, out: Out) -> None:
        bounds = self._kept.bounds(state)
        rows = self._kept.timely(port, rows, bounds, out)
        rows = rows[matchable(self._schemas[port], rows, self._plan.keys(port))]
        own, other = self.nodes(port, state), self.nodes(1 - port, state)
        keys = self._keys(port, rows)
        mine = own.find(keys)
        excluded = self._times(port, rows) < own.bounds(mine)
        if excluded.any():
            out.shed(port, rows[excluded], Reason.PUNCTUATED)
            rows, keys, mine = rows[~excluded], keys[~excluded], mine[~excluded]
        if not len(rows):
            return
        theirs = other.find(keys)
        high = self._meet(port, rows, theirs, state, out)
        waiting = self._kept.waits(port, rows, bounds) & (high > other.bounds(theirs))
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

    def work(self, state: State, out: Out, budget: int) -> int:
        return 0

    def _meet(self, port: int, rows: Words, theirs: Ints, state: State, out: Out) -> Ints:
        """Emit the pairs of these rows and kept rows of the other input, given by their I-nodes. Returns for each row
        the time at which its window ends."""
        low, high = self._kept.window({port: rows}, 1 - port)
        for probing, partners in self.nodes(1 - port, state).probe(theirs, low, high):
            self._emit({port: rows[probing], 1 - port: partners}, out)
        return high

    def _invalidate(self, port: int, bounds: Sequence[int], state: State, out: Out) -> None:
        """The other input's frontier has moved: drop the rows of this one that no later row can match."""
        least = self._plan.bands.output(bounds)
        for number, store in enumerate(self._stores):
            nodes = store.nodes(state)
            done = nodes.drop_before(self._plan.bands.alive(port, bounds)) if number == port else _NONE
            if len(done) and min(bounds) < FOREVER:
                self._tell(number, done, state, out)
            forgotten = nodes.forget_below(least[number])
            if forgotten or number == port:
                store.save(nodes, state, promised=forgotten or len(done) > 0)

    def _purge(self, port: int, keys: Words, bound: int, state: State, out: Out) -> None:
        """This input promises these values below the bound."""
        if bound <= self._plan.bands.output(self._kept.bounds(state))[port]:
            return
        own, other = self.nodes(port, state), self.nodes(1 - port, state)
        bounds = (bound, NEVER) if port == 0 else (NEVER, bound)
        theirs = other.find(keys)
        purged = other.purge(theirs, self._plan.bands.alive(1 - port, bounds))
        mine, done = own.promise(keys, bound)
        self._tell(port, done, state, out)
        self._tell(1 - port, purged, state, out)
        if bound == FOREVER:  # of values that both inputs exclude for ever nothing has to be known any more
            ended = (own.bounds(mine) == FOREVER) & (other.bounds(theirs) == FOREVER)
            own.forget(mine[ended])
            other.forget(theirs[ended])
        for store, nodes in zip(self._stores, (own, other) if port == 0 else (other, own), strict=True):
            store.save(nodes, state, promised=True)

    def _tell(self, port: int, done: Ints, state: State, out: Out) -> None:
        """Promise what follows of values that this input has promised and of which it has no row below the bound."""
        if not len(done):
            return
        nodes, other = self.nodes(port, state), self.nodes(1 - port, state)
        done = nodes.untold(done)
        done = done[other.told(other.find(nodes.keys(done))) < FOREVER]  # else no row of the value was to come before
        bounds = nodes.bounds(done)
        for bound in np.unique(bounds).tolist():
            for made in self._promised.promises(port, nodes.keys(done[bounds == bound]), bound):
                out.promise(0, made)

    def _store(self, port: int) -> NodeStore:
        schema = self._schemas[port]
        at = schema.offset(self._plan.inputs[port].attribute)
        return NodeStore(port, at, schema.words, partial(self._keys, port), self._kept.width)

    def _keys(self, port: int, rows: Words) -> Words:
        columns = tuple(Key(port, column) for column in self._plan.keys(port))
        return keys_of(self._schemas, {port: rows}, columns)

    def _times(self, port: int, rows: Words) -> Ints:
        times: Ints = rows[:, self._schemas[port].offset(self._plan.inputs[port].attribute)].view(np.int64)
        return times
