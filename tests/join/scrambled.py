"""Streams of keys as the paper on the window-oblivious join defines them, naively: scrambling, order, results."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from hypothesis import strategies as st

__all__ = ["Arrival", "arrivals", "keys_of", "multiplicity", "results", "scrambled", "scrambling"]

Arrival = tuple[int, int]
"""An input, and the key of its tuple."""


def scrambling(keys: Sequence[int]) -> int:
    """Definition 2.2: the least k by which each tuple follows the first one that has no smaller key."""
    return max((at - of for at, key in enumerate(keys) for of in range(at) if keys[of] >= key), default=0)


def multiplicity(keys: Sequence[int]) -> int:
    return max(map(list(keys).count, keys), default=1)


@st.composite
def scrambled(draw: st.DrawFn, most: int = 24, step: int = 0) -> list[int]:
    """Keys that grow in the long run, by at least `step`: without one, some come more than once."""
    steps = draw(st.lists(st.integers(step, 2), max_size=most))
    reach = draw(st.integers(0, 6))
    jitter = draw(st.lists(st.integers(0, reach), min_size=len(steps), max_size=len(steps)))
    keys = [sum(steps[: at + 1]) for at in range(len(steps))]
    return [key for _, key in sorted(zip([a + b for a, b in zip(range(len(keys)), jitter, strict=True)], keys))]  # noqa: B905


@st.composite
def arrivals(draw: st.DrawFn, inputs: int, most: int = 24, step: int = 0) -> list[Arrival]:
    """Tuples of several inputs, between one another in any way."""
    streams = [draw(scrambled(most, step)) for _ in range(inputs)]
    order = draw(st.permutations([port for port, keys in enumerate(streams) for _ in keys]))
    if draw(st.booleans()):  # near to one another, not in any way
        order = sorted(order, key=lambda _: 0) if draw(st.booleans()) else _in_turn(streams)
    left = [iter(keys) for keys in streams]
    return [(port, next(left[port])) for port in order]


def _in_turn(streams: Sequence[Sequence[int]]) -> list[int]:
    places = sorted((at, port) for port, keys in enumerate(streams) for at in range(len(keys)))
    return [port for _, port in places]


def keys_of(events: Sequence[Arrival], port: int) -> list[int]:
    return [key for of, key in events if of == port]


def results(events: Sequence[Arrival], inputs: int) -> list[tuple[int, ...]]:
    """The results of an equijoin as physical indexes, in the order in which they are complete: each with the last of
    its tuples."""
    seen: list[list[int]] = [[] for _ in range(inputs)]
    made: list[tuple[int, ...]] = []
    for port, key in events:
        matches = [[at for at, other in enumerate(keys) if other == key] for keys in seen]
        matches[port] = [len(seen[port])]
        made += product(*matches)
        seen[port].append(key)
    return made
