"""Names in a query: what a field reference means, and what a column without an alias is called."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from ipaddress import ip_address, ip_network

from lowmark.query.parse import syntax as s
from tests.naive.packets import CONN, DERIVED
from tests.naive.values import mac_of_text, time_of_text

ALIASES = {"dstip": "destIP", "src": "srcIP", "dst": "destIP", "sport": "srcPort", "dport": "destPort",
           "length": "len", "row-num": "row_num"}  # fmt: skip
KEYWORDS = {"and", "or", "not", "in", "between", "is", "null", "true", "false", "distinct"}
PROGRESSING = {"ts", "arrival_ts", "row_num"}  # of packets


class Refused(Exception):
    """The query cannot be answered: its author must change it."""


class Unsupported(Exception):
    """The naive evaluator does not know this construct."""


@dataclass(frozen=True)
class ScopeInput:
    """An input of FROM: its name as written and its columns."""

    name: str | None
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Scope:
    """Rows are dicts with the keys that `key` gives: the column's name, in a join `Input.column`."""

    inputs: tuple[ScopeInput, ...]
    joined: bool = False  # with others that are not seen: keys are those of a join
    nearest: int | None = None  # of the inputs, the one that a name by itself means first

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self._key(i, column) for i in self.inputs for column in i.columns)

    def _key(self, item: ScopeInput, column: str) -> str:
        return column if len(self.inputs) == 1 and not self.joined else f"{item.name}.{column}"

    def keys_of(self, name: str | None) -> tuple[str, ...]:
        """The keys of `*` or `name.*`."""
        return tuple(self._key(i, column) for i in self._named(name) for column in i.columns)

    def _named(self, name: str | None) -> list[ScopeInput]:
        return [i for i in self.inputs if name is None or (i.name or "").casefold() == name.casefold()]

    def find(self, ref: s.FieldRef) -> str | None:
        """The key of a reference; None when there is no such field."""
        if ref.input is None and self.nearest is not None:
            near = self.inputs[self.nearest]
            own = self.find(s.FieldRef(s.Identifier(near.name, span=ref.span), ref.name, span=ref.span))
            if own is not None:
                return own
        name = ref.name.text
        found = [
            self._key(item, column)
            for item in self._named(ref.input.text if ref.input else None)
            for wanted in (name, ALIASES.get(name.casefold(), name))
            for column in item.columns
            if column.casefold() == wanted.casefold()
        ]
        if not found:
            found = [self._key(*derived) for derived in self._derived(ref)]
        if len(set(found)) > 1 and len(self.inputs) > 1:
            raise Refused(f"{name} is in more than one input")
        return found[0] if found else None

    def _derived(self, ref: s.FieldRef) -> list[tuple[ScopeInput, str]]:
        """The inputs' fields of that name that `*` leaves out, and those whose group stands as the input."""
        *group, last = ref.name.text.split(".")
        name = ".".join((*group, ALIASES.get(last.casefold(), last))).casefold()
        named = [(i, name) for i in self._named(ref.input.text if ref.input else None)]
        if ref.input:
            named += [(i, f"{ref.input.text}.{name}".casefold()) for i in self.inputs]
        return [(i, c) for i, wanted in named for c in (*i.columns, *DERIVED) if c.casefold() == wanted]

    def resolve(self, node: s.Expression) -> s.Expression:
        """The expression with every reference as its key and every function in lower case: equal ones are equal."""
        if isinstance(node, s.FieldRef):
            key = self.find(node)
            if key is None and (literal := quoted_literal(node)) is not None:
                return literal
            if key is None:
                raise Refused(f"there is no field {node.name.text}")
            return by_key(key, node.span)
        if isinstance(node, s.Comparison) and len(expanded(node.left)) > 1:  # connections
            pairs = zip(expanded(node.left), expanded(node.right), strict=True)
            equal = s.ComparisonOperator.EQUAL
            same = s.And(tuple(s.Comparison(equal, a, b, span=node.span) for a, b in pairs), span=node.span)
            return self.resolve(same if node.operator is equal else s.Not(same, span=node.span))
        if isinstance(node, s.FunctionCall):
            node = dataclasses.replace(node, function=s.Identifier(node.function.text.lower(), span=node.function.span))
        return rebuilt(node, self.resolve)

    def name(self, node: s.Expression, text: str) -> str:
        """What a column of this (unresolved) expression is called."""
        if isinstance(node, s.FieldRef) and (self.find(node) is not None or quoted_literal(node) is None):
            return self.find(node) or node.name.text
        pieces, at = [], node.span.start
        for part in s.walk(node):
            if isinstance(part, s.FieldRef):
                written = self.find(part) or part.name.text
            elif isinstance(part, s.DurationLiteral):
                written = text[slice(*part.span)].lower()
            elif isinstance(part, s.StringLiteral):
                written = text[slice(*part.span)]
            elif isinstance(part, s.FunctionCall):
                part, written = part.function, part.function.text.lower()
            else:
                continue
            pieces += [_in_lower_case(text[at : part.span.start]), written]
            at = part.span.end
        pieces.append(_in_lower_case(text[at : node.span.end]))
        return re.sub(r"[^A-Za-z0-9_]+", "_", "".join(pieces)).strip("_")


def _in_lower_case(text: str) -> str:
    """The words of the language in it."""
    return re.sub(r"[A-Za-z]+", lambda word: word[0].lower() if word[0].lower() in KEYWORDS else word[0], text)


def quoted_literal(ref: s.FieldRef) -> s.Expression | None:
    """The address, prefix, MAC or time that `"…"` is, if it names nothing."""
    text, span = ref.name.text, ref.span
    if not ref.name.quoted or ref.input is not None:
        return None
    try:
        if "/" in text:
            return s.PrefixLiteral(ip_network(text, strict=False), span=span)
        if re.fullmatch("[0-9a-fA-F]{2}([:-][0-9a-fA-F]{2}){5}", text):
            return s.MacLiteral(mac_of_text(text).number, span=span)
        if "T" in text.upper() and ":" in text:
            return s.TimeLiteral(time_of_text(text).ns, span=span)
        return s.AddressLiteral(ip_address(text), span=span)
    except ValueError:
        return None


def expanded(node: s.Expression) -> tuple[s.Expression, ...]:
    """`conn` is five fields."""
    if not isinstance(node, s.FieldRef) or node.name.text.casefold() != "conn":
        return (node,)
    return tuple(s.FieldRef(node.input, s.Identifier(name, span=node.span), span=node.span) for name in CONN)


def by_key(key: str, span: s.Span) -> s.FieldRef:
    return s.FieldRef(None, s.Identifier(key, span=span), span=span)


def rebuilt(node: s.SyntaxNode, change) -> s.SyntaxNode:  # type: ignore[no-untyped-def]
    """A copy of an expression whose direct operands went through `change`."""
    changes: dict[str, object] = {}
    for item in dataclasses.fields(node):
        value = getattr(node, item.name)
        if isinstance(value, s.SyntaxNode) and not isinstance(value, s.Identifier | s.Star):
            changes[item.name] = change(value)
        elif isinstance(value, tuple) and item.name != "span":
            changes[item.name] = tuple(part if isinstance(part, s.Star) else change(part) for part in value)
    return dataclasses.replace(node, **changes) if changes else node


def progresses(node: s.Expression, columns: frozenset[str]) -> bool:
    """Whether an expression never decreases when the progressing columns do not, and is unbounded."""
    match node:
        case s.FieldRef():
            return node.name.text in columns
        case s.FunctionCall(function=function, arguments=arguments) if function.text.lower() in ("greatest", "least"):
            return all(progresses(argument, columns) for argument in arguments)
        case s.Binary(operator=operator, left=left, right=right):
            positive = _constant(right) is not None and _constant(right) > 0
            if operator in (s.BinaryOperator.ADD, s.BinaryOperator.SUBTRACT) and _constant(right) is not None:
                return progresses(left, columns)
            if operator in (s.BinaryOperator.MULTIPLY, s.BinaryOperator.DIVIDE) and positive:
                return progresses(left, columns)
            if operator is s.BinaryOperator.SHIFT_RIGHT and _constant(right) is not None:
                return progresses(left, columns)
            if operator in (s.BinaryOperator.ADD, s.BinaryOperator.MULTIPLY) and _constant(left) is not None:
                return progresses(right, columns) and (operator is s.BinaryOperator.ADD or _constant(left) > 0)
    return False


def _constant(node: s.Expression):  # type: ignore[no-untyped-def]
    match node:
        case s.IntegerLiteral() | s.DecimalLiteral():
            return node.value
        case s.DurationLiteral():
            return node.value_ns
        case s.Unary(operator=s.UnaryOperator.MINUS, operand=operand):
            value = _constant(operand)
            return None if value is None else -value
    return None
