"""Where rows must meet: which keys choose a group's bucket, and what needs one bucket for all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lowmark.query.expressions import Expr, Field
from lowmark.query.relations import Grouped, Packets, Relation, Turn
from lowmark.query.windows import WindowKind

__all__ = ["bucket_keys", "reasons_for_one"]

_COUNTED = {
    Turn.ROWS: "windows over rows without PA count the tuples of the whole stream",
    Turn.ARRIVAL: "every n-th tuple of the whole stream ends a window",
    Turn.RANK: "every n-th tuple of the whole stream, by rank, ends a window",
}

Key = str | None
"""A key of a leaf, by name; None: it has no key there that would carry the value."""


def reasons_for_one(relation: Relation) -> Iterator[str]:
    """Why a query's rows must all meet in one bucket, as sentences; nothing when they need not."""
    for arm in relation.arms:
        if isinstance(arm.base, Grouped):
            yield from _reasons(arm.base)
            yield from reasons_for_one(arm.base.input)


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


def bucket_keys(top: Grouped) -> dict[int, tuple[str, ...]]:
    """By identity of each lowest grouping, the keys whose hash chooses the bucket: those that go through all stages
    unchanged, in one order. All are () when there is none."""
    leaves: dict[int, tuple[Key, ...]] = {}
    _descend(top, [Field(key.name, key.expr.kind, key.expr.nullable) for key in top.keys], leaves)
    common = [index for index in range(len(top.keys)) if all(keys[index] is not None for keys in leaves.values())]
    return {leaf: tuple(key for index in common if (key := keys[index])) for leaf, keys in leaves.items()}


def _descend(grouped: Grouped, columns: Sequence[Expr | None], leaves: dict[int, tuple[Key, ...]]) -> None:
    """Follow expressions over a grouping's columns down to keys of the lowest ones."""
    by_name = {key.name: key.expr for key in grouped.keys if not grouped.partition or key.name in grouped.partition}
    shown = {item.name: item.expr for item in grouped.distinct}
    own = [shown.get(column.name, column) if isinstance(column, Field) else None for column in columns]
    names = [column.name if isinstance(column, Field) and column.name in by_name else None for column in own]
    for arm in grouped.input.arms:
        if isinstance(arm.base, Packets):
            known = leaves.get(id(grouped), tuple(names))
            leaves[id(grouped)] = tuple(a if a == b else None for a, b in zip(known, names, strict=True))
        else:
            _descend(arm.base, [None if name is None else arm.lowered(by_name[name]) for name in names], leaves)
