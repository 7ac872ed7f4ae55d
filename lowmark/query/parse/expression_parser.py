"""Builds the syntax tree's nodes for expressions, with their literals and the sizes of windows."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from ipaddress import ip_address, ip_network

from lark import Token
from lark.tree import Meta
from lark.visitors import Transformer_NonRecursive, v_args

from lowmark.query.catalog import unit_ns
from lowmark.query.parse import syntax as s
from lowmark.query.parse.errors import QueryError, too_large
from lowmark.query.parse.size_limits import DIGITS, ENTRIES, TooLarge
from lowmark.query.parse.syntax import Span

__all__ = ["ExpressionBuilder", "first_constant", "with_span"]

_MAX_INT = 2**63  # with a minus sign in front this is an int64 too
_MAC = re.compile(r"[0-9a-f]{1,2}(?::[0-9a-f]{1,2}){5}", re.IGNORECASE)
_CONSTANT = re.compile(
    r"--[^\n]*+|/\*.*?\*/|(?P<string>'(?:[^'\n]|'')*+')|(?P<minus>-)"
    r"|(?P<address>[\da-f]*(?::[\da-f]*){2}[\d.:a-f]*+(?:/\d++)?+|\d++(?:\.\d++){2,}+(?:/\d++)?+)"
    r"|(?P<decimal>(?:\d++\.\d*+|\.\d++)(?:e[+-]?\d++)?+|\d++e[+-]?\d++)|(?P<integer>0x[\da-f]++|\d++)",
    re.IGNORECASE | re.DOTALL | re.ASCII,
)  # one constant of a list, or the text between two
_NUMBER_END = re.compile(r"(?<=[0-9.])\s*(?=[^\W\d])")  # between a number and its unit


def with_span(method: Callable[..., object], _rule: str, children: list[object], meta: Meta) -> object:
    return method(Span(0, 0) if meta.empty else Span(meta.start_pos, meta.end_pos), *children)


def first_constant(text: str, start: int) -> tuple[str, int]:
    """The terminal of a list's first constant, if it stood alone, and the offset at which it ends."""
    found = _CONSTANT.match(text, start)
    if found is None or found.lastgroup is None:
        raise ValueError("no constant stands there")
    return found.lastgroup.upper(), found.end()


@v_args(wrapper=with_span)
class ExpressionBuilder(Transformer_NonRecursive[Token, s.Script]):
    """Makes the nodes bottom up: one method for each rule of grammar.lark, with its span and children as arguments."""

    def __init__(self, text: str) -> None:
        super().__init__(visit_tokens=False)
        self._text = text

    def disjunction(self, span: Span, *operands: s.Expression) -> s.Or:
        return s.Or(operands, span=span)

    def conjunction(self, span: Span, *operands: s.Expression) -> s.And:
        return s.And(operands, span=span)

    def negate(self, span: Span, _not: Token, operand: s.Expression) -> s.Not:
        return s.Not(operand, span=span)

    def comparison(self, span: Span, left: s.Expression, sign: Token, right: s.Expression) -> s.Comparison:
        operator = s.ComparisonOperator("<>" if sign == "!=" else sign.value)
        return s.Comparison(operator, left, right, span=span)

    def membership(
        self, span: Span, operand: s.Expression, negated: Token | None, *choices: s.Expression | Token
    ) -> s.In:
        """A token among the choices is a list of constants."""
        each: list[s.Expression] = []
        for choice in choices:
            if isinstance(choice, Token):
                each += self._constants(choice)
            else:
                each.append(choice)
        if len(each) > ENTRIES.most:
            spot = Span(each[ENTRIES.most].span.start, each[-1].span.end)
            raise too_large(TooLarge(ENTRIES, f"this list has {len(each):,} constants"), self._text, spot)
        return s.In(operand, tuple(each), negated is not None, span=span)

    def _constants(self, run: Token) -> Iterator[s.Expression]:
        start, minus = run.start_pos or 0, None
        string, address, decimal, integer = self.string, self.address, self.decimal, self.integer
        for found in _CONSTANT.finditer(run):
            span, word = Span(start + found.start(), start + found.end()), found[0]
            match found.lastgroup:
                case "minus":
                    minus = span.start
                    continue
                case "string":
                    constant: s.Literal = string(span, word)
                case "address":
                    constant = address(span, word)
                case "decimal":
                    constant = decimal(span, word)
                case "integer":
                    constant = integer(span, word)
                case _:
                    continue
            if minus is None:
                yield constant
            else:
                yield s.Unary(s.UnaryOperator.MINUS, constant, span=Span(minus, span.end))
                minus = None

    def between(
        self, span: Span, operand: s.Expression, negated: Token | None, low: s.Expression, high: s.Expression
    ) -> s.Between:
        return s.Between(operand, low, high, negated is not None, span=span)

    def null_test(self, span: Span, operand: s.Expression, negated: Token | None) -> s.IsNull:
        return s.IsNull(operand, negated is not None, span=span)

    def exists(self, span: Span, select: s.Select) -> s.Exists:
        return s.Exists(select, span=span)

    def binary(self, span: Span, left: s.Expression, sign: Token, right: s.Expression) -> s.Binary:
        return s.Binary(s.BinaryOperator(sign.value), left, right, span=span)

    def unary(self, span: Span, sign: Token, operand: s.Expression) -> s.Unary:
        return s.Unary(s.UnaryOperator(sign.value), operand, span=span)

    def call(self, span: Span, function: s.Identifier, *arguments: s.Expression | s.Star) -> s.FunctionCall:
        return s.FunctionCall(function, arguments, span=span)

    def call_distinct(
        self, span: Span, function: s.Identifier, _distinct: Token, *arguments: s.Expression | s.Star
    ) -> s.FunctionCall:
        return s.FunctionCall(function, arguments, distinct=True, span=span)

    def field(self, span: Span, source: s.Identifier | None, name: s.Identifier) -> s.FieldRef:
        return s.FieldRef(source, name, span=span)

    def grouped_field(self, span: Span, source: s.Identifier, group: s.Identifier, name: s.Identifier) -> s.FieldRef:
        whole = s.Identifier(f"{group.text}.{name.text}", span=Span(group.span.start, name.span.end))
        return s.FieldRef(source, whole, span=span)

    def star(self, span: Span, _star: Token) -> s.Star:
        return s.Star(span=span)

    def qualified_star(self, span: Span, source: s.Identifier, _star: Token) -> s.Star:
        return s.Star(source, span=span)

    def quoted(self, span: Span, word: Token) -> s.FieldRef:
        return s.FieldRef(None, self.identifier(span, word), span=span)

    def identifier(self, span: Span, word: Token) -> s.Identifier:
        if word.type != "QUOTED":
            return s.Identifier(word.value, span=span)
        name = word[1:-1].replace('""', '"')
        if not name or name.startswith("."):  # a leading point marks internal columns, which no query can name
            raise self._error("a name has a character, and does not begin with a point", span)
        return s.Identifier(name, quoted=True, span=span)

    # Literals and sizes

    def boolean(self, span: Span, word: Token) -> s.BooleanLiteral:
        return s.BooleanLiteral(word.type == "TRUE", span=span)

    def string(self, span: Span, quoted: str) -> s.StringLiteral:
        return s.StringLiteral(quoted[1:-1].replace("''", "'"), span=span)

    def integer(self, span: Span, digits: str) -> s.IntegerLiteral:
        return s.IntegerLiteral(self._int64(span, digits), span=span)

    def rows(self, span: Span, size: Token) -> s.RowCount:
        number, _unit = _NUMBER_END.split(size, maxsplit=1)
        return s.RowCount(self._int64(span, number), span=span)

    def decimal(self, span: Span, digits: str) -> s.DecimalLiteral:
        self._check_length(span, digits)
        value = Decimal(str(digits))
        if math.isinf(float(value)) or (value and not float(value)):
            raise self._error("this number is outside the range of a double", span)
        return s.DecimalLiteral(value, span=span)

    def duration(self, span: Span, size: Token) -> s.DurationLiteral:
        number, unit = _NUMBER_END.split(size, maxsplit=1)
        self._check_length(span, number)
        value_ns = Fraction(number) * unit_ns(unit)
        if value_ns.denominator != 1:
            raise self._error("a duration is a whole number of nanoseconds", span)
        if value_ns >= _MAX_INT:
            raise self._error("this duration is longer than 292 years, the longest there is", span)
        return s.DurationLiteral(int(value_ns), span=span)

    def address(self, span: Span, word: str) -> s.AddressLiteral | s.PrefixLiteral | s.MacLiteral:
        if _MAC.fullmatch(word):
            return s.MacLiteral(int("".join(byte.rjust(2, "0") for byte in word.split(":")), 16), span=span)
        try:
            if "/" in word:
                return s.PrefixLiteral(ip_network(str(word), strict=False), span=span)
            return s.AddressLiteral(ip_address(str(word)), span=span)
        except ValueError:
            message = f"{word} is no address"
            forms = ("10.0.0.1", "10.0.0.0/8", "2001:db8::1", "2001:db8::/32", "00:11:22:33:44:55")
            raise QueryError(message, self._text, span, forms) from None

    def _int64(self, span: Span, digits: str) -> int:
        self._check_length(span, digits)
        value = int(digits, 16 if digits[:2] in {"0x", "0X"} else 10)
        if value > _MAX_INT:
            raise self._error("integers have 64 bits: this one is too great", span)
        return value

    def _check_length(self, span: Span, digits: str) -> None:
        if len(digits) > DIGITS.most:
            raise too_large(TooLarge(DIGITS, f"this number has {len(digits):,} digits"), self._text, span)

    def _error(self, message: str, span: Span) -> QueryError:
        return QueryError(message, self._text, span)
