"""Expressions in kernels mean what `lowmark.query.expr.expressions` says they do."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable

import numpy as np
import pytest

from lowlevel.kernel.codegen.assemble import Build
from lowlevel.node import SourceNodes
from lowmark.query.expr.expressions import Call, Expr, Field, Literal, Named, Op, Ranges
from lowmark.query.expr.simplify import disjoin
from lowmark.query.plan.nodes import Node, Pane, Reduction
from lowmark.wire.records.verdicts import Reason
from lowmark.wire.rows.schema import Kind
from tests.lowlevel.naive import V4, V6, block, decode
from tests.lowlevel.plans import field, null_if_zero
from tests.naive.lowered import CHECKED, checked, is_lost
from tests.naive.sketching import coarse, hashed

Scalar = int | float | None
MAPPED = 0xFFFF << 32
SIX = [
    b"\xff" * 16, bytes(16), b"\x20\1\x0d\xb8".ljust(16, b"\0"),
    bytes(10) + b"\xff\xff\x0a\0\0\1", bytes(12) + b"\x0a\0\0\1",
]  # fmt: skip
EXTREMES = (0, 1, -1, 2, 63, 64, -(2**63), 2**63 - 1, 2**62, -7)


def wrap(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def evaluate(expr: Expr, row: dict[str, int]) -> Scalar:
    match expr:
        case Field(name):
            return row[name]
        case Literal(value):
            return value
        case Call(Op.IN, (operand, Ranges() as ranges)):
            value = evaluate(operand, row)
            return None if value is None else int(any(first <= value <= last for first, last in ranges.spans))
        case Call(op, args):
            values = [evaluate(arg, row) for arg in args]
            if expr.checked:
                return None if None in values else checked(op, values)
            return apply(op, values)


def apply(op: Op, values: list[Scalar]) -> Scalar:
    if op is Op.IS_NULL:
        return int(values[0] is None)
    if op in (Op.AND, Op.OR):
        decisive = int(op is Op.OR)
        if any(value is not None and bool(value) == bool(decisive) for value in values):
            return decisive
        return None if None in values else 1 - decisive
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    if op in COMPARISONS:
        return int(COMPARISONS[op](*known))
    if op is Op.PREFIX:
        value, mask4, mask6 = (int(value) for value in known)
        return value & (mask4 if value < V6 else mask6)
    if op is Op.HASH:
        return wrap(hashed([int(known[0])]))
    if op is Op.COARSE:
        return coarse(known[0], int(known[1]))
    if op in (Op.FLOAT_DIV, Op.FLOAT_MOD) and known[1] == 0:
        return None
    if op in FLOATS:
        return FLOATS[op](*known)
    a, b = int(known[0]), int(known[-1])
    if op in (Op.FLOOR_DIV, Op.MOD):
        return None if b == 0 else wrap(a // b if op is Op.FLOOR_DIV else a % b)
    if op in (Op.SHIFT_LEFT, Op.SHIFT_RIGHT):
        return None if not 0 <= b <= 63 else wrap(a << b if op is Op.SHIFT_LEFT else a >> b)
    return int(not a) if op is Op.NOT else wrap(WORDS[op](a, b))


WORDS: dict[Op, Callable[[int, int], int]] = {
    Op.NEG: lambda a, b: -a,
    Op.INVERT: lambda a, b: ~a,
    Op.ADD: lambda a, b: a + b,
    Op.SUB: lambda a, b: a - b,
    Op.MUL: lambda a, b: a * b,
    Op.BIT_AND: lambda a, b: a & b,
    Op.BIT_OR: lambda a, b: a | b,
    Op.BIT_XOR: lambda a, b: a ^ b,
}
FLOATS: dict[Op, Callable[..., float]] = {
    Op.TO_FLOAT: float,
    Op.FLOAT_NEG: lambda a: -a,
    Op.FLOAT_ADD: lambda a, b: a + b,
    Op.FLOAT_SUB: lambda a, b: a - b,
    Op.FLOAT_MUL: lambda a, b: a * b,
    Op.FLOAT_DIV: lambda a, b: a / b,
    Op.FLOAT_MOD: lambda a, b: a % b,
}
COMPARISONS: dict[Op, Callable[..., bool]] = {
    Op.EQ: lambda a, b: a == b,
    Op.NE: lambda a, b: a != b,
    Op.LT: lambda a, b: a < b,
    Op.LE: lambda a, b: a <= b,
    Op.GT: lambda a, b: a > b,
    Op.GE: lambda a, b: a >= b,
}


class Trees:
    """Random trees of a given seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def of(self, kind: Kind, depth: int) -> Expr:
        if depth == 0:
            return self.leaf(kind)
        match kind:
            case Kind.INT:
                op = self.random.choice(
                    [*WORDS, Op.FLOOR_DIV, Op.MOD, Op.SHIFT_LEFT, Op.SHIFT_RIGHT, Op.HASH, Op.COARSE]
                )
                if op is Op.COARSE:
                    return self.call(op, [self.of(kind, depth - 1), self.bits()], kind)
                count = 1 if op in (Op.NEG, Op.INVERT, Op.HASH) else 2
                return self.call(op, [self.of(Kind.INT, depth - 1) for _ in range(count)], kind)
            case Kind.FLOAT:
                op = self.random.choice([*FLOATS, Op.COARSE])
                if op is Op.COARSE:
                    return self.call(op, [self.of(kind, depth - 1), self.bits()], kind)
                count = 1 if op in (Op.TO_FLOAT, Op.FLOAT_NEG) else 2
                part = Kind.INT if op is Op.TO_FLOAT else Kind.FLOAT
                return self.call(op, [self.of(part, depth - 1) for _ in range(count)], kind)
            case Kind.BOOL:
                return self.condition(depth)
        return self.leaf(kind)

    def bits(self) -> Expr:
        return Literal(self.random.choice([1, 7, 52]), Kind.INT)

    def condition(self, depth: int) -> Expr:
        op = self.random.choice([*COMPARISONS, Op.AND, Op.OR, Op.NOT, Op.IS_NULL, Op.IN])
        if op in COMPARISONS:
            kind = self.random.choice([Kind.INT, Kind.FLOAT, Kind.IP, Kind.BOOL])
            return self.call(op, [self.of(kind, depth - 1) for _ in range(2)], Kind.BOOL)
        if op is Op.IS_NULL:
            return Call(op, (self.of(self.random.choice([Kind.INT, Kind.BOOL]), depth - 1),), Kind.BOOL, False)
        if op is Op.IN:
            spans = [(V6 | 0x20010DB8 << 96, (V6 | 0x20010DB8 << 96) + 2**64), (V4 | 0x0A000000, V4 | 0x0AFFFFFF)]
            spans += [(V6, V6), (V6 | MAPPED | 0x0A000000, V6 | MAPPED | 0x0AFFFFFF)]
            ranges = Ranges.of(Kind.IP, self.random.sample(spans, self.random.randrange(5)))
            return self.call(op, [self.of(Kind.IP, 1), ranges], Kind.BOOL)
        count = 1 if op is Op.NOT else self.random.choice([2, 3])
        return self.call(op, [self.of(Kind.BOOL, depth - 1) for _ in range(count)], Kind.BOOL)

    def leaf(self, kind: Kind) -> Expr:
        literal = self.random.random() < 0.3
        match kind:
            case Kind.INT if literal:
                return Literal(self.random.choice([None, *EXTREMES]), kind)
            case Kind.INT:
                name = self.random.choice(["srcPort", "destPort", "len", "ttl", "ts"])
                known = field(name)
                return null_if_zero(known) if self.random.random() < 0.3 else known
            case Kind.FLOAT:
                if literal:
                    return Literal(self.random.choice([None, 0.0, 1.5, -2.25, 1e300]), kind)
                return self.call(Op.TO_FLOAT, [self.leaf(Kind.INT)], kind)
            case Kind.BOOL:
                return Literal(self.random.choice([None, 0, 1]), kind) if literal else self.condition(1)
            case _ if not literal and self.random.random() < 0.3:
                masks = [2**192 - 2 ** self.random.randrange(bits + 1) for bits in (32, 128)]
                literals = [Literal(mask, Kind.IP) for mask in masks]
                return self.call(Op.PREFIX, [field(self.random.choice(["srcIP", "destIP"])), *literals], Kind.IP)
            case _:
                numbers = [MAPPED | 0x0A000001, 0x0A000001, 0, 2**128 - 1, 0x20010DB8 << 96]
                address = self.random.choice([V4 | 0x0A000001, V4 | 0xFFFFFFFF, *(V6 | number for number in numbers)])
                return Literal(address, kind) if literal else field(self.random.choice(["srcIP", "destIP"]))

    def call(self, op: Op, args: list[Expr], kind: Kind) -> Call:
        partial = op in (Op.FLOOR_DIV, Op.MOD, Op.SHIFT_LEFT, Op.SHIFT_RIGHT, Op.FLOAT_DIV, Op.FLOAT_MOD)
        checks = op in CHECKED and self.random.random() < 0.5
        return Call(op, tuple(args), kind, partial or checks or any(arg.nullable for arg in args), checks)


class Leaving(Trees):
    """Trees of which many values depend on whether the number of a port left 64 bits."""

    def leaf(self, kind: Kind) -> Expr:
        if kind is not Kind.INT or self.random.random() < 0.3:
            return super().leaf(kind)
        port = field(self.random.choice(["srcPort", "destPort"]))
        op, by = self.random.choice(((Op.MUL, 2**62), (Op.MUL, -(2**57)), (Op.SHIFT_LEFT, 57), (Op.ADD, 2**63 - 64)))
        return Call(op, (port, Literal(by, kind)), kind, True, checked=True)


def packets(seed: int) -> tuple[list[bytes], list[int]]:
    chosen = random.Random(seed)
    frames, times = [], []
    for _ in range(200):
        ports = struct.pack(">HH", *(chosen.choice([0, 1, 63, 64, 65535]) for _ in range(2)))
        if chosen.random() < 0.5:
            ends = b"".join(chosen.choice([b"\x0a\0\0\1", b"\xff" * 4, b"\0" * 4, b"\x0a\0\0\xfe"]) for _ in range(2))
            head = struct.pack(">BBHHHBBH", 0x45, 0, 24, 0, 0, chosen.choice([0, 1, 255]), 17, 0) + ends
            frames.append(b"\0" * 12 + b"\x08\0" + head + ports)
        else:
            ends = b"".join(chosen.choice(SIX) for _ in range(2))
            frames.append(b"\0" * 12 + b"\x86\xdd" + struct.pack(">IHBB", 6 << 28, 4, 17, 64) + ends + ports)
        times.append(chosen.choice([*EXTREMES, 1_714_564_800_123_456_789]))
    return frames, times


def same(found: Scalar, expected: Scalar) -> bool:
    if isinstance(expected, float) and found is not None:
        return found == expected or (math.isnan(found) and math.isnan(expected))
    return found == expected


@pytest.mark.parametrize("build", Build)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_trees_have_the_values_of_their_definition(seed: int, build: Build) -> None:
    trees = Trees(seed)
    kinds = (Kind.INT, Kind.FLOAT, Kind.BOOL)
    exprs = [trees.of(kinds[place % 3], 1 + place % 4) for place in range(24)]
    named = tuple(Named(f"x{place}", expr) for place, expr in enumerate(exprs))
    node = Node("n", ("Main",), Reduction(None, Pane(10**9), named, (), (), grouped=False), ())
    nodes = SourceNodes([node], stream="Main", build=build)
    nodes.start()
    frames, times = packets(seed)
    (output,) = [*nodes.take(block(frames, ts=times)), *nodes.finish()]
    schema = node.reduction.schema
    for frame, ts, row in zip(frames, times, output.rows, strict=True):
        fields = decode(frame, len(frame), 1) | {"ts": ts}
        for item in named:
            found = read(schema.column(item.name).kind, row[schema.offset(item.name)])
            null = int(row[0]) >> schema.index(item.name) & 1
            if null:
                assert found == 0
            assert same(None if null else found, evaluate(item.expr, fields)), (item.expr, fields)


@pytest.mark.parametrize("build", Build)
@pytest.mark.parametrize("seed", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_a_pane_is_told_in_which_an_overflow_decides(seed: int, build: Build) -> None:
    """Each condition by itself, and each column of the rows that pass one: a pane a packet."""
    trees = Leaving(seed)
    frames, _ = packets(seed)
    times = [10**9 * at for at in range(len(frames))]
    fields = [decode(frame, len(frame), 1) | {"ts": ts} for frame, ts in zip(frames, times, strict=True)]

    def lost(expr: Expr, row: dict[str, int]) -> bool:
        return is_lost(expr, lambda part: evaluate(part, row))

    nodes, expected = [], {}
    for place in range(8):
        where, shown = trees.condition(2 + place % 2), trees.of((Kind.INT, Kind.FLOAT)[place % 2], place % 3)
        grouped = place == 0
        keys = (Named("x", shown),)
        nodes.append(Node(f"n{place}", ("Main",), Reduction(where, Pane(10**9), keys, (), (), grouped), ()))
        expected[f"n{place}"] = {
            at for at, row in enumerate(fields) if lost(where, row) or (evaluate(where, row) and lost(shown, row))
        }
    assert sum(map(bool, expected.values())) > 4
    source = SourceNodes(nodes, stream="Main", build=build)
    source.start()
    told: dict[str, set[int]] = {name: set() for name in expected}
    for output in [*source.take(block(frames, ts=times)), *source.finish()]:
        if output.progress is not None:
            for taint in output.progress.taints:
                assert taint.reasons == (Reason.OVERFLOW.value,)
                told[output.node] |= {*range(taint.start, taint.stop)}
    assert told == expected


def read(kind: Kind, word: np.uint64) -> Scalar:
    return float(word.view(np.float64)) if kind is Kind.FLOAT else int(word.view(np.int64))


@pytest.mark.parametrize("build", Build)
def test_a_predicate_that_is_null_does_not_hold(build: Build) -> None:
    never_zero = Call(Op.NE, (null_if_zero(field("srcPort")), Literal(7, Kind.INT)), Kind.BOOL, True)
    node = Node("n", ("Main",), Reduction(never_zero, Pane(10**9), (), (), (), grouped=False), ())
    nodes = SourceNodes([node], stream="Main", build=build)
    nodes.start()
    frames, times = packets(5)
    rows = sum(len(output.rows) for output in [*nodes.take(block(frames, ts=times)), *nodes.finish()])
    assert rows == sum(decode(frame, len(frame), 1)["srcPort"] not in (0, 7) for frame in frames)
    assert nodes.counts()["n"].filtered == len(frames) - rows


def test_a_field_that_packets_do_not_have_is_named() -> None:
    node = Node("n", ("Main",), Reduction(None, Pane(10**9), (Named("x", Field("ports", Kind.INT)),), (), (), True), ())
    with pytest.raises(ValueError, match="no field ports"):
        SourceNodes([node], stream="Main").start()


@pytest.mark.parametrize("build", Build)
def test_a_condition_of_many_parts_takes_no_branch_of_the_kernel_each(build: Build) -> None:
    names = ("srcPort", "destPort", "len", "ttl", "proto")
    parts = [
        Call(Op.AND, (compared(Op.GT, names[n % 5], n), compared(Op.LT, names[(n + 1) % 5], n + 3)), Kind.BOOL, False)
        for n in range(300)
    ]
    node = Node("n", ("Main",), Reduction(disjoin(parts), Pane(10**9), (), (), (), grouped=False), ())
    nodes = SourceNodes([node], stream="Main", build=build)
    nodes.start()
    frames, times = packets(6)
    rows = sum(len(output.rows) for output in [*nodes.take(block(frames, ts=times)), *nodes.finish()])
    found = [decode(frame, len(frame), 1) for frame in frames]
    assert rows == sum(any(evaluate(part, fields) for part in parts) for fields in found)


def compared(op: Op, name: str, value: int) -> Call:
    return Call(op, (field(name), Literal(value, Kind.INT)), Kind.BOOL, False)
