"""Ding's rivals of the punctuated join (2004, 6): WJoin knows windows alone, PJoin promises about values alone.

Both keep rows in the nodes of the punctuated join and work along them with its kernels, so that they differ in what
they know alone.
"""

from __future__ import annotations

from dataclasses import replace

from highlevel.interface import Out, State, Words
from highlevel.join.lookups import matchable
from highlevel.join.punctuated import PunctuatedJoinOperator
from highlevel.join.punctuated.nodes import Ints
from lowmark.query.plan.nodes import Join
from lowmark.wire.records.punctuations import Promise
from lowmark.wire.rows.values import FOREVER

__all__ = ["PJoin", "WJoin"]

_FOR_EVER_NS = 10 * 365 * 86_400 * 10**9
"""A window in which everything of a run lies."""


class WJoin(PunctuatedJoinOperator):
    """The window join: invalidates and probes; promises about values are not for it."""

    def on_batch(self, port: int, rows: Words, state: State, out: Out) -> None:
        bounds = self._kept.bounds(state)
        rows = self._kept.timely(port, rows, bounds, out)
        rows = rows[matchable(self._schemas[port], rows, self._plan.keys(port))]
        if not len(rows):
            return
        own, keys = self.nodes(port, state), self._keys(port, rows)
        self._meet(port, rows, self.nodes(1 - port, state).find(keys)[0], state, out)
        waiting = self._kept.waits(port, rows, bounds)
        rows, keys = rows[waiting], keys[waiting]
        own.add(rows, keys, own.find(keys)[0])
        self._stores[port].save(own, state)

    def on_promise(self, port: int, promise: Promise, state: State, out: Out) -> None:
        before = self._kept.bounds(state)
        bounds = self._kept.advance(port, promise, state)
        if bounds is not None:
            nodes = self.nodes(1 - port, state)
            nodes.drop_before(self._plan.bands.alive(1 - port, bounds))
            self._stores[1 - port].save(nodes, state)
            for made in self._promising.promises(before, bounds):
                out.promise(0, made)


class PJoin(PunctuatedJoinOperator):
    """The join of section 3.1, without a window: purges, and promises a value once both inputs have."""

    def __init__(self, plan: Join) -> None:
        inputs = tuple(replace(port, size=_FOR_EVER_NS) for port in plan.inputs)
        super().__init__(replace(plan, inputs=inputs))

    def _tell(self, port: int, done: Ints, state: State, out: Out, only: bool = False) -> None:
        _, promised = self.nodes(1 - port, state).find(self.nodes(port, state).keys(done))
        if promised is not None:
            super()._tell(port, done[promised == FOREVER], state, out, only)
