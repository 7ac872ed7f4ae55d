"""The window join, agnostic of order (Li 7.1: OA-Join), of any number of inputs.

A new row meets the rows of the other inputs that are kept, and is kept itself for as long as a row still to come could
meet it. So each combination is found once: by the last of its rows. What an input promises lets go of rows of the
others; what all promised bounds the times of later rows of the join, one by one and together (Li 7.2).

Rows are kept by port in bins of time, each with an index by the columns that must be equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from highlevel.aggregate.splitting import split
from highlevel.interface import Out, Port, Space, State, Words
from highlevel.join.bins import Bin, bins_space
from highlevel.join.bounds import ONLY, Bounds, bounds_space
from highlevel.join.lookups import Key, Lookup, keys_of, lookups, matchable
from highlevel.join.output import Combine
from highlevel.join.promising import Promising
from lowmark.query.bands import Bands
from lowmark.query.evaluate import holds
from lowmark.query.plan import Join
from lowmark.wire.partials import PANE
from lowmark.wire.promises import FOREVER, Promise
from lowmark.wire.values import INT64_MAX, INT64_MIN

__all__ = ["JoinOperator"]

Ints = npt.NDArray[np.int64]

_BINS = 16
"""Into which the time that a row is kept is divided: fewer are probed sooner, more are let go of sooner."""


class JoinOperator:
    """Rows of each input's schema in, on a port of its own; rows of `plan.output` out."""

    def __init__(self, plan: Join) -> None:
        self._plan = plan
        self._bands = plan.bands
        self._schemas = [port.schema for port in plan.inputs]
        self._times = [port.schema.offset(port.attribute) for port in plan.inputs]
        self._lookups = lookups(plan)
        self._keys = [
            tuple(c for columns in plan.equal if (c := columns[n]) is not None) for n in range(len(plan.inputs))
        ]
        self._combine = Combine(plan)
        self._promising = Promising(plan)
        self._width = _width(self._bands, max(port.unit for port in plan.inputs))
        self._bins = [bins_space(f"rows.{n}", at) for n, at in enumerate(self._times)]
        self._bounds = bounds_space()

    @property
    def inputs(self) -> tuple[Port, ...]:
        return tuple(Port(port.schema, (PANE,)) for port in self._plan.inputs)

    @property
    def outputs(self) -> tuple[Port, ...]:
        return (Port(self._plan.output, self._promising.columns),)

    def rows_of(self, port: int) -> Space[Bin]:
        """The rows that are kept of a port, for audits."""
        return self._bins[port]

    def on_batch(self, port: int, rows: Words, state: State, out: Out) -> None:
        bounds = self._known(state)
        times = self._time(port, rows)
        if len(times) and times.min() < bounds[port]:
            late = times < bounds[port]
            out.late(port, rows[late])
            rows = rows[~late]
        rows = rows[matchable(self._schemas[port], rows, self._keys[port])]
        if not len(rows):
            return
        for parts in self._met({port: rows}, self._lookups[port], state):
            pairs = self._combine.rows(parts)
            if self._plan.where is not None:
                pairs = pairs[holds(self._plan.where, pairs, self._plan.output)]
            if len(pairs):
                out.rows(0, pairs)
        self._keep(port, rows, bounds, state)

    def on_promise(self, port: int, promise: Promise, state: State, out: Out) -> None:
        pane = promise.below(PANE)
        before = self._known(state)
        bound = None if pane is None else self._time_of(port, pane)
        if bound is None or bound <= before[port]:
            return
        bounds = (*before[:port], bound, *before[port + 1 :])
        state.put(self._bounds, ONLY, Bounds(bounds))
        for other in range(len(bounds)):
            if other != port:
                self._let_go(other, self._bands.alive(other, bounds), state)
        for made in self._promising.promises(before, bounds):
            out.promise(0, made)

    def work(self, state: State, out: Out, budget: int) -> int:
        return 0

    def _known(self, state: State) -> tuple[int, ...]:
        known = state.get(self._bounds, ONLY)
        return (INT64_MIN,) * len(self._plan.inputs) if known is None else known.times

    def _time_of(self, port: int, pane: int) -> int:
        """The least time of a row of this pane."""
        return FOREVER if pane == FOREVER else min(max(pane * self._plan.inputs[port].unit, INT64_MIN), INT64_MAX - 1)

    def _time(self, port: int, rows: Words) -> Ints:
        times: Ints = rows[:, self._times[port]].view(np.int64)
        return times

    def _met(self, parts: Mapping[int, Words], rest: Sequence[Lookup], state: State) -> Iterator[Mapping[int, Words]]:
        """All combinations of these with rows of the inputs that are left, in runs."""
        if not rest:
            yield parts
            return
        lookup = rest[0]
        low, high = self._window(parts, lookup.port)
        keys = keys_of(self._schemas, parts, lookup.equals)
        own = tuple(Key(lookup.port, column) for column in lookup.columns)
        for piece in self._reached(lookup.port, low, high, state):
            found = piece.probe(
                lookup.way, lambda rows: keys_of(self._schemas, {lookup.port: rows}, own), keys, low, high
            )
            for probing, stored in found:
                grown = {port: rows[probing] for port, rows in parts.items()}
                yield from self._met(grown | {lookup.port: piece.rows[stored]}, rest[1:], state)

    def _window(self, parts: Mapping[int, Words], port: int) -> tuple[Ints, Ints]:
        """Of each combination, from when up to when rows of another input are in the windows of all of its rows."""
        windows = [_partners(self._bands, of, self._time(of, rows), port) for of, rows in parts.items()]
        low = np.maximum.reduce([low for low, _ in windows])
        high = np.minimum.reduce([high for _, high in windows])
        return low, high

    def _reached(self, port: int, low: Ints, high: Ints, state: State) -> Iterator[Bin]:
        first, last = int(low.min()) // self._width, (int(high.max()) - 1) // self._width
        for key in state.keys(self._bins[port], last + 1):
            if key >= first:
                piece = state.get(self._bins[port], key)
                assert piece is not None, "a listed piece is there"
                yield piece

    def _keep(self, port: int, rows: Words, bounds: Sequence[int], state: State) -> None:
        rows = rows[self._time(port, rows) >= self._bands.alive(port, bounds)]
        for key, part in split(self._time(port, rows) // self._width, rows):
            piece = state.get(self._bins[port], key)
            if piece is None:
                piece = Bin(part.copy(), self._times[port])
            else:
                piece.append(part)
            state.put(self._bins[port], key, piece)

    def _let_go(self, port: int, alive: int, state: State) -> None:
        """Of the rows that no row still to come can meet."""
        space = self._bins[port]
        for key in state.keys(space, None if alive == FOREVER else alive // self._width + 1):
            piece = None if (key + 1) * self._width <= alive else state.get(space, key)
            changed = piece is not None and piece.keep_from(alive)
            if piece is None or not len(piece):
                state.drop(space, key)
            elif changed:
                state.put(space, key, piece)


def _width(bands: Bands, unit: int) -> int:
    """Of a bin, in ns: tumbling windows are bins."""
    if bands.tumbling:
        return bands.sizes[0]
    longest = max(sum(bands.reach(of, other)) for of in range(len(bands.sizes)) for other in range(of))
    return max(unit, -(-longest // (_BINS * unit)) * unit)


def _partners(bands: Bands, of: int, times: Ints, other: int) -> tuple[Ints, Ints]:
    """`Bands.partners` of many times. They end where time does."""
    if bands.tumbling:
        size = bands.sizes[of]
        low = np.floor_divide(times, size) * size
        return low, _added(low, size)
    before, after = bands.reach(of, other)
    return _added(times, -before), _added(times, after)


def _added(times: Ints, by: int) -> Ints:
    limit = INT64_MAX - by if by > 0 else INT64_MIN - by
    within = np.minimum(times, limit) if by > 0 else np.maximum(times, limit)
    return within + by
