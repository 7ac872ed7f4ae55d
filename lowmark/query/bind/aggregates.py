"""The aggregates and totals of one SELECT, each planned once."""

from __future__ import annotations

from lowmark.query.aggregates import calls
from lowmark.query.aggregates.calls import BadAggregate, CallPlanner
from lowmark.query.bind.keys import RESERVED, free_name
from lowmark.query.bind.lowering import Lowering
from lowmark.query.bind.names import TOTAL, InputNames, is_total
from lowmark.query.bind.scope import Scope, shown_name
from lowmark.query.expr.arithmetic import KIND_NAMES
from lowmark.query.expr.constants import number
from lowmark.query.expr.expressions import Expr, Field, Named
from lowmark.query.parse import syntax as s
from lowmark.query.parse.errors import QueryError
from lowmark.query.plan.nodes import AggregateCall, Fold, Total
from lowmark.wire.rows.schema import Column, Kind

__all__ = ["Calls"]

_SUMMABLE = frozenset({Kind.INT, Kind.FLOAT, Kind.DURATION})


class Calls:
    """Collects the calls of a SELECT while its expressions are lowered. `order`: the columns that decide first and
    last. `ties`: rows may be equal in these columns and have no order of arrival."""

    def __init__(
        self, scope: Scope, strings: tuple[str, ...], keys: tuple[Named, ...], order: tuple[Named, ...], ties: bool
    ) -> None:
        self._scope = scope
        self._names = [*RESERVED, *(key.name for key in keys)]
        self._planner = CallPlanner(keys, order, ties, RESERVED)
        self._input = Lowering(scope.text, strings, InputNames(scope, "an aggregate", "compute it in a CREATE STREAM"))
        self._calls: dict[tuple[str, bool, tuple[Expr, ...], tuple[str, ...]], AggregateCall] = {}
        self._totals: dict[Expr, Total] = {}

    @property
    def folds(self) -> tuple[Fold, ...]:
        return self._planner.folds

    @property
    def details(self) -> tuple[Named, ...]:
        return self._planner.details

    @property
    def planned(self) -> tuple[AggregateCall, ...]:
        return tuple(self._calls.values())

    @property
    def totals(self) -> tuple[Total, ...]:
        return tuple(self._totals.values())

    def aggregate(self, call: s.FunctionCall) -> Expr:
        name = call.function.text.lower()
        arguments, parameters = self._arguments(name, call)
        key = (name, call.distinct, tuple(self._input.lower(node) for node in arguments), parameters)
        if key not in self._calls:
            try:
                planned = self._planner.add(name, key[2], self._free(call), call.distinct, parameters)
            except BadAggregate as error:
                index = error.argument
                spot = call if index is None or index >= len(call.arguments) else call.arguments[index]
                raise QueryError(error.reason, self._scope.text, spot.span, error.valid) from None
            self._calls[key] = planned
            self._names.append(planned.column.name)
        column = self._calls[key].column
        known = calls.function(name, call.distinct and name == "count").result(key[2]).range
        return Field(column.name, column.kind, column.nullable, known)

    def total(self, call: s.FunctionCall, post: Lowering) -> Expr:
        """`total(x)`; its argument is an expression over the group's columns."""
        if len(call.arguments) != 1 or isinstance(call.arguments[0], s.Star) or call.distinct:
            raise self._error("total takes one argument", call, "for example total(count(*))")
        argument = call.arguments[0]
        inner = next((item for item in s.walk(argument) if is_total(item)), None)
        if inner is not None:
            raise self._error("total cannot stand in total", inner)
        expr = post.lower(argument)
        if expr.kind not in _SUMMABLE:
            raise self._error(f"total sums numbers and durations, not {KIND_NAMES[expr.kind]}", argument)
        if expr not in self._totals:
            column = Column(self._free(call), expr.kind, expr.nullable or expr.kind is not Kind.FLOAT)
            self._totals[expr] = Total(column, expr)
            self._names.append(column.name)
        column = self._totals[expr].column
        return Field.of(column)

    def _arguments(self, name: str, call: s.FunctionCall) -> tuple[tuple[s.Expression, ...], tuple[str, ...]]:
        """The arguments to compute, and the constants after them as written."""
        nodes = call.arguments
        if name == "count" and len(nodes) == 1 and isinstance(nodes[0], s.Star) and not call.distinct:
            return (), ()
        if name == "count" and not nodes:
            raise self._error("count takes * or an argument", call, "count(*) counts the rows")
        expressions: list[s.Expression] = []
        for node in nodes:
            if isinstance(node, s.Star):
                raise self._error("* can stand in count(*) only", node)
            expressions += self._scope.expanded(node)
        wanted = len(calls.function(name, call.distinct and name == "count").parameters)
        split = len(expressions) - wanted if len(expressions) > wanted else len(expressions)
        constants = expressions[split:]
        for node in constants:
            if number(node) is None:
                raise self._error(f"{name} takes a constant number here", node)
        text = self._scope.text
        return tuple(expressions[:split]), tuple(text[node.span.start : node.span.end] for node in constants)

    def _free(self, call: s.FunctionCall) -> str:
        return free_name(shown_name(call, self._scope) or TOTAL, tuple(self._names))

    def _error(self, message: str, node: s.SyntaxNode, hint: str | None = None) -> QueryError:
        return QueryError(message, self._scope.text, node.span, hint=hint)
