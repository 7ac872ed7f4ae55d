"""Turns window specifications into runs of panes: the attribute, the length of a pane, and the panes in a window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd, lcm

from lowmark.query.bind.lowering import Lowering
from lowmark.query.bind.relations import ROW_NUM, Arm, Counting, Grouped, Packets
from lowmark.query.bind.row_windows import MAX_PANES, bind_counted
from lowmark.query.bind.scope import Scope, shown_name
from lowmark.query.expr.constants import NS, nanoseconds
from lowmark.query.expr.expressions import Expr, Field, Literal, Named, Op
from lowmark.query.expr.simplify import words
from lowmark.query.parse import syntax as s
from lowmark.query.parse.errors import QueryError
from lowmark.query.windows.panes import Pane, after
from lowmark.query.windows.progressing import Progress, progress
from lowmark.query.windows.window import Axis, Window, WindowKind
from lowmark.wire.records.partials import PANE
from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.values import seconds

__all__ = [
    "GRANULE", "Frame", "bind_window", "group_frame", "least", "order_panes", "progresses", "progressing_columns",
    "promised", "time_size",
]  # fmt: skip

GRANULE = Pane(NS)
"""The grid on which a node promises and accounts, unless a window has another one."""

_ROWS = 1024
"""The fewest rows that close together if only row numbers close groups."""

_MANY = 2**50
"""In rows: an expression over row_num must stay within int64 up to this number."""

_FAR = 2**62
"""In ns: a progressing expression must stay within int64 up to this time, in 2116."""

_PANE = Field(PANE, Kind.INT)


@dataclass(frozen=True, slots=True)
class Frame:
    """A window over an input, and its panes in each of the input's arms."""

    window: Window
    panes: tuple[Pane, ...]
    attribute: Expr | None  # over the input's columns; None: rows are counted, by no column of the input
    counting: Counting | None = None


def bind_window(spec: s.WindowClause, scope: Scope, lowering: Lowering) -> Frame:
    """Bind the window `[…]` of a SELECT list, over the columns of its input."""
    return _Binder(scope, lowering).bind(spec)


def group_frame(keys: Sequence[Named], arms: Sequence[Arm]) -> Frame | None:
    """The frame of groups without a window: they close with their pane. The pane is the shortest of the progressing
    keys', but not shorter than the granule; each group lies in one pane. None if no key progresses."""
    frames = [frame for key in keys if (frame := _key_frame(key, arms)) is not None]
    return min(frames, key=lambda frame: (_of_rows(frame), frame.panes[0].width), default=None)


def _of_rows(frame: Frame) -> bool:
    """Whether panes are cut from row numbers; frames cut from times are preferred."""
    return any(pane.attribute == ROW_NUM for pane in frame.panes)


def progressing_columns(scope: Scope) -> tuple[str, ...]:
    columns = ((column.name, Field(column.name, column.kind)) for column in scope.relation.columns)
    return tuple(name for name, field in columns if progresses(field, scope.relation.arms))


def progresses(expr: Expr, arms: Sequence[Arm]) -> list[Progress] | None:
    """How an expression over an input's columns progresses in each of its arms; None if it fails to in any of them."""
    found = [way for arm in arms if (way := _way(arm, expr)) is not None]
    return found if len(found) == len(arms) else None


def _way(arm: Arm, expr: Expr) -> Progress | None:
    """How an expression progresses in an arm; None if it does not, or if it can leave int64 and wrap."""
    found = progress(arm.lowered(expr), _progressing(arm))
    if found is None:
        return None
    far = _far(arm, found.attribute)
    return found if abs(found.value(far)) < 2**63 and abs(found.value(-far)) < 2**63 else None


def _far(arm: Arm, attribute: str) -> int:
    if attribute == ROW_NUM:
        return _MANY
    of_numbers = isinstance(arm.base, Grouped) and arm.base.window.axis.kind is not Kind.TIME
    return _FAR // NS if of_numbers else _FAR


def _is_counted(pane: Pane, arm: Arm) -> bool:
    """Whether the number of a pane stays within int64 at every step of its computation, for any time and with room for
    one more pane."""
    ends = (-2 * _far(arm, pane.attribute), 2 * _far(arm, pane.attribute))
    return all(
        abs(after(pane.steps[:count], (end - pane.origin) // pane.width)) < 2**62
        for count in range(1, len(pane.steps) + 1)
        for end in ends
    )


def _progressing(arm: Arm) -> tuple[str, ...]:
    return ("ts", "arrival_ts", ROW_NUM) if isinstance(arm.base, Packets) else arm.base.progress


def _key_frame(key: Named, arms: Sequence[Arm]) -> Frame | None:
    ways = progresses(key.expr, arms)
    if ways is None:
        return None
    length, panes = _cut(ways, arms, _ROWS)
    kind = Kind.TIME if key.expr.kind is Kind.TIME else Kind.INT
    return Frame(Window(WindowKind.NONE, 1, 1, Axis(key.name, kind, length)), panes, key.expr)


def _cut(ways: Sequence[Progress], arms: Sequence[Arm], rows: int) -> tuple[int, tuple[Pane, ...]]:
    """The shortest useful panes, and their length in values of the expressions: rows with equal values lie in one pane,
    and panes of all arms with equal numbers hold equal values. `rows`: the fewest rows in one."""
    length = lcm(*(way.step for way in ways))
    length *= max(-(-_grain(pane, arm, rows) // pane.width) for pane, arm in _panes(ways, arms, length))
    return length, tuple(promised(pane, arm) for pane, arm in _panes(ways, arms, length))


def order_panes(column: str, arms: Sequence[Arm], split: bool) -> tuple[Pane, ...]:
    """The panes in which the rows of an order over a stream wait for each other, for each arm. `column`: a value of the
    arms, by which rows are ordered first. `split`: rows that are equal in it may lie in several panes."""
    ways = [way for arm in arms if (way := progress(arm.values[column], _progressing(arm))) is not None]
    if split and len({way.steps for way in ways}) == 1:
        ways = [replace(way, steps=()) for way in ways]
    return _cut(ways, arms, 1)[1]


def _panes(ways: Sequence[Progress], arms: Sequence[Arm], length: int) -> Iterator[tuple[Pane, Arm]]:
    return ((way.pane(length), arm) for way, arm in zip(ways, arms, strict=True))


def least(expr: Expr, frame: Frame, arms: Sequence[Arm]) -> Expr | None:
    """The least value that an expression over the input has from a pane on, as a function of Field(PANE) that never
    decreases. None if the expression does not progress, or not in the same way in all arms."""
    if progresses(expr, arms) is None:
        return None
    if expr == frame.attribute:
        return words(Op.MUL, expr.kind, _PANE, Literal(frame.window.axis.unit, Kind.INT))
    found = set()
    for arm, pane in zip(arms, frame.panes, strict=True):
        way = _way(arm, expr)
        if way is None or promised(Pane(1, 0, way.attribute), arm).attribute != pane.attribute:
            return None
        start = words(Op.MUL, Kind.INT, _PANE, Literal(pane.width, Kind.INT))
        found.add(way.over(words(Op.ADD, Kind.INT, start, Literal(pane.origin, Kind.INT)), expr.kind))
    return found.pop() if len(found) == 1 else None


def promised(pane: Pane, arm: Arm) -> Pane:
    """The pane on the attribute that has promises: ts for packets, whose times are all one reading of a clock."""
    times = isinstance(arm.base, Packets) and pane.attribute != ROW_NUM
    return replace(pane, attribute="ts") if times else pane


def _grain(pane: Pane, arm: Arm, rows: int) -> int:
    """The shortest useful pane: `rows` rows, the granule for packets, the unit of their windows for groups."""
    if pane.attribute == ROW_NUM:
        return rows
    return arm.base.window.axis.unit if isinstance(arm.base, Grouped) else GRANULE.width


def time_size(size: s.Size, text: str) -> int:
    """The size of a window over a time, in ns; a number without a unit is in seconds."""
    match size:
        case s.DurationLiteral(value_ns=value):
            return _in_range(value, size, text)
        case s.IntegerLiteral(value=number) | s.DecimalLiteral(value=number):
            try:
                return _in_range(nanoseconds(number), size, text)
            except ValueError as error:
                raise QueryError(str(error), text, size.span) from None
    raise QueryError("a window over a time has a duration as its size", text, size.span)


def _in_range(value: int, size: s.Size, text: str) -> int:
    if not 0 < value < 2**62:
        raise QueryError("the size of a window must be positive and below 146 years", text, size.span)
    return value


class _Binder:
    def __init__(self, scope: Scope, lowering: Lowering) -> None:
        self._scope = scope
        self._lowering = lowering

    def bind(self, spec: s.WindowClause) -> Frame:
        counted = bind_counted(spec, self._scope, self._lowering)
        if counted is not None:
            granules = (GRANULE,) * len(self._scope.relation.arms)
            return Frame(counted.window, granules, counted.attribute, counted.counting)
        if spec.range is None:
            raise self._error("a window needs a RANGE", spec.span, hint="for example [RANGE 1 minute, WA ts]")
        name, attribute, spot = self._attribute(spec)
        ways = progresses(attribute, self._scope.relation.arms)
        if ways is None:
            raise self._error(
                f"{name} does not progress: a window over it would never close", spot,
                progressing_columns(self._scope), "what progresses is ts and what is computed from it by + - * / >>",
            )  # fmt: skip
        if attribute.kind not in (Kind.TIME, Kind.INT):
            raise self._error("a window goes over a time or a whole number", spot)
        kind, size, slide = self._extent(spec, attribute.kind)
        length = gcd(size, slide)
        if max(size, slide) // length > MAX_PANES:
            unit = str(length)
            if attribute.kind is Kind.TIME:
                unit = f"{length} ns" if length < 1000 else f"{seconds(length)} s"
            raise self._error(
                f"RANGE and SLIDE have nothing in common but {unit}: {max(size, slide) // length} panes to a window",
                spec.span, hint="choose sizes with a greater common divisor",
            )  # fmt: skip
        arms = self._scope.relation.arms
        panes = tuple(promised(pane, arm) for pane, arm in _panes(ways, arms, length))
        if not all(map(_is_counted, panes, arms)):
            hint = "multiply by less, or divide first"
            raise self._error(f"{name} leaves 64 bits: a window over it would not close", spot, hint=hint)
        axis = Axis(name, attribute.kind, length)
        return Frame(Window(kind, size // length, slide // length, axis), panes, attribute)

    def _attribute(self, spec: s.WindowClause) -> tuple[str, Expr, s.Span]:
        if spec.wa is not None:
            return shown_name(spec.wa, self._scope), self._lowering.lower(spec.wa), spec.wa.span
        column = self._scope.relation.column("ts")
        if column is None:
            raise self._error(
                "this window needs a WA: its input has no ts", spec.span, progressing_columns(self._scope)
            )
        return column.name, Field.of(column), spec.span

    def _extent(self, spec: s.WindowClause, kind: Kind) -> tuple[WindowKind, int, int]:
        """Kind, RANGE (0 for a landmark window) and SLIDE in units of the attribute."""
        assert spec.range is not None
        if isinstance(spec.range, s.Everything):
            if spec.slide is None:
                raise self._error("RANGE ALL needs a SLIDE", spec.span, hint="for example SLIDE 1 minute")
            return WindowKind.LANDMARK, 0, self._size(spec.slide, kind)
        size = self._size(spec.range, kind)
        if spec.tumbling and spec.slide is not None:
            raise self._error("a tumbling window has no SLIDE: it is its RANGE", spec.slide.span)
        return WindowKind.SLIDING, size, size if spec.slide is None else self._size(spec.slide, kind)

    def _size(self, size: s.Size, kind: Kind) -> int:
        if kind is Kind.TIME:
            return time_size(size, self._scope.text)
        if not isinstance(size, s.IntegerLiteral):
            raise self._error("the windowing attribute is a number: so are its sizes, without a unit", size.span)
        return _in_range(size.value, size, self._scope.text)

    def _error(self, message: str, span: s.Span, expected: tuple[str, ...] = (), hint: str | None = None) -> QueryError:
        return QueryError(message, self._scope.text, span, expected, hint)
