"""The order in which a new row of a join's input is matched with the kept rows of the other inputs.

The order decides how many combinations are made on the way to the join's output: the fewer, the less work. The estimate
is that of System R: inputs are independent, and an equality holds for a fixed share of pairs. An order that the query's
text asks for (`/*+ probe(…) */`) is taken at any cost. The answer is the same in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from math import exp, expm1, prod

from lowmark.query.parse.syntax import JoinKind
from lowmark.query.plan.nodes import Probe, keeping
from lowmark.query.windows.join_bands import Bands

__all__ = ["DEFAULT_RATE", "DEFAULT_SELECTIVITY", "ProbeCosts", "choose"]

DEFAULT_RATE = 1000.0
"""Rows a second of an input with unknown rate, if no input's rate is known."""

DEFAULT_SELECTIVITY = 0.001
"""The share of pairs for which one equality holds, unless the selectivity is given."""

_ALL_ORDERS = 5
"""Up to this many inputs all orders are compared; beyond, each next input is the one that leaves the fewest rows."""


@dataclass(frozen=True, slots=True)
class ProbeCosts:
    """`rates`: rows a second of each input, None where unknown. `equal`: for each equality the inputs that take part.
    `selectivities`: by pair of inputs, the lower number first."""

    bands: Bands
    rates: tuple[float | None, ...]
    equal: tuple[frozenset[int], ...]
    selectivities: dict[tuple[int, int], float]

    def meets(self, order: Sequence[int]) -> tuple[float, ...]:
        """How many combinations a row of the first input has after each of the others, in this order."""
        return tuple(self.combinations_of(order[:count]) for count in range(2, len(order) + 1))

    def cost(self, order: Sequence[int]) -> float:
        return sum(self.meets(order))

    def rate(self, kind: JoinKind) -> float | None:
        """Rows a second that the join emits; None unless the rate of each input is known. The last row of a combination
        to arrive emits it. In a join of two inputs, the number of partners of a row is assumed to be Poisson
        distributed."""
        known = [rate for rate in self.rates if rate is not None]
        if len(known) < len(self.rates):
            return None
        ports = range(len(known))
        pairs = sum(known[port] * self.combinations_of((port, *(n for n in ports if n != port))) for port in ports)
        if kind is JoinKind.SEMI:
            return known[0] * -expm1(-pairs / known[0])
        alone = sum(known[port] * exp(-pairs / known[port]) for port in keeping(kind))
        return alone if kind is JoinKind.ANTI else pairs + alone

    def combinations_of(self, inputs: Sequence[int]) -> float:
        """How many combinations a row of the first input, arriving in order, makes with rows of the other inputs."""
        first, *others = inputs
        pairs = [pair for pair in combinations(sorted(inputs), 2) if pair in self.selectivities]
        left = sum(_unsaid(members & set(inputs), pairs) for members in self.equal)
        rows = prod(self._rate(port) * self._before(first, port) / 1e9 for port in others)
        return rows * prod(self.selectivities[pair] for pair in pairs) * DEFAULT_SELECTIVITY**left

    def _rate(self, port: int) -> float:
        rate = self.rates[port]
        return rate if rate is not None else max((r for r in self.rates if r is not None), default=DEFAULT_RATE)

    def _before(self, of: int, port: int) -> float:
        """How much of the port's time, in ns, the window of a row of `of` covers before that row: half of a tumbling
        window, on average."""
        return self.bands.sizes[of] / 2 if self.bands.tumbling else self.bands.reach(of, port)[0]


def _unsaid(members: frozenset[int], said: Sequence[tuple[int, int]]) -> int:
    """The number of equalities between these inputs, except between pairs whose selectivity is known."""
    return max(0, len(members) - 1 - sum(members.issuperset(pair) for pair in said))


def choose(costs: ProbeCosts, hinted: Sequence[Sequence[int]]) -> tuple[Probe, ...]:
    """The order of the other inputs for a new row of each input. `hinted` are fixed orders, each starting with the
    input of the new row."""
    asked = {order[0]: tuple(order) for order in hinted}
    return tuple(_probe(costs, first, asked.get(first)) for first in range(len(costs.rates)))


def _probe(costs: ProbeCosts, first: int, asked: tuple[int, ...] | None) -> Probe:
    orders = _orders(costs, first)
    best = min(orders, key=costs.cost) if asked is None else asked
    return Probe(best[1:], costs.meets(best), max(map(costs.cost, orders)), asked is not None)


def _orders(costs: ProbeCosts, first: int) -> list[tuple[int, ...]]:
    rest = [port for port in range(len(costs.rates)) if port != first]
    if len(rest) <= _ALL_ORDERS:
        return [(first, *order) for order in permutations(rest)]
    order = [first]
    while rest:
        port = min(rest, key=lambda port: costs.combinations_of((*order, port)))
        order.append(port)
        rest.remove(port)
    return [tuple(order)]
