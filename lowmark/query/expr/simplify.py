"""Smart constructors of lowered expressions: they set kind and nullability, and fold constants where that is exact.

Folding must give what the kernel and the evaluator would compute: int64 (`exact` does not leave it, `words` wraps),
rounding down, null for division by zero.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeGuard

from lowmark.query.expr.constant_sets import KeyRange, key_of
from lowmark.query.expr.expressions import Call, Expr, Literal, Op, Ranges
from lowmark.query.expr.intervals import fits, result, within
from lowmark.wire.rows.schema import Kind

__all__ = [
    "FALSE", "LONG", "TRUE", "Overflow", "among", "boolean", "compare", "conjoin", "disjoin", "doubles", "exact",
    "flatter", "is_null",
    "negate", "words",
]  # fmt: skip

Number = int | float

TRUE = Literal(1, Kind.BOOL)
FALSE = Literal(0, Kind.BOOL)

_WORDS: dict[Op, Callable[..., int]] = {
    Op.NEG: operator.neg,
    Op.INVERT: operator.invert,
    Op.ADD: operator.add,
    Op.SUB: operator.sub,
    Op.MUL: operator.mul,
    Op.FLOOR_DIV: operator.floordiv,
    Op.MOD: operator.mod,
    Op.BIT_AND: operator.and_,
    Op.BIT_OR: operator.or_,
    Op.BIT_XOR: operator.xor,
    Op.SHIFT_LEFT: operator.lshift,
    Op.SHIFT_RIGHT: operator.rshift,
}
_DOUBLES: dict[Op, Callable[..., float]] = {
    Op.TO_FLOAT: float,
    Op.FLOAT_NEG: operator.neg,
    Op.FLOAT_ADD: operator.add,
    Op.FLOAT_SUB: operator.sub,
    Op.FLOAT_MUL: operator.mul,
    Op.FLOAT_DIV: operator.truediv,
}
_COMPARISONS: dict[Op, Callable[[Number, Number], bool]] = {
    Op.EQ: operator.eq,
    Op.NE: operator.ne,
    Op.LT: operator.lt,
    Op.LE: operator.le,
    Op.GT: operator.gt,
    Op.GE: operator.ge,
}
LONG = 64
"""From this many terms on, a sum is made flatter."""

_ASSOCIATIVE = frozenset({Op.ADD, Op.MUL, Op.BIT_AND, Op.BIT_OR, Op.BIT_XOR})
_DIVISIONS = frozenset({Op.FLOOR_DIV, Op.MOD, Op.FLOAT_DIV, Op.FLOAT_MOD})
_SHIFTS = frozenset({Op.SHIFT_LEFT, Op.SHIFT_RIGHT})


class Overflow(Exception):
    """An operation on constants whose result exceeds 64 bits."""


def exact(op: Op, kind: Kind, *args: Expr) -> Expr:
    """An operation on int64 words as a query means it: its result is checked if it can leave int64, judging by the
    ranges of its arguments."""
    found = result(op, args)
    made = words(op, kind, *args)
    if isinstance(made, Literal) and made.value is not None and not fits(found):
        raise Overflow
    if not isinstance(made, Call) or any(made is arg for arg in args):
        return made
    checked = not fits(found)
    return replace(made, nullable=made.nullable or checked, checked=checked, range=within(found))


def words(op: Op, kind: Kind, *args: Expr) -> Expr:
    """An operation on int64 words, which wraps, with a result of this kind."""
    if (simpler := _simpler(op, args, kind)) is not None:
        return simpler
    constants = _constants(args)
    if constants is None:
        return Call(op, args, kind, _nullable(op, args))
    if _gives_null(op, constants):
        return Literal(None, kind)
    value = _WORDS[op](*constants)
    return Literal((value + 2**63) % 2**64 - 2**63, kind)


def doubles(op: Op, *args: Expr) -> Expr:
    """An operation whose result is a double. Its arguments are doubles, except that of TO_FLOAT."""
    constants = _constants(args)
    if constants is None or op not in _DOUBLES:
        return Call(op, args, Kind.FLOAT, _nullable(op, args))
    if _gives_null(op, constants):
        return Literal(None, Kind.FLOAT)
    return Literal(_DOUBLES[op](*constants), Kind.FLOAT)


def compare(op: Op, left: Expr, right: Expr) -> Expr:
    """A comparison of two values in the same form."""
    if not isinstance(left, Literal) or not isinstance(right, Literal):
        return Call(op, (left, right), Kind.BOOL, _nullable(op, (left, right)))
    if left.value is None or right.value is None:
        return Literal(None, Kind.BOOL)
    return boolean(_COMPARISONS[op](left.value, right.value))


def among(operand: Expr, spans: Iterable[KeyRange]) -> Expr:
    """Whether a value is in one of these ranges."""
    ranges = Ranges.of(operand.kind, spans)
    if isinstance(operand, Literal):
        return Literal(None, Kind.BOOL) if operand.value is None else boolean(operand.value in ranges)
    if not ranges and not operand.nullable:
        return FALSE
    if (only := ranges.only) is not None:
        return compare(Op.EQ, operand, Literal(only, operand.kind))
    return Call(Op.IN, (operand, ranges), Kind.BOOL, operand.nullable)


def boolean(value: bool) -> Literal:
    return TRUE if value else FALSE


def is_null(arg: Expr) -> Expr:
    if not arg.nullable:
        return FALSE
    if isinstance(arg, Literal):
        return TRUE
    return Call(Op.IS_NULL, (arg,), Kind.BOOL, False)


def negate(arg: Expr) -> Expr:
    match arg:
        case Literal(value=None):
            return arg
        case Literal(value=value):
            return boolean(not value)
        case Call(op=Op.NOT, args=(inner,)):
            return inner
    return Call(Op.NOT, (arg,), Kind.BOOL, arg.nullable)


def conjoin(args: Sequence[Expr]) -> Expr:
    """AND of any number of conditions, as a balanced tree; exclusions of constants for one value become one set."""
    return _joined(Op.AND, _gathered(args, Op.NE), neutral=TRUE, absorbing=FALSE)


def disjoin(args: Sequence[Expr]) -> Expr:
    """OR of any number of conditions, as a balanced tree; constants allowed for one value become one set."""
    return _joined(Op.OR, _gathered(args, Op.EQ), neutral=FALSE, absorbing=TRUE)


def _gathered(args: Sequence[Expr], op: Op) -> list[Expr]:
    """Merge comparisons of one value with constants into one comparison with a set, at the place of the first."""
    found: dict[
        tuple[bool, Expr], list[tuple[Expr, Iterable[KeyRange]]]
    ] = {}  # whether it compares, and what; or the condition itself
    for arg in args:
        compared = _compared(arg, op)
        key, spans = ((False, arg), ()) if compared is None else ((True, compared[0]), compared[1])
        found.setdefault(key, []).append((arg, spans))
    return [
        parts[0][0] if len(parts) == 1 or not compares else _united(operand, op, parts)
        for (compares, operand), parts in found.items()
    ]


def _united(operand: Expr, op: Op, parts: Sequence[tuple[Expr, Iterable[KeyRange]]]) -> Expr:
    inside = among(operand, (span for _, spans in parts for span in spans))
    return inside if op is Op.EQ else negate(inside)


def _compared(arg: Expr, op: Op) -> tuple[Expr, Iterable[KeyRange]] | None:
    """The value that a condition compares with constants, and the constants: the condition holds for any of them (`op`
    is EQ) or for none of them (NE). None for any other condition."""
    match arg:
        case Call(op=Op.NOT, args=(inner,)):
            return _compared(inner, Op.NE if op is Op.EQ else Op.EQ)
        case Call(op=Op.IN, args=(operand, Ranges() as ranges)) if op is Op.EQ:
            return operand, ranges.spans
        case Call(op=sign, args=(Literal(value=value), operand) | (operand, Literal(value=value))) if (
            sign is op and value is not None
        ):
            key = key_of(operand.kind, value)
            return operand, () if key is None else ((key, key),)
    return None


def flatter(expr: Expr) -> Expr:
    """The same value with a long sum, product or the like as a tree of fewer levels. Only for unchecked whole
    numbers: their result is the same in any grouping, even if it wraps on the way; that of doubles is not.

    Parts that this function has flattened before stay as they are until they have many levels themselves, so the total
    work is little more than the number of terms.
    """
    if not isinstance(expr, Call) or expr.op not in _ASSOCIATIVE:
        return expr
    new: list[Expr] = []
    before: Expr = expr
    while len(new) < LONG and _is_alike(before, expr):
        before, term = before.args
        new.append(term)
    if len(new) < LONG:
        return expr
    if isinstance(before, Call) and before.levels > LONG // 2:
        before = _balanced(expr.op, _terms(before, expr), expr.kind)
    return replace(expr, args=(before, _balanced(expr.op, new[::-1], expr.kind)))


def _terms(expr: Expr, whole: Call) -> list[Expr]:
    """The terms that operations like the whole one combine."""
    terms: list[Expr] = []
    pending = [expr]
    while pending:
        item = pending.pop()
        if _is_alike(item, whole):
            pending.extend(reversed(item.args))
        else:
            terms.append(item)
    return terms


def _is_alike(expr: Expr, whole: Call) -> TypeGuard[Call]:
    """Whether it is the same operation as the whole, and both may wrap on the way."""
    if not isinstance(expr, Call) or expr.checked or whole.checked:
        return False
    return (expr.op, expr.kind) == (whole.op, whole.kind)


def _joined(op: Op, args: Sequence[Expr], neutral: Literal, absorbing: Literal) -> Expr:
    if absorbing in args:
        return absorbing
    rest = list(dict.fromkeys(arg for arg in args if arg != neutral))
    return _balanced(op, rest, Kind.BOOL) if rest else neutral


def _balanced(op: Op, args: list[Expr], kind: Kind) -> Expr:
    if len(args) == 1:
        return args[0]
    half = (len(args) + 1) // 2
    pair = (_balanced(op, args[:half], kind), _balanced(op, args[half:], kind))
    return Call(op, pair, kind, pair[0].nullable or pair[1].nullable)


def _constants(args: tuple[Expr, ...]) -> list[Number | None] | None:
    values = [arg.value for arg in args if isinstance(arg, Literal)]
    return values if len(values) == len(args) else None


def _gives_null(op: Op, constants: list[Number | None]) -> bool:
    if None in constants:
        return True
    return (op in _DIVISIONS and constants[1] == 0) or (op in _SHIFTS and not 0 <= (constants[1] or 0) <= 63)


def _nullable(op: Op, args: tuple[Expr, ...]) -> bool:
    if any(arg.nullable for arg in args):
        return True
    if op in _DIVISIONS:
        return not (isinstance(args[1], Literal) and args[1].value)
    if op in _SHIFTS:
        distance = args[1].value if isinstance(args[1], Literal) else None
        return distance is None or not 0 <= distance <= 63
    return False


def _simpler(op: Op, args: tuple[Expr, ...], kind: Kind) -> Expr | None:
    """x + 0, x * 1 and x / 1 are x; ⌊⌊x/a⌋/b⌋ is ⌊x/ab⌋ for positive constants."""
    match op, args:
        case Op.ADD, (inner, Literal(value=0)) if inner.kind is kind:
            return inner
        case Op.MUL | Op.FLOOR_DIV, (inner, Literal(value=1)) if inner.kind is kind:
            return inner
        case Op.FLOOR_DIV, (
            Call(op=Op.FLOOR_DIV, args=(inner, Literal(value=int(a)))), Literal(value=int(b), kind=unit),
        ) if a > 0 and b > 0 and a * b < 2**63:  # fmt: skip
            return words(Op.FLOOR_DIV, kind, inner, Literal(a * b, unit))
    return None
