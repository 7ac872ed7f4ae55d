"""Windows that count tuples: over rows, and slide-by-tuple (RATTR, SATTR).

They count what passes WHERE, in the order of arrival, so their input must have such an order: packets, and unions and
selections of packets. These are numbered even if a selection does not show `row_num`; if it does, `row_num` is a
column. A window whose attribute is computed from `row_num` counts nothing: its values are positions in the stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from lowmark.query.bind.lowering import Lowering
from lowmark.query.bind.relations import ROW_NUM, Arm, Counting, Packets, Turn
from lowmark.query.bind.scope import Scope, shown_name
from lowmark.query.expr.constants import nanoseconds
from lowmark.query.expr.expressions import Expr, Field, Op
from lowmark.query.parse import syntax as s
from lowmark.query.parse.errors import QueryError
from lowmark.query.windows.progressing import progress
from lowmark.query.windows.window import Axis, Window, WindowKind
from lowmark.wire.rows.schema import Kind

__all__ = ["FIRST_ROW", "MAX_PANES", "CountedWindow", "bind_counted", "shift_of"]

MAX_PANES = 1 << 20
"""Panes in one window, at most: state and work grow with them."""

FIRST_ROW = 1
"""The number of the first row."""

_RANK = "rank"
_MOST = 2**62


@dataclass(frozen=True, slots=True)
class CountedWindow:
    window: Window
    attribute: Expr | None  # WA or RATTR over the input's columns; None: rows are counted, by no column of the input
    counting: Counting


def bind_counted(spec: s.WindowClause, scope: Scope, lowering: Lowering) -> CountedWindow | None:
    """The window if it counts tuples, else None. The caller binds PA."""
    binder = _RowBinder(spec, scope, lowering)
    if spec.rattr is not None or spec.sattr is not None:
        return binder.slide_by_tuple()
    return binder.rows() if binder.counts_rows() else None


def shift_of(rattr: Expr, arm: Arm) -> int | None:
    """How far RATTR is ahead of ts, in ns; None if it is not ts plus a constant."""
    way = progress(arm.lowered(rattr), ("ts", "arrival_ts"))
    if way is None or any(op is not Op.ADD for op, _ in way.steps):
        return None
    return way.value(0)


class _RowBinder:
    def __init__(self, spec: s.WindowClause, scope: Scope, lowering: Lowering) -> None:
        self._spec = spec
        self._scope = scope
        self._lowering = lowering

    def counts_rows(self) -> bool:
        spec = self._spec
        return any(isinstance(size, s.RowCount) for size in (spec.range, spec.slide)) or self._is_row_num(spec.wa)

    def rows(self) -> CountedWindow:
        spec = self._spec
        self._check_order("windows over rows")
        if spec.range is None:
            raise self._error("a window needs a RANGE", spec.span, "for example [RANGE 100 rows, WA row_num]")
        if spec.tumbling and spec.slide is not None:
            raise self._error("a tumbling window has no SLIDE: it is its RANGE", spec.slide.span)
        attribute = self._numbers()
        if isinstance(spec.range, s.Everything):
            if spec.slide is None:
                raise self._error("RANGE ALL needs a SLIDE", spec.span, "for example SLIDE 100 rows")
            kind, size = WindowKind.LANDMARK, 0
            slide = self._count(spec.slide)
        else:
            kind, size = WindowKind.SLIDING, self._count(spec.range)
            slide = size if spec.slide is None else self._count(spec.slide)
        length = gcd(size, slide)
        if max(size, slide) // length > MAX_PANES:
            message = f"RANGE and SLIDE have too little in common: {max(size, slide) // length} panes to a window"
            raise self._error(message, spec.span, "choose sizes with a greater common divisor")
        axis = Axis(ROW_NUM, Kind.INT, length, FIRST_ROW)
        return CountedWindow(Window(kind, size // length, slide // length, axis), attribute, Counting(Turn.ROWS, None))

    def slide_by_tuple(self) -> CountedWindow:
        spec = self._spec
        self._check_order("windows that slide by tuple")
        if spec.rattr is None:
            hint = "for example [RANGE 5 minutes, RATTR ts, SLIDE 1 row, SATTR row_num]"
            raise self._error("SATTR needs RATTR: the attribute that RANGE measures", spec.span, hint)
        if spec.wa is not None:
            raise self._error("a window that slides by tuple has RATTR and SATTR in place of WA", spec.wa.span)
        if spec.tumbling or spec.slide is None:
            raise self._error("a window that slides by tuple needs a SLIDE", spec.span, "for example SLIDE 1 row")
        name, rattr = shown_name(spec.rattr, self._scope), self._lowering.lower(spec.rattr)
        arms = self._scope.relation.arms
        if rattr.kind is not Kind.TIME or any(shift_of(rattr, arm) is None for arm in arms):
            hint = "for example RATTR ts"
            raise self._error("RATTR is a time that progresses: ts, or a constant before or after it", spec.rattr.span,
                              hint)  # fmt: skip
        if isinstance(spec.slide, s.DurationLiteral | s.DecimalLiteral):
            raise self._error("a window that slides by tuple has a SLIDE in rows", spec.slide.span)
        turn = Turn.RANK if self._is_ranked(rattr) else Turn.ARRIVAL
        window = Window(WindowKind.SLIDE_BY_TUPLE, self._duration(), self._count(spec.slide), Axis(name, Kind.TIME, 1))
        return CountedWindow(window, rattr, Counting(turn, rattr))

    def _check_order(self, what: str) -> None:
        for arm in self._scope.relation.arms:
            if not isinstance(arm.base, Packets):
                hint = "take the window over a time, such as window_end"
                message = f"{what} need an order of arrival: groups and joins have none"
                raise self._error(message, self._spec.span, hint)

    def _is_row_num(self, node: s.Expression | None) -> bool:
        if not isinstance(node, s.FieldRef):
            return False
        if self._scope.has(node):
            return self._scope.field(node).name.lower() == ROW_NUM
        return _is_called_row_num(node) and (node.input is None or self._scope.is_label(node.input))

    def _numbers(self) -> Expr | None:
        """WA of a window over rows, ts by default; None if the input does not show it."""
        wa = self._spec.wa
        if wa is None:
            column = self._scope.relation.column("ts")
            return None if column is None else Field.of(column)
        if not self._is_row_num(wa):
            self._lowering.lower(wa)  # reports errors inside WA first
            hint = "write WA row_num, or give the sizes as times"
            raise self._error(f"sizes in rows apply to row_num, not to {shown_name(wa, self._scope)}", wa.span, hint)
        if self._scope.relation.column(ROW_NUM) is None:  # a selection that does not show it
            return None
        expr = self._lowering.lower(wa)
        if any(progress(arm.lowered(expr), (ROW_NUM,)) is None for arm in self._scope.relation.arms):
            raise self._error("this row_num does not number rows: it does not progress", wa.span)
        return expr

    def _is_ranked(self, rattr: Expr) -> bool:
        node = self._spec.sattr
        if node is None or (isinstance(node, s.FieldRef) and _is_called_row_num(node)):
            return False
        if isinstance(node, s.FunctionCall) and node.function.text.lower() == _RANK and len(node.arguments) == 1:
            argument = node.arguments[0]
            if not isinstance(argument, s.Star) and self._lowering.lower(argument) == rattr:
                return True
            raise self._error("rank takes RATTR: the attribute that RANGE measures", node.span)
        raise self._error("SATTR is row_num (the order of arrival) or rank(…) of RATTR", node.span)

    def _count(self, size: s.Size) -> int:
        if not isinstance(size, s.RowCount | s.IntegerLiteral):
            raise self._error("the size of this window is a number of rows", size.span, "for example 100 rows")
        if not 0 < size.value < _MOST:
            raise self._error("a number of rows is positive, and below 2^62", size.span)
        return size.value

    def _duration(self) -> int:
        size = self._spec.range
        if size is None or isinstance(size, s.Everything | s.RowCount):
            hint = "for example RANGE 5 minutes"
            raise self._error("RANGE of a window that slides by tuple is a time", self._spec.span, hint)
        try:
            value = size.value_ns if isinstance(size, s.DurationLiteral) else nanoseconds(size.value)
        except ValueError as error:
            raise self._error(str(error), size.span) from None
        if not 0 < value < _MOST:
            raise self._error("the size of a window must be positive and below 146 years", size.span)
        return value

    def _error(self, message: str, span: s.Span, hint: str | None = None) -> QueryError:
        return QueryError(message, self._scope.text, span, hint=hint)


def _is_called_row_num(node: s.FieldRef) -> bool:
    return node.name.text.lower() in (ROW_NUM, "row-num")
