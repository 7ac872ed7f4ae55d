"""The syntax tree of the query language: the text's structure, before anything is known about its meaning.

Nodes are frozen and compare by structure alone: the span is left out, so the same expression written in two places is
equal to itself. Names keep their spelling and case; literals carry their parsed value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import NamedTuple, get_args


class Span(NamedTuple):
    """A piece of the query's text: offset of its first character, and offset after its last one."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SyntaxNode:
    span: Span = field(kw_only=True, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Identifier(SyntaxNode):
    text: str
    quoted: bool = field(default=False, compare=False, kw_only=True)  # written as "…"


# Literals


@dataclass(frozen=True, slots=True)
class IntegerLiteral(SyntaxNode):
    """0 … 2**63: the greatest value is an int64 only behind a minus sign."""

    value: int


@dataclass(frozen=True, slots=True)
class DecimalLiteral(SyntaxNode):
    """A number with a point or an exponent, exactly as written; it is finite as a double."""

    value: Decimal


@dataclass(frozen=True, slots=True)
class StringLiteral(SyntaxNode):
    """`'…'`: a text. Next to an address, a MAC or a time it is one of those: analysis decides."""

    value: str


@dataclass(frozen=True, slots=True)
class BooleanLiteral(SyntaxNode):
    value: bool


@dataclass(frozen=True, slots=True)
class DurationLiteral(SyntaxNode):
    value_ns: int


@dataclass(frozen=True, slots=True)
class AddressLiteral(SyntaxNode):
    """An address as written: an IPv4-mapped IPv6 address is still an IPv6Address here."""

    value: IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class PrefixLiteral(SyntaxNode):
    """A prefix with its host bits cleared."""

    value: IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class MacLiteral(SyntaxNode):
    """A MAC address as a 48-bit number."""

    value: int


@dataclass(frozen=True, slots=True)
class TimeLiteral(SyntaxNode):
    """A time written as `"…"` that is no name; a time in `'…'` stays a text until it is compared."""

    value_ns: int


Literal = (
    IntegerLiteral
    | DecimalLiteral
    | StringLiteral
    | BooleanLiteral
    | DurationLiteral
    | AddressLiteral
    | PrefixLiteral
    | MacLiteral
    | TimeLiteral
)


# Expressions


class UnaryOperator(StrEnum):
    MINUS = "-"
    PLUS = "+"
    INVERT = "~"


class BinaryOperator(StrEnum):
    ADD = "+"
    SUBTRACT = "-"
    MULTIPLY = "*"
    DIVIDE = "/"
    MODULO = "%"
    BIT_AND = "&"
    BIT_OR = "|"
    BIT_XOR = "^"
    SHIFT_LEFT = "<<"
    SHIFT_RIGHT = ">>"


class ComparisonOperator(StrEnum):
    EQUAL = "="
    NOT_EQUAL = "<>"  # also written !=
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="


@dataclass(frozen=True, slots=True)
class FieldRef(SyntaxNode):
    """`name` or `input.name`: a field, a column of a stage, or an alias. In `input.group.name` the name has a point.
    `"…"` that is no name may be an address, a prefix, a MAC or a time: analysis decides."""

    input: Identifier | None
    name: Identifier


@dataclass(frozen=True, slots=True)
class Star(SyntaxNode):
    """`*` or `input.*` in a SELECT list, or the argument of count(*)."""

    input: Identifier | None = None


@dataclass(frozen=True, slots=True)
class FunctionCall(SyntaxNode):
    function: Identifier
    arguments: tuple[Expression | Star, ...]
    distinct: bool = False


@dataclass(frozen=True, slots=True)
class Unary(SyntaxNode):
    operator: UnaryOperator
    operand: Expression


@dataclass(frozen=True, slots=True)
class Binary(SyntaxNode):
    operator: BinaryOperator
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Comparison(SyntaxNode):
    operator: ComparisonOperator
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class And(SyntaxNode):
    """Two operands or more; a chain of ANDs is one node."""

    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or(SyntaxNode):
    """Two operands or more; a chain of ORs is one node."""

    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Not(SyntaxNode):
    operand: Expression


@dataclass(frozen=True, slots=True)
class In(SyntaxNode):
    """`x [NOT] IN (a, b)`, or `x IN prefix` with that single choice. The list may hold prefixes too."""

    operand: Expression
    choices: tuple[Expression, ...]
    negated: bool


@dataclass(frozen=True, slots=True)
class Between(SyntaxNode):
    operand: Expression
    low: Expression
    high: Expression
    negated: bool


@dataclass(frozen=True, slots=True)
class IsNull(SyntaxNode):
    operand: Expression
    negated: bool


@dataclass(frozen=True, slots=True)
class Exists(SyntaxNode):
    """`EXISTS (SELECT …)`; NOT EXISTS is a `Not` around it."""

    select: Select


Expression = (
    Literal | FieldRef | FunctionCall | Unary | Binary | Comparison | And | Or | Not | In | Between | IsNull | Exists
)


# Windows


@dataclass(frozen=True, slots=True)
class RowCount(SyntaxNode):
    """`n rows` as the size of a window."""

    value: int


@dataclass(frozen=True, slots=True)
class Everything(SyntaxNode):
    """`RANGE ALL`."""


Size = DurationLiteral | RowCount | IntegerLiteral | DecimalLiteral  # the last two: a number without a unit


@dataclass(frozen=True, slots=True)
class WindowClause(SyntaxNode):
    """`[…]` with the parameters that are written; None or () for the others."""

    range: Size | Everything | None
    tumbling: bool  # RANGE TUMBLING
    slide: Size | None
    wa: Expression | None
    rattr: Expression | None
    sattr: Expression | None  # rank(a) is a FunctionCall
    pa: tuple[Expression, ...]


# Queries


@dataclass(frozen=True, slots=True)
class StreamRef(SyntaxNode):
    name: Identifier


@dataclass(frozen=True, slots=True)
class Subquery(SyntaxNode):
    select: Select


@dataclass(frozen=True, slots=True)
class Union(SyntaxNode):
    """Two members or more; a chain of UNIONs is one node, a union in parentheses is a node of its own."""

    members: tuple[Relation, ...]


Relation = StreamRef | Subquery | Union


@dataclass(frozen=True, slots=True)
class Input(SyntaxNode):
    """One input of FROM. A window RANGE TUMBLING on the last input of a join applies to all of them."""

    relation: Relation
    alias: Identifier | None
    window: WindowClause | None


class JoinKind(StrEnum):
    INNER = "INNER JOIN"
    LEFT = "LEFT JOIN"
    RIGHT = "RIGHT JOIN"
    FULL = "FULL JOIN"
    SEMI = "SEMI JOIN"
    ANTI = "ANTI JOIN"


@dataclass(frozen=True, slots=True)
class JoinSource(SyntaxNode):
    """`left JOIN right ON condition`. Inputs separated by commas are no JoinSource: they are separate sources."""

    kind: JoinKind
    left: Source
    right: Input
    condition: Expression


Source = Input | JoinSource


@dataclass(frozen=True, slots=True)
class SelectItem(SyntaxNode):
    expression: Expression | Star
    alias: Identifier | None


@dataclass(frozen=True, slots=True)
class GroupItem(SyntaxNode):
    expression: Expression
    alias: Identifier | None


@dataclass(frozen=True, slots=True)
class OrderItem(SyntaxNode):
    expression: Expression
    descending: bool


@dataclass(frozen=True, slots=True)
class Hint(SyntaxNode):
    """One word of `SELECT /*+ word(name, …) … */`: how the query should run. It changes no answer."""

    word: Identifier
    names: tuple[FieldRef, ...]


@dataclass(frozen=True, slots=True)
class Punctuate(SyntaxNode):
    """`PUNCTUATE ON conn LINGER 2 s`: which values captures promise, and how long after a connection has closed."""

    names: tuple[FieldRef, ...]
    linger: DurationLiteral | None


@dataclass(frozen=True, slots=True)
class Select(SyntaxNode):
    distinct: bool
    items: tuple[SelectItem, ...]
    window: WindowClause | None  # from anywhere in the SELECT list
    sources: tuple[Source, ...]
    where: Expression | None
    group_by: tuple[GroupItem, ...]
    having: Expression | None
    order_by: tuple[OrderItem, ...]
    limit: IntegerLiteral | None
    hints: tuple[Hint, ...] = ()
    punctuate: Punctuate | None = None


@dataclass(frozen=True, slots=True)
class CreateStream(SyntaxNode):
    name: Identifier
    select: Select


Statement = Select | CreateStream


@dataclass(frozen=True, slots=True)
class Script(SyntaxNode):
    """One statement or more."""

    statements: tuple[Statement, ...]


_WORDS = re.compile(r"[^\W\d][\w.-]*")


def written(name: str) -> str:
    """A name as a query writes it: quoted if it has characters that a word cannot have. Points in it separate names."""
    return name if _WORDS.fullmatch(name) else '"' + name.replace('"', '""') + '"'


_LEAVES = frozenset(get_args(Literal))
"""Nodes without children; a list can hold very many of them."""


def children(node: SyntaxNode) -> Iterator[SyntaxNode]:
    """The direct children of a node, in the order of its fields."""
    if type(node) in _LEAVES:
        return
    names: tuple[str, ...] = node.__match_args__  # all but the span
    for name in names:
        value = getattr(node, name)
        if isinstance(value, SyntaxNode):
            yield value
        elif isinstance(value, tuple):
            yield from value


def walk(node: SyntaxNode) -> Iterator[SyntaxNode]:
    """A node and everything below it, parents first, from left to right."""
    pending = [node]
    while pending:
        node = pending.pop()
        yield node
        if type(node) not in _LEAVES:
            pending.extend(reversed(list(children(node))))
