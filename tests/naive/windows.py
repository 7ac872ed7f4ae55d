"""Which windows there are and which rows each holds: the table of extents, written down."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from lowmark.query.parse import syntax as s
from tests.naive.scope import Refused, Scope, progresses
from tests.naive.values import NS, Duration, Time, Value, order

Row = dict[str, Value]
Of = Callable[[s.Expression, Row], Value]


@dataclass(frozen=True)
class Extent:
    """A window that holds a row, with its rows' positions in the order of arrival."""

    start: Value
    end: Value
    rows: list[int]


def windows(
    window: s.WindowClause, rows: Sequence[Row], scope: Scope, progressing: frozenset[str], value: Of,
    idle_s: int | None = None, arrive: bool = True,
) -> list[Extent]:  # fmt: skip
    """All windows over rows that stand in order of arrival; with PA over rows those of each partition. `idle_s`: a
    partition begins anew with a tuple that is more than so many whole seconds later than all before it. `arrive`: the
    order is one of arrival, so that tuples can be counted."""
    by_tuple = window.rattr is not None or window.sattr is not None
    in_rows = any(isinstance(size, s.RowCount) for size in (window.range, window.slide))
    by_rows = in_rows or is_count(window.wa, scope) or _is_column("row_num", window.wa, scope)
    if not arrive and (by_tuple or by_rows):
        raise Refused("groups and joins have no order of arrival")
    if by_tuple:
        slide = lambda part: _slide_by_tuple(window, rows, part, scope, value, idle_s)  # noqa: E731
        return _partitions(window, rows, scope, value, slide)
    if by_rows:
        return _partitions(window, rows, scope, value, lambda part: _by_rows_of_lives(window, rows, part, idle_s))
    wa = scope.resolve(window.wa or _field("ts", window))
    if not progresses(wa, progressing):
        raise Refused("WA does not progress")
    return _by_attribute(window, [value(wa, row) for row in rows])


def is_count(wa: s.Expression | None, scope: Scope) -> bool:
    """Whether it is `row_num` and no column: the place of a tuple among those of FROM, counted from 1."""
    named = isinstance(wa, s.FieldRef) and wa.name.text.casefold() in ("row_num", "row-num")
    return named and scope.find(wa) is None


def _is_column(name: str, node: s.Expression | None, scope: Scope) -> bool:
    return isinstance(node, s.FieldRef) and (scope.find(node) or "").casefold() == name


def _field(name: str, window: s.WindowClause) -> s.FieldRef:
    return s.FieldRef(None, s.Identifier(name, span=window.span), span=window.span)


def _partitions(
    window: s.WindowClause, rows: Sequence[Row], scope: Scope, value: Of, extents: Callable[[list[int]], list[Extent]]
) -> list[Extent]:
    parts: dict[object, list[int]] = {}
    for i, row in enumerate(rows):
        parts.setdefault(tuple(order(value(scope.resolve(field), row)) for field in window.pa), []).append(i)
    return [extent for part in parts.values() for extent in extents(part)]


def _size(size: s.Size, time: bool) -> int:
    match size:
        case s.DurationLiteral():
            return size.value_ns
        case s.RowCount():
            return size.value
    return int(Fraction(size.value) * (NS if time else 1))


def _by_attribute(window: s.WindowClause, values: list[Value]) -> list[Extent]:
    """Sliding, tumbling and landmark windows: window k holds (k+1)s − r ≤ a < (k+1)s, landmark all a < (k+1)s."""
    if not values:
        return []
    time = isinstance(values[0], Time)
    a = [v.ns if isinstance(v, Time | Duration) else v for v in values]
    make = Time if time else Duration if isinstance(values[0], Duration) else int
    landmark = isinstance(window.range, s.Everything)
    slide = _size(window.slide if window.slide is not None else window.range, time)
    if landmark:
        ids = sorted({x // slide for x in a})
        return [Extent(None, make((k + 1) * slide), [i for i, x in enumerate(a) if x < (k + 1) * slide]) for k in ids]
    size = _size(window.range, time)
    near = {k for x in set(a) for k in range(x // slide - 1, (x + size) // slide + 1)}
    found = []
    for k in sorted(near):
        inside = [i for i, x in enumerate(a) if (k + 1) * slide - size <= x < (k + 1) * slide]
        if inside:
            found.append(Extent(make((k + 1) * slide - size), make((k + 1) * slide), inside))
    return found


def _by_rows(window: s.WindowClause, part: list[int]) -> list[Extent]:
    """The same over positions from 1: window k holds (k+1)m − n + 1 … (k+1)m, shown half-open."""
    landmark = isinstance(window.range, s.Everything)
    m = _size(window.slide if window.slide is not None else window.range, False)
    n = 0 if landmark else _size(window.range, False)
    found = []
    for k in range((len(part) + n) // m + 1):
        last = (k + 1) * m
        first = 1 if landmark else last - n + 1
        inside = [i for position, i in enumerate(part, 1) if first <= position <= last]
        in_own_slide = k * m < len(part)
        if inside and (in_own_slide or not landmark):
            found.append(Extent(None if landmark else first, last + 1, inside))
    return found


def _by_rows_of_lives(window: s.WindowClause, rows: Sequence[Row], part: list[int], idle_s: int | None) -> list[Extent]:
    lives = [part] if idle_s is None else _lives(part, {i: rows[i]["ts"].ns for i in part}, idle_s)
    return [extent for life in lives for extent in _by_rows(window, life)]


def _lives(part: list[int], at: Mapping[int, int], idle_s: int | None) -> list[list[int]]:
    lives: list[list[int]] = []
    latest = None
    for i in part:
        second = at[i] // NS
        if latest is None or (idle_s is not None and second - latest > idle_s):
            lives.append([])
        lives[-1].append(i)
        latest = second if latest is None else max(latest, second)
    return lives


def _slide_by_tuple(
    window: s.WindowClause, rows: Sequence[Row], part: list[int], scope: Scope, value: Of, idle_s: int | None
) -> list[Extent]:  # fmt: skip
    """A window (w − r, w] for the RATTR of every n-th tuple, in order of arrival or of rank."""
    rattr = scope.resolve(window.rattr)
    at = {i: value(rattr, rows[i]).ns for i in part}
    ranked = isinstance(window.sattr, s.FunctionCall)
    if ranked and scope.resolve(window.sattr.arguments[0]) != rattr:
        raise Refused("rank goes by RATTR")
    ordered = sorted(part, key=lambda i: at[i]) if ranked else part
    r, n = _size(window.range, True), _size(window.slide, False)
    return [
        Extent(Time(w - r), Time(w), [i for i in part if w - r < at[i] <= w])
        for w in sorted({at[i] for life in _lives(ordered, at, idle_s) for i in life[n - 1 :: n]})
    ]
