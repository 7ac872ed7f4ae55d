"""The columns of a SELECT list: their values and names."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from lowmark.query.bind.lowering import Lowering
from lowmark.query.bind.scope import Scope, shown_name
from lowmark.query.expr.expressions import Field, Named
from lowmark.query.parse import syntax as s
from lowmark.query.parse.errors import QueryError
from lowmark.query.parse.size_limits import COLUMNS, TooLarge

__all__ = ["selected_columns"]

_NONE: Mapping[str, str] = MappingProxyType({})


def selected_columns(
    select: s.Select, scope: Scope, lowering: Lowering, aliases: Mapping[str, str] = _NONE, taken: tuple[str, ...] = ()
) -> tuple[Named, ...]:
    """Each expression with its name: its alias in SELECT, else the alias of that key in GROUP BY (`aliases`, by the
    key's name), else its shown name. `taken`: names of the columns before these."""
    columns: list[Named] = []
    names = {name.casefold() for name in taken}
    for item in select.items:
        for expression in scope.expanded(item.expression):
            expr = lowering.lower(expression)
            key = aliases.get(expr.name) if isinstance(expr, Field) else None
            name = item.alias.text if item.alias else key or shown_name(expression, scope)
            if not name:
                hint = "give it one: … AS name"
                raise QueryError("this column has no name", scope.text, item.span, hint=hint)
            if name.casefold() in names:
                hint = "give one of them another name: … AS name"
                raise QueryError(f"two columns are called {name}", scope.text, item.span, hint=hint)
            names.add(name.casefold())
            columns.append(Named(name, expr))
    if len(columns) > COLUMNS.most:
        hint = "in place of *, name the columns that you want"
        starred = any(isinstance(item.expression, s.Star) for item in select.items)
        what = f"this SELECT has {len(columns)} columns"
        raise TooLarge(COLUMNS, what, select.items[-1].span, hint if starred else None)
    return tuple(columns)
