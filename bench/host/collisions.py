"""Packets of somebody who knows the seed of a table's hash: their groups all fall into one pair of slots."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bench.common.frames import FRAME, MINUTE_NS, START_NS, STRIDE, Traffic, blocks_of, records_of
from lowlevel.config import LowLevelConfig
from lowlevel.node import SourceNodes, _secrets
from lowmark.query.compile import compile_query
from lowmark.wire.frames import FrameBlock

__all__ = ["SEED", "colliding_addresses", "contenders", "packets_from"]

SEED = 1
_SQL = "SELECT srcIP, count(*), sum(len) [RANGE 1 minute] FROM Main GROUP BY srcIP"
_SOURCE_IP = STRIDE - FRAME + 26
_STEP = 1 << 20
_LOW = np.uint64(0xFFFF_FFFF)
_HALF = np.uint64(32)


def colliding_addresses(seed: int, slots: int, count: int) -> npt.NDArray[np.uint32]:
    """IPv4 addresses whose groups, where they are all that packets are grouped by, have slot 0 or 1 of so many."""
    first, second = (np.uint64(int(word) % 2**64) for word in _secrets(seed)[1:3])
    found: list[npt.NDArray[np.uint64]] = []
    for start in range(0, 1 << 32, _STEP):
        addresses = np.arange(start, start + _STEP, dtype=np.uint64)
        places = _folded(first, addresses ^ second) & np.uint64(slots - 1)
        found.append(addresses[places < 2])
        if sum(map(len, found)) >= count:
            return np.concatenate(found)[:count].astype(np.uint32)
    raise ValueError(f"there are no {count} addresses for {slots} slots")


def _folded(a: np.uint64, b: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The two halves of the product, one over the other."""
    low_a, high_a, low_b, high_b = a & _LOW, a >> _HALF, b & _LOW, b >> _HALF
    crossed = (low_a * low_b >> _HALF) + high_a * low_b
    middle = low_a * high_b + (crossed & _LOW)
    high: npt.NDArray[np.uint64] = high_a * high_b + (crossed >> _HALF) + (middle >> _HALF)
    return high ^ (a * b)


def packets_from(addresses: npt.NDArray[np.uint32], packets: int, block: int) -> list[FrameBlock]:
    """Half a minute of packets, each from one of these addresses."""
    records = records_of(Traffic(1), packets)
    chosen = np.random.default_rng(3).choice(addresses, packets)
    records[:, _SOURCE_IP : _SOURCE_IP + 4] = chosen.astype(">u4").view(np.uint8).reshape(-1, 4)
    times = START_NS + np.arange(packets, dtype=np.int64) * (MINUTE_NS // 2 // packets)
    return list(blocks_of(records, times, block))


def contenders(packets: int, block: int, slots: int = 1 << 17) -> dict[str, tuple[SourceNodes, list[FrameBlock]]]:
    """Nodes with what they are to take: `colliding` packets in a table of so many slots whose seed is known, `two
    slots`, the speed at which every packet evicts another group, and `spread` over the large table."""
    chosen = colliding_addresses(SEED, slots, 512)
    others = np.random.default_rng(5).integers(0, 1 << 32, slots // 4, np.uint32)
    return {
        "colliding": (_nodes(slots), packets_from(chosen, packets, block)),
        "two slots": (_nodes(2), packets_from(others, packets, block)),
        "spread": (_nodes(slots), packets_from(others, packets, block)),
    }


def _nodes(slots: int) -> SourceNodes:
    plan = compile_query(_SQL, name="q", streams={"Main": 1}, buckets=1)
    nodes = SourceNodes(plan.stage.nodes, stream="Main", config=LowLevelConfig(slots=slots), seed=SEED)
    nodes.start()
    return nodes
