"""The meaning of names in each place of a SELECT: the input's columns, or the group's keys and aggregates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from lowmark.query.aggregates import calls
from lowmark.query.bind.lowering import Lowering
from lowmark.query.bind.scope import Scope
from lowmark.query.expr import scalar_functions
from lowmark.query.expr.expressions import Expr, Field, Literal, Named
from lowmark.query.expr.intervals import interval
from lowmark.query.parse import syntax as s
from lowmark.query.parse.errors import QueryError, unknown_word

__all__ = ["TOTAL", "GroupNames", "InputNames", "check_function", "is_aggregated", "is_total"]

TOTAL = "total"


def is_aggregated(node: s.SyntaxNode) -> bool:
    """Whether an expression calls an aggregate or total()."""
    return any(map(_calls_aggregate, s.walk(node)))


def _calls_aggregate(node: s.SyntaxNode) -> bool:
    return isinstance(node, s.FunctionCall) and not scalar_functions.is_scalar(node)


@dataclass(frozen=True, slots=True)
class InputNames:
    """The columns of the input, in a `place` that takes no function."""

    scope: Scope
    place: str
    hint: str | None = None
    valid: tuple[str, ...] = ()  # what may stand there instead of a function

    def known(self, node: s.Expression) -> Expr | None:
        return None

    def field(self, ref: s.FieldRef) -> Expr:
        return self.scope.field(ref)

    def literal(self, ref: s.FieldRef) -> s.Literal | None:
        return self.scope.literal(ref)

    def parts(self, node: s.Expression) -> tuple[s.Expression, ...]:
        return self.scope.parts(node)

    def extreme(self, call: s.FunctionCall) -> Expr:
        return self.scope.extreme(call)

    def call(self, call: s.FunctionCall) -> Expr:
        word = call.function.text.lower()
        message = f"{word} cannot stand in {self.place}"
        raise QueryError(message, self.scope.text, call.function.span, self.valid, self.hint)


def is_total(node: s.SyntaxNode) -> bool:
    return isinstance(node, s.FunctionCall) and node.function.text.lower() == TOTAL


def check_function(call: s.FunctionCall, text: str) -> None:
    """Raise QueryError for a call of an unknown function."""
    choices = (*calls.names(), TOTAL, *scalar_functions.names())
    if call.function.text.lower() not in choices:
        raise unknown_word("function", call.function.text, text, call.function.span, choices)


@dataclass
class GroupNames:
    """The columns of a group: its keys, its aggregates (each call goes to `aggregate`, each total to `total`), and the
    aliases of the SELECT list where they may be used."""

    scope: Scope
    keys: tuple[Named, ...]  # over the input's columns
    key_aliases: Mapping[str, Named]  # by folded alias
    input: Lowering
    aggregate: Callable[[s.FunctionCall], Expr]
    total: Callable[[s.FunctionCall], Expr]
    aliases: dict[str, Expr] = field(default_factory=dict)  # by folded alias; filled before anything may use them
    _parts: dict[int, tuple[s.SyntaxNode, bool]] = field(default_factory=dict)  # by identity: see `_is_of_input`

    def known(self, node: s.Expression) -> Expr | None:
        if not self._is_of_input(node):
            return None
        expr = self.input.lower(node)
        key = next((key for key in self.keys if key.expr == expr), None)
        if isinstance(expr, Literal):  # a constant is a key only if its expression names fields
            return expr if key is not None and any(isinstance(part, s.FieldRef) for part in s.walk(node)) else None
        return None if key is None else _column(key)

    def field(self, ref: s.FieldRef) -> Expr:
        folded = ref.name.text.casefold()
        if ref.input is None and folded in self.aliases:
            return self.aliases[folded]
        if ref.input is None and folded in self.key_aliases:
            return _column(self.key_aliases[folded])
        name = self.scope.field(ref).name
        raise QueryError(
            f"{name} is neither grouped by nor inside an aggregate",
            self.scope.text,
            ref.span,
            tuple(key.name for key in self.keys),
            f"add {name} to GROUP BY, or select for example min({name})",
        )

    def literal(self, ref: s.FieldRef) -> s.Literal | None:
        folded = ref.name.text.casefold()
        return None if folded in self.aliases or folded in self.key_aliases else self.scope.literal(ref)

    def parts(self, node: s.Expression) -> tuple[s.Expression, ...]:
        return self.scope.parts(node)

    def extreme(self, call: s.FunctionCall) -> Expr:
        name = self.scope.extreme(call).name
        keys = tuple(key.name for key in self.keys)
        hint = "add it to GROUP BY"
        raise QueryError(
            f"{name} is neither grouped by nor inside an aggregate", self.scope.text, call.span, keys, hint
        )

    def call(self, call: s.FunctionCall) -> Expr:
        return self.total(call) if is_total(call) else self.aggregate(call)

    def _is_of_input(self, node: s.SyntaxNode) -> bool:
        """Whether the expression is over the input: it calls no aggregate, all its names are columns of the input, and
        no alias hides one of them. Results for all parts are stored, because callers ask for each part in turn."""
        if id(node) not in self._parts:
            for part in reversed([*s.walk(node)]):
                of_input = not _calls_aggregate(part) and not (isinstance(part, s.FieldRef) and self._is_other(part))
                self._parts[id(part)] = part, of_input and all(self._parts[id(c)][1] for c in s.children(part))
        return self._parts[id(node)][1]

    def _is_other(self, ref: s.FieldRef) -> bool:
        hidden = ref.input is None and ref.name.text.casefold() in self.aliases
        return hidden or not (self.scope.has(ref) or self.literal(ref) is not None)


def _column(key: Named) -> Field:
    return Field(key.name, key.expr.kind, key.expr.nullable, interval(key.expr))
