"""EXISTS in WHERE as a semi join, NOT EXISTS as an anti join."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from lowmark.query.parse import syntax as s
from lowmark.query.parse.errors import QueryError

__all__ = ["Existence", "check_tests", "existences"]


@dataclass(frozen=True, slots=True)
class Existence:
    """The input that must have a match (semi join) or must not (anti join), with conditions on both inputs."""

    kind: s.JoinKind
    input: s.Input
    conditions: tuple[s.Expression, ...]


def existences(select: s.Select, text: str) -> tuple[s.Select, tuple[Existence, ...]]:
    """Every EXISTS that is the whole of WHERE or an operand of its AND, and the select without them."""
    parts = [] if select.where is None else _conjuncts(select.where)
    elsewhere = (
        *select.items,
        *select.group_by,
        *select.order_by,
        *(() if select.having is None else (select.having,)),
    )
    check_tests(elsewhere, text, "EXISTS stands in WHERE, alone or beside AND")
    tests = [(part, test) for part in parts if (test := _test(part)) is not None]
    if select.where is None or not tests:
        check_tests(parts, text, "EXISTS stands alone in WHERE or beside AND", _EITHER)
        return select, ()
    rest = [part for part in parts if not any(part is test for test, _ in tests)]
    check_tests(rest, text, "EXISTS stands alone in WHERE or beside AND", _EITHER)
    where = rest[0] if len(rest) == 1 else s.And(tuple(rest), span=select.where.span) if rest else None
    found = tuple(_existence(kind, exists, text) for _, (kind, exists) in tests)
    return replace(select, where=where), found


def check_tests(parts: Iterable[s.SyntaxNode], text: str, message: str, hint: str | None = None) -> None:
    """Raise QueryError if one of the parts contains an EXISTS."""
    for part in parts:
        for node in s.walk(part):
            if isinstance(node, s.Exists):
                raise QueryError(message, text, node.span, hint=hint)


_EITHER = "in place of a OR EXISTS (…) unite two streams, one WHERE a, the other WHERE NOT a AND EXISTS (…)"


def _existence(kind: s.JoinKind, exists: s.Exists, text: str) -> Existence:
    inner = exists.select
    _check_plain(inner, exists, text)
    (item,) = inner.sources
    assert isinstance(item, s.Input)
    return Existence(kind, item, () if inner.where is None else (inner.where,))


def _check_plain(inner: s.Select, exists: s.Exists, text: str) -> None:
    asks = "EXISTS asks for rows of one input: it has FROM and WHERE"
    if inner.hints:
        hint = "hints stand behind the SELECT that has the WHERE"
        raise QueryError("a hint cannot stand in EXISTS", text, inner.hints[0].span, hint=hint)
    if len(inner.sources) != 1 or not isinstance(inner.sources[0], s.Input):
        raise QueryError(asks, text, exists.span, hint="make the join a CREATE STREAM first")
    if inner.where is not None:
        hint = "make the inner test a CREATE STREAM first"
        check_tests((inner.where,), text, "EXISTS cannot stand inside of EXISTS", hint)
    if any((inner.group_by, inner.having, inner.window, inner.order_by, inner.limit)):
        raise QueryError(asks, text, exists.span, hint="make what it asks for a CREATE STREAM first")


def _conjuncts(condition: s.Expression) -> list[s.Expression]:
    if isinstance(condition, s.And):
        return [part for operand in condition.operands for part in _conjuncts(operand)]
    return [condition]


def _test(part: s.Expression) -> tuple[s.JoinKind, s.Exists] | None:
    match part:
        case s.Exists():
            return s.JoinKind.SEMI, part
        case s.Not(operand=s.Exists() as exists):
            return s.JoinKind.ANTI, exists
    return None
