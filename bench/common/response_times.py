"""Response times on a virtual clock: an operator serves rows that arrive at given times, and each piece of its work
takes what such work takes on this machine.

Operators and their decisions are real; time is not. So a run needs no idle machine, and does not depend on how fast
Python steps from one piece of work to the next: a piece costs what it costs in long runs (`Costs`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bench.common.row_count import RowCount
from highlevel.interface import Words
from lowmark.query.expr.evaluate import Ints

__all__ = ["Burst", "Collected", "Costs", "bursts_of", "exponential_times", "fitted", "pareto_times"]

NS = 10**9


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of one scan, of a row looked at, and of a row emitted."""

    scan: float
    look: float
    emit: float

    def of(self, scans: float, looks: float, emitted: float) -> float:
        return self.scan * scans + self.look * looks + self.emit * emitted

    def scaled(self, by: float) -> Costs:
        return Costs(self.scan * by, self.look * by, self.emit * by)


@dataclass(frozen=True, slots=True, eq=False)
class Burst:
    """Rows of one port that arrive at a time, in ns."""

    at: int
    port: int
    rows: Words


class Collected(RowCount):
    """Keeps rows until they are taken."""

    def __init__(self) -> None:
        super().__init__()
        self.matrices: list[tuple[int, Words]] = []

    def rows(self, port: int, rows: Words) -> None:
        super().rows(port, rows)
        self.matrices.append((port, rows))

    def take(self) -> list[tuple[int, Words]]:
        taken, self.matrices = self.matrices, []
        return taken


def exponential_times(random: np.random.Generator, start: int, count: int, rate: float) -> Ints:
    """Times of rows that arrive one by one, in ns."""
    return start + np.cumsum(random.exponential(NS / rate, count)).astype(np.int64)


def pareto_times(random: np.random.Generator, start: int, count: int, rate: float, burst: float) -> Ints:
    """Times of rows that arrive in bursts, of `burst` rows on average, at the same rate altogether (Hammad 2003, 5.2:
    sizes follow a Pareto distribution of least value 1, bursts come at exponential distances)."""
    if burst <= 1:
        return exponential_times(random, start, count, rate)
    shape = burst / (burst - 1)
    sizes = np.floor(random.random(count) ** (-1 / shape)).astype(np.int64)
    sizes = np.minimum(sizes, count)[: int(np.searchsorted(np.cumsum(sizes), count)) + 1]
    begins = np.cumsum(random.exponential(NS / rate * sizes.mean(), len(sizes))).astype(np.int64)
    return start + np.repeat(begins, sizes)[:count]


def bursts_of(times: Ints, port: int, rows: Callable[[Ints], Words]) -> list[Burst]:
    """The rows of a port that arrive at these times, those of one time together. `rows` makes rows of times, which
    differ by a nanosecond where they are equal."""
    starts = np.flatnonzero(np.diff(times, prepend=times[0] - 1))
    ends = np.append(starts[1:], len(times))
    apart = times + np.arange(len(times)) - np.repeat(starts, ends - starts)
    made = rows(apart)
    spans = zip(starts.tolist(), ends.tolist(), strict=True)
    return [Burst(int(apart[end - 1]), port, made[start:end]) for start, end in spans]


def fitted(runs: Sequence[Callable[[], tuple[int, int, int]]]) -> Costs:
    """The costs of work, from runs that do much of it. Each tells its scans, rows looked at and rows emitted."""
    counts, spent = [], []
    for run in runs:
        began = time.process_time()
        counts.append(run())
        spent.append(time.process_time() - began)
    # Relative errors count: of long runs and of short ones alike. No work takes less than nothing.
    weighted = np.array(counts, float) / np.array(spent)[:, None]
    best = _least_squares(weighted)
    return Costs(*best.tolist())


def _least_squares(weighted: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> np.ndarray[
    tuple[int, ...], np.dtype[np.float64]
]:  # fmt: skip
    """The non-negative costs whose products with these counts are nearest to 1."""
    columns = weighted.shape[1]
    found, least = np.zeros(columns), float("inf")
    for chosen in range(1, 1 << columns):
        which = [n for n in range(columns) if chosen >> n & 1]
        values, *_ = np.linalg.lstsq(weighted[:, which], np.ones(len(weighted)), rcond=None)
        error = float(((weighted[:, which] @ values - 1) ** 2).sum())
        if (values >= 0).all() and error < least:
            least = error
            found = np.zeros(columns)
            found[which] = values
    return found
