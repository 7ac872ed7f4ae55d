"""What is known of an expression's values holds, and nothing that can overflow goes unchecked."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lowmark.query.catalog import DERIVED_FIELDS, PACKET_FIELDS
from lowmark.query.expr.expressions import Call, Expr, Field, Literal, Op
from lowmark.query.expr.intervals import interval
from lowmark.query.expr.simplify import Overflow, exact
from lowmark.wire.rows.schema import Kind
from tests.naive.lowered import checked

ENDS = st.sampled_from((0, 1, -1, 7, 63, 64, 255, 2**31, 2**32 + 3, 2**62, -(2**63), 2**63 - 1)) | st.integers(-99, 99)
RANGES = st.tuples(ENDS, ENDS).map(lambda ends: (min(ends), max(ends)))
BINARY = (
    Op.ADD,
    Op.SUB,
    Op.MUL,
    Op.FLOOR_DIV,
    Op.MOD,
    Op.BIT_AND,
    Op.BIT_OR,
    Op.BIT_XOR,
    Op.SHIFT_LEFT,
    Op.SHIFT_RIGHT,
)
PLAIN = {
    Op.INVERT: lambda a: ~a,
    Op.MOD: lambda a, b: a % b if b else None,
    Op.BIT_AND: lambda a, b: a & b,
    Op.BIT_OR: lambda a, b: a | b,
    Op.BIT_XOR: lambda a, b: a ^ b,
    Op.SHIFT_RIGHT: lambda a, b: a >> b if 0 <= b <= 63 else None,
}


def made(op: Op, *args: Expr) -> Expr:
    try:
        return exact(op, Kind.INT, *args)
    except Overflow:
        return Literal(0, Kind.INT)


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> Expr:
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        if draw(st.booleans()):
            return Literal(draw(ENDS), Kind.INT)
        return Field(f"f{draw(st.integers(0, 3))}", Kind.INT, False, draw(RANGES | st.none()))
    op = draw(st.sampled_from((*BINARY, Op.NEG, Op.INVERT)))
    args = [draw(expressions(depth=depth - 1)) for _ in range(1 if op in (Op.NEG, Op.INVERT) else 2)]
    return made(op, *args)


def value(expr: Expr, of: dict[int, int]) -> int | None:
    """In however many bits, but null where a check says so."""
    match expr:
        case Field():
            return of[id(expr)]
        case Literal(value=constant):
            return constant
        case Call(op=op, args=args):
            values = [value(arg, of) for arg in args]
            if None in values:
                return None
            return checked(op, values, bits=64 if expr.checked else 1 << 20) if op not in PLAIN else PLAIN[op](*values)


def leaves(expr: Expr) -> list[Field]:
    return [expr] if isinstance(expr, Field) else [f for arg in getattr(expr, "args", ()) for f in leaves(arg)]


@given(expr=expressions(), data=st.data())
def test_values_lie_where_they_are_said_to(expr: Expr, data: st.DataObject) -> None:
    of = {}
    for field in leaves(expr):
        low, high = field.range or (-(2**63), 2**63 - 1)
        of[id(field)] = data.draw(st.sampled_from((low, high)) | st.integers(low, high))
    found, (low, high) = value(expr, of), interval(expr)
    assert -(2**63) <= low <= high < 2**63
    assert found is None or low <= found <= high
    assert found is not None or expr.nullable


def test_integers_of_packets_have_ranges() -> None:
    fields = [field for field in (*PACKET_FIELDS, *DERIVED_FIELDS) if field.kind is Kind.INT]
    assert all(field.range is not None for field in fields)
