"""How many tuples a window-oblivious join keeps of each input (Wu et al., sections 3 and 4).

In an input with scrambling factor k, a tuple arrives at most k positions after the first tuple whose key is not smaller
(definition 2.2). Its lag is the number of tuples by which it runs ahead of another input. Buffers are first in, first
out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from math import ceil, prod

__all__ = ["Buffering", "JoinTree", "Traits", "buffers", "choose", "joined", "lags_of", "reserve_for", "tree_buffers"]

Lags = Sequence[Sequence[int]]
"""`lags[i][j]`: tuples of input i by which it runs ahead of input j; negative where it runs behind."""


class Buffering(Enum):
    """How memory is saved, from the least delay of results to the most (section 5.1)."""

    KEEP = "keep"  # all in memory
    DISK = "disk"  # disk-buffer first: the inputs that run ahead wait on disk
    SORT = "sort"  # memory-sort first: tuples meet their partners in order of keys
    HYBRID = "hybrid"  # sorted, then on disk


@dataclass(frozen=True, slots=True)
class Traits:
    """Properties of an input. `rate`: tuples per second, or per another unit of time that all inputs share. `ahead`:
    the time, in that unit, by which its keys run ahead of a common point."""

    rate: float
    scrambling: int
    multiplicity: int = 1  # the most tuples that have one key
    ahead: float = 0.0


@dataclass(frozen=True, slots=True)
class JoinTree:
    """A join in a tree of joins."""

    inputs: tuple[Traits | JoinTree, ...]


def lags_of(inputs: Sequence[Traits]) -> tuple[tuple[int, ...], ...]:
    """The lags that follow from rates and from how far the inputs are ahead."""
    return tuple(tuple(round(own.rate * (own.ahead - other.ahead)) for other in inputs) for own in inputs)


def buffers(
    inputs: Sequence[Traits], lags: Lags | None = None, strategy: Buffering = Buffering.KEEP, reserve: int | None = None
) -> tuple[int, ...]:
    """The most tuples that are kept of each input: for KEEP by equations 6 to 8, for other strategies by section 4,
    sort buffers included. `reserve` is its C: the tuples that are read from disk before they are needed."""
    ahead = reserve_for(inputs, strategy) if reserve is None else reserve
    between = lags_of(inputs) if lags is None else lags
    sorts, spills = strategy in _SORTING, strategy in _SPILLING
    seen = [_sorted(one) for one in inputs] if sorts else inputs
    found = []
    for at, own in enumerate(seen):
        needs = [
            ceil(own.rate * other.scrambling / other.rate) + (min(lag, ahead) if spills else lag)
            for of, (other, lag) in enumerate(zip(seen, between[at], strict=True))
            if of != at
        ]
        found.append(max(1, own.scrambling + max(needs)) + (inputs[at].scrambling if sorts else 0))
    return tuple(found)


def reserve_for(inputs: Sequence[Traits], strategy: Buffering) -> int:
    """The least C with which no tuple on disk has a partner in memory: the tuples of an input that arrive during the
    greatest delay by disorder in any input."""
    seen = [_sorted(one) for one in inputs] if strategy in _SORTING else inputs
    late = max(one.scrambling / one.rate for one in seen)
    return max(ceil(one.scrambling + one.rate * late) for one in seen)


def _sorted(one: Traits) -> Traits:
    """The input after sorting. The paper uses the multiplicity m as its scrambling; definition 2.2 gives m - 1."""
    return replace(one, scrambling=one.multiplicity)


def choose(
    inputs: Sequence[Traits],
    row_bytes: Sequence[int],
    bound: int | None,
    lags: Lags | None = None,
    reserve: int | None = None,
) -> Buffering | None:
    """The strategy with the least delay whose buffers fit into `bound` bytes; None if none fits."""
    for strategy in Buffering:
        needed = buffers(inputs, lags, strategy, reserve)
        if bound is None or sum(n * size for n, size in zip(needed, row_bytes, strict=True)) <= bound:
            return strategy
    return None


def joined(inputs: Sequence[Traits]) -> Traits:
    """Bounds on rate and scrambling of a join's output: theorem 3.1, equations 9 and 10. The output is as far as the
    input that is furthest behind (3.2), and its multiplicity is the product of the inputs'."""
    others = [prod(one.multiplicity for of, one in enumerate(inputs) if of != at) for at in range(len(inputs))]
    return Traits(
        rate=sum(one.rate * times for one, times in zip(inputs, others, strict=True)),
        scrambling=sum(one.scrambling * times for one, times in zip(inputs, others, strict=True)),
        multiplicity=prod(one.multiplicity for one in inputs),
        ahead=min(one.ahead for one in inputs),
    )


def tree_buffers(
    tree: JoinTree, strategy: Buffering = Buffering.KEEP, reserve: int | None = None
) -> list[tuple[int, ...]]:
    """The buffers of each join of a tree, inner joins first, in order of the text; the outermost comes last. Only
    inputs that are not joins are sorted, because joins over sorted inputs emit sorted rows."""
    found: list[tuple[int, ...]] = []
    _add_buffers(tree, strategy, reserve, found)
    return found


def _add_buffers(tree: JoinTree, strategy: Buffering, reserve: int | None, found: list[tuple[int, ...]]) -> Traits:
    inputs = [one if isinstance(one, Traits) else _add_buffers(one, strategy, reserve, found) for one in tree.inputs]
    needed = buffers(inputs, None, strategy, reserve)
    if strategy not in _SORTING:
        found.append(needed)
        return joined(inputs)
    joins = [isinstance(one, JoinTree) for one in tree.inputs]
    sorting = (one.scrambling if join else 0 for one, join in zip(inputs, joins, strict=True))
    found.append(tuple(n - unused for n, unused in zip(needed, sorting, strict=True)))
    return _sorted(joined(inputs))


_SORTING = frozenset({Buffering.SORT, Buffering.HYBRID})
_SPILLING = frozenset({Buffering.DISK, Buffering.HYBRID})
