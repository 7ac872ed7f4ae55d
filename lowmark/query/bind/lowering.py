"""Turns expressions of the syntax tree into typed expressions over the columns of an input.

`Lowering` knows the meaning of operators and literals, and asks its `Names` for that of names and functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lowmark.query.expr.arithmetic import KIND_NAMES, IllTyped, Operand, arithmetic, comparison, minus
from lowmark.query.expr.constant_sets import KeyRange, key_of
from lowmark.query.expr.constants import address, number, parse_address, parse_prefix, prefix_span
from lowmark.query.expr.expressions import Expr, Literal, Op
from lowmark.query.expr.scalar_functions import EXTREMES, BadCall, is_scalar, prefix, prefix_lengths
from lowmark.query.expr.simplify import LONG, among, boolean, conjoin, disjoin, exact, flatter, is_null, negate
from lowmark.query.parse import syntax as s
from lowmark.query.parse.errors import QueryError
from lowmark.query.parse.size_limits import placed
from lowmark.wire.rows.schema import Kind

__all__ = ["Lowering", "Names"]


_Lowered = tuple[s.Expression, Operand]
"""An expression and its lowered form, lowered once even if several comparisons use it."""

_TEXT = Literal(None, Kind.STR)


class Names(Protocol):
    """The meaning of names in one place of a query. Every method may raise QueryError."""

    def known(self, node: s.Expression) -> Expr | None:
        """The column that the whole expression stands for; None if there is none."""
        ...

    def field(self, ref: s.FieldRef) -> Expr: ...
    def literal(self, ref: s.FieldRef) -> s.Literal | None:
        """The literal that `"…"` stands for if it names nothing; None if it is a name."""
        ...

    def parts(self, node: s.Expression) -> tuple[s.Expression, ...]:
        """The fields of a group such as `conn`; () if the expression is no group."""
        ...

    def call(self, call: s.FunctionCall) -> Expr: ...
    def extreme(self, call: s.FunctionCall) -> Expr:
        """The column for the greatest or the least of a join's times."""
        ...


class Lowering:
    """Lowers the expressions of one place. `strings` is the query's sorted table of texts."""

    def __init__(self, text: str, strings: tuple[str, ...], names: Names) -> None:
        self._text = text
        self._codes = {string: code for code, string in enumerate(strings)}
        self._names = names
        self._done: dict[int, tuple[s.Expression, Expr]] = {}  # by id of the node, which this keeps alive

    def condition(self, node: s.Expression) -> Expr:
        """An expression that must be true or false."""
        expr = self.lower(node)
        if expr.kind is not Kind.BOOL:
            hint = "compare it, for example with <> 0" if expr.kind is Kind.INT else None
            raise self._error(f"a condition must stand here, not {KIND_NAMES[expr.kind]}", node.span, hint)
        return expr

    def lower(self, node: s.Expression) -> Expr:
        """The typed expression. A text is a text literal here; `_operand` also keeps it as written, so that a
        comparison can read it as an address, a MAC or a time."""
        if (known := self._known(node)) is not None:
            return known
        with placed(node.span):
            return self._new(node)

    def _known(self, node: s.Expression) -> Expr | None:
        done = self._done.get(id(node))
        return self._names.known(node) if done is None else done[1]

    def _new(self, node: s.Expression) -> Expr:
        match node:
            case s.FieldRef():
                literal = self._names.literal(node)
                return self._names.field(node) if literal is None else self._literal(literal)
            case s.FunctionCall():
                if node.function.text.lower() in EXTREMES:
                    return self._names.extreme(node)
                return self._prefix(node) if is_scalar(node) else self._names.call(node)
            case s.Unary(operator=operator, operand=operand):
                return self._unary(node, operator, operand)
            case s.Comparison(left=left, right=right) if self._names.parts(left) or self._names.parts(right):
                return self._alike(node)
            case s.Comparison(operator=comparator, left=left, right=right):
                return self._compared(comparator, self._lowered(left), self._lowered(right), node)
            case s.And(operands=parts):
                return conjoin([self.condition(part) for part in parts])
            case s.Or(operands=parts):
                return disjoin([self.condition(part) for part in parts])
            case s.Not(operand=operand):
                return negate(self.condition(operand))
            case s.In(operand=operand, choices=choices, negated=negated):
                inside = self._among(self._lowered(operand), choices, node)
                return negate(inside) if negated else inside
            case s.Between(operand=operand, low=low, high=high, negated=negated):
                middle = self._lowered(operand)
                least = self._compared(s.ComparisonOperator.GREATER_OR_EQUAL, middle, self._lowered(low), node)
                most = self._compared(s.ComparisonOperator.LESS_OR_EQUAL, middle, self._lowered(high), node)
                between = conjoin((least, most))
                return negate(between) if negated else between
            case s.IsNull(operand=operand, negated=negated):
                null = is_null(self.lower(operand))
                return negate(null) if negated else null
            case s.Exists():
                raise self._error("EXISTS stands in WHERE, alone or beside AND", node.span)
            case s.Binary():
                return self._chain(node)
            case _:
                return self._literal(node)

    def _chain(self, node: s.Binary) -> Expr:
        """A chain of any number of operations, each the left operand of the next."""
        chain = [node]
        while isinstance(left := chain[-1].left, s.Binary) and self._known(left) is None:
            chain.append(left)
        expr = self.lower(chain[-1].left)
        for count, item in enumerate(reversed(chain), 1):
            try:
                with placed(item.span):
                    expr = arithmetic(item.operator, _operand(item.left, expr), self._operand(item.right))
                    expr = expr if count % LONG else flatter(expr)
            except IllTyped as error:
                raise self._ill_typed(error, item, (item.left, item.right)) from None
            self._done[id(item)] = (item, expr)
        return expr

    def _prefix(self, call: s.FunctionCall) -> Expr:
        try:
            bits4, bits6 = prefix_lengths(call)
            of = call.arguments[0]
            if isinstance(of, s.Star):
                raise BadCall("prefix takes an address", 0)
            operand = parse_address(of.value) if isinstance(of, s.StringLiteral) else self.lower(of)
            if operand.kind is not Kind.IP:
                raise BadCall(f"prefix takes an address, not {KIND_NAMES[operand.kind]}", 0)
        except BadCall as error:
            spot = call if error.argument is None else call.arguments[error.argument]
            raise self._error(error.reason, spot.span, error.hint) from None
        except ValueError as error:
            raise self._error(str(error), call.arguments[0].span) from None
        return prefix(operand, bits4, bits6)

    def _literal(self, node: s.Literal) -> Literal:
        match node:
            case s.IntegerLiteral(value=value):
                if value > 2**63 - 1:
                    raise self._error("integers have 64 bits: this one is too great", node.span)
                return Literal(value, Kind.INT)
            case s.DecimalLiteral(value=decimal):
                return Literal(float(decimal), Kind.FLOAT)
            case s.StringLiteral(value=string):
                return Literal(self._codes[string], Kind.STR)
            case s.BooleanLiteral(value=truth):
                return boolean(truth)
            case s.DurationLiteral(value_ns=ns):
                return Literal(ns, Kind.DURATION)
            case s.AddressLiteral(value=ip):
                return address(ip)
            case s.MacLiteral(value=mac):
                return Literal(mac, Kind.MAC)
            case s.TimeLiteral(value_ns=ns):
                return Literal(ns, Kind.TIME)
            case s.PrefixLiteral():
                prefix = self._text[node.span.start : node.span.end]
                raise self._error("a prefix can stand behind IN only", node.span, f"write … IN {prefix}")

    def _unquoted(self, node: s.Expression) -> s.Expression:
        """The literal that `"…"` stands for if it names nothing; else the node itself."""
        literal = self._names.literal(node) if isinstance(node, s.FieldRef) else None
        return literal or node

    def _lowered(self, node: s.Expression) -> _Lowered:
        return node, self._operand(node)

    def _operand(self, node: s.Expression) -> Operand:
        return _operand(node, self.lower(node))

    def _unary(self, node: s.Unary, operator: s.UnaryOperator, operand: s.Expression) -> Expr:
        if operator is s.UnaryOperator.MINUS and operand == s.IntegerLiteral(2**63, span=operand.span):
            return Literal(-(2**63), Kind.INT)
        expr = self.lower(operand)
        if operator is s.UnaryOperator.INVERT:
            if expr.kind is not Kind.INT:
                raise self._error(f"~ takes a whole number, not {KIND_NAMES[expr.kind]}", operand.span)
            return exact(Op.INVERT, Kind.INT, expr)
        try:
            negative = minus(expr)
        except IllTyped as error:
            raise self._ill_typed(error, node, (operand,)) from None
        return negative if operator is s.UnaryOperator.MINUS else expr

    def _compared(self, operator: s.ComparisonOperator, left: _Lowered, right: _Lowered, whole: s.Expression) -> Expr:
        try:
            return comparison(operator, left[1], right[1])
        except IllTyped as error:
            raise self._ill_typed(error, whole, (left[0], right[0])) from None

    def _alike(self, node: s.Comparison) -> Expr:
        """Compare two groups of fields: they are equal if all their fields are."""
        left, right = self._names.parts(node.left), self._names.parts(node.right)
        equal = node.operator is s.ComparisonOperator.EQUAL
        if not equal and node.operator is not s.ComparisonOperator.NOT_EQUAL:
            raise self._error("connections are equal or not, and have no order", node.span)
        if len(left) != len(right):
            spot = node.right if left else node.left
            raise self._error("a connection is compared with another one, as in A.conn = B.conn", spot.span)
        pairs = zip(left, right, strict=True)
        equals = s.ComparisonOperator.EQUAL
        same = conjoin([self._compared(equals, self._lowered(a), self._lowered(b), node) for a, b in pairs])
        return same if equal else negate(same)

    def _among(self, sought: _Lowered, choices: tuple[s.Expression, ...], whole: s.Expression) -> Expr:
        """IN: a choice matches if it is a prefix that contains the operand, or a value that equals it."""
        spans: list[KeyRange] = []
        others = []
        for choice in map(self._unquoted, choices):
            found = self._spans(sought, choice)
            if found is None:
                others.append(self._compared(s.ComparisonOperator.EQUAL, sought, self._choice(choice), whole))
            else:
                spans += found
        return disjoin([*([among(sought[1].expr, spans)] if spans or not others else ()), *others])

    def _choice(self, node: s.Expression) -> _Lowered:
        """The lowered choice. A text gets a placeholder code: `_spans` has handled texts that are compared with texts,
        and comparisons with other kinds parse the text itself."""
        return (node, Operand(_TEXT, text=node.value)) if isinstance(node, s.StringLiteral) else self._lowered(node)

    def _spans(self, sought: _Lowered, choice: s.Expression) -> Sequence[KeyRange] | None:
        """The key ranges of a constant that is a prefix, a text, or of the kind sought; None: compare the choice like
        any other value."""
        node, operand = sought
        match choice:
            case s.PrefixLiteral(value=prefix):
                if operand.kind is not Kind.IP:
                    raise self._error(f"a prefix contains addresses, not {KIND_NAMES[operand.kind]}", node.span)
                return (prefix_span(prefix),)
            case s.StringLiteral(value=string) if "/" in string and operand.kind is Kind.IP:
                try:
                    return (prefix_span(parse_prefix(string)),)
                except ValueError:
                    raise self._error(f"{string} is no prefix", choice.span, "10.0.0.0/8 is one") from None
            case s.StringLiteral(value=string) if operand.kind is Kind.STR:
                code = self._codes.get(string)  # rows hold only texts of the table
                return () if code is None else ((code, code),)
            case s.IntegerLiteral() | s.DecimalLiteral() | s.AddressLiteral() | s.MacLiteral() | s.DurationLiteral():
                constant = self._literal(choice)
                if constant.kind is operand.kind and constant.value is not None:
                    key = key_of(constant.kind, constant.value)
                    return () if key is None else ((key, key),)
        return None

    def _ill_typed(self, error: IllTyped, whole: s.Expression, operands: tuple[s.Expression, ...]) -> QueryError:
        spot = whole if error.operand is None else operands[error.operand]
        return self._error(error.reason, spot.span, error.hint)

    def _error(self, message: str, span: s.Span, hint: str | None = None) -> QueryError:
        return QueryError(message, self._text, span, hint=hint)


def _operand(node: s.Expression, expr: Expr) -> Operand:
    return Operand(expr, number(node), node.value if isinstance(node, s.StringLiteral) else None)
