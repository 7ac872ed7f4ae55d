"""Rows on their way to a window-oblivious join: whatever waits where, buffers by the model lose no result."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from highlevel.interface import State
from highlevel.join.oblivious.admission import Admission, Admitted, InputRows
from highlevel.join.oblivious.disk_buffer import DiskRoom
from highlevel.join.oblivious.memory_policy import MemoryPolicy
from highlevel.state import MemoryByteStore, MemoryState, PiecewiseState
from lowmark.query.optimize.buffer_model import Buffering
from lowmark.wire.rows.values import FOREVER
from tests.join.scrambled import Arrival, arrivals, keys_of, results, scrambling


class Buffers:
    """The results of rows as they are admitted, if each input keeps its last rows only."""

    def __init__(self, inputs: int) -> None:
        self.made = 0
        self.came: list[Arrival] = []
        self._keys: list[list[int]] = [[] for _ in range(inputs)]
        self._gone = [0] * inputs

    def add(self, admitted: Iterable[Admitted], admission: Admission, state: State) -> None:
        for port, rows in admitted:
            for key in rows[:, 0].view(np.int64).tolist():
                self.came.append((port, key))
                self._keys[port].append(key)
                pairs = 1
                for of, (keys, gone) in enumerate(zip(self._keys, self._gone, strict=True)):
                    pairs *= 1 if of == port else keys[gone:].count(key)
                self.made += pairs
            needed = admission.monitor(state).buffers()
            self._gone = [
                max(gone, len(keys) - n) for gone, keys, n in zip(self._gone, self._keys, needed, strict=True)
            ]


@pytest.mark.parametrize("strategy", Buffering)
@given(data=st.data(), reserve=st.one_of(st.none(), st.integers(0, 9)), restarts=st.booleans())
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_strategy_loses_a_result(
    tmp_path: Path, strategy: Buffering, data: st.DataObject, reserve: int | None, restarts: bool
) -> None:
    """With scrambling factors known, also if the state is read anew after each row."""
    sorts = strategy in (Buffering.SORT, Buffering.HYBRID)  # what keys that repeat do to a sorted input is not known
    events = data.draw(arrivals(3, 20, step=1 if sorts else 0))
    inputs = [InputRows(2, 0, scrambling(keys_of(events, port))) for port in range(3)]
    policy, room = MemoryPolicy((16,) * 3, forced=strategy, reserve=reserve), DiskRoom(tmp_path, 1 << 16, block=64)
    store, found = MemoryByteStore(), Buffers(3)
    state, admission = PiecewiseState(store, "stage"), Admission(inputs, policy, room)
    for at, (port, key) in enumerate(events):
        row = np.array([[key, at]], np.int64).view(np.uint64)
        found.add(admission.arrive(port, row, state), admission, state)
        state.commit()
        if restarts:
            state, admission = PiecewiseState(store, "stage"), Admission(inputs, policy, room)
    for port in range(3):
        found.add(admission.promise(port, FOREVER, state), admission, state)
    assert sorted(found.came) == sorted(events)
    assert found.made == len(results(events, 3))
    if sorts:
        assert all(keys == sorted(keys) for keys in (keys_of(found.came, port) for port in range(3)))
    room.close()


def test_level_inputs_do_not_wait_on_disk_for_each_other(tmp_path: Path) -> None:
    """Although no row is to be read before it is needed (C = 0)."""
    policy, room = MemoryPolicy((16,) * 3, forced=Buffering.HYBRID, reserve=0), DiskRoom(tmp_path, 1 << 16, block=64)
    state, admission = MemoryState(), Admission([InputRows(2, 0, 0)] * 3, policy, room)
    for port in (1, 2):
        for key in range(1, 5):
            list(admission.arrive(port, np.array([[key, 0]], np.int64).view(np.uint64), state))
    for port in range(3):
        list(admission.promise(port, FOREVER, state))
    assert [admission.on_disk(port, state) for port in range(3)] == [0, 0, 0]
    room.close()


def test_what_runs_ahead_waits_on_disk_under_a_bound(tmp_path: Path) -> None:
    """And the join sees inputs that are nearly level. When they are, nothing goes to disk any more."""
    policy = MemoryPolicy((16, 16), bound=16 * 1000)
    room, state = DiskRoom(tmp_path, 1 << 20, block=1024), MemoryState()
    admission = Admission([InputRows(2, 0), InputRows(2, 0)], policy, room)

    def arrive(port: int, first: int, last: int) -> None:
        for start in range(first, last, 100):
            keys = np.arange(start, start + 100)
            list(admission.arrive(port, np.column_stack((keys, keys)).astype(np.uint64), state))

    arrive(0, 0, 1000)
    arrive(1, 0, 900)
    assert admission.strategy(state) is Buffering.KEEP
    arrive(0, 1000, 10_000)
    assert admission.strategy(state) is Buffering.DISK
    assert admission.on_disk(0, state) > 7000
    assert admission.monitor(state).buffers()[0] < 1000 + 1024 // 16
    assert admission.held(0, state) < 1024 + 100 * 16
    arrive(1, 900, 10_000)
    assert admission.on_disk(0, state) == 0
    assert admission.strategy(state) is Buffering.KEEP
    assert room.used == 0


def test_what_waited_under_a_bound_that_was_lifted_comes_in(tmp_path: Path) -> None:
    """The bound is no part of the stage: the next start may have none. Rows do not pass those that wait."""
    room, state = DiskRoom(tmp_path, 1 << 20, block=1024), MemoryState()
    inputs, came = [InputRows(2, 0), InputRows(2, 0)], list[int]()

    def arrive(admission: Admission, first: int, last: int) -> None:
        keys = np.arange(first, last)
        for port, rows in admission.arrive(0, np.column_stack((keys, keys)).astype(np.uint64), state):
            assert port == 0
            came.extend(rows[:, 0].tolist())

    bounded = Admission(inputs, MemoryPolicy((16, 16), bound=16 * 100), room)
    for first in range(0, 5000, 100):
        arrive(bounded, first, first + 100)
    assert bounded.on_disk(0, state) > 4000
    free = Admission(inputs, MemoryPolicy((16, 16)), room)
    assert free.strategy(state) is Buffering.KEEP
    arrive(free, 5000, 5100)
    arrive(free, 5100, 5200)
    assert came == list(range(5200))
    assert free.on_disk(0, state) == free.sorting(0, state) == 0
