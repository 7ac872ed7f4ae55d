"""Lowered expressions mean what a naive evaluator of the syntax tree says."""

from __future__ import annotations

import math
from functools import cache
from ipaddress import IPv4Address, IPv6Address, ip_address

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from lowmark.query.bind.lowering import Lowering
from lowmark.query.bind.names import InputNames
from lowmark.query.bind.relations import packets
from lowmark.query.bind.scope import Scope
from lowmark.query.bind.script import texts
from lowmark.query.expr.evaluate import Values, all_valid, assemble_rows, evaluate, lost_in
from lowmark.query.expr.expressions import Call, Expr, Literal, Op, is_checked
from lowmark.query.parse import syntax as s
from lowmark.query.parse.errors import QueryError
from lowmark.query.parse.parser import parse
from lowmark.wire.rows.schema import Column, Kind, Schema
from tests.naive import expressions as naive
from tests.naive.overflow import noted
from tests.naive.scope import Refused, Unsupported
from tests.naive.values import CommunityId, Duration, Mac, Time, Value, community_id_of_text

STRINGS = ("", "Main", "a", "b")
IDS = ("1:LQU9qZlK+B5F3KDmev6m5PMibrg=", "1:d/FP5EW3wiY1vCndhwleRRKHowQ=", "1:wHyGvjMfljg6Bppwm3bg0LO8TY0=")
SCHEMA = Schema(
    (
        Column("ts", Kind.TIME), Column("arrival_ts", Kind.TIME), Column("srcIP", Kind.IP), Column("destIP", Kind.IP),
        Column("len", Kind.INT), Column("ttl", Kind.INT), Column("srcMAC", Kind.MAC), Column("link", Kind.STR),
        Column("community_id", Kind.COMMUNITY_ID),
    ),
    STRINGS,
)  # fmt: skip
SCOPE = Scope("", "Main", packets(("Main",), 1))

times = st.sampled_from((0, 1, 1_714_564_800_000_000_000, 1_714_564_859_999_999_999)) | st.integers(-(2**40), 2**61)
addresses = st.sampled_from(("10.0.0.1", "10.0.1.2", "255.255.255.255", "::", "2001:db8::1", "::ffff:10.0.0.9"))
rows = st.fixed_dictionaries(
    {
        "ts": times.map(Time), "arrival_ts": times.map(Time),
        "srcIP": addresses.map(ip_address), "destIP": addresses.map(ip_address),
        "len": st.integers(0, 70_000), "ttl": st.integers(0, 66), "srcMAC": st.integers(0, 3).map(Mac),
        "link": st.sampled_from(STRINGS), "community_id": st.sampled_from(IDS).map(community_id_of_text),
    }
)  # fmt: skip


@cache
def _texts(kind: Kind, depth: int) -> st.SearchStrategy[str]:
    """Expressions of a kind as they are written."""
    leaf = st.sampled_from(_LEAVES[kind])
    if depth == 0:
        return leaf

    def of(kind: Kind) -> st.SearchStrategy[str]:
        return _texts(kind, depth - 1)

    def pair(left: Kind, operators: str, right: Kind) -> st.SearchStrategy[str]:
        return st.tuples(of(left), st.sampled_from(operators.split()), of(right)).map(
            lambda t: f"({t[0]} {t[1]} {t[2]})"
        )

    number, real, time, duration = Kind.INT, Kind.FLOAT, Kind.TIME, Kind.DURATION
    comparison = "= <> != < <= > >="
    made = {
        Kind.INT: pair(number, "+ - * / % & | ^ << >>", number)
        | pair(time, "/ %", number) | pair(time, "/", duration)
        | of(number).map(lambda text: f"(-{text})") | of(number).map(lambda text: f"(~{text})"),
        Kind.FLOAT: pair(number, "+ - * /", real) | pair(real, "+ - * /", number) | pair(real, "+ - *", real),
        Kind.TIME: pair(time, "+ -", duration) | pair(duration, "+", time) | pair(time, "+ -", number),
        Kind.DURATION: pair(time, "-", time) | pair(duration, "+ -", duration) | pair(duration, "*", number),
        Kind.IP: st.tuples(of(Kind.IP), st.sampled_from(_LENGTHS)).map(lambda t: f"prefix({t[0]}, {t[1]})"),
        Kind.BOOL: pair(Kind.BOOL, "AND OR", Kind.BOOL) | of(Kind.BOOL).map(lambda text: f"(NOT {text})")
        | st.one_of(pair(kind, comparison, kind) for kind in Kind if kind is not Kind.BOOL)
        | pair(number, comparison, real) | pair(time, comparison, number) | pair(duration, comparison, number)
        | pair(Kind.IP, comparison, Kind.STR)
        | st.tuples(of(Kind.IP), st.sampled_from(_PREFIXES)).map(lambda t: f"({t[0]} IN {t[1]})")
        | st.tuples(of(number), of(number), of(number)).map(lambda t: f"({t[0]} BETWEEN {t[1]} AND {t[2]})")
        | st.tuples(of(time), of(number), of(time)).map(lambda t: f"({t[0]} NOT IN ({t[1]}, {t[2]}))")
        | of(number).map(lambda text: f"({text} IS NULL)") | of(number).map(lambda text: f"({text} IS NOT NULL)"),
    }  # fmt: skip
    return leaf | made[kind] if kind in made else leaf


_LEAVES = {
    Kind.INT: (
        "len",
        "ttl",
        "0",
        "1",
        "2",
        "7",
        "63",
        "64",
        "-1",
        "9223372036854775807",
        "(len / (ttl - 1))",
        "(len * 300000000000000)",
    ),
    Kind.FLOAT: ("2.5", "0.1", "0.0", "-3.0", "(len * 1.0)", "(ttl / 4.0)"),
    Kind.BOOL: ("true", "false", "(len > ttl)", "(len / ttl > 2)"),
    Kind.TIME: ("ts", "arrival_ts", "(ts + 1 ms)"),
    Kind.DURATION: ("5 seconds", "1 ns", "2 hours", "(ts - arrival_ts)", "90000 d"),
    Kind.IP: ("srcIP", "destIP", "10.0.0.9", "2001:db8::1", "::ffff:10.0.0.1"),
    Kind.MAC: ("srcMAC", "00:00:00:00:00:02", "'00-00-00-00-00-01'"),
    Kind.COMMUNITY_ID: ("community_id", *(f"'{text}'" for text in IDS)),
    Kind.STR: ("link", "'a'", "'10.0.0.1'"),
}
_LENGTHS = ("0", "8", "24", "32", "33", "96", "128", "20, 48", "0, 128", "32, 0")
_PREFIXES = (
    "10.0.0.0/8",
    "0.0.0.0/0",
    "::/0",
    "::/64",
    "2001:db8::/32",
    "::ffff:10.0.0.0/120",
    "('10.0.0.0/24', '::1')",
)


def lowered(text: str) -> tuple[Expr, s.Expression, Schema]:
    sql = f"SELECT {text} AS x FROM Main"
    script = parse(sql)
    (statement,) = script.statements
    assert isinstance(statement, s.Select)
    node = statement.items[0].expression
    assert not isinstance(node, s.Star)
    strings = tuple(sorted({*STRINGS, *texts(script, None)}))
    scope = Scope(sql, SCOPE.label, SCOPE.relation)
    return Lowering(sql, strings, InputNames(scope, "a test")).lower(node), node, Schema(SCHEMA.columns, strings)


def value_of(expr: Expr, schema: Schema, row: dict[str, Value]) -> tuple[Value, bool]:
    """And whether it is lost to an overflow."""
    words = assemble_rows(schema, [_values(column, schema, row[column.name]) for column in schema], 1)
    values = evaluate(expr, words, schema)
    return _shown(values, schema) if values.valid[0] else None, bool(lost_in((values,), 1)[0])


def _values(column: Column, schema: Schema, value: Value) -> Values:
    match value:
        case Time(ns=number) | Mac(number=number):
            return all_valid(column.kind, np.array([number], np.int64))
        case str():
            return all_valid(column.kind, np.array([schema.strings.index(value)], np.int64))
        case int():
            return all_valid(column.kind, np.array([value], np.int64))
        case CommunityId(digest=digest):
            return all_valid(column.kind, np.frombuffer(bytes(4) + digest, ">u8").astype(np.uint64)[np.newaxis])
    assert isinstance(value, IPv4Address | IPv6Address)
    words = [value.version, int(value) >> 64, int(value) & 2**64 - 1]
    return all_valid(column.kind, np.array([words], np.uint64))


def _shown(values: Values, schema: Schema) -> Value:
    if values.kind is Kind.IP:
        version, high, low = (int(word) for word in values.data[0])
        return {4: IPv4Address, 6: IPv6Address}[version](high << 64 | low)
    if values.kind is Kind.COMMUNITY_ID:
        return CommunityId(values.data[0].astype(">u8").tobytes()[4:])
    item = values.data[0]
    match values.kind:
        case Kind.FLOAT:
            return float(item)
        case Kind.BOOL:
            return bool(item)
        case Kind.TIME:
            return Time(int(item))
        case Kind.DURATION:
            return Duration(int(item))
        case Kind.MAC:
            return Mac(int(item))
        case Kind.STR:
            return schema.strings[int(item)]
    return int(item)


def _same(found: Value, expected: Value) -> bool:
    if isinstance(found, float) and isinstance(expected, float):
        return found == expected or (math.isnan(found) and math.isnan(expected))
    return found == expected and type(found) is type(expected)


@given(st.sampled_from(list(Kind)).flatmap(lambda kind: _texts(kind, 3)), rows)
@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
def test_as_the_naive_evaluator(text: str, row: dict[str, Value]) -> None:
    try:
        expr, node, schema = lowered(text)
    except QueryError as error:
        assume(any(reason in error.message for reason in ("outside of 1677", "finer than", "integers have 64 bits")))
        return
    try:
        with noted() as overflows:
            expected = naive.evaluate(node, row)
    except (Refused, Unsupported, ValueError, OverflowError):
        assume(False)
        return
    found, lost = value_of(expr, schema, row)
    assert _same(found, expected), f"{text}: {found!r}, not {expected!r}"
    assert lost == bool(overflows), text
    assert found is not None or expr.nullable
    assert not lost or is_checked(expr)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ts / 60", 28576080), ("ts % 60", 59), ("ts / 1 minute", 28576080), ("ts - '2024-05-01T12:00:00Z'", 59.9e9),
        ("ts > 1714564800.5", True), ("ts = '2024-05-01T14:00:59.9+02:00'", True), ("-9223372036854775808", -(2**63)),
        ("len / (ttl - 64)", None), ("'10.0.0.1' = srcIP", True), ("srcIP IN '10.0.0.0/30'", True),
        ("1 << 64", None), ("len % -7", -1), ("7 & 3 = 3", True), ("NOT len = 1", True),
        ("(len / 0 > 1) AND false", False), ("(len / 0 > 1) OR true", True), ("(len / 0 > 1) OR false", None),
        ("100 / 8", 12), ("-100 / 8", -13), ("10 / 4.0", 2.5), ("ts / 2.5", 685825943.6),
        ("1.5 - 2 seconds", -5e8), ("(ts - arrival_ts) > 0.5", True), ("'b' > 'a'", True), ("'B' > 'a'", False),
    ],
)  # fmt: skip
def test_examples(text: str, expected: float | bool | None) -> None:
    row: dict[str, Value] = {
        "ts": Time(1_714_564_859_900_000_000), "arrival_ts": Time(1_714_564_859_000_000_000),
        "srcIP": ip_address("10.0.0.1"), "destIP": ip_address("::1"), "len": 1000, "ttl": 64,
        "srcMAC": Mac(1), "link": "Main", "community_id": community_id_of_text(IDS[0]),
    }  # fmt: skip
    expr, _, schema = lowered(text)
    found, _ = value_of(expr, schema, row)
    assert (found.ns if isinstance(found, Duration) else found) == expected


# Lists: what is sought, and the constants that stand in them or are compared with one by one.
_LISTED = {
    "srcIP": (
        "10.0.0.1", "10.0.0.9", "2001:db8::1", "::", "'255.255.255.255'", "10.0.0.0/24", "10.0.1.3/31", "0.0.0.0/0",
        "10.0.0.1/32", "2001:db8::1/128", "2001:db8::/32", "'::/1'", "::/0", "::ffff:10.0.0.0/120",
    ),
    "len": ("1", "0", "-1", "2", "3", "1000", "2.0", "0.5", "9223372036854775807", "(1 + 1)", "(1 / 0)"),
    "(len / (ttl - 1))": ("1", "0", "-1", "7", "2.5"),
    "(len * 300000000000000)": ("0", "300000000000000", "(len << 50)", "(1 / 0)", "(len * 100000000000000)"),
    "(len * 1.5)": ("1.5", "0", "0.0", "-1.5", "3"),
    "ts": ("0", "'2024-05-01T12:00:00Z'", "1714564859.999999999", "(arrival_ts)"),
    "(ts - arrival_ts)": ("0", "1 s", "0.5"),
    "srcMAC": ("00:00:00:00:00:01", "00:00:00:00:00:02", "'00-00-00-00-00-03'"),
    "link": ("'a'", "'Main'", "'nowhere'"),
    "(len > 0)": ("true", "false"),
    "community_id": tuple(f"'{text}'" for text in IDS),
}  # fmt: skip


@st.composite
def _memberships(draw: st.DrawFn) -> str:
    sought = draw(st.sampled_from(sorted(_LISTED)))
    chosen = draw(st.lists(st.sampled_from(_LISTED[sought]), min_size=1, max_size=8))
    values = [one for one in chosen if "/" not in one or "(" in one]
    match draw(st.sampled_from(("IN", "NOT IN", "OR", "AND"))):
        case "OR" if values:
            return " OR ".join(f"{sought} = {one}" for one in values)
        case "AND" if values:
            return " AND ".join(f"{sought} <> {one}" for one in values)
        case "NOT IN" | "AND":
            return f"{sought} NOT IN ({', '.join(chosen)})"
    half = len(chosen) // 2
    if half and draw(st.booleans()):
        return f"{sought} IN ({', '.join(chosen[:half])}) OR {sought} IN ({', '.join(chosen[half:])})"
    return f"{sought} IN ({', '.join(chosen)})"


@given(_memberships(), rows)
@settings(deadline=None, max_examples=500)
def test_lists_as_the_naive_evaluator(text: str, row: dict[str, Value]) -> None:
    expr, node, schema = lowered(text)
    found, lost = value_of(expr, schema, row)
    with noted() as overflows:
        expected = naive.evaluate(node, row)
    assert _same(found, expected), f"{text}: {found!r}, not {expected!r}"
    assert lost == bool(overflows), text
    assert found is not None or expr.nullable


@pytest.mark.parametrize(
    "text",
    [
        "len IN (3, 1, 2, 7, 1)",
        "len = 1 OR len = 2 OR 3 = len OR len = 7",
        "len IN (1, 7) OR len = 3 OR NOT len <> 2 OR len IN (2, 3)",
        "NOT (len <> 1 AND len <> 2 AND len NOT IN (3, 7))",
        " OR ".join(f"len = {value}" for value in (1, 2, 3, 7)),
    ],
)
def test_however_it_is_written_a_set_is_one_operation(text: str) -> None:
    expected, _, _ = lowered("len IN (1, 2, 3, 7)")
    assert isinstance(expected, Call)
    assert expected.op is Op.IN
    assert lowered(text)[0] == expected


def test_a_set_of_one_is_a_comparison_and_one_of_none_is_false() -> None:
    assert lowered("len IN (7, 7)")[0] == lowered("len = 7")[0]
    assert lowered("srcIP IN 10.0.0.1/32")[0] == lowered("srcIP = 10.0.0.1")[0]
    assert lowered("link IN ('nowhere', 'neither')")[0] == Literal(0, Kind.BOOL)
    assert lowered("5 IN (4, 5)")[0] == Literal(1, Kind.BOOL)
