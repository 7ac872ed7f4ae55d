"""Admits rows to the join. Until then they wait in a sort buffer or on disk, as the memory strategy says (Wu, 4).

The join, and the monitor that sizes its buffers, see rows in the order of admission. The model therefore holds whatever
waits: sorting changes the scrambling that it sees, the disk changes the lags.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from highlevel.interface import ONLY, Space, State, Words
from highlevel.join.oblivious.disk_buffer import DiskBuffer, DiskRoom
from highlevel.join.oblivious.memory_policy import Handling, MemoryPolicy
from highlevel.join.oblivious.monitor import Monitor, monitor_space
from highlevel.join.oblivious.scrambling import Scrambling, scrambling_space
from highlevel.join.oblivious.sort_buffer import SortBuffer, sort_space
from lowmark.query.optimize.buffer_model import Buffering, Traits
from lowmark.wire.rows.values import FOREVER

__all__ = ["Admission", "Admitted", "InputRows"]

Ints = npt.NDArray[np.int64]
Admitted = tuple[int, Words]
"""An input and rows of it that are admitted now."""


@dataclass(frozen=True, slots=True)
class InputRows:
    """`key`: the word of a row that holds its time; rows can match if ⌊time / size⌋ is equal. `scrambling`: the input's
    scrambling factor, if it is known beforehand."""

    words: int
    key: int
    scrambling: int | None = None
    size: int = 1


class Admission:
    """Admission for all inputs of one join. `room`: where rows wait on disk; None: no row is written, but rows that an
    earlier process wrote are in the state and come first."""

    def __init__(self, inputs: Sequence[InputRows], policy: MemoryPolicy, room: DiskRoom | None) -> None:
        self._inputs = tuple(inputs)
        self._policy = policy
        self._disks = [DiskBuffer(f"disk.{at}", room, one.words, one.key) for at, one in enumerate(inputs)]
        self._sorting = [sort_space(f"sorting.{at}", one.words, one.key) for at, one in enumerate(inputs)]
        self._orders = [scrambling_space(f"order.{at}") for at in range(len(inputs))]
        # Track the order of arrival separately only where sorting can change it before the join.
        self._only = Buffering.KEEP if policy.forced is None and policy.bound is None else policy.forced
        unsorted = self._only in (Buffering.KEEP, Buffering.DISK)
        self._given = [one.scrambling if unsorted else None for one in inputs]
        self._monitor = monitor_space()
        self._promised: Space[int] = Space("untold", lambda n: json.dumps(n).encode(), json.loads)  # not yet noted
        self._strategy: Space[Buffering] = Space(
            "strategy", lambda way: json.dumps(way.value).encode(), lambda data: Buffering(json.loads(data))
        )

    def monitor(self, state: State) -> Monitor:
        """The monitor of the inputs as the join sees them."""
        return state.get(self._monitor, ONLY) or Monitor(self._given)

    def strategy(self, state: State) -> Buffering:
        return self._only or state.get(self._strategy, ONLY) or Buffering.KEEP

    def sorting(self, port: int, state: State) -> int:
        """Rows of an input that wait to be sorted."""
        piece = state.get(self._sorting[port], ONLY)
        return 0 if piece is None else len(piece.rows)

    def on_disk(self, port: int, state: State) -> int:
        """Rows of an input that wait on disk."""
        return self._disks[port].waiting(state)

    def held(self, port: int, state: State) -> int:
        """Bytes of memory in which rows of an input wait, including those on their way to the disk."""
        return self.sorting(port, state) * self._inputs[port].words * 8 + self._disks[port].held(state)

    def arrive(self, port: int, rows: Words, state: State) -> Iterator[Admitted]:
        """Take rows of an input; yields the rows that are admitted, of any input."""
        if not len(rows):
            return
        if self._only is Buffering.KEEP and not self._waits(state):
            yield self._admit(port, rows, state)
            return
        order = self._order(port, state)
        order.observe(self._keys(port, rows))
        state.put(self._orders[port], ONLY, order)
        self._decide(state)
        yield from self._pass_on(port, rows, None, state)
        yield from self._read(state)

    def promise(self, port: int, below: int, state: State) -> Iterator[Admitted]:
        """No later row of an input has a smaller time than `below`."""
        yield from self._pass_on(port, np.empty((0, self._inputs[port].words), np.uint64), below, state)
        state.put(self._promised, port, below)
        yield from self._read(state)

    def release(self, before: int, state: State) -> Iterator[Admitted]:
        """Admit the rows on disk that are older than this time, of any input."""
        for port, disk in enumerate(self._disks):
            if (least := disk.least(state)) is not None and least < before:
                for rows in disk.take(0, before - 1, state):
                    yield self._admit(port, rows, state)
        yield from self._read(state)

    def least(self, port: int, state: State) -> int:
        """The least time of an input's waiting rows; FOREVER: no row waits."""
        on_disk, piece = self._disks[port].least(state), state.get(self._sorting[port], ONLY)
        sorting = int(piece.rows[0, piece.key].view(np.int64)) if piece is not None else FOREVER
        return sorting if on_disk is None else min(sorting, on_disk)

    def forget(self, state: State) -> None:
        """Drop the keys that no later question concerns."""
        monitor = state.get(self._monitor, ONLY)
        if monitor is not None:
            monitor.forget()
            state.put(self._monitor, ONLY, monitor)

    def _waits(self, state: State) -> bool:
        """Whether any row waits. Rows can still wait after a bound of memory was lifted."""
        return any(state.keys(space) for space in self._sorting) or any(
            self.on_disk(port, state) for port in range(len(self._inputs))
        )

    def _decide(self, state: State) -> None:
        if self._only is not None:
            return
        current, monitor = self.strategy(state), self.monitor(state)
        waiting = [self.on_disk(port, state) for port in range(len(self._inputs))]
        lags = [
            [lag + waiting[port] - waiting[of] for of, lag in enumerate(row)] for port, row in enumerate(monitor.lags())
        ]
        chosen = self._policy.strategy(self._traits(state), lags, current)
        if chosen is not current:
            state.put(self._strategy, ONLY, chosen)

    def _traits(self, state: State) -> tuple[Traits, ...]:
        """The traits of the inputs as they arrive."""
        admitted = self.monitor(state).traits()
        return tuple(replace(one, scrambling=self._order(port, state).factor) for port, one in enumerate(admitted))

    def _handling(self, state: State) -> tuple[Handling, ...]:
        waiting = [self.on_disk(port, state) for port in range(len(self._inputs))]
        leads = self.monitor(state).leads()
        return self._policy.handling(self.strategy(state), self._traits(state), leads, waiting)

    def _pass_on(self, port: int, rows: Words, below: int | None, state: State) -> Iterator[Admitted]:
        """Pass rows through the sort buffer, then to the disk or to the join."""
        handling, space, disk = self._handling(state)[port], self._sorting[port], self._disks[port]
        piece = state.get(space, ONLY)
        if piece is not None or handling.holds:
            piece = piece or SortBuffer(np.empty((0, rows.shape[1]), np.uint64), self._inputs[port].key)
            rows = piece.add(rows, handling.holds, below)
            if len(piece.rows):
                state.put(space, ONLY, piece)
            else:
                state.drop(space, ONLY)
        if not len(rows):
            return
        if handling.spills:
            disk.put(rows, state)
        else:
            yield self._admit(port, rows, state)

    def _read(self, state: State) -> Iterator[Admitted]:
        """Admit the rows that have waited on disk long enough. The monitor gets a promise once the rows before it are
        admitted."""
        reads = True
        while reads:
            reads = False
            for port in state.keys(self._promised):
                if not self.on_disk(port, state):
                    below = state.get(self._promised, port)
                    assert below is not None, "a listed piece is there"
                    self._tell(port, below, state)
            if not any(self.on_disk(port, state) for port in range(len(self._inputs))):
                return
            for port, one in enumerate(self._handling(state)):
                if one.reads:
                    reads = True
                    for rows in self._disks[port].take(one.reads, None, state):
                        yield self._admit(port, rows, state)

    def _tell(self, port: int, below: int, state: State) -> None:
        monitor = self.monitor(state)
        monitor.promise(port, below if below == FOREVER else below // self._inputs[port].size)
        state.put(self._monitor, ONLY, monitor)
        state.drop(self._promised, port)

    def _admit(self, port: int, rows: Words, state: State) -> Admitted:
        monitor = self.monitor(state)
        monitor.observe(port, self._keys(port, rows))
        state.put(self._monitor, ONLY, monitor)
        return port, rows

    def _keys(self, port: int, rows: Words) -> Ints:
        one = self._inputs[port]
        keys: Ints = rows[:, one.key].view(np.int64)
        return keys if one.size == 1 else keys // one.size

    def _order(self, port: int, state: State) -> Scrambling:
        return state.get(self._orders[port], ONLY) or Scrambling(self._inputs[port].scrambling)
