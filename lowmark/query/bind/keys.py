"""The keys of a grouping: what GROUP BY, DISTINCT and PA list, with their names in results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lowmark.query.bind.lowering import Lowering
from lowmark.query.bind.names import InputNames, is_aggregated
from lowmark.query.bind.relations import WINDOW_END, WINDOW_START
from lowmark.query.bind.scope import Scope, shown_name
from lowmark.query.expr.expressions import Expr, Named
from lowmark.query.parse import syntax as s
from lowmark.query.parse.errors import QueryError
from lowmark.wire.records.partials import PANE, TUPLES

__all__ = ["RESERVED", "Keys", "bind_keys", "free_name"]

RESERVED = (PANE, TUPLES, WINDOW_START, WINDOW_END)
"""Columns that rows of groups have beside their keys and aggregates."""


@dataclass(frozen=True, slots=True)
class Keys:
    named: tuple[Named, ...]  # over the input's columns; no two are equal
    aliases: dict[str, Named]  # keys with an alias in GROUP BY, by folded alias
    shown: dict[str, str]  # those aliases as written, by the key's name


def bind_keys(select: s.Select, scope: Scope, strings: tuple[str, ...]) -> Keys:
    lowering = Lowering(scope.text, strings, InputNames(scope, "GROUP BY", "group by fields; aggregates go to HAVING"))
    _check_aliases(select, scope)
    named: list[Named] = []
    aliases: dict[str, Named] = {}
    shown: dict[str, str] = {}
    for expression, alias in _items(select, scope):
        expr = lowering.lower(expression)
        key = next((key for key in named if key.expr == expr), None)
        if key is None:
            name = alias.text if alias else _select_alias(select, scope, lowering, expr)
            key = Named(free_name(name or shown_name(expression, scope), (*RESERVED, *(k.name for k in named))), expr)
            named.append(key)
        if alias is not None:
            aliases[alias.text.casefold()] = key
            shown.setdefault(key.name, alias.text)
    return Keys(tuple(named), aliases, shown)


def _check_aliases(select: s.Select, scope: Scope) -> None:
    seen: set[str] = set()
    for item in select.group_by:
        if item.alias is None:
            continue
        if item.alias.text.casefold() in seen:
            hint = "give one of them another name"
            raise QueryError(f"two keys are called {item.alias.text}", scope.text, item.alias.span, hint=hint)
        seen.add(item.alias.text.casefold())


def free_name(name: str, taken: tuple[str, ...]) -> str:
    """The name, or the first of name_2, name_3 … that is free, ignoring case."""
    folded = {item.casefold() for item in taken}
    found, number = name, 1
    while found.casefold() in folded:
        number += 1
        found = f"{name}_{number}"
    return found


def _items(select: s.Select, scope: Scope) -> Iterator[tuple[s.Expression, s.Identifier | None]]:
    if select.group_by:
        for item in select.group_by:
            expression, alias = _unaliased(item, select, scope)
            yield from ((part, alias) for part in scope.expanded(expression))
    elif select.distinct and not any(map(is_aggregated, select.items)):
        for selected in select.items:
            yield from ((expression, selected.alias) for expression in scope.expanded(selected.expression))
    if select.window is not None:
        yield from ((part, None) for expression in select.window.pa for part in scope.expanded(expression))


def _unaliased(item: s.GroupItem, select: s.Select, scope: Scope) -> tuple[s.Expression, s.Identifier | None]:
    """An expression of GROUP BY with its alias; it may be an alias of the SELECT list that no field has as its name."""
    node = item.expression
    if isinstance(node, s.FieldRef) and node.input is None and not scope.has(node):
        folded = node.name.text.casefold()
        for selected in select.items:
            alias = selected.alias
            if alias and alias.text.casefold() == folded and not isinstance(selected.expression, s.Star):
                return selected.expression, item.alias or alias
    return node, item.alias


def _select_alias(select: s.Select, scope: Scope, lowering: Lowering, expr: Expr) -> str | None:
    """The alias that the SELECT list gives to an expression over the input."""
    for item in select.items:
        if item.alias is None or isinstance(item.expression, s.Star) or is_aggregated(item.expression):
            continue
        refs = (node for node in s.walk(item.expression) if isinstance(node, s.FieldRef))
        known = all(scope.has(ref) or scope.literal(ref) is not None for ref in refs)
        if known and lowering.lower(item.expression) == expr:
            return item.alias.text
    return None
