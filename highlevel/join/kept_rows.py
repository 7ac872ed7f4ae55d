"""The rows that a join keeps: by port, in bins of time, as long as a later row can match them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from highlevel.groups.split import split
from highlevel.interface import ONLY, Out, Space, State, Words
from highlevel.join.absence import Absence
from highlevel.join.bins import Bin, bins_space
from highlevel.join.bounds import Bounds, bounds_space
from highlevel.row_marks import Extent
from lowmark.query.plan.nodes import Join
from lowmark.query.windows.join_bands import Bands
from lowmark.wire.records.partials import PANE
from lowmark.wire.records.punctuations import Promise
from lowmark.wire.rows.values import FOREVER, INT64_MAX, INT64_MIN

__all__ = ["Kept", "partners_of"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_BINS = 16
"""Bins that cover the time for which a row is kept. With more bins, fewer rows are probed and rows are released
sooner."""


class Kept:
    """Kept rows, and the bounds of the ports: no later row of a port lies before its bound."""

    def __init__(self, plan: Join) -> None:
        self._bands = plan.bands
        self._units = [port.unit for port in plan.inputs]
        self._times = [port.schema.offset(port.attribute) for port in plan.inputs]
        self._granule = plan.granule
        self._width = _width(plan)
        self._bins = [bins_space(f"rows.{n}", at) for n, at in enumerate(self._times)]
        self._bounds = bounds_space()
        self.absence = Absence(self._bands, self._width, self._bins)

    @property
    def width(self) -> int:
        """Width of a bin, in ns."""
        return self._width

    def bins(self, port: int) -> Space[Bin]:
        return self._bins[port]

    def bounds(self, state: State) -> tuple[int, ...]:
        known = state.get(self._bounds, ONLY)
        return (INT64_MIN,) * len(self._times) if known is None else known.times

    def advance(self, port: int, promise: Promise, state: State) -> tuple[int, ...] | None:
        """The bounds after this promise; None: the promise moves no bound."""
        pane, before = promise.below(PANE), self.bounds(state)
        bound = INT64_MIN if pane is None else self.start(port, pane)
        if bound <= before[port]:
            return None
        bounds = (*before[:port], bound, *before[port + 1 :])
        state.put(self._bounds, ONLY, Bounds(bounds))
        return bounds

    def timely(self, port: int, rows: Words, bounds: Sequence[int], out: Out) -> Words:
        """The rows that are not late; the others are reported as late."""
        late = self._time(port, rows) < bounds[port]
        if not late.any():
            return rows
        out.late(port, rows[late])
        return rows[~late]

    def window(self, parts: Mapping[int, Words], port: int) -> tuple[Ints, Ints]:
        """For each combination of rows, the times (from, up to) of another port's rows that are in all windows."""
        windows = [partners_of(self._bands, of, self._time(of, rows), port) for of, rows in parts.items()]
        low = np.maximum.reduce([low for low, _ in windows])
        high = np.minimum.reduce([high for _, high in windows])
        return low, high

    def reached(self, port: int, low: Ints, high: Ints, state: State) -> Iterator[tuple[int, Bin]]:
        """The bins that may hold rows of these times, with their keys."""
        first, last = int(low.min()) // self._width, (int(high.max()) - 1) // self._width
        for key in state.keys(self._bins[port], last + 1):
            if key >= first:
                piece = state.get(self._bins[port], key)
                assert piece is not None, "a listed piece is there"
                yield key, piece

    def times(self, parts: Mapping[int, Words], chosen: Bools) -> Extent:
        """The least and greatest time of all rows in these combinations."""
        times = np.concatenate([self._time(of, rows)[chosen] for of, rows in parts.items()])
        return int(times.min()), int(times.max()) + 1

    def waits(self, port: int, rows: Words, bounds: Sequence[int]) -> Bools:
        """Which rows a later row can match."""
        waiting: Bools = self._time(port, rows) >= self._bands.alive(port, bounds)
        return waiting

    def keep(self, port: int, rows: Words, state: State) -> list[int]:
        """Keep the rows; returns the keys of their bins."""
        keys = []
        for key, part in split(self._time(port, rows) // self._width, rows):
            piece = state.get(self._bins[port], key)
            if piece is None:
                piece = Bin(part.copy(), self._times[port])
            else:
                piece.append(part)
            state.put(self._bins[port], key, piece)
            keys.append(key)
        return keys

    def let_go(self, port: int, bounds: Sequence[int], state: State) -> Sequence[int]:
        """Drop the rows that no later row can match; returns the keys of their bins. Bins that are dropped as a whole
        are not loaded."""
        alive, space = self._bands.alive(port, bounds), self._bins[port]
        old = self._old(port, alive, state)
        for key in old:
            if (key + 1) * self._width <= alive:
                state.drop(space, key)
            else:
                self._take(port, key, alive, state)
        return old

    def take_out(self, port: int, bounds: Sequence[int], state: State) -> Iterator[Words]:
        """As `let_go`, but returns the dropped rows."""
        alive = self._bands.alive(port, bounds)
        for key in self._old(port, alive, state):
            gone = self._take(port, key, alive, state)
            if len(gone):
                yield gone

    def _old(self, port: int, alive: int, state: State) -> Sequence[int]:
        return state.keys(self._bins[port], None if alive == FOREVER else alive // self._width + 1)

    def changed(self, port: int, key: int, piece: Bin, state: State) -> None:
        """Store a bin after rows of it were removed or changed."""
        piece.alter()
        if len(piece):
            state.put(self._bins[port], key, piece)
        else:
            state.drop(self._bins[port], key)

    def _take(self, port: int, key: int, alive: int, state: State) -> Words:
        piece = state.get(self._bins[port], key)
        assert piece is not None, "a listed piece is there"
        gone = piece.take_before(alive)
        if len(gone):
            self.changed(port, key, piece, state)
        return gone

    def start(self, port: int, pane: int) -> int:
        """The least time of a row of this pane."""
        return FOREVER if pane == FOREVER else min(max(pane * self._units[port], INT64_MIN), INT64_MAX - 1)

    def _time(self, port: int, rows: Words) -> Ints:
        times: Ints = rows[:, self._times[port]].view(np.int64)
        return times


def _width(plan: Join) -> int:
    """Width of a bin, in ns: a tumbling window is a bin. A window that comes from an equality of times may be as short
    as 1 ns. The keys then tell windows apart, so a bin holds as many windows as end in one granule."""
    bands, unit = plan.bands, plan.granule
    if bands.tumbling:
        return bands.sizes[0] * (max(1, -(-unit // bands.sizes[0])) if plan.windowless else 1)
    longest = max(sum(bands.reach(of, other)) for of in range(len(bands.sizes)) for other in range(of))
    return max(unit, -(-longest // (_BINS * unit)) * unit)


def partners_of(bands: Bands, of: int, times: Ints, other: int) -> tuple[Ints, Ints]:
    """`Bands.partners` for many times, limited to int64."""
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
