"""Where rows must meet: which keys choose their bucket, and what needs one bucket for all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lowmark.query.expressions import Expr, Field, fields
from lowmark.query.plan import has_every_row
from lowmark.query.relations import Arm, Grouped, Joined, Packets, Relation, Turn, substitute
from lowmark.query.windows import WindowKind

__all__ = ["bucket_keys", "joint_keys", "reasons_for_one"]

_COUNTED = {
    Turn.ROWS: "windows over rows without PA count the tuples of the whole stream",
    Turn.ARRIVAL: "every n-th tuple of the whole stream ends a window",
    Turn.RANK: "every n-th tuple of the whole stream, by rank, ends a window",
}

Key = str | int | None
"""A key of a leaf: its name in a grouping, its number among a join's `joint_keys`; None: no key there carries it."""


def reasons_for_one(relation: Relation) -> Iterator[str]:
    """Why a query's rows must all meet in one bucket, as sentences; nothing when they need not."""
    for arm in relation.arms:
        match arm.base:
            case Grouped() as grouped:
                yield from _reasons(grouped)
                yield from reasons_for_one(grouped.input)
            case Joined() as joined:
                if not joint_keys(joined):
                    yield f"no equality ties all of {', '.join(side.label for side in joined.sides)} together"
                for side in joined.sides:
                    yield from reasons_for_one(side.relation)


def _reasons(grouped: Grouped) -> Iterator[str]:
    if grouped.partition:
        return
    if grouped.counting is not None:
        yield _COUNTED[grouped.counting.turn]
    if not grouped.keys:
        yield "without GROUP BY there is one group"
    if grouped.totals:
        yield "total() is over all groups of a window"
    if grouped.order:
        yield "ORDER BY and LIMIT are over all rows of a window"
    if grouped.distinct:
        yield "DISTINCT is over all rows of a window, whose keys are not all selected"
    if grouped.window.kind is WindowKind.LANDMARK and grouped.counting is None:
        yield "a landmark window has rows when any tuple of the stream came in its slide"


def joint_keys(joined: Joined) -> tuple[tuple[Expr, ...], ...]:
    """The equalities in which every input takes part: of each input its expression."""
    found = (tuple(key for key in keys if key is not None) for keys in joined.equal)
    return tuple(keys for keys in found if len(keys) == len(joined.sides))


def bucket_keys(relation: Relation) -> dict[int, tuple[Key, ...]]:
    """By identity of each lowest grouping and of each join, the keys whose hash chooses the bucket: those that go
    through all stages unchanged, in one order. All are () when there is none. Arms of the answer meet nowhere."""
    found: dict[int, tuple[Key, ...]] = {}
    for arm in relation.arms:
        leaves: dict[int, tuple[Key, ...]] = {}
        match arm.base:
            case Packets():
                continue
            case Grouped(keys=keys):
                count = len(keys)
                _into_group(arm.base, [Field(key.name, key.expr.kind, key.expr.nullable) for key in keys], leaves)
            case Joined() as joined:
                count = len(joint_keys(joined))
                _through(joined, range(count), leaves)
        common = [index for index in range(count) if all(keys[index] is not None for keys in leaves.values())]
        found |= {leaf: tuple(keys[index] for index in common) for leaf, keys in leaves.items()}
    return found


def _into(arm: Arm, columns: Sequence[Expr | None], leaves: dict[int, tuple[Key, ...]]) -> None:
    """Follow expressions over a relation's columns down to the keys of the lowest groupings and of joins."""
    over = [None if column is None else arm.lowered(column) for column in columns]
    match arm.base:
        case Grouped() as grouped:
            _into_group(grouped, over, leaves)
        case Joined() as joined:
            _through(joined, [_joint_key(joined, column) for column in over], leaves)


def _into_group(grouped: Grouped, columns: Sequence[Expr | None], leaves: dict[int, tuple[Key, ...]]) -> None:
    by_name = {key.name: key.expr for key in grouped.keys if not grouped.partition or key.name in grouped.partition}
    shown = {item.name: item.expr for item in grouped.distinct}
    own = [shown.get(column.name, column) if isinstance(column, Field) else None for column in columns]
    names = [column.name if isinstance(column, Field) and column.name in by_name else None for column in own]
    if any(isinstance(arm.base, Packets) for arm in grouped.input.arms):
        _note(grouped, names, leaves)
    for arm in grouped.input.arms:
        _into(arm, [None if name is None else by_name[name] for name in names], leaves)


def _through(joined: Joined, keys: Sequence[int | None], leaves: dict[int, tuple[Key, ...]]) -> None:
    _note(joined, keys, leaves)
    joint = joint_keys(joined)
    for number, side in enumerate(joined.sides):
        for arm in side.relation.arms:
            _into(arm, [None if key is None else joint[key][number] for key in keys], leaves)


def _note(leaf: Grouped | Joined, keys: Sequence[Key], leaves: dict[int, tuple[Key, ...]]) -> None:
    """What several ways lead to has the keys that all of them give it."""
    known = leaves.get(id(leaf), tuple(keys))
    leaves[id(leaf)] = tuple(a if a == b else None for a, b in zip(known, keys, strict=True))


def _joint_key(joined: Joined, column: Expr | None) -> int | None:
    """The equality in which an expression over the join's columns takes part, and never is null for want of a match."""
    if column is None:
        return None
    read = set(fields(column))
    for number, side in enumerate(joined.sides):
        if not has_every_row(joined.kind, number):
            continue
        own = {side.named(c.name): Field(c.name, c.kind, c.nullable) for c in side.relation.known}
        if read and read <= own.keys():
            sought = substitute(column, own)
            return next((key for key, keys in enumerate(joint_keys(joined)) if keys[number] == sought), None)
    return None
