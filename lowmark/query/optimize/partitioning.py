"""Where rows must meet: which keys choose their bucket, where they change it, and what needs one bucket for all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lowmark.query.bind.relations import (
    WINDOW_END,
    Arm,
    Grouped,
    Joined,
    Packets,
    Relation,
    Turn,
    readers_first,
    substitute,
)
from lowmark.query.expr.expressions import Expr, Field, fields
from lowmark.query.parse.syntax import Span
from lowmark.query.plan.nodes import has_every_row
from lowmark.query.windows.window import WindowKind
from lowmark.wire.rows.schema import Kind

__all__ = [
    "LANDMARK", "NoSuchKey", "Places", "bound_to_no_time", "choosing", "joint_keys", "moves_at_end", "over_windows",
    "places", "reasons_for_one",
]  # fmt: skip

_COUNTED = {
    Turn.ROWS: "windows over rows without PA count the tuples of the whole stream",
    Turn.ARRIVAL: "every n-th tuple of the whole stream ends a window",
    Turn.RANK: "every n-th tuple of the whole stream, by rank, ends a window",
}

Key = str | int | None
"""A grouping's key by name, or a join's key by its number among the `joint_keys`; None: none of its keys."""


class NoSuchKey(Exception):
    """A hint asks for a column that cannot choose the bucket of a join; `choices` are the columns that can."""

    def __init__(self, span: Span, choices: tuple[str, ...]) -> None:
        super().__init__(span, choices)
        self.span = span
        self.choices = choices


_APART = "the stages have no key in common"


@dataclass(frozen=True, slots=True)
class Places:
    """By identity of each grouping and join, the keys whose hash chooses the bucket; () if all rows share one.
    `moved`: where rows must change their bucket, as identities of a reader and of the arm it reads."""

    keys: Mapping[int, tuple[Key, ...]]
    moved: frozenset[tuple[int, int]]

    def moves(self, reader: Grouped | Joined, arm: Arm) -> bool:
        return (id(reader), id(arm)) in self.moved


def bound_to_no_time(relation: Relation, found: Places) -> str | None:
    """Why rows cannot change their bucket although they must: an exchange needs promises on a time."""
    for base in reversed(readers_first(relation)):
        for attribute, kind in (*_ways_moved(base, found), *_ways_ended(base, found)):
            if kind is not Kind.TIME:
                return f"{attribute}, by which rows would change their bucket, is no time"
    return None


def _ways_moved(reader: Grouped | Joined, found: Places) -> Iterator[tuple[str, Kind]]:
    """The attributes on which the reader's inputs change bucket."""
    relations = (reader.input,) if isinstance(reader, Grouped) else [side.relation for side in reader.sides]
    panes = (reader.panes,) if isinstance(reader, Grouped) else [side.panes for side in reader.sides]
    for relation, own in zip(relations, panes, strict=True):
        for arm, pane in zip(relation.arms, own, strict=True):
            if not isinstance(arm.base, Packets) and found.moves(reader, arm):
                kinds = {column.name: column.kind for column in arm.base.columns}
                yield pane.attribute, kinds.get(pane.attribute, Kind.TIME)


def _ways_ended(base: Grouped | Joined, found: Places) -> Iterator[tuple[str, Kind]]:
    """The attribute on which the rows of its windows move to the bucket that finishes them."""
    if not isinstance(base, Grouped) or base.counting is not None or not any(found.keys[id(base)]):
        return
    if base.totals or moves_at_end(base):
        yield WINDOW_END, base.window.axis.kind


def reasons_for_one(relation: Relation, found: Places, exchanging: bool) -> Iterator[str]:
    """Why a query's rows must all meet in one bucket, as sentences; nothing if they need not. `found`: the relation's
    places. `exchanging`: rows may change their bucket on the way."""
    if exchanging:
        apart = any(isinstance(arm.base, Packets) for arm in relation.arms)  # packets have no key, and need none
        if not apart and not any(found.keys.values()):
            yield from _needing(relation, _without_keys)
        yield from _needing(relation, _by_nature)
        return
    needing = tuple(_needing(relation, _without_exchange))
    yield from needing or ((_APART,) if found.moved else ())


def _needing(relation: Relation, of: Callable[[Grouped | Joined], Iterator[str]]) -> Iterator[str]:
    for base in readers_first(relation):
        yield from of(base)


def _by_nature(base: Grouped | Joined) -> Iterator[str]:
    if isinstance(base, Joined):
        if not joint_keys(base):
            yield f"no equality ties all of {', '.join(side.label for side in base.sides)} together"
    elif not base.partition:
        if base.counting is not None:
            yield _COUNTED[base.counting.turn]
        if base.window.kind is WindowKind.NONE:
            yield from (f"{reason}, and these groups have none" for reason in over_windows(base))


def _without_keys(base: Grouped | Joined) -> Iterator[str]:
    if isinstance(base, Grouped) and not base.keys:
        yield "without GROUP BY there is one group"


def _without_exchange(base: Grouped | Joined) -> Iterator[str]:
    if isinstance(base, Grouped) and base.partition:
        return
    yield from (reason for reason in _by_nature(base) if isinstance(base, Joined) or base.counting is not None)
    yield from _without_keys(base)
    if isinstance(base, Grouped):
        yield from over_windows(base)
        if base.window.kind is WindowKind.LANDMARK and base.counting is None:
            yield LANDMARK


LANDMARK = "a landmark window has rows when any tuple of the stream came in its slide"


def over_windows(grouped: Grouped) -> Iterator[str]:
    """The clauses that compare or count the rows of a window with each other."""
    if grouped.totals:
        yield "total() is over all groups of a window"
    if grouped.order:
        yield "ORDER BY and LIMIT are over all rows of a window"
    if grouped.distinct:
        yield "DISTINCT is over all rows of a window, whose keys are not all selected"


def joint_keys(joined: Joined) -> tuple[tuple[Expr, ...], ...]:
    """The equalities in which every input takes part: the expression of each input."""
    found = (tuple(key for key in keys if key is not None) for keys in joined.equal)
    return tuple(keys for keys in found if len(keys) == len(joined.sides))


def places(relation: Relation) -> Places:
    """Keep stages in one bucket as long as some key passes through all of them unchanged; else rows move."""
    found = _Places()
    for arm in relation.arms:
        if not isinstance(arm.base, Packets):
            found.place(arm.base)
    return Places(found.keys, frozenset(found.moved))


class _Places:
    def __init__(self) -> None:
        self.keys: dict[int, tuple[Key, ...]] = {}
        self.moved: set[tuple[int, int]] = set()

    def place(self, top: Grouped | Joined) -> None:
        """Place a grouping or join, and all that feeds it without an exchange: they share some of its keys."""
        if id(top) in self.keys:
            return
        own = _keys_of(top)
        together: dict[int, Sequence[Key]] = {id(top): own}
        common, beyond, reading = set(range(len(own))), [], [top]
        asked = set(common) if top.bucket else set()  # keys that a hint names: rows move where a step would lose them
        for reader in reading:  # grows during the loop
            for arm, over in _ways(reader, together[id(reader)]):
                base = arm.base
                if isinstance(base, Packets):
                    continue
                keys = _keys_under(base, over)
                stay = {index for index in common if keys[index] is not None}
                if (known := together.get(id(base))) is not None:  # all readers must agree on its keys
                    stay = {index for index in stay if known[index] == keys[index]}
                lost = not asked <= stay or (base.bucket and {keys[index] for index in stay} < {*_keys_of(base)})
                if not stay or lost or _forgets(reader, base) or id(base) in self.keys:
                    self.moved.add((id(reader), id(arm)))
                    beyond.append(base)
                    continue
                common = stay
                asked |= stay if base.bucket else set()
                if known is None:
                    together[id(base)] = keys
                    reading.append(base)
        for base_id, keys in together.items():
            self.keys[base_id] = tuple(keys[index] for index in sorted(common))
        for base in beyond:
            self.place(base)


def _forgets(reader: Grouped | Joined, base: Grouped | Joined) -> bool:
    """Whether rows of `base` have left the buckets of its keys, or the reader needs those of all buckets."""
    if isinstance(base, Grouped) and moves_at_end(base):
        return True
    return isinstance(reader, Grouped) and reader.window.kind is WindowKind.LANDMARK and reader.counting is None


def _keys_of(base: Grouped | Joined) -> Sequence[Key]:
    if isinstance(base, Joined):
        named = [_named_key(base, column, span) for column, span in base.bucket]
        return sorted(set(named)) or range(len(joint_keys(base)))
    return base.bucket or choosing(base)


def choosing(base: Grouped) -> tuple[str, ...]:
    """The keys of a grouping that can choose the bucket."""
    keys = tuple(key.name for key in base.keys if not base.partition or key.name in base.partition)
    shown = {item.expr.name for item in base.distinct if isinstance(item.expr, Field)}
    return tuple(key for key in keys if key in shown) or keys


def moves_at_end(base: Grouped) -> bool:
    """Whether its rows change their bucket when its SELECT ends. DISTINCT needs no move if some keys are selected:
    these keys choose the bucket, so equal rows are in one."""
    shown = {item.expr.name for item in base.distinct if isinstance(item.expr, Field)}
    apart = bool(base.distinct) and not any(key.name in shown for key in base.keys)
    return not base.partition and (bool(base.order) or apart)


def _ways(reader: Grouped | Joined, keys: Sequence[Key]) -> Iterator[tuple[Arm, list[Expr | None]]]:
    """The arms that feed the reader, each with the reader's keys as expressions over the arm."""
    if isinstance(reader, Grouped):
        by_name = {key.name: key.expr for key in reader.keys}
        for arm in reader.input.arms:
            yield arm, [arm.lowered(by_name[key]) if isinstance(key, str) else None for key in keys]
        return
    joint = joint_keys(reader)
    for number, side in enumerate(reader.sides):
        for arm in side.relation.arms:
            yield arm, [arm.lowered(joint[key][number]) if isinstance(key, int) else None for key in keys]


def _keys_under(base: Grouped | Joined, over: Sequence[Expr | None]) -> Sequence[Key]:
    """For each expression over a grouping's or join's columns, the key that it is."""
    own = {*_keys_of(base)}
    if isinstance(base, Joined):
        return [key if (key := _joint_key(base, column)) in own else None for column in over]
    shown = {item.name: item.expr for item in base.distinct}
    found = (shown.get(column.name, column) if isinstance(column, Field) else None for column in over)
    return [column.name if isinstance(column, Field) and column.name in own else None for column in found]


def _joint_key(joined: Joined, column: Expr | None) -> int | None:
    """The equality that an expression over the join's columns belongs to; None if rows without a match have null
    there."""
    if column is None:
        return None
    read = set(fields(column))
    for number, side in enumerate(joined.sides):
        if not has_every_row(joined.kind, number):
            continue
        own = {side.named(c.name): Field.of(c) for c in side.relation.known}
        if read and read <= own.keys():
            sought = substitute(column, own)
            return next((key for key, keys in enumerate(joint_keys(joined)) if keys[number] == sought), None)
    return None


def _named_key(joined: Joined, column: str, span: Span) -> int:
    """The equality of all sides in which a column of the join takes part."""
    joint = joint_keys(joined)
    for key, keys in enumerate(joint):
        if column in _shown(joined, keys):
            return key
    raise NoSuchKey(span, tuple(name for keys in joint for name in _shown(joined, keys)))


def _shown(joined: Joined, keys: Sequence[Expr]) -> list[str]:
    """The join's names of the fields in an equality."""
    return [side.named(key.name) for side, key in zip(joined.sides, keys, strict=True) if isinstance(key, Field)]
