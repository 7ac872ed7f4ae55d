"""The window join whose rows come out in order of time (Hammad 2005). A row's time is the greatest of its inputs'
times.

A row of the output may leave when all inputs have passed its time, because no older row can come then. Sync-Filter
matches rows only at that moment, in order of time, and keeps nothing but rows of the inputs. Filter-Order matches rows
at once and holds the results, so that work is done while rows wait. The adaptive choice between the two depends on the
rates of the inputs. `work` matches the rows, one at a time if its budget says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from highlevel.interface import ONLY, Out, Space, State, Words
from highlevel.join.bounds import Bounds, bounds_space
from highlevel.join.in_order.hold import HeldRows, Hold
from highlevel.join.in_order.switching import Switching, started, switching_space
from highlevel.join.in_order.unjoined import Unjoined
from highlevel.join.join import JoinOperator
from highlevel.join.lookups import matchable
from lowmark.query.plan.joins import Release
from lowmark.query.plan.nodes import Join
from lowmark.wire.records.punctuations import Promise
from lowmark.wire.rows.values import FOREVER, INT64_MIN

__all__ = ["InOrderJoinOperator"]

Ints = npt.NDArray[np.int64]


class InOrderJoinOperator(JoinOperator):
    """Rows of each input's schema in, on a port of its own; rows of the join's `output` out, in order of time."""

    def __init__(self, plan: Join) -> None:
        if plan.in_order is None:
            raise ValueError("this join needs no order")
        super().__init__(plan)
        self._choice = plan.in_order
        self._at = [port.schema.offset(port.attribute) for port in plan.inputs]
        self._unjoined = Unjoined(plan, self._kept.width)
        self._hold = Hold(self._kept.width)
        self._switching = switching_space()
        self._told: Space[Bounds] = bounds_space("told")

    @property
    def held(self) -> Space[HeldRows]:
        """The hold buffer, for audits."""
        return self._hold.space

    def filters(self, state: State) -> bool:
        """Whether rows are matched at once now (Filter-Order)."""
        return self._state(state).filters

    def switches(self, state: State) -> int:
        """How often the adaptive choice has changed."""
        return self._state(state).switches

    def passed(self, state: State) -> int:
        """All rows of the output that are older than this time are out."""
        known = state.get(self._told, ONLY)
        return INT64_MIN if known is None else known.times[0]

    def on_batch(self, port: int, rows: Words, state: State, out: Out) -> None:
        rows = self._kept.timely(port, rows, self._kept.bounds(state), out)
        rows = rows[matchable(self._schemas[port], rows, self._plan.keys(port))]
        if not len(rows):
            return
        self._unjoined.add(port, rows, state)
        if self._choice.release is Release.ADAPTIVE:
            switching = self._state(state)
            switching.count(port, self._times(port, rows))
            state.put(self._switching, ONLY, switching)

    def on_promise(self, port: int, promise: Promise, state: State, out: Out) -> None:
        before = min(self._kept.bounds(state))
        bounds = self._kept.advance(port, promise, state)
        if bounds is None:
            return
        passed = min(bounds)
        if self._choice.release is Release.ADAPTIVE and before < passed < FOREVER:
            switching = self._state(state)
            switching.decide(self._choice, self._bands.sizes, passed)
            state.put(self._switching, ONLY, switching)
        self._settle(state, out)

    def work(self, state: State, out: Out, budget: int) -> int:
        """A unit is one row that is matched."""
        before = self._before(state)
        if budget > 0 and min(self._unjoined.least(state)) < before:
            for port, rows in enumerate(self._unjoined.take(before, budget, state)):
                if len(rows):
                    self._join(port, rows, state, out)
                    self._kept.keep(port, rows, state)
            self._settle(state, out)
        return self._unjoined.count(before, state)

    def _join(self, port: int, rows: Words, state: State, out: Out) -> None:
        for parts in self._met({port: rows}, self._lookups[port], state):
            pairs, times = self._combine.rows(parts), self._greatest(parts)
            passing = self._passing(pairs, parts, out)
            if passing is not None:
                pairs, times = pairs[passing], times[passing]
            if len(pairs):
                self._hold.add(pairs, times, state)

    def _before(self, state: State) -> int:
        """The time before which rows may be matched now."""
        return FOREVER if self._state(state).filters else min(self._kept.bounds(state))

    def _still(self, bounds: Sequence[int], state: State) -> list[int]:
        """For each input, the time before which no row of it is still to be matched."""
        return [min(bound, least) for bound, least in zip(bounds, self._unjoined.least(state), strict=True)]

    def _settle(self, state: State, out: Out) -> None:
        """Output the rows whose time all inputs have passed, drop rows that can match no later row, and promise."""
        still = self._still(self._kept.bounds(state), state)
        passed = min(still)
        for rows in self._hold.release(passed, state):
            out.rows(0, rows)
        for port in range(len(still)):
            self._kept.let_go(port, still, state)
        told = self.passed(state)
        if passed > told:
            state.put(self._told, ONLY, Bounds((passed,)))
            # Each later row of the output contains an input's row of this time or later.
            ports = len(still)
            for made in self._promising.promises((told,) * ports, (passed,) * ports):
                out.promise(0, made)

    def _greatest(self, parts: Mapping[int, Words]) -> Ints:
        greatest: Ints = np.maximum.reduce([self._times(port, rows) for port, rows in parts.items()])
        return greatest

    def _times(self, port: int, rows: Words) -> Ints:
        times: Ints = rows[:, self._at[port]].view(np.int64)
        return times

    def _state(self, state: State) -> Switching:
        return state.get(self._switching, ONLY) or started(self._choice, self._bands.sizes)
