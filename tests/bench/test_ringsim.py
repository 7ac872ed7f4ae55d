"""The simulated ring, against one that is stepped through packet by packet."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.capture.ring_model import Service, largest_ring, loss_free_rate

BLOCK = 4
WINDOW_NS = 1_000_000


def service(windows: list[list[int]], steady_ns: float = 10.0) -> Service:
    return Service(BLOCK, [np.array(window, np.int64) for window in windows], steady_ns, WINDOW_NS)


def fits(blocks: list[int], rate: float, ring: int) -> bool:
    """Whether a ring holds what comes while a reader takes these blocks, one after the other."""
    gap_ns = 1e9 / rate
    free_at = 0.0
    for number, took in enumerate(blocks):
        done = max(free_at, (number + 1) * BLOCK * gap_ns) + took
        if done / gap_ns - number * BLOCK > ring:
            return False
        free_at = done
    return True


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=30), st.integers(2 * BLOCK, 200))
@settings(deadline=None)
def test_nothing_is_lost_up_to_the_rate_that_is_found(blocks: list[int], ring: int) -> None:
    rate = loss_free_rate(service([blocks]), ring)
    assert rate > 0
    assert fits(blocks, rate * 0.999, ring)
    if rate < 1e9 / 10 * 0.999 and len(blocks) * BLOCK / rate * 1e9 < WINDOW_NS * 0.99:
        assert not fits(blocks, rate * 1.001, ring)


def test_what_is_left_of_a_window_burdens_the_next_one() -> None:
    stall = [500_000] + [40] * 10
    # Behind the stall the reader has to catch up before the next one: with little to spare it does not.
    tight, easy = service([stall, stall], steady_ns=9.0), service([stall, stall], steady_ns=1.0)
    ring = 70_000
    assert loss_free_rate(tight, ring) < 1e9 / 9.0 * 0.99
    assert loss_free_rate(tight, ring) < loss_free_rate(easy, ring)


def test_a_ring_of_less_than_two_blocks_takes_nothing() -> None:
    assert loss_free_rate(service([[40]]), 2 * BLOCK - 1) == 0


def test_the_largest_ring_with_which_one_is_so_much_faster() -> None:
    smooth, stalling = service([[40] * 20]), service([[40] * 5 + [200_000] + [40] * 14])
    found = largest_ring(smooth, stalling, 2.0, 1 << 20)
    assert loss_free_rate(smooth, found) >= 2 * loss_free_rate(stalling, found)
    assert loss_free_rate(smooth, 2 * found) < 2 * loss_free_rate(stalling, 2 * found)
    assert largest_ring(smooth, smooth, 2.0, 1 << 20) == 0


@pytest.mark.parametrize("ring", [100, 10_000])
def test_a_longer_stall_lowers_the_rate(ring: int) -> None:
    rates = [loss_free_rate(service([[40, stall, 40]]), ring) for stall in (10_000, 20_000, 400_000)]
    assert rates == sorted(rates, reverse=True)
