"""What the monitor of a window-oblivious join finds, against the paper's definitions; what buffers by it lose."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from highlevel.join.oblivious.monitor import InputMonitor, Monitor
from highlevel.join.oblivious.scrambling import Scrambling
from tests.join.scrambled import Arrival, arrivals, keys_of, multiplicity, results, scrambled, scrambling


def observe(monitor: InputMonitor, keys: list[int], cut: int) -> None:
    for at in range(0, len(keys), cut):
        monitor.observe(np.array(keys[at : at + cut], np.int64))


@given(keys=scrambled(), cut=st.integers(1, 9))
def test_scrambling_and_multiplicity_are_those_of_the_definitions(keys: list[int], cut: int) -> None:
    monitor = InputMonitor()
    observe(monitor, keys, cut)
    assert (monitor.arrived, monitor.scrambling) == (len(keys), scrambling(keys))
    assert monitor.multiplicity == multiplicity(keys)
    assert monitor.order.greatest == max(keys, default=None)


@given(keys=scrambled(), cut=st.integers(1, 9), forgets=st.booleans())
def test_what_is_settled_is_final(keys: list[int], cut: int, forgets: bool) -> None:
    monitor = InputMonitor(scrambling(keys))
    for at in range(0, len(keys), cut):
        observe(monitor, keys[at : at + cut], cut)
        settled = monitor.settled()
        if settled is not None:
            assert all(key > settled for key in keys[at + cut :])
            assert monitor.through(settled) == sum(key <= settled for key in keys)
            if forgets:
                monitor.forget(settled)
                assert monitor.settled() == settled


@given(keys=scrambled())
def test_virtual_and_physical_indexes_are_within_the_scrambling(keys: list[int]) -> None:
    """Theorem 2.1."""
    ordered = sorted(keys)
    for at, key in enumerate(keys):
        first = ordered.index(key)
        assert at - first <= scrambling(keys)
        assert first + keys.count(key) - 1 - at <= scrambling(keys)


@given(events=arrivals(3), cut=st.integers(1, 5))
def test_with_scrambling_known_buffers_lose_nothing(events: list[Arrival], cut: int) -> None:
    """Equations 7 and 8 at work: each tuple comes, finds its partners, and the buffers are cut."""
    assert kept(events, [scrambling(keys_of(events, port)) for port in range(3)], cut) == len(results(events, 3))


def kept(events: list[Arrival], given: list[int], cut: int) -> int:
    """How many results are made if buffers are cut after every so many tuples."""
    monitor = Monitor(given)
    gone, made = [0] * len(given), 0
    for at in range(0, len(events), cut):
        before = [one.arrived for one in monitor.inputs]
        made += sum(
            all(place >= low for place, low in zip(places, gone, strict=True))
            for places in results(events[: at + cut], len(given))
            if any(place >= start for place, start in zip(places, before, strict=True))
        )
        for port, key in events[at : at + cut]:
            monitor.observe(port, np.array([key], np.int64))
        needed = monitor.buffers()
        gone = [max(low, i.arrived - n) for low, i, n in zip(gone, monitor.inputs, needed, strict=True)]
        monitor.forget()
    return made


@given(events=arrivals(2, 40), at=st.integers(0, 80))
def test_state_through_bytes_changes_nothing(events: list[Arrival], at: int) -> None:
    """Wherever it is written and read."""
    plain, stored = Monitor([None, 3]), Monitor([None, 3])
    for place, (port, key) in enumerate(events):
        for monitor in (plain, stored):
            monitor.observe(port, np.array([key], np.int64))
            monitor.forget()
        if place == at:
            stored = Monitor.decode(stored.encode())
        assert plain.encode() == stored.encode()
        assert (plain.buffers(), plain.lags(), plain.traits()) == (stored.buffers(), stored.lags(), stored.traits())


@given(events=arrivals(2, 120), seed=st.integers(0, 2**32))
def test_parts_of_the_state_are_the_whole(events: list[Arrival], seed: int) -> None:
    """Whatever is forgotten in between, and whichever parts are merged first."""
    live, random, parts = Monitor([None, 3]), Random(seed), list[Monitor]()
    for port, key in events:
        live.observe(port, np.array([key], np.int64))
        if random.random() < 0.5:
            live.promise(port, key - 5)
            live.forget()
        if random.random() < 0.3:
            part = live.news()
            parts.append(Monitor.decode((part if parts else live).encode()))
        if len(parts) > 3:
            first = random.randrange(len(parts) - 1)
            parts[first : first + 2] = [Monitor.decode(Monitor.merge(parts[first : first + 2]).encode())]
    part = live.news()
    parts.append(Monitor.decode((part if parts else live).encode()))
    assert Monitor.merge(parts).encode() == live.encode()


def test_keys_are_forgotten() -> None:
    """State follows scrambling and lag, not the length of the streams."""
    random = np.random.default_rng(1)
    monitor = Monitor([None, None])
    for block in range(200):
        for port in range(2):
            keys = np.arange(block * 500, (block + 1) * 500)
            monitor.observe(port, keys[np.argsort(np.arange(500) + random.integers(0, 50, 500))])
        monitor.forget()
    assert all(one.arrived == 100_000 for one in monitor.inputs)
    assert all(one.scrambling < 100 for one in monitor.inputs)
    assert max(monitor.buffers()) < 400
    assert len(monitor.inputs[0].encode()) < 16 * (1 << 17)


def test_an_input_that_is_behind_keeps_one_tuple() -> None:
    """Figure 3(b): its tuples find all their partners when they come."""
    monitor = Monitor([None, None])
    monitor.observe(0, np.arange(10_000, dtype=np.int64))
    monitor.observe(1, np.arange(1_000, dtype=np.int64))
    assert monitor.buffers() == (9_000, 1)
    assert monitor.leads() == (9_000, -9_000)
    lags = monitor.lags()
    assert lags[0][1] == 9_000
    assert lags[1][0] == -9_000


def test_a_tuple_later_than_all_that_is_remembered_raises_the_factor() -> None:
    """By what is known. The next ones that are as late then find what they need, and nothing grows without limit."""
    order = Scrambling()
    for first in range(0, 20_000, 1000):
        order.observe(np.arange(first, first + 1000))
    assert order.held < 16 * 6000
    order.observe(np.array([0]))
    assert 4096 <= order.factor <= 20_000
    order.observe(np.arange(20_000, 40_000))
    order.observe(np.array([20_000]))
    assert order.factor >= 16_384
    assert Scrambling.decode(order.encode()).encode() == order.encode()


def test_disorder_that_is_over_is_forgotten() -> None:
    order = Scrambling()
    order.observe(np.array([500, *range(500)]))
    assert order.factor == 500
    for first in range(1000, 1 << 18, 1000):
        order.observe(np.arange(first, first + 1000))
    assert order.factor == 0
