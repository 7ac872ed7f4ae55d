"""EXISTS in WHERE as what it means: a semi join, NOT EXISTS an anti join."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lowmark.query import syntax as s
from lowmark.query.errors import QueryError

__all__ = ["Existence", "existences"]


@dataclass(frozen=True, slots=True)
class Existence:
    """What has to exist (a semi join), or must not (an anti join), under which conditions on both inputs."""

    kind: s.JoinKind
    input: s.Input
    conditions: tuple[s.Expression, ...]


def existences(select: s.Select, text: str) -> tuple[s.Select, tuple[Existence, ...]]:
    """Every EXISTS that stands alone in WHERE or beside AND, and the select without them."""
    parts = [] if select.where is None else _conjuncts(select.where)
    tests = [(part, test) for part in parts if (test := _test(part)) is not None]
    if select.where is None or not tests:
        return select, ()
    rest = [part for part in parts if not any(part is test for test, _ in tests)]
    where = rest[0] if len(rest) == 1 else s.And(tuple(rest), span=select.where.span) if rest else None
    found = tuple(_existence(kind, exists, text) for _, (kind, exists) in tests)
    return replace(select, where=where), found


def _existence(kind: s.JoinKind, exists: s.Exists, text: str) -> Existence:
    inner = exists.select
    _check_plain(inner, exists, text)
    (item,) = inner.sources
    assert isinstance(item, s.Input)
    return Existence(kind, item, () if inner.where is None else (inner.where,))


def _check_plain(inner: s.Select, exists: s.Exists, text: str) -> None:
    clauses = (inner.group_by, inner.having, inner.window, inner.order_by, inner.limit, inner.hints)
    if len(inner.sources) != 1 or not isinstance(inner.sources[0], s.Input) or any(clauses):
        hint = "compute it in a CREATE STREAM before"
        raise QueryError("EXISTS asks for rows of one input: it has FROM and WHERE", text, exists.span, hint=hint)


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
