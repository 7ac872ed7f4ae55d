"""The evaluator over columns against a naive one over single rows."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lowmark.query.expr.constant_sets import key_of, value_of
from lowmark.query.expr.evaluate import Values, assemble_rows, evaluate, holds, lost_in
from lowmark.query.expr.expressions import Call, Expr, Field, Literal, Op, Ranges
from lowmark.wire.rows.schema import Column, Kind, Schema
from lowmark.wire.rows.words import column_of
from tests.naive.lowered import CHECKED, checked, is_lost
from tests.naive.sketching import coarse, hashed, word_of
from tests.wire.strategies import STRINGS, V4, V6, VALUES, matrix

Value = int | float | None
Row = list[Value]

SCHEMA = Schema(
    (
        Column("a", Kind.INT),
        Column("b", Kind.INT, nullable=True),
        Column("f", Kind.FLOAT),
        Column("g", Kind.FLOAT, nullable=True),
        Column("ip", Kind.IP),
        Column("peer", Kind.IP, nullable=True),
        Column("yes", Kind.BOOL, nullable=True),
        Column("t", Kind.TIME),
    ),
    tuple(sorted(STRINGS)),
)
INTEGERS = VALUES[Kind.INT] | st.sampled_from([0, 1, -1, 2, 63, 64, -(2**63), 2**63 - 1])
FLOATS = st.floats() | st.sampled_from([0.0, -0.0, 1.5, -2.0, math.inf])
ADDRESSES = VALUES[Kind.IP] | st.sampled_from([V4, V4 + 1, V6, V6 + 1, V6 + (0xFFFF << 32) + 1, V6 + (1 << 64)])
DRAWN = {Kind.INT: INTEGERS, Kind.TIME: INTEGERS, Kind.FLOAT: FLOATS, Kind.IP: ADDRESSES, Kind.BOOL: st.integers(0, 1)}

rows = st.lists(
    st.tuples(*(DRAWN[c.kind] | st.none() if c.nullable else DRAWN[c.kind] for c in SCHEMA)).map(list), max_size=6
)


def _int(value: int) -> Expr:
    return Literal(value, Kind.INT)


def _mask(v4: bool, bits: int) -> int:
    return (1 << 192) - (1 << (32 - bits % 33 if v4 else 128 - bits))


def leaves(kind: Kind) -> st.SearchStrategy[Expr]:
    fields = [Field(c.name, c.kind, c.nullable) for c in SCHEMA if c.kind is kind]
    return st.sampled_from(fields) | (DRAWN[kind] | st.none()).map(lambda value: Literal(value, kind))


def calls(ops: list[Op], kind: Kind, *args: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    return st.builds(
        lambda op, given, checked: Call(op, given, kind, True, checked and op in CHECKED),
        st.sampled_from(ops), st.tuples(*args), st.booleans(),
    )  # fmt: skip


INT_OPS = [Op.ADD, Op.SUB, Op.MUL, Op.FLOOR_DIV, Op.MOD, Op.BIT_AND, Op.BIT_OR, Op.BIT_XOR]
FLOAT_OPS = [Op.FLOAT_ADD, Op.FLOAT_SUB, Op.FLOAT_MUL, Op.FLOAT_DIV, Op.FLOAT_MOD]
COMPARISONS = [Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE]

integers: st.SearchStrategy[Expr] = st.recursive(
    leaves(Kind.INT),
    lambda inner: (
        calls(INT_OPS, Kind.INT, inner, inner)
        | calls([Op.NEG, Op.INVERT], Kind.INT, inner)
        | calls([Op.HASH], Kind.INT, inner | leaves(Kind.IP) | leaves(Kind.FLOAT), inner)
        | calls([Op.COARSE], Kind.INT, inner, st.integers(1, 52).map(_int))
        | calls([Op.SHIFT_LEFT, Op.SHIFT_RIGHT], Kind.INT, inner, inner | st.integers(-2, 66).map(_int))
    ),
    max_leaves=6,
)
floats: st.SearchStrategy[Expr] = st.recursive(
    leaves(Kind.FLOAT) | calls([Op.TO_FLOAT], Kind.FLOAT, integers),
    lambda inner: (
        calls(FLOAT_OPS, Kind.FLOAT, inner, inner)
        | calls([Op.FLOAT_NEG], Kind.FLOAT, inner)
        | calls([Op.COARSE], Kind.FLOAT, inner, st.integers(1, 52).map(_int))
    ),
    max_leaves=5,
)
addresses = leaves(Kind.IP) | st.builds(
    lambda address, bits4, bits6: Call(
        Op.PREFIX,
        (address, Literal(_mask(True, bits4), Kind.IP), Literal(_mask(False, bits6), Kind.IP)),
        Kind.IP,
        True,
    ),
    leaves(Kind.IP),
    st.integers(0, 32),
    st.integers(0, 128),
)


def sets(operands: st.SearchStrategy[Expr], kind: Kind) -> st.SearchStrategy[Expr]:
    """Of single values, and of what lies between two."""
    keys = DRAWN[kind].map(lambda value: key_of(kind, value)).filter(lambda key: key is not None)
    spans = keys.map(lambda key: (key, key))
    if kind is not Kind.FLOAT:
        spans |= st.tuples(keys, keys).map(sorted).map(tuple)
    asked = st.lists(spans, max_size=5).map(lambda spans: Ranges.of(kind, spans))
    return st.builds(lambda operand, ranges: Call(Op.IN, (operand, ranges), Kind.BOOL, True), operands, asked)


memberships = sets(integers, Kind.INT) | sets(floats, Kind.FLOAT) | sets(addresses, Kind.IP)
conditions: st.SearchStrategy[Expr] = st.recursive(
    leaves(Kind.BOOL)
    | calls(COMPARISONS, Kind.BOOL, integers, integers)
    | calls(COMPARISONS, Kind.BOOL, floats, floats)
    | calls(COMPARISONS, Kind.BOOL, addresses, addresses)
    | calls([Op.IS_NULL], Kind.BOOL, integers | floats | addresses)
    | memberships,
    lambda inner: (
        calls([Op.AND, Op.OR], Kind.BOOL, inner, inner)
        | calls([Op.AND, Op.OR], Kind.BOOL, inner, inner, inner)
        | calls([Op.NOT, Op.IS_NULL], Kind.BOOL, inner)
    ),
    max_leaves=6,
)


@given(integers | floats | addresses | conditions, rows)
@example(Call(Op.FLOOR_DIV, (_int(-(2**63)), _int(-1)), Kind.INT, True), [[0, 0, 0.0, 0.0, 0, 0, 0, 0]])
@example(Call(Op.MOD, (_int(-(2**63)), _int(-1)), Kind.INT, True), [[0, 0, 0.0, 0.0, 0, 0, 0, 0]])
def test_columns_have_the_values_of_single_rows(expr: Expr, rows: list[Row]) -> None:
    values = evaluate(expr, matrix(SCHEMA, rows), SCHEMA)
    assert values.kind is expr.kind
    assert [same(x, naive(expr, row)) for x, row in zip(listed(values), rows, strict=True)] == [True] * len(rows)


@given(integers | floats | conditions, rows)
@settings(max_examples=300)
def test_what_an_overflow_decides_is_lost(expr: Expr, rows: list[Row]) -> None:
    values = evaluate(expr, matrix(SCHEMA, rows), SCHEMA)
    expected = [is_lost(expr, lambda part, row=row: naive(part, row)) for row in rows]
    assert lost_in((values,), len(rows)).tolist() == expected


@given(conditions, rows)
def test_holds_is_where_a_condition_is_true(expr: Expr, rows: list[Row]) -> None:
    found = holds(evaluate(expr, matrix(SCHEMA, rows), SCHEMA))
    assert found.tolist() == [bool(naive(expr, row)) for row in rows]


@given(rows)
def test_assembling_the_columns_of_a_matrix_gives_the_matrix(rows: list[Row]) -> None:
    words = matrix(SCHEMA, rows)
    columns = [Values(c.kind, *column_of(SCHEMA, words, c.name)) for c in SCHEMA]
    assert np.array_equal(assemble_rows(SCHEMA, columns, len(rows)), words)


def listed(values: Values) -> list[Value]:
    if values.kind is Kind.IP:
        numbers = [version << 128 | high << 64 | low for version, high, low in values.data.tolist()]
    else:
        numbers = values.data.tolist()
    return [number if valid else None for number, valid in zip(numbers, values.valid.tolist(), strict=True)]


def same(x: Value, y: Value) -> bool:
    if isinstance(x, float) and isinstance(y, float):
        return x == y or (math.isnan(x) and math.isnan(y))
    return x == y and type(x) is type(y)


def naive(expr: Expr, row: Row) -> Value:
    match expr:
        case Field(name):
            return row[SCHEMA.index(name)]
        case Literal(value):
            return value
        case Call(Op.IN, (operand, Ranges(kind) as ranges)):
            value = naive(operand, row)
            spans = [tuple(value_of(kind, key) for key in span) for span in ranges.spans]
            return None if value is None else int(any(first <= value <= last for first, last in spans))
        case Call(op, args):
            values = [naive(arg, row) for arg in args]
            if op is Op.IS_NULL:
                return int(values[0] is None)
            if op is Op.AND:
                return 0 if 0 in values else None if None in values else 1
            if op is Op.OR:
                return 1 if 1 in values else None if None in values else 0
            if None in values:
                return None
            if expr.checked:
                return checked(op, values)
            if op is Op.HASH:
                parts = zip(values, args, strict=True)
                return (hashed(word for v, arg in parts for word in words_of(v, arg.kind)) + 2**63) % 2**64 - 2**63
            return NAIVE[op](*values)


def words_of(value: int | float, kind: Kind) -> tuple[int, ...]:
    if kind is Kind.IP:
        return int(value) >> 128, int(value) >> 64, int(value)
    return (word_of(value) if kind is Kind.FLOAT else int(value),)


def wrapped(compute: Callable[..., int]) -> Callable[..., int]:
    return lambda *args: (compute(*args) + 2**63) % 2**64 - 2**63


def unless_zero(compute: Callable[..., Value]) -> Callable[..., Value]:
    return lambda a, b: None if b == 0 else compute(a, b)


def shifted(compute: Callable[..., int]) -> Callable[..., Value]:
    return lambda a, b: wrapped(compute)(a, b) if 0 <= b <= 63 else None


def divided(a: float, b: float) -> float:
    with np.errstate(all="ignore"):
        return float(np.float64(a) / np.float64(b))


def float_mod(a: float, b: float) -> float:
    return math.nan if math.isinf(a) or math.isnan(a) or math.isnan(b) else a % b


NAIVE: dict[Op, Callable[..., Value]] = {
    Op.COARSE: coarse,
    Op.NEG: wrapped(operator.neg),
    Op.INVERT: operator.invert,
    Op.ADD: wrapped(operator.add),
    Op.SUB: wrapped(operator.sub),
    Op.MUL: wrapped(operator.mul),
    Op.FLOOR_DIV: unless_zero(wrapped(operator.floordiv)),
    Op.MOD: unless_zero(operator.mod),
    Op.BIT_AND: operator.and_,
    Op.BIT_OR: operator.or_,
    Op.BIT_XOR: operator.xor,
    Op.SHIFT_LEFT: shifted(operator.lshift),
    Op.SHIFT_RIGHT: shifted(operator.rshift),
    Op.TO_FLOAT: float,
    Op.FLOAT_NEG: operator.neg,
    Op.FLOAT_ADD: operator.add,
    Op.FLOAT_SUB: operator.sub,
    Op.FLOAT_MUL: operator.mul,
    Op.FLOAT_DIV: unless_zero(divided),
    Op.FLOAT_MOD: unless_zero(float_mod),
    Op.EQ: lambda a, b: int(a == b),
    Op.NE: lambda a, b: int(a != b),
    Op.LT: lambda a, b: int(a < b),
    Op.LE: lambda a, b: int(a <= b),
    Op.GT: lambda a, b: int(a > b),
    Op.GE: lambda a, b: int(a >= b),
    Op.NOT: lambda a: int(not a),
    Op.PREFIX: lambda a, mask4, mask6: a & (mask4 if a < V6 else mask6),
}
