"""The windows of a join's inputs: their sizes, their attributes, and how far the attributes have progressed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from lowmark.query.bind.lowering import Lowering
from lowmark.query.bind.names import InputNames
from lowmark.query.bind.relations import ROW_NUM, WINDOW_END, WINDOW_START, Arm, Grouped, Packets, Relation, Side
from lowmark.query.bind.scope import Scope
from lowmark.query.bind.windows import GRANULE, progresses, progressing_columns, promised, time_size
from lowmark.query.expr.arithmetic import KIND_NAMES
from lowmark.query.expr.expressions import Expr, Field, Literal, Named, Op
from lowmark.query.expr.simplify import words
from lowmark.query.parse import syntax as s
from lowmark.query.parse.errors import QueryError
from lowmark.query.plan.nodes import AT
from lowmark.query.windows.progressing import Progress
from lowmark.query.windows.window import WindowKind
from lowmark.wire.rows.schema import Kind

__all__ = ["InputWindow", "bind", "side_of", "specs_of"]


_AT = Field(AT, Kind.TIME)


@dataclass(frozen=True, slots=True)
class InputWindow:
    """One input's window: a time over columns of its relation, its size in ns. `whole`: every row has that time."""

    attribute: Expr
    size: int
    whole: bool = True


def specs_of(inputs: Sequence[s.Input], text: str) -> tuple[bool, list[s.WindowClause]]:
    """Whether the windows are tumbling, and each input's window. One written after the last input applies to all."""
    last = inputs[-1].window
    common = last if last is not None and last.tumbling else None
    specs = []
    for item in inputs:
        spec = item.window or common
        if spec is None:
            hint = "every input needs a [RANGE …], or the last one a [RANGE TUMBLING …] for all"
            if not any(other.window for other in inputs):
                hint += ", or WHERE says which times are equal: A.ts = B.ts"
            raise QueryError("this join would wait for ever: an input has no window", text, item.span, hint=hint)
        if spec.tumbling is not (common is not None):
            hint = "give all inputs a [RANGE …], or the last one a [RANGE TUMBLING …] for all"
            raise QueryError("tumbling and sliding windows cannot be joined", text, spec.span, hint=hint)
        specs.append(spec)
    return common is not None, specs


def bind(label: str, relation: Relation, spec: s.WindowClause, text: str, strings: tuple[str, ...]) -> InputWindow:
    return _InputBinder(label, relation, text, strings).bind(spec)


class _InputBinder:
    """Binds the window of one input."""

    def __init__(self, label: str, relation: Relation, text: str, strings: tuple[str, ...]) -> None:
        self._scope = Scope(text, label, relation)
        self._lowering = Lowering(text, strings, InputNames(self._scope, "a window"))
        self._label = label
        self._relation = relation
        self._text = text

    def bind(self, spec: s.WindowClause) -> InputWindow:
        size = self._size(spec)
        attribute, spot = self._attribute(spec)
        if progresses(attribute, self._relation.arms) is None:
            raise QueryError(
                "a join's window goes over what progresses", self._text, spot, progressing_columns(self._scope)
            )
        if attribute.kind is not Kind.TIME:
            raise QueryError(f"a join's window goes over a time, not {KIND_NAMES[attribute.kind]}", self._text, spot)
        return InputWindow(attribute, size)

    def _size(self, spec: s.WindowClause) -> int:
        if spec.slide is not None or spec.rattr is not None or spec.sattr is not None or spec.pa:
            raise QueryError("the window of a join's input has a RANGE and a WA, nothing else", self._text, spec.span)
        match spec.range:
            case None:
                hint = "for example [RANGE 1 minute, WA ts]"
                raise QueryError("a window needs a RANGE", self._text, spec.span, hint=hint)
            case s.Everything(span=span):
                message = "this join would wait for ever: its window holds everything"
                raise QueryError(message, self._text, span, hint="give it a RANGE that ends")
            case s.RowCount(span=span):
                raise QueryError("the window of a join's input goes over time, not rows", self._text, span)
            case size:
                return time_size(size, self._text)

    def _attribute(self, spec: s.WindowClause) -> tuple[Expr, s.Span]:
        if spec.wa is not None:
            return self._lowering.lower(spec.wa), spec.wa.span
        column = self._relation.column("ts")
        if column is None:
            raise QueryError(
                f"this window needs a WA: {self._label} has no ts", self._text, spec.span,
                progressing_columns(self._scope),
            )  # fmt: skip
        return Field.of(column), spec.span


def side_of(label: str, prefix: str, relation: Relation, window: InputWindow) -> Side:
    """An input of a join; in the join its columns have their own names after the prefix."""
    arms = relation.arms
    ways = progresses(window.attribute, arms)
    assert ways is not None, "what a join's window goes over progresses"
    unit = gcd(*(_grain(arm) for arm in arms))
    panes = tuple(promised(way.pane(unit), arm) for way, arm in zip(ways, arms, strict=True))
    progress = _progress(prefix, relation, ways)
    return Side(label, prefix, relation, window.attribute, window.size, panes, unit, progress)


def _progress(prefix: str, relation: Relation, attribute: Sequence[Progress]) -> tuple[Named, ...]:
    """The columns whose least value follows from that of the attribute, in the same way in all arms."""
    found = []
    for column in relation.columns:
        ways = progresses(Field.of(column), relation.arms)
        if ways is None:
            continue
        arms = zip(relation.arms, attribute, ways, strict=True)
        exprs = {_over(arm, known, way, column.kind) for arm, known, way in arms}
        if len(exprs) == 1 and (expr := exprs.pop()) is not None:
            found.append(Named(prefix + column.name, expr))
    return tuple(found)


def _over(arm: Arm, attribute: Progress, way: Progress, kind: Kind) -> Expr | None:
    """The expression that progresses in this `way`, computed from the attribute, which is a column plus a constant;
    None if the two progress with different columns."""
    base, offset = _origin(arm, attribute.attribute)
    other, ahead = _origin(arm, way.attribute)
    if base != other:
        return None
    moved = ahead - offset - attribute.value(0)
    return way.over(words(Op.ADD, Kind.TIME, _AT, Literal(moved, Kind.DURATION)), kind)


def _origin(arm: Arm, attribute: str) -> tuple[str, int]:
    """The column from which a progressing column of the base differs by a constant, and that constant in ns."""
    match arm.base:
        case Packets() if attribute != ROW_NUM:
            return "ts", 0
        case Grouped(window=window) if attribute == WINDOW_START and window.kind is WindowKind.SLIDING:
            return WINDOW_END, -window.size * window.axis.unit
    return attribute, 0


def _grain(arm: Arm) -> int:
    """The grid, in ns, on which an arm's base promises times."""
    if isinstance(arm.base, Grouped) and arm.base.window.kind is not WindowKind.SLIDE_BY_TUPLE:
        return arm.base.window.axis.unit
    return GRANULE.width
