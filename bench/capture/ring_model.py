"""A ring in front of a reader, simulated from what each block of packets took: at which rate nothing is lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Service", "largest_ring", "loss_free_rate"]

_SECOND_NS = 1e9
_STEPS = 40  # of a bisection


@dataclass(frozen=True, slots=True, eq=False)
class Service:
    """What blocks of `block` packets took, ns, from the beginning of each window on. A window that has more packets
    goes on with `steady_ns` for each. It lasts for `window_ns`."""

    block: int
    windows: Sequence[npt.NDArray[np.int64]]
    steady_ns: float
    window_ns: int

    @property
    def longest_ns(self) -> int:
        """That a block took."""
        return max(int(window.max()) for window in self.windows)


def _loses(service: Service, rate: float, ring: int) -> bool:
    """Whether packets that come evenly at this rate (a second) overflow a ring of so many. A block is taken when all of
    it is there and the one before is done; it is in the ring until it is done."""
    gap = service.block * _SECOND_NS / rate
    per_packet = service.steady_ns * rate / _SECOND_NS
    if per_packet >= 1:
        return True
    behind = 0.0  # from the arrival of a window's first packet until the reader has done all before it
    for window in service.windows:
        took = window[: max(1, int(service.window_ns / gap))].astype(float)
        number = np.arange(len(took))
        until = np.cumsum(took)
        begun = np.maximum.accumulate((number + 1) * gap - (until - took))
        done = until + np.maximum(begun, behind)
        if (done / gap - number).max() * service.block > ring:
            return True
        arrived = len(took) * gap
        behind = max(0.0, done[-1] - arrived - max(0.0, service.window_ns - arrived) * (1 - per_packet))
    return False


def loss_free_rate(service: Service, ring: int) -> float:
    """The highest rate, packets a second, at which a ring of so many packets loses none; 0 if it has no room for two
    blocks."""
    if ring < 2 * service.block:
        return 0.0
    low, high = 0.0, _SECOND_NS / service.steady_ns
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if _loses(service, middle, ring) else (middle, high)
    return low


def largest_ring(fast: Service, slow: Service, ratio: float, most: int) -> int:
    """The largest ring, up to `most`, with which the fast one takes `ratio` times the slow one's rate, or more; 0 if
    there is none."""
    low, high = 0, most + 1
    while high - low > max(1, low // 100):
        middle = max(low + 1, int((max(low, 1) * high) ** 0.5))
        theirs = loss_free_rate(slow, middle)
        if loss_free_rate(fast, middle) >= ratio * theirs and (theirs or middle < 2 * slow.block):
            low = middle
        else:
            high = middle
    return low if low >= 2 * slow.block else 0
