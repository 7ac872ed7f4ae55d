"""The window join of any number of inputs whose rows come in any order (Li 7.1: OA-Join).

A new row is matched with the kept rows of the other inputs, and is kept itself as long as a later row could match it.
Each combination is found once, by the last of its rows. An input's promise releases rows of the others; all promises
together bound the times of later rows of the join, singly and jointly (Li 7.2). With three or more inputs, `absence`
also releases rows for which one input has nothing more to send.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from highlevel.interface import Out, Space, State, Words
from highlevel.join.base import WindowJoin
from highlevel.join.bins import Bin
from highlevel.join.lookups import Lookup, lookups, matchable
from lowmark.query.plan.nodes import Join
from lowmark.wire.records.punctuations import Promise

__all__ = ["JoinOperator"]


class JoinOperator(WindowJoin):
    """Rows of each input's schema in, on a port of its own; rows of `plan.output` out."""

    def __init__(self, plan: Join) -> None:
        super().__init__(plan)
        self._lookups = lookups(plan)

    def rows_of(self, port: int) -> Space[Bin]:
        """The rows kept of a port, for audits."""
        return self._kept.bins(port)

    def on_batch(self, port: int, rows: Words, state: State, out: Out) -> None:
        bounds = self._kept.bounds(state)
        rows = self._kept.timely(port, rows, bounds, out)
        rows = rows[matchable(self._schemas[port], rows, self._plan.keys(port))]
        if not len(rows):
            return
        for parts in self._met({port: rows}, self._lookups[port], state):
            self._emit(parts, out)
        keys = self._kept.keep(port, rows[self._kept.waits(port, rows, bounds)], state)
        if len(bounds) > 2:
            self._kept.absence.let_go([(port, key) for key in keys], bounds, state)

    def on_promise(self, port: int, promise: Promise, state: State, out: Out) -> None:
        before = self._kept.bounds(state)
        bounds = self._kept.advance(port, promise, state)
        if bounds is None:
            return
        gone = [(other, self._kept.let_go(other, bounds, state)) for other in range(len(bounds)) if other != port]
        if len(bounds) > 2:
            absence = self._kept.absence
            in_vain = absence.excluded(port, before[port], bounds[port], state)
            in_vain += [found for other, keys in gone for found in absence.around(other, keys, state)]
            absence.let_go(in_vain, bounds, state)
        for made in self._promising.promises(before, bounds):
            out.promise(0, made)

    def _met(self, parts: Mapping[int, Words], rest: Sequence[Lookup], state: State) -> Iterator[Mapping[int, Words]]:
        """All combinations of these rows with rows of the remaining inputs, in runs."""
        if not rest:
            yield parts
            return
        lookup = rest[0]
        for _, piece, found in self._partners(parts, lookup, state):
            for probing, stored in found:
                grown = {port: rows[probing] for port, rows in parts.items()}
                yield from self._met(grown | {lookup.port: piece.rows[stored]}, rest[1:], state)
