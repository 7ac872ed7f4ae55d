"""Who knows a seed can make packets that all collide; under any other seed the same packets are spread."""

from __future__ import annotations

import statistics
import struct
import time
from collections.abc import Callable

from bench.host.collisions import contenders
from lowlevel.config import LowLevelConfig
from lowlevel.node import SourceNodes, _secrets
from tests.lowlevel.naive import block
from tests.lowlevel.plans import grouped, named

NODE = grouped((named("srcIP"),), name="sources")
SLOTS, GROUPS = 1024, 200
KNOWN = 1


def _slots(seed: int) -> Callable[[int], int]:
    """Where the table has the group of an IPv4 address."""
    first, second = (int(word) % 2**64 for word in _secrets(seed)[1:3])

    def slot(address: int) -> int:
        product = first * (address ^ second)
        return (product ^ product >> 64) % 2**64 % SLOTS

    return slot


def _evicted(addresses: list[int], seed: int | None) -> int:
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20, 0, 0, 64, 59, 0)
    frames = [b"\0" * 12 + b"\x08\0" + head + struct.pack(">II", address, 1) for address in addresses]
    nodes = SourceNodes([NODE], stream="Main", config=LowLevelConfig(slots=SLOTS), seed=seed)
    nodes.start()
    list(nodes.take(block(frames, ts=[1] * len(frames), low=[0] * len(frames), low_after=0)))
    return nodes.counts()["sources"].evicted


def test_only_the_known_seed_makes_chosen_packets_collide() -> None:
    slot = _slots(KNOWN)
    chosen = [address for address in range(SLOTS * GROUPS * 2) if slot(address) == 0][:GROUPS]
    assert len(chosen) == GROUPS
    assert _evicted(chosen, KNOWN) == GROUPS - 2  # a group has a slot and the other one of its pair
    assert _evicted(chosen, KNOWN + 1) < GROUPS / 3
    assert _evicted(chosen, None) < GROUPS / 3


def test_who_knows_the_seed_slows_a_table_down_to_the_speed_of_its_evictions() -> None:
    """Of which each packet is one, as it is of any packets in a table of two slots; no slower, however many collide."""
    took: dict[str, list[int]] = {}
    found = contenders(packets=40_000, block=8000, slots=1 << 12)
    for nodes, blocks in found.values():
        list(nodes.take(blocks[0]))
    for _ in range(5):
        for name, (nodes, blocks) in found.items():
            begun = time.thread_time_ns()
            for taken in blocks:
                list(nodes.take(taken))
            took.setdefault(name, []).append(time.thread_time_ns() - begun)
    (counts,) = found["colliding"][0].counts().values()
    assert counts.evicted > 0.99 * counts.put_out
    assert statistics.median(took["colliding"]) < 3 * statistics.median(took["two slots"])


def test_two_processes_have_two_seeds() -> None:
    assert list(_secrets(None)) != list(_secrets(None))
