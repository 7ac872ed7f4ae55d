"""What is asked of a group's values: lowmark's answer beside those of datasketches, what is right, and the values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bench.common.aggregate_runs import Feeding, Sink, feed
from bench.sketches.rivals import DISTINCT, FRACTIONS, FREQUENT, PLACES, QUANTILES, Answer, Told, most_frequent
from highlevel.groups.group_table import GroupTable
from highlevel.groups.layout import Layout
from highlevel.operators.aggregate import AggregateOperator
from highlevel.operators.reduce import ReduceOperator
from highlevel.state import MemoryState
from lowmark.query.compile import compile_query
from lowmark.query.expr.evaluate import Ints
from lowmark.query.plan.nodes import Aggregate, Reduce
from lowmark.wire.rows.schema import Column, Kind, Schema
from lowmark.wire.rows.values import FOREVER
from lowmark.wire.rows.words import column_of

__all__ = ["OURS", "QUESTIONS", "Floats", "Question", "rank_error"]

OURS = "lowmark"

Floats = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Ints]


class _Ours:
    """Calls over the values of one group of one pane: rows of each part merged into partials, as hosts do, and these
    merged by the operator."""

    def __init__(self, *calls: str) -> None:
        plan = compile_query(f"SELECT {', '.join(calls)} [RANGE 1 minute] FROM Main")
        first = plan.steps[0].plan
        if not isinstance(first, Aggregate):
            raise TypeError(f"a query begins with {first}")
        self._aggregate = first
        self._schema = Schema((Column("ts", Kind.TIME), Column("len", Kind.INT)))
        self._reduce = ReduceOperator(Reduce(self._schema, plan.stage.nodes[0].reduction))
        self._layout = Layout(first.input, first.details, first.folds)

    def __call__(self, parts: Sequence[Ints]) -> Told:
        feedings = [
            *(Feeding(self._partials(part), None) for part in parts),
            Feeding(self._partials(parts[0][:0]), FOREVER),
        ]
        taken = feed(AggregateOperator(self._aggregate), feedings, measure=True, keep=True)
        (rows,) = taken.outputs
        columns = [column_of(self._aggregate.output, rows, call.column.name) for call in self._aggregate.calls]
        return Told(tuple(float(data[0]) for data, valid in columns if valid[0]), taken.most_bytes)

    def _partials(self, values: Ints) -> npt.NDArray[np.uint64]:
        rows = np.zeros((len(values), self._schema.words), np.uint64)
        rows[:, 2] = values.view(np.uint64)
        sink = Sink(keep=True)
        self._reduce.on_batch(0, rows, MemoryState(), sink)
        table = GroupTable(self._layout)
        for reduced in sink.outputs:
            table.merge(reduced)
        partials = np.zeros((len(table.groups), self._layout.schema.words + 1), np.uint64)
        partials[:, 0] = table.groups[:, 0] << np.uint64(1)
        partials[:, 2:] = table.groups[:, 1:]
        return partials


@dataclass(frozen=True, slots=True)
class Question:
    """`exact`: the numbers that an answer is judged by. `numbers`: what an answer says in their place. `scale`: what an
    error is relative to, from the exact numbers and the number of values."""

    title: str
    contenders: Mapping[str, Answer]
    spreads: Mapping[str, Draw]
    exact: Callable[[Ints], Sequence[float]]
    numbers: Callable[[tuple[float, ...], Ints], Sequence[float]] = lambda answer, values: answer
    scale: Callable[[Floats, int], Floats] = lambda exact, count: exact


def _random(random: np.random.Generator, count: int) -> Ints:
    return random.integers(0, 2**31, count)


def _network(random: np.random.Generator, count: int) -> Ints:
    """Addresses one after the other: a scan."""
    return random.integers(0, 2**30) + np.arange(count, dtype=np.int64)


def _zipf(random: np.random.Generator, count: int) -> Ints:
    return random.zipf(1.2, count) % 2**31


def _ports(random: np.random.Generator, count: int) -> Ints:
    """Services that most packets are of, and ports that clients choose."""
    services = random.choice((443, 53, 80, 22, 123), count, p=(0.6, 0.2, 0.1, 0.06, 0.04))
    return np.where(random.random(count) < 0.6, services, random.integers(32_768, 61_000, count))


def _lengths(random: np.random.Generator, count: int) -> Ints:
    """Of packets: most are of a few lengths."""
    usual = random.choice((60, 66, 590, 1514), count, p=(0.4, 0.2, 0.05, 0.35))
    return np.where(random.random(count) < 0.8, usual, random.integers(60, 1515, count))


def _flows(random: np.random.Generator, count: int) -> Ints:
    """Bytes of flows, whose mean is that of a few great ones."""
    return np.minimum(40 * (1 + random.pareto(0.9, count)), 2**31 - 1).astype(np.int64)


def _gaps(random: np.random.Generator, count: int) -> Ints:
    """Nanoseconds between packets: within bursts, and between them."""
    within, between = random.exponential(2e4, count), np.minimum(random.lognormal(17, 1, count), 2**31 - 1)
    return np.where(random.random(count) < 0.7, within, between).astype(np.int64)


def _at_fractions(values: Ints) -> Sequence[float]:
    ranks = [max(1, -int(-len(values) * q // 1)) for q in FRACTIONS]
    return [float(value) for value in np.sort(values)[np.array(ranks) - 1]]


def rank_error(answer: Sequence[float], values: Ints) -> float:
    """Of values at FRACTIONS: how far, at most, such a fraction is from those of all values that the value told stands
    at."""
    ordered = np.sort(values)
    below, upto = (np.searchsorted(ordered, answer, side) / len(values) for side in ("left", "right"))
    return float(np.max(np.maximum(0, np.maximum(below - FRACTIONS, FRACTIONS - upto))))


def _counts(answer: tuple[float, ...], values: Ints) -> Sequence[float]:
    """Of those values that really come most often: 0 for one that is not told."""
    told = dict(zip(answer[::2], answer[1::2], strict=True))
    return [told.get(value, 0.0) for value in most_frequent(values)]


QUESTIONS: Mapping[str, Question] = {
    "distinct": Question(
        "number of different values",
        {OURS: _Ours("approx_count_distinct(len)"), **DISTINCT},
        {"random": _random, "network": _network, "Zipf": _zipf},
        lambda values: [float(len(np.unique(values)))],
    ),
    "quantiles": Question(
        f"values at {', '.join(map(str, FRACTIONS))}",
        {OURS: _Ours(*(f"approx_quantile(len, {q}) AS q{i}" for i, q in enumerate(FRACTIONS))), **QUANTILES},
        {"lengths": _lengths, "bytes of flows": _flows, "gaps": _gaps},
        _at_fractions,
    ),
    "frequent": Question(
        f"counts of the {PLACES} most frequent values, as parts of all",
        {
            OURS: _Ours(*(f"heavy_hitter{of}(len, {n})" for n in range(1, PLACES + 1) for of in ("", "_count"))),
            **FREQUENT,
        },
        {"Zipf": _zipf, "ports": _ports},
        lambda values: [float(count) for count in most_frequent(values).values()],
        _counts,
        lambda exact, count: np.full(len(exact), float(count)),
    ),
}
