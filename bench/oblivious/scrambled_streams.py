"""Streams as Wu et al. generate them (section 5): Poisson arrivals whose rate changes, keys that come several times
each, scrambled up to a given factor.

Keys count up, whatever the rate: a stream whose rate falls runs behind the others from then on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lowmark.query.expr.evaluate import Ints

__all__ = ["Change", "Stream", "scrambled_stream", "scrambling_of"]


@dataclass(frozen=True, slots=True)
class Change:
    """From `start` to `end`, in seconds, tuples come `times` as fast."""

    start: float
    end: float
    times: float


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """Tuples in order of arrival. `times`: ns."""

    keys: Ints
    times: Ints

    @property
    def scrambling(self) -> int:
        return scrambling_of(self.keys)

    @property
    def multiplicity(self) -> int:
        return int(np.unique(self.keys, return_counts=True)[1].max(initial=1))


def scrambled_stream(
    random: np.random.Generator, seconds: float, rate: float, scrambling: int, multiplicity: int,
    changes: Sequence[Change] = (),
) -> Stream:  # fmt: skip
    """`scrambling`: what the factor will be, about."""
    cuts = sorted({0.0, seconds, *(min(at, seconds) for change in changes for at in (change.start, change.end))})
    speeds = [
        rate * float(np.prod([c.times for c in changes if c.start <= at < c.end], initial=1.0)) for at in cuts[:-1]
    ]
    # Arrivals at rate one, stretched by the inverse of the rate's integral.
    integral = np.concatenate(([0.0], np.cumsum(np.diff(cuts) * speeds)))
    count = int(integral[-1] + 10 * np.sqrt(integral[-1]) + 10)
    steady = np.cumsum(random.exponential(1.0, count))
    times = np.interp(steady[steady < integral[-1]], integral, cuts)
    places = np.arange(len(times))
    # A tuple slips behind the ones of the next k places: few of them slip less than it and fewer come from before them.
    order = np.argsort(places + random.uniform(0, max(scrambling, 1e-9), len(times)), kind="stable")
    keys: Ints = (places // multiplicity)[order]
    return Stream(keys.astype(np.int64), (times * 1e9).astype(np.int64))


def scrambling_of(keys: Ints) -> int:
    """Definition 2.2: the most places by which a tuple follows the first one that has no smaller key."""
    if not len(keys):
        return 0
    places = np.arange(len(keys))
    first = np.searchsorted(np.maximum.accumulate(keys), keys)
    return int((places - first).max())
