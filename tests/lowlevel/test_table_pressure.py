"""When a larger table pays, and which: against the number of groups that there are."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from lowlevel.config import Flush, LowLevelConfig
from lowlevel.node import SourceNodes
from lowlevel.table_pressure import Crowded
from tests.lowlevel.naive import block
from tests.lowlevel.plans import SECOND, grouped, named

NODE = grouped((named("srcIP"), named("destIP")), name="pairs")
BLOCK = 5000


def pressed(slots: int, groups: list[list[int]], flush: Flush = Flush.SLOW) -> tuple[Crowded | None, float, int]:
    """What is said in the end of groups a packet, for each second: with the rate, and rows evicted."""
    nodes = SourceNodes([NODE], stream="Main", config=LowLevelConfig(slots=slots, flush=flush), seed=1)
    nodes.start()
    head = b"\0" * 12 + b"\x08\0" + struct.pack(">BBHHHBBH", 0x45, 0, 20, 0, 0, 64, 59, 0)
    for second, of in enumerate(groups):
        for first in range(0, len(of), BLOCK):
            frames = [head + struct.pack(">II", group * 2654435761 % 2**32, 7) for group in of[first : first + BLOCK]]
            low = second * SECOND
            taken = block(frames, ts=[low] * len(frames), low=[low] * len(frames), low_after=low)
            list(nodes.take(taken))
    list(nodes.finish())
    pressure = nodes.pressures()["pairs"]
    return pressure.crowded(), pressure.rate, nodes.counts()["pairs"].evicted


def uniform(groups: int, packets: int, seconds: int = 1) -> list[list[int]]:
    return [np.random.default_rng(second).integers(0, groups, packets).tolist() for second in range(seconds)]


@pytest.mark.parametrize("flush", Flush)
@pytest.mark.parametrize("groups", [700, 9000])
def test_a_table_for_all_groups_is_asked_for_and_is_enough(flush: Flush, groups: int) -> None:
    traffic = uniform(groups, 30_000, seconds=3)
    crowded, rate, evicted = pressed(256, traffic, flush)
    assert crowded is not None
    assert crowded.slots == 256
    assert crowded.groups == pytest.approx(min(groups, len(set(traffic[0]))), rel=0.1)
    assert crowded.wanted / 4 < groups <= crowded.wanted / 2 * 1.1
    assert rate == pytest.approx(evicted / 90_000, rel=0.05)
    assert crowded.repeats > 0.3
    again, _, evicted_then = pressed(crowded.wanted, traffic, flush)
    assert again is None
    assert evicted_then < evicted / 3


def test_groups_that_do_not_come_again_need_no_larger_table() -> None:
    """As in a flood from invented addresses: each packet is a row, whatever the size."""
    crowded, rate, _ = pressed(256, [list(range(20_000))])
    assert crowded is None
    assert rate > 0.9


def test_groups_that_have_room_need_no_larger_table() -> None:
    assert pressed(4096, uniform(1000, 20_000, seconds=4))[0] is None


def test_what_was_too_small_for_earlier_panes_alone_is_so_no_more() -> None:
    crowded, *_ = pressed(256, uniform(9000, 20_000) + uniform(9000, 300, seconds=8))
    assert crowded is None
