"""Sketches of the library datasketches, each as an answer to a question that aggregates of lowmark answer, too.

A sketch is made of each part of the values, and sketches are merged in the order of the parts. What the library takes
one value a call, it is given so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import datasketches as ds
import numpy as np
import numpy.typing as npt

from lowmark.query.expr.evaluate import Ints

__all__ = ["DISTINCT", "FRACTIONS", "FREQUENT", "PLACES", "QUANTILES", "Answer", "Told", "most_frequent"]

FRACTIONS = (0.5, 0.9, 0.99, 0.999)
PLACES = 10

_LG_K = 12
"""Of HLL, CPC and Theta: 4,096 cells or hashes, as many as lowmark has."""
_LG_COUNTERS = 10
"""Of frequent items: up to 768 values, about as many bytes as Count-Min has in its 3 rows."""
_CM_ROWS, _CM_CELLS = 3, 512


@dataclass(frozen=True, slots=True)
class Told:
    """Of a group: how many different values, in one number; or its values at FRACTIONS; or values that come often, each
    with its count behind it. `size`: bytes of what is kept."""

    answer: tuple[float, ...]
    size: int


Answer = Callable[[Sequence[Ints]], Told]
"""From the parts that values come in."""


class _Sketch(Protocol):
    def update(self, datum: int, /) -> None: ...
    def get_estimate(self) -> float: ...


class _Union(Protocol):
    def update(self, sketch: _Sketch, /) -> None: ...
    def get_result(self) -> _Sketch: ...


class _Quantiles(Protocol):
    def update(self, values: npt.NDArray[np.generic], /) -> None: ...
    def merge(self, other: Self, /) -> None: ...
    def serialize(self) -> bytes: ...
    def get_quantile(self, rank: float, inclusive: bool = ..., /) -> float: ...


def most_frequent(values: Ints) -> Mapping[int, int]:
    """The PLACES most frequent values and their counts, equally frequent ones from the least."""
    different, counts = np.unique(values, return_counts=True)
    first = np.argsort(-counts, kind="stable")[:PLACES]
    return dict(zip(different[first].tolist(), counts[first].tolist(), strict=True))


def _distinct(make: Callable[[], _Sketch], make_union: Callable[[], _Union], dump: str, alone: bool = False) -> Answer:
    """`alone`: the sketch of a single part answers itself, as is its way; else a union of it does."""

    def told(parts: Sequence[Ints]) -> Told:
        union = make_union()
        for part in parts:
            sketch = make()
            deque(map(sketch.update, part.tolist()), maxlen=0)
            union.update(sketch)
        result = sketch if alone and len(parts) == 1 else union.get_result()
        return Told((result.get_estimate(),), len(getattr(result, dump)()))

    return told


def _quantiles(
    make: Callable[[], _Quantiles], dtype: type[np.generic], at: Callable[[_Quantiles, float], float]
) -> Answer:
    def told(parts: Sequence[Ints]) -> Told:
        merged = make()
        for part in parts:
            sketch = make()
            sketch.update(part.astype(dtype))
            merged.merge(sketch)
        return Told(tuple(at(merged, fraction) for fraction in FRACTIONS), len(merged.serialize()))

    return told


def _frequent(parts: Sequence[Ints]) -> Told:
    merged = ds.frequent_items_sketch(_LG_COUNTERS)
    for part in parts:
        sketch = ds.frequent_items_sketch(_LG_COUNTERS)
        deque(map(sketch.update, part.tolist()), maxlen=0)
        merged.merge(sketch)
    found = sorted(merged.get_frequent_items(ds.NO_FALSE_NEGATIVES), key=lambda item: (-item[1], item[0]))
    answer = tuple(number for value, estimate, *_ in found[:PLACES] for number in (value, estimate))
    return Told(answer, merged.get_serialized_size_bytes(ds.PyLongsSerDe()))


def _count_min(parts: Sequence[Ints]) -> Told:
    """It counts values, and does not know which there are: it is told which come most often."""
    merged = ds.count_min_sketch(_CM_ROWS, _CM_CELLS)
    for part in parts:
        sketch = ds.count_min_sketch(_CM_ROWS, _CM_CELLS)
        deque(map(sketch.update, part.tolist()), maxlen=0)
        merged.merge(sketch)
    looked_for = most_frequent(np.concatenate(parts))
    answer = tuple(number for value in looked_for for number in (value, merged.get_estimate(value)))
    return Told(answer, len(merged.serialize()))


DISTINCT: Mapping[str, Answer] = {
    "HLL": _distinct(lambda: ds.hll_sketch(_LG_K), lambda: ds.hll_union(_LG_K), "serialize_compact", alone=True),
    "HLL, united": _distinct(lambda: ds.hll_sketch(_LG_K), lambda: ds.hll_union(_LG_K), "serialize_compact"),
    "CPC": _distinct(lambda: ds.cpc_sketch(_LG_K), lambda: ds.cpc_union(_LG_K), "serialize", alone=True),
    "CPC, united": _distinct(lambda: ds.cpc_sketch(_LG_K), lambda: ds.cpc_union(_LG_K), "serialize"),
    "Theta, united": _distinct(lambda: ds.update_theta_sketch(_LG_K), lambda: ds.theta_union(_LG_K), "serialize"),
}

QUANTILES: Mapping[str, Answer] = {
    "KLL": _quantiles(ds.kll_ints_sketch, np.int32, lambda sketch, q: sketch.get_quantile(q, True)),
    "REQ": _quantiles(ds.req_ints_sketch, np.int32, lambda sketch, q: sketch.get_quantile(q, True)),
    "t-digest": _quantiles(ds.tdigest_double, np.float64, lambda sketch, q: sketch.get_quantile(q)),
}

FREQUENT: Mapping[str, Answer] = {"frequent items": _frequent, "Count-Min, asked": _count_min}
