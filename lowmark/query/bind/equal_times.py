"""Equalities of times, by which a join needs no window: `FROM A, B WHERE A.ts = B.ts` (Wu).

An equality between progressing times of two inputs says which tuples meet as a tumbling window does. `A.ts = B.ts` is a
window of one ns, `A.ts/60 = B.ts/60` one of a minute. Such a time is written as ⌊(column + ahead) / size⌋ · times +
plus. Two of them are equal where their windows are, if they agree in `size` and `times`; the rest moves a column.
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
"""A condition that decides which rows meet; if it stands in the ON of a join other than an inner one, the number of
that join's second input."""


@dataclass(frozen=True, slots=True)
class EqualTimes:
    """Rows meet only if their times lie in one tumbling window of `size` ns. `times`: of each input, over the columns
    of its relation."""

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
    """The windows of `size` ns that two times lie in are the same: of one moved by `by`, of the other moved by
    `to_by`. `matched`: the input of which this holds for matched rows alone."""

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
    """The equality of times that the conditions ask of all inputs; None if they leave an input out. Conditions that
    cannot be understood say nothing here: what reads them reports the error."""
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
                self._own[column.name] = number, Field(own.name, own.kind, own.nullable)
        columns = tuple(shown)
        values: dict[str, Expr] = {column.name: Field(column.name, column.kind, column.nullable) for column in columns}
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
    """The time after one more step; None if it has not that form."""
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
    """By input its column and by how much it is moved, so that equal rows lie in one window of the start's size. Rows
    without a match may have any time: what they are tied to is not followed from them."""
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
