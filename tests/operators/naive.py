"""Window aggregates by brute force, from the definitions of Li ch. 5: every extent filled by looking at every tuple."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from lowmark.query.windows.window import Window, WindowKind
from lowmark.wire.rows.schema import Kind
from tests.naive.sketching import coarse, distinct, word_of
from tests.operators.harness import TUPLE, AskedCall, Row, Value

_INT64 = range(-(2**63), 2**63)
_INT128 = range(-(2**127), 2**127)


@dataclass(frozen=True)
class Expected:
    window: int
    tuples: int
    rows: list[Row]
    overflow: bool


def windows_of(window: Window, tuples: Sequence[Row]) -> list[int]:
    """The windows that hold a tuple (landmark: in their own slide), ascending."""
    size, slide = (window.size or window.slide) * window.axis.unit, window.slide * window.axis.unit
    found = set()
    for row in tuples:
        a = row["ts"]
        near = a // slide
        found |= {k for k in range(near - 1, near + size // slide + 2) if (k + 1) * slide - size <= a < (k + 1) * slide}
    return sorted(found)


def expected(window: Window, keys: Sequence[str], calls: Sequence[AskedCall], tuples: Sequence[Row]) -> list[Expected]:
    return [_window(window, k, keys, calls, tuples) for k in windows_of(window, tuples)]


def _window(window: Window, k: int, keys: Sequence[str], calls: Sequence[AskedCall], tuples: Sequence[Row]) -> Expected:
    end = (k + 1) * window.slide * window.axis.unit
    start = end - (window.size or window.slide) * window.axis.unit
    own = [row for row in tuples if start <= row["ts"] < end]
    held = [row for row in tuples if row["ts"] < end] if window.kind is WindowKind.LANDMARK else own
    head: Row = {}
    if window.kind is not WindowKind.NONE:
        head = {"window_start": None if window.kind is WindowKind.LANDMARK else start, "window_end": end}
    rows, overflow = grouped(held, keys, calls, head)
    return Expected(k, len(own), rows, overflow)


def grouped(held: Sequence[Row], keys: Sequence[str], calls: Sequence[AskedCall], head: Row) -> tuple[list[Row], bool]:
    """The rows of one window's tuples, each behind `head`, and whether a sum in one of them left the integers."""
    groups: dict[tuple[Value, ...], list[Row]] = {}
    for row in held:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    rows, overflow = [], False
    for key, members in groups.items():
        shown = head | dict(zip(keys, key, strict=True))
        for call in calls:
            fits = _fits(call, members)
            overflow |= not fits
            shown[call.name] = _value(call, members) if fits else None
        rows.append(shown)
    return rows, overflow


def _fits(call: AskedCall, rows: list[Row]) -> bool:
    if call.function not in ("sum", "avg", "variance", "stddev"):
        return True
    present = [row[call.columns[0]] for row in rows if row[call.columns[0]] is not None]
    if any(isinstance(value, float) for value in present):
        return True
    squares = sum(value * value for value in present) if call.function in ("variance", "stddev") else 0
    return (call.function != "sum" or sum(present) in _INT64) and squares in _INT128


def _value(call: AskedCall, rows: list[Row]) -> Value:
    if not call.columns:
        return len(rows)
    tuples = [tuple(row[name] for name in call.columns) for row in rows]
    if call.distinct:
        return len({values for values in tuples if None not in values})
    if call.function == "approx_count_distinct":
        kinds = [TUPLE.column(name).kind for name in call.columns]
        return distinct(
            tuple(word for value, kind in zip(values, kinds, strict=True) for word in _words(value, kind))
            for values in tuples
            if None not in values
        )
    name = call.columns[0]
    held = [row for row in rows if row[name] is not None]
    present = [row[name] for row in held]
    if call.function == "count":
        return len(present)
    if not present:
        return None
    kind = TUPLE.column(name).kind.value
    if call.function in ("first", "last"):
        pick = min if call.function == "first" else max
        return pick(held, key=lambda row: (row["ts"], row["position"]))[name]
    if call.function in ("min", "max"):
        return (min if call.function == "min" else max)(present)
    if call.function in ("bit_or", "bit_and"):
        result = present[0]
        for value in present[1:]:
            result = result | value if call.function == "bit_or" else result & value
        return result
    if call.function == "sum":
        return sum(present)
    if call.function.startswith("heavy_hitter"):
        counts = Counter(present)
        by_weight = sorted(counts, key=lambda value: (-counts[value], value))
        place = int(call.parameters[0])
        found = by_weight[place - 1] if place <= len(by_weight) else None
        return counts.get(found) if call.function.endswith("count") else found
    ranked = sorted(present)
    if call.function.endswith("quantile"):
        value = ranked[max(1, math.ceil(Fraction(call.parameters[0]) * len(ranked))) - 1]
        return value if call.function == "quantile" else coarse(value, 7)
    scale = 10**9 if kind == "duration" else 1
    exact = [Fraction(value) / scale for value in ranked]
    mean = sum(exact) / len(exact)
    if call.function == "avg":
        return float(mean)
    if call.function == "median":
        return float((exact[(len(exact) - 1) // 2] + exact[len(exact) // 2]) / 2)
    variance = sum((value - mean) ** 2 for value in exact) / len(exact)
    return float(variance) if call.function == "variance" else math.sqrt(variance)


def _words(value: int | float, kind: Kind) -> tuple[int, ...]:
    if kind is Kind.IP:
        return int(value) >> 128, int(value) >> 64, int(value)
    return (word_of(value) if kind is Kind.FLOAT else int(value),)
