"""Unions of windowed streams as the answer: whether all members have the same windows."""

from __future__ import annotations

from collections.abc import Sequence

from lowmark.query.bind.relations import WINDOW_END, Arm, Grouped
from lowmark.query.expr.expressions import Field
from lowmark.query.windows.window import Window, WindowKind
from lowmark.wire.rows.schema import Kind

__all__ = ["common_window"]


def common_window(arms: Sequence[Arm]) -> Window | None:
    """The windows that the rows of all arms belong to, and show; None if they have none, or not the same ones. If
    groups without windows are the only arm, it says what closes them.

    Several arms share only windows over a time: the row numbers of one stream say nothing about another's, so rows of
    one might wait for ever.
    """
    if len(arms) == 1:
        base = arms[0].base
        return base.window if isinstance(base, Grouped) and base.window.kind is WindowKind.NONE else _shown(arms[0])
    windows = [_shown(arm) for arm in arms]
    first = windows[0]
    if first is None or first.axis.kind is not Kind.TIME:
        return None
    return first if all(window is not None and _grid(window) == _grid(first) for window in windows) else None


def _shown(arm: Arm) -> Window | None:
    base, end = arm.base, arm.values.get(WINDOW_END)
    if not isinstance(base, Grouped) or not _in_sequence(base):
        return None
    return base.window if isinstance(end, Field) and end.name == WINDOW_END else None


def _in_sequence(base: Grouped) -> bool:
    """Whether its windows are one sequence. They are not if each partition has its own, or if tuples decide extents."""
    return base.window.kind in (WindowKind.SLIDING, WindowKind.LANDMARK) and not base.partition


def _grid(window: Window) -> tuple[WindowKind, Kind, int, int, int]:
    """A key that is equal for windows whose equal numbers have the same start and end."""
    axis = window.axis
    return window.kind, axis.kind, axis.origin, window.size * axis.unit, window.slide * axis.unit
