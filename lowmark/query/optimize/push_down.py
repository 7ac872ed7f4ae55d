"""Splits conditions over a join: parts about one input move into it, equalities become keys, the rest stays.

This is how predicates on one input reach the capture processes. Conditions of a later stage move too: it makes no
difference whether a pair is dropped in the join or after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from lowmark.query.bind.relations import Arm, Grouped, Joined, Packets, Relation, readers_first, substitute
from lowmark.query.expr.expressions import Call, Expr, Field, Op, fields
from lowmark.query.expr.simplify import compare, conjoin
from lowmark.query.parse.syntax import JoinKind
from lowmark.query.plan.nodes import has_every_row, keeping
from lowmark.wire.rows.schema import Kind

__all__ = ["pushed"]

Member = tuple[int, Expr]
"""An input's number, and an expression over its columns."""


def pushed(relation: Relation) -> Relation:
    """The same relation, with conditions moved down as far as possible and the keys of joins found."""
    return _Pushing(relation).relation


class _Pushing:
    """Moves conditions from readers to what they read; a join takes only those that all of its readers ask for. Then
    the relation is rebuilt from the bottom."""

    def __init__(self, relation: Relation) -> None:
        bases = readers_first(relation)
        self._asked: dict[int, list[list[Expr]]] = {id(base): [] for base in bases}  # by arm that reads it
        self._below: dict[int, list[Expr]] = {}  # conditions that go into a join
        self._done: dict[int, Grouped | Joined] = {}  # all by identity: an object with several readers stays one
        self._ask(relation)
        for base in bases:
            self._done[id(base)] = made = self._grouped(base) if isinstance(base, Grouped) else self._joined(base)
            for below in made.inputs:
                self._ask(below)
        for base in reversed(bases):
            self._done[id(base)] = self._on_made(self._done[id(base)])
        self.relation = self._made(relation)

    def _ask(self, relation: Relation) -> None:
        for arm in relation.arms:
            if isinstance(arm.base, Joined):
                self._asked[id(arm.base)].append([] if arm.where is None else list(_conjuncts(arm.where)))

    def _on_made(self, base: Grouped | Joined) -> Grouped | Joined:
        """The same base over inputs that are already rebuilt."""
        if isinstance(base, Grouped):
            return replace(base, input=self._made(base.input))
        return replace(base, sides=tuple(replace(side, relation=self._made(side.relation)) for side in base.sides))

    def _made(self, relation: Relation) -> Relation:
        return replace(relation, arms=tuple(map(self._arm, relation.arms)))

    def _arm(self, arm: Arm) -> Arm:
        if isinstance(arm.base, Packets):
            return arm
        below = self._below.get(id(arm.base), [])
        above = [] if arm.where is None else [part for part in _conjuncts(arm.where) if part not in below]
        where = conjoin(above) if above else None
        return replace(arm, base=self._done[id(arm.base)], where=where if below else arm.where)

    def _grouped(self, base: Grouped) -> Grouped:
        if not any(isinstance(arm.base, Joined) for arm in base.input.arms):
            return base
        return replace(base, input=base.input.filtered(base.where), where=None)

    def _joined(self, base: Joined) -> Joined:
        first, *others = self._asked[id(base)]
        below = [part for part in first if _goes_below(base, part) and all(part in other for other in others)]
        self._below[id(base)] = below
        parts = _Parts(base)
        if base.where is not None:
            parts.take(_conjuncts(base.where))
        if base.kind is JoinKind.INNER:
            parts.take(below)
        else:
            parts.take_local(below)
        parts.hand_over()
        equal = parts.equalities()
        sides = tuple(
            replace(side, relation=side.relation.filtered(conjoin(local))) if local else side
            for side, local in zip(base.sides, parts.local, strict=True)
        )
        return replace(base, sides=sides, where=conjoin(parts.rest) if parts.rest else None, equal=equal)


def _goes_below(joined: Joined, conjunct: Expr) -> bool:
    """Whether a condition on a join's rows may be decided in the join, or in one of its inputs. In joins other than
    inner ones it must concern an input that has a row in every output row."""
    names = set(fields(conjunct))
    if joined.kind is JoinKind.INNER:
        return names.isdisjoint(extreme.name for extreme in joined.extremes)
    for number, side in enumerate(joined.sides):
        if names and has_every_row(joined.kind, number) and names <= {side.named(c.name) for c in side.relation.known}:
            return True
    return False


@dataclass
class _Parts:
    """The conjuncts of a join's condition, sorted by the inputs that they concern."""

    base: Joined
    local: list[list[Expr]] = field(init=False)  # by input, over its own columns
    rest: list[Expr] = field(default_factory=list)
    _equal: list[list[Member]] = field(default_factory=list)  # the members of each list are equal

    def __post_init__(self) -> None:
        self.local = [[] for _ in self.base.sides]
        self._own: dict[str, tuple[int, Field]] = {
            side.named(column.name): (number, Field.of(column))
            for number, side in enumerate(self.base.sides)
            for column in side.relation.known
        }

    def take_local(self, conjuncts: Iterable[Expr]) -> None:
        """Take conditions on one input, which may drop its rows before the join."""
        for conjunct in conjuncts:
            self.local[min(self._inputs(conjunct))].append(self._over_own(conjunct))

    def take(self, conjuncts: Iterable[Expr]) -> None:
        """Take conditions that decide whether rows match."""
        for conjunct in conjuncts:
            touched = self._inputs(conjunct)
            if len(touched) <= 1 and self._may_drop(number := min(touched, default=0)):
                self.local[number].append(self._over_own(conjunct))
            elif (pair := self._equality(conjunct)) is not None:
                self._join(*pair)
            else:
                self.rest.append(conjunct)

    def hand_over(self) -> None:
        """Copy an input's conditions on a column to every column that must equal it in other inputs."""
        found = [
            (other, substitute(condition, {own.name: expr}))
            for members in self._equal
            for number, own in members
            if isinstance(own, Field) and _is_exact(own)
            for condition in self.local[number]
            if set(fields(condition)) == {own.name}
            for other, expr in members
            if other != number and _is_exact(expr) and self._may_drop(other)
        ]
        for number, condition in found:
            self.local[number].append(condition)

    def equalities(self) -> tuple[tuple[Expr | None, ...], ...]:
        """For every class of equals, one expression of each input; a second one of an input is compared inside the
        input. Null and NaN equal nothing, so the input drops such rows."""
        found = []
        for members in self._equal:
            keys: list[Expr | None] = [None] * len(self.base.sides)
            for number, expr in members:
                known = keys[number]
                if known is None:
                    keys[number] = known = expr
                known_apart = known is not expr or expr.nullable or expr.kind is Kind.FLOAT
                if known_apart and self._may_drop(number):
                    self.local[number].append(compare(Op.EQ, known, expr))
            found.append(tuple(keys))
        return tuple(found)

    def _may_drop(self, number: int) -> bool:
        """Whether rows of an input that match nothing may be dropped."""
        return number not in keeping(self.base.kind)

    def _inputs(self, expr: Expr) -> set[int]:
        return {self._own[name][0] for name in fields(expr)}

    def _over_own(self, expr: Expr) -> Expr:
        return substitute(expr, {name: own for name, (_, own) in self._own.items()})

    def _equality(self, conjunct: Expr) -> tuple[Member, Member] | None:
        match conjunct:
            case Call(op=Op.EQ, args=(left, right)):
                sides = self._inputs(left), self._inputs(right)
                if len(sides[0]) == len(sides[1]) == 1 and sides[0] != sides[1] and left.kind is right.kind:
                    pair = (sides[0].pop(), self._over_own(left)), (sides[1].pop(), self._over_own(right))
                    return None if self._known(pair) and self.base.kind is not JoinKind.INNER else pair
        return None

    def _known(self, pair: tuple[Member, Member]) -> bool:
        """Whether an input is in an equality already. If its rows must stay, it cannot be compared within itself."""
        return any(member in members for members in self._equal for member in pair)

    def _join(self, left: Member, right: Member) -> None:
        touching = [members for members in self._equal if left in members or right in members]
        rest = [members for members in self._equal if members not in touching]
        together = [*_flattened(touching), left, right]
        self._equal = [*rest, list(dict.fromkeys(together))]


def _is_exact(expr: Expr) -> bool:
    """Whether the expression is never null, and values equal to it are equal in every expression."""
    return not expr.nullable and expr.kind is not Kind.FLOAT


def _flattened(lists: Sequence[list[Member]]) -> Iterator[Member]:
    return (member for members in lists for member in members)


def _conjuncts(condition: Expr) -> Iterator[Expr]:
    match condition:
        case Call(op=Op.AND, args=args):
            for arg in args:
                yield from _conjuncts(arg)
        case _:
            yield condition
