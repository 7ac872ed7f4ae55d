"""EXISTS in WHERE as what it means: a semi join, NOT EXISTS an anti join."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lowmark.query import syntax as s
from lowmark.query.errors import QueryError

__all__ = ["Existence", "existence"]


@dataclass(frozen=True, slots=True)
class Existence:
    """The select without the condition; what has to exist, or must not; under which conditions on both inputs."""

    select: s.Select
    kind: s.JoinKind
    input: s.Input
    conditions: tuple[s.Expression, ...]


def existence(select: s.Select, text: str) -> Existence | None:
    """The EXISTS of a select whose FROM has one input; None: it has none that stands alone or beside AND."""
    if select.where is None:
        return None
    parts = _conjuncts(select.where)
    found = [(part, test) for part in parts if (test := _test(part)) is not None]
    if not found:
        return None
    if len(found) > 1:
        hint = "put one of them into a CREATE STREAM"
        raise QueryError("more than one EXISTS cannot run yet", text, found[1][0].span, hint=hint)
    (part, (kind, exists)) = found[0]
    rest = [other for other in parts if other is not part]
    where = rest[0] if len(rest) == 1 else s.And(tuple(rest), span=select.where.span) if rest else None
    inner = exists.select
    _check_plain(inner, exists, text)
    (item,) = inner.sources
    assert isinstance(item, s.Input)
    conditions = () if inner.where is None else (inner.where,)
    return Existence(replace(select, where=where), kind, item, conditions)


def _check_plain(inner: s.Select, exists: s.Exists, text: str) -> None:
    clauses = (inner.group_by, inner.having, inner.window, inner.order_by, inner.limit)
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
