"""Equalities of times, which make a join's windows unnecessary: `FROM A, B WHERE A.ts = B.ts` (Wu).

An equality between progressing times of two inputs acts as a tumbling window: `A.ts = B.ts` as one of a nanosecond,
`A.ts/60 = B.ts/60` as one of a minute. Such a time has the form ⌊(column + ahead) / size⌋ · times + plus. Two times
with the same `size` and `times` are equal if their windows are; `ahead` and `plus` only shift a column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lowmark.query.bind.lowering import Lowering
from lowmark.query.bind.names import InputNames
from lowmark.query.bind.relations import Arm, Joined, Relation, substitute
from lowmark.query.bind.scope import Scope
from lowmark.query.bind.windows import progresses
from lowmark.query.expr.expressions import Call, Expr, Field, Literal, Op, fields
from lowmark.query.expr.simplify import words
from lowmark.query.parse import syntax as s
from lowmark.query.parse.errors import QueryError
from lowmark.query.windows.progressing import progress
from lowmark.wire.rows.schema import Column, Kind

__all__ = ["Condition", "EqualTimes", "equal_times"]

Condition = tuple[s.Expression, int | None]
"""A condition that decides which rows meet, and the number of the second input of the join whose ON it stands in; None
in an inner join."""


@dataclass(frozen=True, slots=True)
class EqualTimes:
    """Rows meet only if their times lie in one tumbling window of `size` ns. `times`: one for each input, over
    the columns of its relation."""

    size: int
    times: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class _Time:
    """⌊(column + ahead) / size⌋ · times + plus, of an input; all in ns."""

    input: int
    column: str
    ahead: int = 0
    size: int = 1
    times: int = 1
    plus: int = 0

    @property
    def place(self) -> tuple[int, str]:
        return self.input, self.column


@dataclass(frozen=True, slots=True)
class _Tie:
    """Two times lie in the same window of `size` ns, if one is shifted by `by` and the other by `to_by`. `matched`: the
    input for whose matched rows alone this holds."""

    size: int
    one: tuple[int, str]
    by: int
    other: tuple[int, str]
    to_by: int
    matched: int | None


def equal_times(
    labels: Sequence[str], relations: Sequence[Relation], conditions: Sequence[Condition], text: str,
    strings: tuple[str, ...],
) -> EqualTimes | None:  # fmt: skip
    """The equality of times that the conditions demand of all inputs; None if they leave an input out. Invalid
    conditions are ignored, because the code that binds them reports the error."""
    ties = list(_Equalities(labels, relations, text, strings).ties(conditions))
    for tie in sorted(ties, key=lambda tie: tie.size):
        moved = _moved(tie, [each for each in ties if tie.size % each.size == 0])
        if len(moved) == len(relations):
            times = tuple(_expression(*moved[number]) for number in range(len(relations)))
            if all(progresses(time, of.arms) for time, of in zip(times, relations, strict=True)):
                return EqualTimes(tie.size, times)
    return None


class _Equalities:
    def __init__(
        self, labels: Sequence[str], relations: Sequence[Relation], text: str, strings: tuple[str, ...]
    ) -> None:
        self._relations = relations
        self._own: dict[str, tuple[int, Field]] = {}
        shown: list[Column] = []
        for number, (label, relation) in enumerate(zip(labels, relations, strict=True)):
            for own in relation.known:
                column = Column(f"{label}.{own.name}", own.kind, own.nullable)
                shown.append(column)
                self._own[column.name] = number, Field.of(own)
        columns = tuple(shown)
        values: dict[str, Expr] = {column.name: Field.of(column) for column in columns}
        whole = Relation(columns, (Arm(Joined((), True, None, columns), None, values),))
        names = InputNames(Scope(text, None, whole, tuple(labels)), "a condition")
        self._lowering = Lowering(text, strings, names)

    def ties(self, conditions: Iterable[Condition]) -> Iterator[_Tie]:
        for condition, matched in conditions:
            if isinstance(condition, s.And):
                yield from self.ties((part, matched) for part in condition.operands)
            elif isinstance(condition, s.Comparison) and (tie := self._tie(condition, matched)) is not None:
                yield tie

    def _tie(self, comparison: s.Comparison, matched: int | None) -> _Tie | None:
        try:
            expr = self._lowering.lower(comparison)
        except QueryError:
            return None
        if not isinstance(expr, Call) or expr.op is not Op.EQ:
            return None
        one, other = map(self._time, expr.args)
        if one is None or other is None or one.input == other.input:
            return None
        if matched is not None and matched not in (one.input, other.input):
            return None
        apart = one.plus - other.plus
        if (one.size, one.times) != (other.size, other.times) or apart % one.times:
            return None
        return _Tie(one.size, one.place, one.ahead + apart // one.times * one.size, other.place, other.ahead, matched)

    def _time(self, expr: Expr) -> _Time | None:
        names = {*fields(expr)}
        if len(names) != 1:
            return None
        number, own = self._own[names.pop()]
        over = substitute(expr, {f"{name}": of for name, (_, of) in self._own.items()})
        way = progress(over, (own.name,))
        if way is None or own.kind is not Kind.TIME or progresses(own, self._relations[number].arms) is None:
            return None
        found: _Time | None = _Time(number, own.name)
        for op, constant in way.steps:
            found = None if found is None else _after(found, op, constant)
        return found


def _after(time: _Time, op: Op, constant: int) -> _Time | None:
    """The time after one more step; None if the result does not have the form of `_Time`."""
    ahead, size, times, plus = time.ahead, time.size, time.times, time.plus
    if op is Op.ADD:
        if size == times == 1:
            ahead += constant
        else:
            plus += constant
    elif op is Op.MUL:
        times, plus = times * constant, plus * constant
    elif constant % times == 0:
        ahead, size, times, plus = ahead + plus // times * size, size * (constant // times), 1, 0
    elif times % constant == 0:
        times, plus = times // constant, plus // constant
    else:
        return None
    return _Time(time.input, time.column, ahead, size, times, plus)


def _moved(start: _Tie, ties: Sequence[_Tie]) -> dict[int, tuple[str, int]]:
    """For each input its column and shift, with which rows that meet lie in one window of the start's size. No tie
    leads on from the input `matched`, because its rows without a match may have any time."""
    found = {start.one: start.by, start.other: start.to_by}
    grown = True
    while grown:
        grown = False
        for tie in ties:
            for one, by, other, to_by in (
                (tie.one, tie.by, tie.other, tie.to_by), (tie.other, tie.to_by, tie.one, tie.by),
            ):  # fmt: skip
                new = other[0] not in {number for number, _ in found} and tie.matched != one[0]
                if new and one in found and (found[one] - by) % tie.size == 0:
                    found[other] = to_by + found[one] - by
                    grown = True
    return {number: (column, by) for (number, column), by in found.items()}


def _expression(column: str, by: int) -> Expr:
    field = Field(column, Kind.TIME)
    return words(Op.ADD, Kind.TIME, field, Literal(by, Kind.DURATION)) if by else field
