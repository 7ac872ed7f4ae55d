"""A kernel finds in a set what is in it: against looking at each constant in turn."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowlevel.kernel.codegen.assemble import Build, assemble
from lowlevel.kernel.codegen.membership import IN_TEXT, _sections, among
from lowlevel.node import SourceNodes
from lowmark.query.catalog import packet_field
from lowmark.query.expr.constant_sets import KeyRange, key_of
from lowmark.query.expr.expressions import Call, Expr, Field, Literal, Named, Op, Ranges
from lowmark.query.plan.nodes import Node, Pane, Reduction
from lowmark.wire.rows.schema import Kind
from tests.lowlevel.naive import V4, V6, block
from tests.lowlevel.plans import call, field, null_if_zero

_BUILDS = pytest.mark.parametrize("build", Build)

MACS = (0, 1, 0x001122334455, 2**48 - 1)
PORTS = (0, 1, 80, 81, 82, 443, 65535)
TIMES = (0, 1, 1_714_564_800_123_456_789)
V4S = (0, 1, 0x0A000000, 0x0A0000FF, 0x0A000100, 0x7FFFFFFF, 0x80000000, 2**32 - 1)
DOC = 0x20010DB8 << 96
V6S = (0, 1, 0xFFFF0A000000, DOC, DOC + 2**63, DOC + 2**64, 2**127 - 1, 2**127, 2**128 - 1)
ADDRESSES = (*(V4 | one for one in V4S), *(V6 | one for one in V6S))


def frame(mac: int, address: int, port: int, ttl: int) -> bytes:
    link = bytes(6) + mac.to_bytes(6)
    transport = struct.pack(">HH", port, 53)
    if address < V6:
        head = struct.pack(">BBHHHBBHII", 0x45, 0, 24, 0, 0, ttl, 17, 0, address & 0xFFFFFFFF, 1)
        return link + b"\x08\0" + head + transport
    return (
        link
        + b"\x86\xdd"
        + struct.pack(">IHBB", 6 << 28, 4, 17, ttl)
        + (address - V6).to_bytes(16)
        + bytes(16)
        + transport
    )


_chosen = random.Random(1)
FRAMES = [
    frame(_chosen.choice(MACS), address, _chosen.choice(PORTS), _chosen.choice((0, 1, 255)))
    for address in ADDRESSES
    for _ in range(8)
]
STAMPS = [_chosen.choice(TIMES) for _ in FRAMES]

INFINITE = Literal(float("inf"), Kind.FLOAT)


def double(of: Expr) -> Expr:
    return call(Op.TO_FLOAT, of, kind=Kind.FLOAT)


OPERANDS: tuple[Expr, ...] = (
    field("srcIP"),
    field("srcMAC"),
    field("srcPort"),
    field("ts"),
    null_if_zero(field("srcPort")),
    call(Op.FLOAT_MUL, double(field("ttl")), INFINITE, kind=Kind.FLOAT),  # NaN for 0
    call(Op.FLOAT_NEG, double(field("ttl")), kind=Kind.FLOAT),  # -0.0 for 0
    call(Op.GT, field("ttl"), Literal(0, Kind.INT), kind=Kind.BOOL),
    Field("community_id", Kind.COMMUNITY_ID),
)
assert packet_field("community_id") is not None

Value = int | float | None


@dataclass(frozen=True)
class Asked:
    """Constants, each as its key and the key of the last one that it stands for."""

    operand: Expr
    spans: Sequence[KeyRange]

    @property
    def expr(self) -> Expr:
        return Call(Op.IN, (self.operand, Ranges.of(self.operand.kind, self.spans)), Kind.BOOL, self.operand.nullable)

    def naive(self, value: Value) -> bool | None:
        if value is None:
            return None
        key = key_of(self.operand.kind, value)
        return key is not None and any(first <= key <= last for first, last in self.spans)


def found(asked: Sequence[Asked], build: Build) -> list[tuple[Asked, Value, Value, Value]]:
    """Of each packet and question: the value sought, whether it is in the set, and whether it is not."""
    operands = list(dict.fromkeys(one.operand for one in asked))
    named = [Named(f"x{place}", operand) for place, operand in enumerate(operands)]
    for place, one in enumerate(asked):
        outside = Call(Op.NOT, (one.expr,), Kind.BOOL, one.operand.nullable)
        named += [Named(f"in{place}", one.expr), Named(f"out{place}", outside)]
    node = Node("n", ("Main",), Reduction(None, Pane(10**9), tuple(named), (), (), grouped=False), ())
    nodes = SourceNodes([node], stream="Main", build=build)
    nodes.start()
    schema = node.reduction.schema
    values = []
    for output in (*nodes.take(block(FRAMES, ts=STAMPS)), *nodes.finish()):
        for row in output.rows:
            read = {}
            for column in schema:
                words = row[schema.offset(column.name) :][: column.kind.words]
                number = int.from_bytes(b"".join(int(word).to_bytes(8) for word in words), signed=len(words) == 1)
                double_ = struct.unpack("<d", struct.pack("<q", number))[0] if column.kind is Kind.FLOAT else number
                read[column.name] = None if int(row[0]) >> schema.index(column.name) & 1 else double_
            values += [
                (one, read[f"x{operands.index(one.operand)}"], read[f"in{place}"], read[f"out{place}"])
                for place, one in enumerate(asked)
            ]
    assert len(values) == len(FRAMES) * len(asked)
    return values


def check(asked: Sequence[Asked], build: Build) -> None:
    for one, value, inside, outside in found(asked, build):
        expected = one.naive(value)
        assert inside == expected, (one.operand, value)
        assert outside == (None if expected is None else not expected)


def keys(kind: Kind) -> st.SearchStrategy[int]:
    """At, before and behind those of the packets, and anywhere."""
    match kind:
        case Kind.IP:
            near = st.sampled_from(ADDRESSES)
            anywhere = st.integers(V4, V4 + 2**32 - 1) | st.integers(V6, V6 + 2**128 - 1) | st.integers(0, 2**192 - 1)
        case Kind.COMMUNITY_ID:
            near = anywhere = st.integers(0, 2**160 - 1)
        case Kind.FLOAT:
            floats = st.sampled_from([0.0, -0.0, -1.0, -255.0, float("inf"), float("-inf")]) | st.floats(
                allow_nan=False
            )
            return floats.map(lambda value: key_of(kind, value) or 0)
        case _:
            near = st.sampled_from([*MACS, *PORTS, *TIMES])
            anywhere = st.integers(-(2**63), 2**63 - 1)
    top = 2 ** (64 * kind.words) - 1 if kind.words > 1 else 2**63 - 1
    bottom = 0 if kind.words > 1 else -(2**63)
    moved = st.tuples(near, st.integers(-2, 2)).map(lambda pair: min(max(sum(pair), bottom), top))
    return moved | anywhere


def spans_of(kind: Kind) -> st.SearchStrategy[list[KeyRange]]:
    one = keys(kind).map(lambda key: (key, key))
    spans = one if kind is Kind.FLOAT else one | st.tuples(keys(kind), keys(kind)).map(sorted).map(tuple)
    return st.lists(spans, max_size=12)


_FAR = [(number, number) for number in range(2**61, 2**61 + 4 * IN_TEXT, 2)]
"""Beside them any set is searched."""


def asked_of(operand: Expr) -> st.SearchStrategy[Asked]:
    return spans_of(operand.kind).map(lambda spans: Asked(operand, [*spans, *_FAR]))


@_BUILDS
@settings(max_examples=60, deadline=None)
@given(asked=st.tuples(*(asked_of(operand) for operand in OPERANDS if operand.kind.words == 1)))
def test_sets_that_are_searched(build: Build, asked: Sequence[Asked]) -> None:
    """Of kinds of one word, whose sets all have one kernel."""
    check(asked, build)


@st.composite
def wide(draw: st.DrawFn) -> tuple[Kind, list[KeyRange], list[int]]:
    """Sets of several words with what they share, and values to look for."""
    kind = draw(st.sampled_from([Kind.IP, Kind.COMMUNITY_ID]))
    top = 2 ** (64 * kind.words)
    shared = draw(st.sampled_from([0, 4 << 128, 6 << 128, DOC << 64, top - 2**130]))
    low = st.integers(0, draw(st.sampled_from([20, 2**33, 2**64 + 5, 2**70, 2**129])))
    near = low.map(lambda number: min(shared + number, top - 1)) | (keys(kind) if draw(st.booleans()) else st.nothing())
    ends = st.tuples(near, st.integers(0, draw(st.sampled_from([0, 3, 2**64, 2**66]))))
    spans = st.lists(ends.map(lambda ends: (ends[0], min(sum(ends), top - 1))), min_size=2, max_size=40)
    chosen = draw(spans.filter(lambda found: len(Ranges.of(kind, found)) > 1))
    beside = [key + step for span in chosen for key in span for step in (-1, 0, 1) if 0 <= key + step < top]
    return kind, chosen, [*beside, *draw(st.lists(near | keys(kind), max_size=8))]


@settings(max_examples=300, deadline=None)
@given(asked=wide())
def test_sections_of_sets_of_several_words(asked: tuple[Kind, list[KeyRange], list[int]]) -> None:
    """As a kernel puts them together, every index looked at."""
    kind, spans, sought = asked
    sections = _sections(Ranges.of(kind, spans))
    for key in sought:
        signed = [(key >> shift) % 2**64 - 2**63 for shift in range(64 * kind.words - 64, -1, -64)]
        inside = False
        for section in sections:
            head, rest = signed[: section.common], signed[section.common :]
            known = head == section.directory[: section.common].tolist()
            inside |= _compiled()(section.rows, section.directory, section.common, known, tuple(map(np.int64, rest)))
        assert inside == any(first <= key <= last for first, last in spans), (key, spans)


@cache
def _compiled() -> Callable[..., bool]:
    from numba import njit

    return cast(Callable[..., bool], njit(boundscheck=True, error_model="numpy")(among))


@_BUILDS
def test_small_sets(build: Build) -> None:
    """Their bounds stand in the kernel."""
    seeded = random.Random(4)
    known = {"srcIP": ADDRESSES, "srcMAC": MACS, "srcPort": PORTS, "ts": TIMES}
    asked = []
    for name, values in known.items():
        for size in (1, 1, 1, 2, 3, IN_TEXT // 2):
            ends = [sorted(seeded.choice(values) for _ in range(2)) for _ in range(size)]
            spans = [(first, last - (seeded.random() < 0.3 and first < last)) for first, last in ends]
            asked.append(Asked(field(name), spans if size < 3 else [(last, last) for _, last in spans]))
    check(asked, build)


@_BUILDS
@pytest.mark.parametrize("entries", [0, 1, 2, 120, 5_001, 100_000])
def test_sets_of_any_size(build: Build, entries: int) -> None:
    seeded = random.Random(entries)
    addresses = [V4 | seeded.getrandbits(32) for _ in range(entries // 2)]
    addresses += [V6 | seeded.getrandbits(128) for _ in range(entries - len(addresses))]
    ports = [seeded.getrandbits(seeded.choice((4, 16, 40))) for _ in range(entries)]
    if entries > 1:
        addresses[0], addresses[-1] = V4 | V4S[3], V6 | V6S[3]
    asked = [
        Asked(field("srcIP"), [(one, one) for one in addresses]),
        Asked(field("srcPort"), [(one, one) for one in ports]),
    ]
    # `Asked.naive` would look at 100,000 constants for each packet.
    sets = [{first for first, _ in one.spans} for one in asked]
    for one, value, inside, outside in found(asked, build):
        expected = value in sets[asked.index(one)]
        assert (inside, outside) == (expected, not expected)


PREFIXES = ((V4, 0), (V4 | 0x0A000000, 8), (V4 | 0x0A0000FF, 24), (V4 | 0x7FFFFFFF, 32))
SIX = ((0, 0), (DOC, 32), (DOC + 2**63, 65), (2**127 - 1, 1), (2**128 - 1, 128))


@_BUILDS
def test_prefixes(build: Build) -> None:
    """Of any length, some in others."""
    four = [(base >> 32 - bits << 32 - bits, base | (1 << 32 - bits) - 1) for base, bits in PREFIXES]
    six = [(V6 | base >> 128 - bits << 128 - bits, V6 | base | (1 << 128 - bits) - 1) for base, bits in SIX]
    groups = (four[1:], four[3:], four[:1], [*four[1:], *six[1:]], six[1:3], six[4:], six, [*four, *six])
    check([Asked(field("srcIP"), group) for group in groups], build)


@_BUILDS
def test_community_ids(build: Build) -> None:
    values = sorted({value for _, value, _, _ in found([Asked(OPERANDS[-1], [])], build) if value is not None})
    assert len(values) > 4
    some = [int(value) for value in values[::2]]
    check(
        [Asked(OPERANDS[-1], [(one, one) for one in some]), Asked(OPERANDS[-1], [(0, some[0]), (some[1], some[2])])],
        build,
    )


def test_sets_of_other_values_have_one_kernel() -> None:
    def text(asked: Asked) -> str:
        reduction = Reduction(asked.expr, Pane(10**9), (), (), (), grouped=False)
        return assemble([reduction], Build.FAST).text

    few = [(V4 + number, V4 + number) for number in range(0, 4 * IN_TEXT, 2)]
    many = [(V4 + number, V4 + number + number % 7) for number in range(5, 2**32, 50_021)]
    assert text(Asked(field("srcIP"), few)) == text(Asked(field("srcIP"), many))
    assert text(Asked(field("srcIP"), few)) != text(Asked(field("destIP"), few))
