"""Aggregates by their definitions, on the list of a group's rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from ipaddress import IPv4Address, IPv6Address

from lowmark.query.parse import syntax as s
from tests.naive.expressions import fitting
from tests.naive.overflow import note
from tests.naive.scope import Refused, Unsupported
from tests.naive.sketching import coarse, distinct, word_of
from tests.naive.values import Address, CommunityId, Duration, Mac, Time, Value, order

NAMES = frozenset(
    (
        "count",
        "sum",
        "avg",
        "min",
        "max",
        "variance",
        "stddev",
        "first",
        "last",
        "bit_or",
        "bit_and",
        "median",
        "quantile",
        "heavy_hitter",
        "heavy_hitter_count",
        "approx_count_distinct",
        "approx_quantile",
    )
) | {"total"}
Arguments = Callable[[s.Expression], list[Value]]


def is_aggregate(node: s.SyntaxNode) -> bool:
    return isinstance(node, s.FunctionCall) and node.function.text.lower() in NAMES


def has_aggregate(node: s.SyntaxNode) -> bool:
    return any(is_aggregate(part) for part in s.walk(node))


def aggregate(call: s.FunctionCall, values_of: Arguments, rows: int, keys: Sequence[object]) -> Value:
    """`values_of` gives an expression's values on the rows in order of arrival; `keys` is what orders them."""
    name = call.function.text
    if name == "count" and (not call.arguments or isinstance(call.arguments[0], s.Star)):
        return rows
    if name == "count" and call.distinct:
        tuples = zip(*(values_of(argument) for argument in call.arguments), strict=True)
        return len({tuple(map(order, item)) for item in tuples if None not in item})
    if call.distinct:
        raise Refused("DISTINCT goes with count")
    if name == "approx_count_distinct":
        combined = zip(*(values_of(argument) for argument in call.arguments), strict=True)
        complete = (item for item in combined if None not in item)
        return distinct(tuple(word for value in item for word in _words(value)) for item in complete)
    values = values_of(call.arguments[0])
    present = [value for value in values if value is not None]
    if name == "count":
        return len(present)
    if not present:
        return None
    if name in ("first", "last"):
        placed = [(key, value) for key, value in zip(keys, values, strict=True) if value is not None]
        chosen = (min if name == "first" else max)(key for key, _ in placed)
        found = {order(value): value for key, value in placed if key == chosen}
        return found.popitem()[1] if len(found) == 1 else None
    if name.startswith("heavy_hitter"):
        counts = Counter(present)
        ranked = sorted(counts, key=lambda value: (-counts[value], order(value)))
        place = call.arguments[1].value
        found = ranked[place - 1] if place <= len(ranked) else None
        return counts.get(found) if name.endswith("count") else found
    if name == "min":
        return min(present, key=order)
    if name == "max":
        return max(present, key=order)
    return _of_numbers(call, name, present)


def _of_numbers(call: s.FunctionCall, name: str, values: list[Value]) -> Value:
    if any(isinstance(value, bool | str | Time | Mac | CommunityId | Address) for value in values):
        raise Refused(f"{name} of this is not defined")
    if isinstance(values[0], Duration):
        return _of_durations(call, name, values)
    if name in ("variance", "stddev") and isinstance(values[0], int) and not _square_sum_fits(values):
        note(call)
        return None
    exact = [Fraction(value) for value in values]
    mean = sum(exact) / len(exact)
    match name:
        case "sum":
            return whole_sum(call, values) if isinstance(values[0], int) else math.fsum(values)
        case "avg":
            return float(mean)
        case "variance":
            return float(_variance(exact))
        case "stddev":
            return math.sqrt(_variance(exact))
        case "median":
            ranked = sorted(exact)
            return float((ranked[(len(ranked) - 1) // 2] + ranked[len(ranked) // 2]) / 2)
        case "quantile":
            return sorted(values)[_rank(call, len(values)) - 1]
        case "approx_quantile":
            return coarse(sorted(values)[_rank(call, len(values)) - 1], 7)
        case "bit_or" | "bit_and":
            result = values[0]
            for value in values[1:]:
                result = result | value if name == "bit_or" else result & value
            return result
    raise Unsupported(name)


def _of_durations(call: s.FunctionCall, name: str, values: list[Value]) -> Value:
    ns = [value.ns for value in values]
    if name == "sum":
        total = whole_sum(call, ns)
        return None if total is None else Duration(total)
    if name in ("quantile", "approx_quantile"):
        ranked = sorted(ns)[_rank(call, len(ns)) - 1]
        return Duration(ranked if name == "quantile" else coarse(ranked, 7))
    if name in ("variance", "stddev") and not _square_sum_fits(ns):
        note(call)
        return None
    return _of_numbers(call, name, [Fraction(value, 10**9) for value in ns])


def _square_sum_fits(values: Sequence[int]) -> bool:
    """In 128 bits."""
    return sum(value * value for value in values) < 2**127


def whole_sum(call: s.FunctionCall, values: Sequence[int]) -> int | None:
    """Null, and noted, where it leaves 64 bits."""
    total = fitting(sum(values))
    if total is None:
        note(call)
    return total


def _words(value: Value) -> tuple[int, ...]:
    match value:
        case IPv4Address() | IPv6Address():
            return value.version, int(value) >> 64, int(value)
        case Time() | Duration():
            return (value.ns,)
        case Mac():
            return (value.number,)
        case CommunityId():
            number = int.from_bytes(value.digest, "big")
            return number >> 128, number >> 64, number
    return (word_of(value) if isinstance(value, float) else int(value),)


def _variance(values: list[Fraction]) -> Fraction:
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / len(values)


def _rank(call: s.FunctionCall, count: int) -> int:
    q = call.arguments[1]
    if not isinstance(q, s.DecimalLiteral | s.IntegerLiteral):
        raise Refused("the fraction is a number")
    return max(1, math.ceil(Fraction(q.value) * count))
