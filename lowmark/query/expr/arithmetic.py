"""The meaning of arithmetic and comparison between values of each kind.

A number next to a time or a duration is a number of seconds, exact if it is written in the query. A text next to an
address, a MAC or a time is read as one.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from lowmark.query.expr.constants import NS, nanoseconds, parse_address, parse_community_id, parse_mac, parse_time
from lowmark.query.expr.expressions import Expr, Literal, Op
from lowmark.query.expr.simplify import Overflow, compare, doubles, exact
from lowmark.query.parse import syntax as s
from lowmark.wire.rows.schema import Kind

__all__ = ["KIND_NAMES", "IllTyped", "Operand", "arithmetic", "comparison", "minus"]

KIND_NAMES = {
    Kind.INT: "a number",
    Kind.FLOAT: "a number with a point",
    Kind.BOOL: "a condition",
    Kind.TIME: "a time",
    Kind.DURATION: "a duration",
    Kind.IP: "an address",
    Kind.MAC: "a MAC address",
    Kind.COMMUNITY_ID: "a Community ID",
    Kind.STR: "a text",
}

_NUMBERS = frozenset({Kind.INT, Kind.FLOAT})
_TEXT_FORMS = {
    Kind.IP: parse_address, Kind.MAC: parse_mac, Kind.COMMUNITY_ID: parse_community_id, Kind.TIME: parse_time,
}  # fmt: skip
_TEXT_EXAMPLES = {
    Kind.IP: "'10.0.0.1'",
    Kind.MAC: "'00:11:22:33:44:55'",
    Kind.COMMUNITY_ID: "'1:LQU9qZlK+B5F3KDmev6m5PMibrg='",
    Kind.TIME: "'2024-05-01T12:00:00Z'",
}
_ONE_SECOND = Literal(NS, Kind.INT)

_COMPARISONS = {
    s.ComparisonOperator.EQUAL: Op.EQ,
    s.ComparisonOperator.NOT_EQUAL: Op.NE,
    s.ComparisonOperator.LESS: Op.LT,
    s.ComparisonOperator.LESS_OR_EQUAL: Op.LE,
    s.ComparisonOperator.GREATER: Op.GT,
    s.ComparisonOperator.GREATER_OR_EQUAL: Op.GE,
}
_BITS = {
    s.BinaryOperator.BIT_AND: Op.BIT_AND,
    s.BinaryOperator.BIT_OR: Op.BIT_OR,
    s.BinaryOperator.BIT_XOR: Op.BIT_XOR,
    s.BinaryOperator.SHIFT_LEFT: Op.SHIFT_LEFT,
    s.BinaryOperator.SHIFT_RIGHT: Op.SHIFT_RIGHT,
}
_WORDS = {
    s.BinaryOperator.ADD: Op.ADD,
    s.BinaryOperator.SUBTRACT: Op.SUB,
    s.BinaryOperator.MULTIPLY: Op.MUL,
    s.BinaryOperator.DIVIDE: Op.FLOOR_DIV,
    s.BinaryOperator.MODULO: Op.MOD,
}
_DOUBLES = {
    s.BinaryOperator.ADD: Op.FLOAT_ADD,
    s.BinaryOperator.SUBTRACT: Op.FLOAT_SUB,
    s.BinaryOperator.MULTIPLY: Op.FLOAT_MUL,
    s.BinaryOperator.DIVIDE: Op.FLOAT_DIV,
    s.BinaryOperator.MODULO: Op.FLOAT_MOD,
}
_SUMS = frozenset({s.BinaryOperator.ADD, s.BinaryOperator.SUBTRACT})
_QUOTIENTS = frozenset({s.BinaryOperator.DIVIDE, s.BinaryOperator.MODULO})


class IllTyped(Exception):
    """Values of kinds that do not go together; `operand` is the index of the wrong one, None: the whole expression."""

    def __init__(self, reason: str, operand: int | None = None, hint: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.operand = operand
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Operand:
    """A lowered operand. If the query has a literal number or text there, it is kept too."""

    expr: Expr
    number: int | Decimal | None = None
    text: str | None = None

    @property
    def kind(self) -> Kind:
        return self.expr.kind


def _exact(op: Op, kind: Kind, *args: Expr) -> Expr:
    try:
        return exact(op, kind, *args)
    except Overflow:
        raise IllTyped("integers have 64 bits: this result does not fit") from None


def minus(operand: Expr) -> Expr:
    match operand.kind:
        case Kind.FLOAT:
            return doubles(Op.FLOAT_NEG, operand)
        case Kind.INT | Kind.DURATION as kind:
            return _exact(Op.NEG, kind, operand)
    raise IllTyped(f"{KIND_NAMES[operand.kind]} has no negative", 0)


def comparison(operator: s.ComparisonOperator, left: Operand, right: Operand) -> Expr:
    return compare(_COMPARISONS[operator], *_paired(left, right))


def _paired(left: Operand, right: Operand) -> tuple[Expr, Expr]:
    """Both sides converted to one form."""
    pair = {left.kind, right.kind}
    if left.kind is right.kind:
        return left.expr, right.expr
    if pair == _NUMBERS:
        return _as_double(left.expr), _as_double(right.expr)
    for index, (one, other) in enumerate(((left, right), (right, left))):
        if one.text is not None and other.kind in _TEXT_FORMS:
            literal = _read(one.text, other.kind, index)
            return (literal, other.expr) if index == 0 else (other.expr, literal)
        if other.kind in (Kind.TIME, Kind.DURATION) and one.kind in _NUMBERS:
            if one.kind is Kind.FLOAT and one.number is None:
                return _in_seconds(left.expr), _in_seconds(right.expr)
            moved = _as_ns(one, other.kind, index)
            return (moved, other.expr) if index == 0 else (other.expr, moved)
    raise IllTyped(f"{KIND_NAMES[left.kind]} cannot be compared with {KIND_NAMES[right.kind]}")


def arithmetic(operator: s.BinaryOperator, left: Operand, right: Operand) -> Expr:
    if operator in _BITS:
        for index, operand in enumerate((left, right)):
            if operand.kind is not Kind.INT:
                raise IllTyped(f"{operator} takes whole numbers, not {KIND_NAMES[operand.kind]}", index)
        return _exact(_BITS[operator], Kind.INT, left.expr, right.expr)
    result = None
    if left.kind in _NUMBERS and right.kind in _NUMBERS:
        result = _of_numbers(operator, left.expr, right.expr)
    elif Kind.TIME in (left.kind, right.kind):
        result = _of_times(operator, left, right)
    elif Kind.DURATION in (left.kind, right.kind):
        result = _of_durations(operator, left, right)
    if result is None:
        raise IllTyped(f"{KIND_NAMES[left.kind]} {operator} {KIND_NAMES[right.kind]} means nothing")
    return result


def _of_numbers(operator: s.BinaryOperator, left: Expr, right: Expr) -> Expr:
    if left.kind is right.kind is Kind.INT:
        return _exact(_WORDS[operator], Kind.INT, left, right)
    return doubles(_DOUBLES[operator], _as_double(left), _as_double(right))


def _of_times(operator: s.BinaryOperator, left: Operand, right: Operand) -> Expr | None:
    if operator is s.BinaryOperator.SUBTRACT:
        if right.text is not None:
            right = Operand(_read(right.text, Kind.TIME, 1))
        elif left.text is not None:
            left = Operand(_read(left.text, Kind.TIME, 0))
        if left.kind is right.kind:
            return _exact(Op.SUB, Kind.DURATION, left.expr, right.expr)
    if operator is s.BinaryOperator.ADD and right.kind is Kind.TIME:
        left, right = right, left
    if left.kind is not Kind.TIME:
        return None
    if operator in _SUMS and right.kind in (*_NUMBERS, Kind.DURATION):
        return _exact(_WORDS[operator], Kind.TIME, left.expr, _as_ns(right, Kind.DURATION, 1))
    if operator in _QUOTIENTS and right.kind in _NUMBERS:
        seconds = _exact(Op.FLOOR_DIV, Kind.INT, left.expr, _ONE_SECOND)
        return _of_numbers(operator, seconds, right.expr)
    if operator in _QUOTIENTS and right.kind is Kind.DURATION:
        kind = Kind.INT if operator is s.BinaryOperator.DIVIDE else Kind.DURATION
        return _exact(_WORDS[operator], kind, left.expr, right.expr)
    return None


def _of_durations(operator: s.BinaryOperator, left: Operand, right: Operand) -> Expr | None:
    kinds = (left.kind, right.kind)
    if not {*kinds} <= {Kind.DURATION, *_NUMBERS}:
        return None
    if kinds == (Kind.DURATION, Kind.DURATION):
        if operator is s.BinaryOperator.MULTIPLY:
            return None
        kind = Kind.INT if operator is s.BinaryOperator.DIVIDE else Kind.DURATION
        return _exact(_WORDS[operator], kind, left.expr, right.expr)
    if operator is s.BinaryOperator.MULTIPLY and Kind.INT in kinds:
        return _exact(Op.MUL, Kind.DURATION, left.expr, right.expr)
    if operator is s.BinaryOperator.DIVIDE and right.kind is Kind.INT:
        return _exact(Op.FLOOR_DIV, Kind.DURATION, left.expr, right.expr)
    if (operator in _SUMS or kinds[0] is Kind.DURATION) and operator is not s.BinaryOperator.DIVIDE:
        index = kinds.index(Kind.DURATION) ^ 1
        number = (left, right)[index]
        if number.kind is Kind.INT or (number.number is not None and operator is not s.BinaryOperator.MULTIPLY):
            ns = _as_ns(number, Kind.DURATION, index)
            pair = (left.expr, ns) if index else (ns, right.expr)
            return _exact(_WORDS[operator], Kind.DURATION, *pair)
    return doubles(_DOUBLES[operator], _in_seconds(left.expr), _in_seconds(right.expr))


def _as_double(expr: Expr) -> Expr:
    return expr if expr.kind is Kind.FLOAT else doubles(Op.TO_FLOAT, expr)


def _in_seconds(expr: Expr) -> Expr:
    """A number, time or duration as a double, in seconds."""
    double = _as_double(expr)
    return double if expr.kind in _NUMBERS else doubles(Op.FLOAT_DIV, double, Literal(float(NS), Kind.FLOAT))


def _as_ns(operand: Operand, kind: Kind, index: int) -> Expr:
    """A number of seconds, or a duration, in nanoseconds."""
    if operand.kind is Kind.DURATION:
        return operand.expr
    if operand.number is not None:
        try:
            return Literal(nanoseconds(operand.number), kind)
        except ValueError as error:
            raise IllTyped(f"{error}", index) from None
    if operand.kind is Kind.FLOAT:
        hint = "use a duration, or a whole number of seconds"
        raise IllTyped("a number with a point that is computed is no exact number of nanoseconds", index, hint)
    return _exact(Op.MUL, kind, operand.expr, _ONE_SECOND)


def _read(text: str, kind: Kind, index: int) -> Literal:
    try:
        return _TEXT_FORMS[kind](text)
    except ValueError as error:
        raise IllTyped(f"{error}", index, f"{KIND_NAMES[kind]} is written like {_TEXT_EXAMPLES[kind]}") from None
