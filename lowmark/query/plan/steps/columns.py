"""Columns of the schemas that nodes and steps pass on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lowmark.query.expr.expressions import Call, Expr, Field, Literal, Named
from lowmark.wire.rows.schema import Column, Schema

__all__ = ["itself", "itself_of", "schema_of", "typed"]


def itself_of(column: Column) -> Named:
    return Named(column.name, Field.of(column))


def itself(item: Named) -> Named:
    return Named(item.name, Field(item.name, item.expr.kind, item.expr.nullable))


def schema_of(columns: Iterable[Named], strings: tuple[str, ...]) -> Schema:
    return Schema(tuple(Column(item.name, item.expr.kind, item.expr.nullable) for item in columns), strings)


def typed(named: tuple[Named, ...], columns: Iterable[Column]) -> tuple[Named, ...]:
    """The expressions with the nullability of the columns, so that all arms of a union have one schema."""
    return tuple(
        Named(item.name, _nullable(item.expr) if column.nullable and not item.expr.nullable else item.expr)
        for item, column in zip(named, columns, strict=True)
    )


def _nullable(expr: Expr) -> Expr:
    match expr:
        case Literal():
            return replace(expr, beside_null=True)
        case Field() | Call():
            return replace(expr, nullable=True)
    raise ValueError("a set is no column")
