"""Expected rates of a join's inputs, from what is known beforehand; inputs may be joins themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import prod

from lowmark.query.bind.relations import Joined, Side
from lowmark.query.optimize.join_order import ProbeCosts
from lowmark.query.optimize.stream_statistics import Expected
from lowmark.query.windows.join_bands import Bands

__all__ = ["JoinRates", "Rate"]


@dataclass(frozen=True, slots=True)
class Rate:
    """Rows a second of an input; None: unknown, because the rates of `needs` are unknown. `estimated`: computed for a
    join from the rates, windows and selectivities of its inputs."""

    rows: float | None
    needs: tuple[str, ...] = ()
    estimated: bool = False


class JoinRates:
    """The expected rates of the joins of one relation; each is computed once, however many readers it has."""

    def __init__(self, expected: Expected) -> None:
        self._expected = expected
        self._joins: dict[int, Rate] = {}  # by identity

    def of(self, side: Side) -> Rate:
        """The rate given for an input, else that of its streams, else the rate that its joins are expected to give."""
        own = None if _is_tested(side) else self._expected.rate(side)
        if own is not None:
            return Rate(own)
        found: list[float | None] = []
        needs: list[str] = []
        for arm in side.relation.arms:
            if not isinstance(arm.base, Joined):
                return Rate(None, (side.label,))
            rate = self._of_join(arm.base)
            found.append(rate.rows)
            needs += rate.needs
        known = [rows for rows in found if rows is not None]
        return Rate(None if needs else sum(known), tuple(dict.fromkeys(needs)), True)

    def _of_join(self, base: Joined) -> Rate:
        if id(base) not in self._joins:
            rates = list(map(self.of, base.sides))
            needs = dict.fromkeys(name for rate in rates for name in rate.needs)
            self._joins[id(base)] = Rate(self.costs(base, rates).rate(base.kind), tuple(needs))
        return self._joins[id(base)]

    def costs(self, base: Joined, rates: Sequence[Rate]) -> ProbeCosts:
        """The costs of a join; `rates` are those of its sides."""
        shares = {
            (one, other): share
            for one, other in combinations(range(len(base.sides)), 2)
            if (share := _selectivity(base.sides[one], base.sides[other], self._expected)) is not None
        }
        tied = tuple(frozenset(n for n, key in enumerate(keys) if key is not None) for keys in base.equal)
        # An equality of times is assumed to hold for a fixed share of the rows of a granule, like any equality.
        sizes = (max(side.size, side.unit) if base.windowless else side.size for side in base.sides)
        bands = Bands(tuple(sizes), base.tumbling)
        return ProbeCosts(bands, tuple(rate.rows for rate in rates), tied, shares)


def _is_tested(side: Side) -> bool:
    """Whether the side is what an EXISTS test leaves of the input with this name."""
    bases = [arm.base for arm in side.relation.arms]
    return any(isinstance(base, Joined) and base.sides[0].label == side.label for base in bases)


def _selectivity(one: Side, other: Side, expected: Expected) -> float | None:
    """The selectivity given for inputs of the two sides; a side that is a join has several inputs."""
    pairs = product(_labels(one), _labels(other))
    said = [share for pair in pairs if (share := expected.selectivity(*pair)) is not None]
    return prod(said) if said else None


def _labels(side: Side) -> Iterator[str]:
    """The inputs of a side, as FROM names them."""
    bases = [arm.base for arm in side.relation.arms]
    if side.prefix or not all(isinstance(base, Joined) for base in bases):
        yield side.label
        return
    for base in bases:
        if isinstance(base, Joined):
            for inner in base.sides:
                yield from _labels(inner)
