"""The value of an expression on one row, by the rules of the language."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import TypeVar

from lowmark.query.parse import syntax as s
from tests.naive.overflow import is_lost, note
from tests.naive.scope import Refused, Unsupported
from tests.naive.values import (
    NS,
    Address,
    CommunityId,
    Duration,
    Mac,
    Time,
    Value,
    community_id_of_text,
    mac_of_text,
    order,
    time_of_text,
)  # fmt: skip

Call = Callable[[s.FunctionCall], Value]
Op, Cmp = s.BinaryOperator, s.ComparisonOperator


def no_calls(call: s.FunctionCall) -> Value:
    raise Refused(f"{call.function.text} cannot stand here")


def evaluate(
    node: s.Expression,
    row: Mapping[str, Value],
    call: Call = no_calls,
    known: Callable[[s.Expression], tuple[Value] | None] = lambda node: None,
) -> Value:
    """`known` gives the value of an expression that needs no evaluation: a group's key. What an overflow has decided is
    noted (`overflow.noted`)."""

    def value(part: s.Expression) -> Value:
        return _value(part, row, call, known)

    if is_lost(node, value, lambda part: known(part) is not None):
        note(node)
    return value(node)


def _value(
    node: s.Expression, row: Mapping[str, Value], call: Call, known: Callable[[s.Expression], tuple[Value] | None]
) -> Value:
    def value(part: s.Expression) -> Value:
        return _value(part, row, call, known)

    found = known(node)
    if found is not None:
        return found[0]
    match node:
        case s.IntegerLiteral() | s.StringLiteral() | s.BooleanLiteral():
            return node.value
        case s.DecimalLiteral():
            return float(node.value)
        case s.DurationLiteral():
            return Duration(node.value_ns)
        case s.AddressLiteral():
            return node.value
        case s.MacLiteral():
            return Mac(node.value)
        case s.TimeLiteral():
            return Time(node.value_ns)
        case s.FieldRef():
            return row[node.name.text]
        case s.FunctionCall() if node.function.text.lower() == "prefix":
            return _prefix(value(node.arguments[0]), [value(length) for length in node.arguments[1:]])
        case s.FunctionCall() if node.function.text.lower() in ("greatest", "least"):
            times = [value(argument) for argument in node.arguments]
            return (max if node.function.text.lower() == "greatest" else min)(times, key=lambda time: time.ns)
        case s.FunctionCall():
            return call(node)
        case s.Unary():
            return _unary(node.operator, value(node.operand))
        case s.Binary():
            return binary(node.operator, value(node.left), _exact(node.right, value(node.right)))
        case s.Comparison():
            left, right = value(node.left), value(node.right)
            return compare(node.operator, _beside(right, node.left, left), _beside(left, node.right, right))
        case s.And():
            return conjunction([truth(value(part)) for part in node.operands])
        case s.Or():
            return negation(conjunction([negation(truth(value(part))) for part in node.operands]))
        case s.Not():
            return negation(truth(value(node.operand)))
        case s.In():
            operand = value(node.operand)
            choices = [_is_choice(operand, choice, value) for choice in node.choices]
            found_one = negation(conjunction([negation(choice) for choice in choices]))
            return negation(found_one) if node.negated else found_one
        case s.Between():
            operand = value(node.operand)
            low, high = (_beside(operand, bound, value(bound)) for bound in (node.low, node.high))
            within = conjunction(
                [compare(Cmp.GREATER_OR_EQUAL, operand, low), compare(Cmp.LESS_OR_EQUAL, operand, high)]
            )
            return negation(within) if node.negated else within
        case s.IsNull():
            return (value(node.operand) is None) != node.negated
        case s.PrefixLiteral():
            raise Refused("a prefix goes with IN")
    raise Unsupported(type(node).__name__)


def _exact(node: s.Expression, value: Value) -> Value | Decimal:
    """A decimal literal behind a time is an exact number of seconds."""
    return node.value if isinstance(node, s.DecimalLiteral) else value


def _beside(other: Value, node: s.Expression, value: Value) -> Value:
    """So is one that is compared with a time or a duration."""
    if isinstance(node, s.DecimalLiteral) and isinstance(other, Time | Duration):
        return _of_ns(type(other), round(Fraction(node.value) * NS))
    return value


# Three-valued logic


def truth(value: Value) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    raise Refused("this is no condition")


def conjunction(values: list[bool | None]) -> bool | None:
    if False in values:
        return False
    return None if None in values else True


def negation(value: bool | None) -> bool | None:
    return None if value is None else not value


def _is_choice(operand: Value, choice: s.Expression, value: Callable[[s.Expression], Value]) -> bool | None:
    if isinstance(choice, s.PrefixLiteral):
        return in_prefix(operand, choice.value)
    if isinstance(choice, s.StringLiteral) and "/" in choice.value and isinstance(operand, Address):
        return in_prefix(operand, ipaddress.ip_network(choice.value, strict=False))
    return compare(Cmp.EQUAL, operand, _beside(operand, choice, value(choice)))


def in_prefix(value: Value, prefix: IPv4Network | IPv6Network) -> bool | None:
    """A prefix contains addresses of its own version only."""
    match value:
        case None:
            return None
        case IPv4Address():
            return isinstance(prefix, IPv4Network) and value in prefix
        case IPv6Address():
            return isinstance(prefix, IPv6Network) and value in prefix
    raise Refused("only addresses are in prefixes")


def _prefix(of: Value, lengths: list[Value]) -> Value:
    """One length is of both families, and more than an IPv4 address has bits leaves it whole."""
    if of is None:
        return None
    four = ipaddress.ip_address(of) if isinstance(of, str) else of
    if not isinstance(four, IPv4Address | IPv6Address):
        raise Refused("prefix is of addresses")
    length = min(int(lengths[0]), 32) if isinstance(four, IPv4Address) else int(lengths[-1])
    return ipaddress.ip_network((four, length), strict=False).network_address


# Arithmetic


def _unary(operator: s.UnaryOperator, value: Value) -> Value:
    if value is None:
        return None
    match operator, value:
        case s.UnaryOperator.INVERT, int():
            return ~value
        case s.UnaryOperator.MINUS, Duration():
            return _of_ns(Duration, -value.ns)
        case s.UnaryOperator.MINUS, int() | float():
            return fitting(-value)
        case s.UnaryOperator.PLUS, int() | float() | Duration():
            return value
    raise Refused(f"{operator} cannot go with this")


def binary(operator: Op, left: Value, right: Value | Decimal) -> Value:
    if left is None or right is None:
        return None
    if isinstance(left, bool | str | Mac | CommunityId | Address) or isinstance(
        right, bool | str | Mac | CommunityId | Address
    ):
        raise Refused("there is no arithmetic on this")
    if isinstance(left, Time | Duration) or isinstance(right, Time | Duration):
        return _time_arithmetic(operator, left, right)
    if isinstance(right, Decimal):
        right = float(right)
    return _numbers(operator, left, right)


def _numbers(operator: Op, left: int | float, right: int | float) -> Value:
    whole = isinstance(left, int) and isinstance(right, int)
    match operator:
        case Op.ADD:
            return fitting(left + right)
        case Op.SUBTRACT:
            return fitting(left - right)
        case Op.MULTIPLY:
            return fitting(left * right)
        case Op.DIVIDE:
            return None if right == 0 else fitting(left // right) if whole else left / right
        case Op.MODULO:
            return None if right == 0 else left % right
    if not whole:
        raise Refused("bits are of integers")
    match operator:
        case Op.BIT_AND:
            return left & right
        case Op.BIT_OR:
            return left | right
        case Op.BIT_XOR:
            return left ^ right
    if not 0 <= right <= 63:
        return None
    return fitting(left << right) if operator is Op.SHIFT_LEFT else left >> right


N = TypeVar("N", int, float)


def fitting(value: N) -> N | None:
    """Integers have 64 bits: one that leaves them is null."""
    return value if not isinstance(value, int) or -(2**63) <= value < 2**63 else None


T = TypeVar("T", Time, Duration)


def _of_ns(kind: type[T], ns: int) -> T | None:
    return None if fitting(ns) is None else kind(ns)


def _seconds(value: Value | Decimal) -> Duration | None:
    """A number of seconds is a duration."""
    return value if isinstance(value, Duration) else _of_ns(Duration, round(Fraction(value) * NS))


def _time_arithmetic(operator: Op, left: Value, right: Value | Decimal) -> Value:
    match operator, left, right:
        case Op.SUBTRACT, Time(), Time():
            return _of_ns(Duration, left.ns - right.ns)
        case (Op.ADD, Time(), Duration() | int() | float() | Decimal()):
            moved = _seconds(right)
            return moved and _of_ns(Time, left.ns + moved.ns)
        case Op.ADD, Duration() | int() | float(), Time():
            return _time_arithmetic(operator, right, left)
        case Op.SUBTRACT, Time(), Duration() | int() | float() | Decimal():
            moved = _seconds(right)
            return moved and _of_ns(Time, left.ns - moved.ns)
        case Op.DIVIDE, Time(), Duration():
            return None if right.ns == 0 else fitting(left.ns // right.ns)
        case Op.DIVIDE, Time(), int():
            return None if right == 0 else left.ns // NS // right
        case Op.MODULO, Time(), int():
            return None if right == 0 else left.ns // NS % right
        case Op.ADD, Duration(), Duration():
            return _of_ns(Duration, left.ns + right.ns)
        case Op.SUBTRACT, Duration(), Duration():
            return _of_ns(Duration, left.ns - right.ns)
        case Op.MULTIPLY, Duration(), int():
            return _of_ns(Duration, left.ns * right)
        case Op.MULTIPLY, int(), Duration():
            return _of_ns(Duration, left * right.ns)
    raise Unsupported(f"{type(left).__name__} {operator} {type(right).__name__}")


# Comparisons


def compare(operator: Cmp, left: Value, right: Value) -> bool | None:
    if left is None or right is None:
        return None
    left, right = _alike(left, right), _alike(right, left)
    if left is None or right is None:  # a number of seconds that is none of nanoseconds
        return None
    # Numbers compare with numbers, every other type with itself.
    numbers = isinstance(left, int | float) and isinstance(right, int | float)
    if not numbers and type(left) is not type(right) and not (isinstance(left, Address) and isinstance(right, Address)):
        raise Refused(f"{type(left).__name__} does not compare with {type(right).__name__}")
    a, b = order(left), order(right)
    match operator:
        case Cmp.EQUAL:
            return a == b
        case Cmp.NOT_EQUAL:
            return a != b
        case Cmp.LESS:
            return a < b
        case Cmp.LESS_OR_EQUAL:
            return a <= b
        case Cmp.GREATER:
            return a > b
    return a >= b


def _alike(value: Value, other: Value) -> Value:
    """A text beside an address, MAC or time is one; a number beside a time is seconds."""
    match value, other:
        case str(), Time():
            return time_of_text(value)
        case str(), IPv4Address() | IPv6Address():
            return ipaddress.ip_address(value)
        case str(), Mac():
            return mac_of_text(value)
        case str(), CommunityId():
            return community_id_of_text(value)
        case ((int() | float()), (Time() | Duration())):
            return _of_ns(type(other), round(Fraction(value) * NS))
    return value
