"""What an overflow decides: by the rule of the language alone, beside the values that `expressions` gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from lowmark.query.parse import syntax as s

_NOTED: ContextVar[list[s.SyntaxNode] | None] = ContextVar("noted", default=None)


@contextmanager
def noted() -> Iterator[list[s.SyntaxNode]]:
    """What is noted meanwhile."""
    found: list[s.SyntaxNode] = []
    token = _NOTED.set(found)
    try:
        yield found
    finally:
        _NOTED.reset(token)


def note(node: s.SyntaxNode) -> None:
    """The value of this was decided by an overflow."""
    found = _NOTED.get()
    if found is not None:
        found.append(node)


def is_lost(node: s.SyntaxNode, value: Callable[[s.SyntaxNode], Any], given: Callable[[s.SyntaxNode], bool]) -> bool:
    """Whether an integer that left 64 bits decides the value of an expression. It does not where something else makes
    the value what it is: another argument that is null by itself, a divisor that is zero, a condition that is false
    beside AND or true beside OR. What is `given` (a group's key), fields and aggregates are judged where they are
    computed."""

    def lost(part: s.SyntaxNode) -> bool:
        return is_lost(part, value, given)

    def null(part: s.Expression) -> bool:
        return value(part) is None and not lost(part)

    if given(node):
        return False
    match node:
        case s.Unary(operand=operand):
            return lost(operand) or (value(node) is None and not null(operand))
        case s.Binary(left=left, right=right) | s.Comparison(left=left, right=right):
            if null(left) or null(right) or (isinstance(node, s.Binary) and _means_nothing(node, value, lost)):
                return False
            return lost(left) or lost(right) or value(node) is None
        case s.And(operands=parts):
            return any(map(lost, parts)) and not any(value(part) is False and not lost(part) for part in parts)
        case s.Or(operands=parts):
            return any(map(lost, parts)) and not any(value(part) is True and not lost(part) for part in parts)
        case s.Not(operand=operand) | s.IsNull(operand=operand):
            return lost(operand)
        case s.In(choices=choices) if any(map(_is_prefix, choices)):
            return False  # of addresses nothing is lost
        case s.In(operand=operand, choices=choices):
            equal = (s.Comparison(s.ComparisonOperator.EQUAL, operand, choice, span=node.span) for choice in choices)
            return lost(s.Or(tuple(equal), span=node.span))
        case s.Between(operand=operand, low=low, high=high):
            least = s.Comparison(s.ComparisonOperator.GREATER_OR_EQUAL, operand, low, span=node.span)
            most = s.Comparison(s.ComparisonOperator.LESS_OR_EQUAL, operand, high, span=node.span)
            return lost(s.And((least, most), span=node.span))
    return False


def _means_nothing(node: s.Binary, value: Callable[[s.SyntaxNode], Any], lost: Callable[[s.SyntaxNode], bool]) -> bool:
    """By zero, or by no distance of bits."""
    if lost(node.right):
        return False
    by = value(node.right)
    match node.operator:
        case s.BinaryOperator.DIVIDE | s.BinaryOperator.MODULO:
            return getattr(by, "ns", by) == 0
        case s.BinaryOperator.SHIFT_LEFT | s.BinaryOperator.SHIFT_RIGHT:
            return not 0 <= by <= 63
    return False


def _is_prefix(choice: s.Expression) -> bool:
    return isinstance(choice, s.PrefixLiteral) or (isinstance(choice, s.StringLiteral) and "/" in choice.value)
