"""Functions of single values, unlike aggregates: they may stand wherever an expression may."""

from __future__ import annotations

from lowmark.query.expr.constants import number, prefix_mask
from lowmark.query.expr.expressions import Call, Expr, Literal, Op
from lowmark.query.parse import syntax as s
from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.values import address_version

__all__ = ["EXTREMES", "PREFIX", "BadCall", "is_scalar", "names", "prefix", "prefix_lengths"]

PREFIX = "prefix"

EXTREMES = ("greatest", "least")
"""Functions of the times that the windows of a join's inputs are over."""


class BadCall(ValueError):
    """Arguments that a function does not take; `argument` is the index of the wrong one, None: the whole call."""

    def __init__(self, reason: str, argument: int | None = None, hint: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.argument = argument
        self.hint = hint


def names() -> tuple[str, ...]:
    return (PREFIX, *EXTREMES)


def is_scalar(node: s.SyntaxNode) -> bool:
    return isinstance(node, s.FunctionCall) and node.function.text.lower() in names()


def prefix_lengths(call: s.FunctionCall) -> tuple[int, int]:
    """How many bits `prefix` keeps of an IPv4 and of an IPv6 address. A single length is for both; 32 or more keeps
    all of an IPv4 address. BadCall unless there are one or two constant lengths."""
    example = "for example prefix(srcIP, 24), or prefix(srcIP, 24, 56) with a length for IPv6"
    if call.distinct or len(call.arguments) not in (2, 3):
        raise BadCall("prefix takes an address and one or two lengths", None, example)
    lengths = []
    for place, argument in enumerate(call.arguments[1:], 1):
        longest = 32 if len(call.arguments) == 3 and place == 1 else 128
        value = None if isinstance(argument, s.Star) else number(argument)
        if not isinstance(value, int) or not 0 <= value <= longest:
            raise BadCall(f"a constant length from 0 to {longest} must stand here", place, example)
        lengths.append(value)
    return min(lengths[0], 32), lengths[-1]


def prefix(operand: Expr, bits4: int, bits6: int) -> Expr:
    """The network address: the address with all but its first bits set to 0."""
    mask4, mask6 = prefix_mask(4, bits4), prefix_mask(6, bits6)
    if isinstance(operand, Literal):
        if operand.value is None:
            return operand
        address = int(operand.value)
        return Literal(address & (mask4 if address_version(address) == 4 else mask6), Kind.IP)
    return Call(Op.PREFIX, (operand, Literal(mask4, Kind.IP), Literal(mask6, Kind.IP)), Kind.IP, operand.nullable)
