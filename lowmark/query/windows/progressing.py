"""Which expressions progress, and the panes into which windows over them cut the windowing attribute.

An expression progresses if it is computed from a progressing column by + or − a constant, by * or / a positive one, or
by >>. It is then non-decreasing and unbounded: a bound on the column, carried through with its rounding, bounds it too.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from lowmark.query.expr.expressions import Call, Expr, Field, Literal, Op
from lowmark.query.expr.simplify import words
from lowmark.query.windows.panes import Pane, PaneSteps, after
from lowmark.wire.rows.schema import Kind

__all__ = ["Progress", "progress"]


@dataclass(frozen=True, slots=True)
class Progress:
    """An expression as the steps that compute it from a column, innermost first."""

    attribute: str
    steps: PaneSteps

    def pane(self, length: int) -> Pane:
        """The column's panes whose indexes are ⌊expression / length⌋.

        The expression is at least v where the column is at least v with the steps undone, last step first. For
        v = k·length this stays linear in k as long as each MUL divides the length reached so far. From the first MUL
        that does not, the steps count in pieces of the column.
        """
        width, origin = length, 0
        for place, (op, constant) in reversed([*enumerate(self.steps)]):
            if op is Op.ADD:
                origin -= constant
            elif op is Op.FLOOR_DIV:
                width, origin = width * constant, origin * constant
            elif width % constant:
                pieces = Progress(self.attribute, self.steps[:place]).pane(1)
                numbered: PaneSteps = () if length == 1 else ((Op.FLOOR_DIV, length),)
                return replace(pieces, steps=(*pieces.steps, *self.steps[place:], *numbered))
            else:
                width, origin = width // constant, -(-origin // constant)
        return Pane(width, origin, self.attribute)

    @property
    def step(self) -> int:
        """The least length whose panes are equally wide and hold whole groups: the product of all factors."""
        length = 1
        for op, constant in self.steps:
            length *= constant if op is Op.MUL else 1
        return length

    def value(self, start: int) -> int:
        return after(self.steps, start)

    def over(self, start: Expr, kind: Kind) -> Expr:
        """The expression with the column replaced by `start`."""
        for op, constant in self.steps:
            start = words(op, kind, start, Literal(constant, Kind.INT))
        return start


def progress(expr: Expr, columns: Collection[str]) -> Progress | None:
    """How an expression progresses with one of these columns; None if it does not progress."""
    steps: list[tuple[Op, int]] = []
    while isinstance(expr, Call):
        step = _step(expr)
        if step is None:
            return None
        expr, op, constant = step
        if constant != (0 if op is Op.ADD else 1):
            steps.append((op, constant))
    if not isinstance(expr, Field) or expr.name not in columns or expr.kind is Kind.FLOAT:
        return None
    return Progress(expr.name, tuple(reversed(steps)))


def _step(call: Call) -> tuple[Expr, Op, int] | None:
    """The operand of an expression's last operation, and the step that the operation is."""
    match call:
        case (
            Call(op=Op.ADD | Op.MUL as op, args=(Literal(value=int(constant)), inner))
            | Call(op=Op.ADD | Op.MUL as op, args=(inner, Literal(value=int(constant))))
        ):
            return (inner, op, constant) if op is Op.ADD or constant > 0 else None
        case Call(op=Op.SUB, args=(inner, Literal(value=int(constant)))):
            return inner, Op.ADD, -constant
        case Call(op=Op.FLOOR_DIV, args=(inner, Literal(value=int(constant)))) if constant > 0:
            return inner, Op.FLOOR_DIV, constant
        case Call(op=Op.SHIFT_RIGHT, args=(inner, Literal(value=int(distance)))) if 0 <= distance <= 62:
            return inner, Op.FLOOR_DIV, 1 << distance
    return None
